"""What kind of mistake explains a refuted Jacobian: small recognisers, ranked, silent in doubt.

A recogniser names a mistake only where it predicts every claimed number of the blocks that it is
about, to the error bars. Several may: names of one and the same matrix. Then the more special one
comes first, and the order of the tables below says which that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from gradproof._data.records import Cause, CheckResult
from gradproof._explain import order, scaling, sums, terms
from gradproof._explain.case import Block, Case, Match, Matrix, fitting
from gradproof._maps.contract import BudgetSpent
from gradproof._measure.sizes import LISTED

# What a recogniser names: a match, several, or guesses of which those are named that fit.
Named = Match | list[Match] | Iterator[Match] | None
OfBlock = Callable[[Block], Named]
OfCase = Callable[[Case], Named]

_CASES: tuple[OfCase, ...] = (
    sums.of_cotangent,
    order.swapped,
    order.moved_cotangent,
    scaling.inexact,
)
_BLOCKS: tuple[OfBlock, ...] = (
    sums.broadcast,
    sums.overwritten,
    scaling.of_parts,
    scaling.absolute,
    scaling.not_a_number,
    terms.own_entry_only,
    scaling.zero,
    scaling.factor,
    scaling.phase,
    order.moved,
    sums.over_axes,
    scaling.bits,
    scaling.added,
    order.leaking,
    terms.other_function,
    terms.missing_factor,  # it has no coefficient, a term has one for each slice
    terms.missing_term,
    order.turned,
    scaling.straight_through,
)


def diagnosed(case: Case) -> tuple[Cause, ...]:
    """Causes of a refuted Jacobian, the likeliest first; empty where nothing fits."""
    if not case.wrong.any() or not np.isfinite(case.measured).all():
        return ()
    of_case = [match for recognise in _CASES for match in _listed(recognise(case), case)]
    causes = [cause(one.name, one.text, one.evidence, one.weight) for one in of_case]
    return ranked((*causes, *_of_blocks(case)))


def _of_blocks(case: Case) -> Iterator[Cause]:
    """One cause for each name, weighed by the wrong entries of the blocks that it explains."""
    blocks, found = list(case.blocks()), dict[str, dict[int, Match]]()
    for recognise in _BLOCKS:
        for block in blocks:
            for match in of_block(block, (recognise,)):
                found.setdefault(match.name, {}).setdefault(block.slot, match)
    shares = {block.slot: int(block.wrong.sum()) / int(case.wrong.sum()) for block in blocks}
    for name, by_slot in found.items():
        matches = [by_slot[slot] for slot in sorted(by_slot)]
        texts = dict.fromkeys(match.text for match in matches)
        evidence = dict.fromkeys(match.evidence for match in matches if match.evidence)
        score = sum(match.weight * shares[slot] for slot, match in by_slot.items())
        yield cause(name, "; ".join(list(texts)[:3]), "; ".join(list(evidence)[:2]), score)


def of_block(block: Block, recognisers: Iterable[OfBlock]) -> Iterator[Match]:
    """What some recognisers name of one block."""
    return (match for recognise in recognisers for match in _listed(recognise(block), block))


def ranked(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """The causes, those that explain most first, each name once."""
    first: dict[str, Cause] = {}
    for found in sorted(causes, key=lambda one: -round(one.score, 3)):
        first.setdefault(found.name, found)
    return tuple(first.values())[:LISTED]


def _listed(found: Named, of: Matrix) -> list[Match]:
    if isinstance(found, Iterator):
        return fitting(found, of.fits)
    return [] if found is None else found if isinstance(found, list) else [found]


def quietly(result: CheckResult, explain: Callable[[CheckResult], CheckResult]) -> CheckResult:
    """The result explained; as it is where that fails, for whatever reason."""
    try:
        return explain(result)
    except (Exception, BudgetSpent):
        return result


def cause(name: str, message: str, evidence: str = "", score: float = 1.0) -> Cause:
    """A cause with the advice that belongs to its name."""
    return Cause(name, message, evidence, ADVICE[name], score)


# What to look at for each cause: one sentence, for the person whose kernel is wrong.
ADVICE = {
    "zero": "look for detach(), .data, a result computed without gradient, a returned None, a loop "
    "that ends too early, or a store where gradients should be added",
    "output detached": "an output was made outside of the graph: look for detach(), .item() or "
    "no_grad()",
    "factor": "look for a factor applied twice or forgotten, a mean taken for a sum, a 2 of a "
    "square, a scale that is 1 in the tests",
    "sign": "look for a minus that is missing: b in a - b, 1 - x, -log",
    "transposed": "look at the strides or the index order with which the gradient is written, and "
    "for a matrix that the way back wants transposed",
    "permuted axes": "look for a permute() or reshape() of the forward that is not undone",
    "reversed": "look for a flip, or a scan that runs backwards, that is not undone",
    "rolled": "look at offsets: an index that starts one entry, or one block, too early or too "
    "late",
    "permuted entries": "look at the indices with which gradients are scattered: a permutation may "
    "stand where its inverse belongs",
    "inputs swapped": "look at the order in which the backward returns its gradients",
    "first for all": "look for an index of the batch or row that is left out when the gradient is "
    "read",
    "summed into the first": "look for an index of the batch or row that is left out when the "
    "gradient is written",
    "extra sum": "look for a sum() that the forward has no broadcast for",
    "extra mean": "look for a mean() that the forward has not",
    "broadcast sum missing": "sum the gradient over the dimensions along which the input was "
    "broadcast",
    "overwritten": "what is stored should be added: look for an assignment where +=, index_add_, "
    "np.add.at or an atomic add belongs",
    "missing term": "look for the term through a normaliser, a mean or a variance: it was treated "
    "as a constant",
    "missing factor": "look for a product in the chain rule with one factor left out, or squared",
    "another function": "the rule of a neighbour in the file was copied, or saved values mixed up",
    "wrong argument": "the backward saved the input where it wants the output, or the other way "
    "round",
    "conjugate": "gradients of complex functions want conj() of the factors; see the convention "
    "of the framework",
    "real part only": "look for .real, or a cast from complex to real, on the way back",
    "imaginary part only": "look for .imag on the way back",
    "phase": "look for a complex factor that should be conjugated or is applied twice",
    "inexact": "let it run to the end, or tighten its tolerance; if it is meant so, pass the "
    "tolerance that it can keep",
    "straight through": "if that is meant, the derivative is a definition: write it in plain "
    "operations, x + (f(x) - x).detach(), and pass it as reference= with trusted=True",
    "absolute value": "look for abs() or a norm applied to the gradient",
    "offset": "look for a term that does not depend on the cotangent: an epsilon, a bias, an "
    "uninitialised buffer",
    "neighbour leaks in": "look at overlapping writes: blocks that share an edge",
    "float32 inside": "look for .float(), a float32 buffer or constant",
    "bfloat16 inside": "look for a bfloat16 buffer, or autocast",
    "float16 inside": "look for a float16 buffer, or autocast",
    "not a number": "look for 0/0, 0 * inf, log(0) or sqrt(0) in the backward, also on branches "
    "that a where() or a mask throws away",
    "cotangent ignored": "the backward returns what it has saved: multiply by grad_output",
    "one cotangent for all": "grad_output[0] is used where every entry has its own: right only "
    "after sum().backward()",
    "layout ignored": "read the cotangent through its strides, or make it contiguous first",
    "expanded cotangent": "a cotangent of stride 0, as sum().backward() gives, holds one number "
    "in memory",
    "input layout ignored": "read the inputs through their strides, make them contiguous first, or "
    "raise for what the function does not take",
    "bit ignored": "call resolve_neg() and resolve_conj() before memory is read",
    "cotangent overwritten": "the cotangent belongs to the caller: copy it before writing into it",
    "input overwritten": "the backward or the forward writes into an input: copy it first",
    "saved overwritten": "a saved array is changed after it was saved, or by a backward that runs "
    "twice",
    "non-linear": "a backward multiplies by the cotangent and does nothing else with it: look for "
    "squares, abs(), clamps, thresholds",
    "zeros skipped": "look for a test of the cotangent against zero, .nonzero(), or a loop that "
    "stops or skips there",
    "large cotangents": "look for a clamp of the gradient and for a narrower format: a loss scaler "
    "starts at 65,536",
    "small cotangents": "look for a threshold, an epsilon or a narrower format: the cotangent of a "
    "mean over many is small",
    "cotangent rounded": "look for round(), a quantised buffer, a cast to whole numbers",
    "accumulated": "a buffer is added to and never cleared: allocate it in every backward",
    "noise": "the backward gives another gradient every time: look for atomics, dropout, "
    "uninitialised memory",
    "last call": "keep what the backward needs with the call itself, in ctx or the residuals, and "
    "not in a module, a global or a workspace that the next call writes into",
    "first call": "key what is kept by the numbers it was made from, or make it anew: shapes, "
    "identities and addresses come again with other numbers",
    "undefined cotangent": "treat a missing cotangent, None, like zero",
    "saved intermediate": "a result of the forward that depends on the input was saved as if it "
    "were a constant: save inputs, or recompute it in the backward",
    "not differentiable": "choose a point beside the kink, or claim a slope between the two",
}
