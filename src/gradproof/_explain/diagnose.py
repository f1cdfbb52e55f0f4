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
from gradproof._explain.advice import advice
from gradproof._explain.case import Block, Case, Match, Matrix, fitting
from gradproof._maps.contract import BudgetSpent

MOST = 4  # causes that are told

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
    scaling.straight_through,
    terms.missing_term_of_each,
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
    return tuple(first.values())[:MOST]


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
    return Cause(name, message, evidence, advice(name), score)
