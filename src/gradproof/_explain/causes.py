"""Every cause by its name, with what to look at; and causes that the kind of a finding names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gradproof._data.records import Cause, CheckResult

MOST_CAUSES = 3

# What to look at for each cause: one sentence, for the person whose function is wrong.
ADVICE = {
    "not a number": "look for 0/0, 0 * inf, log(0) or sqrt(0) in the derivative, also on branches "
    "that a where() or a mask throws away",
    "zero": "look for detach(), .data, a result computed without gradient, a returned None, a loop "
    "that ends too early, or a store where gradients should be added",
    "sign": "look for a minus that is missing: b in a - b, 1 - x, -log; or for abs()",
    "factor": "look for a factor applied twice or forgotten, a mean taken for a sum, a 2 of a "
    "square, a scale that is 1 in the tests",
    "missing factor": "look for a product in the chain rule with one factor left out, or squared",
    "missing term": "look for a term of the formula that was left out, as that through a "
    "normaliser, a mean or a variance, or for one that does not belong there, as an epsilon",
    "transposed": "look at the strides or the index order with which the gradient is written, and "
    "for a matrix that the way back wants transposed",
    "permuted": "look for a permute(), reshape(), flip() or shift of the forward that is not "
    "undone, and at the order of indices, and of the gradients that are returned",
    "missing reduction": "sum the gradient over the dimensions along which the input was broadcast",
    "extra reduction": "look for a sum() or mean() that the forward has no broadcast for",
    "overwritten": "what is stored should be added: look for an assignment where +=, index_add_, "
    "np.add.at or an atomic add belongs",
    "conjugate": "gradients of complex functions want conj() of the factors; see the convention "
    "of the framework",
    "neighbour leaks in": "look at overlapping writes: blocks that share an edge",
    "symmetric input": "the input is symmetric, and along symmetric directions the claim is right: "
    "check lambda a: f((a + a.T) / 2) instead",
    "cotangent ignored": "the rule returns what it has saved: multiply by grad_output, entry by "
    "entry; in forward mode by the tangent",
    "lower precision": "look for casts, as .float(), for buffers and constants in fewer bits, and "
    "for autocast",
    "saved intermediate": "a result of the forward that depends on the input was saved as if it "
    "were a constant: save inputs, or recompute it in the backward",
    "straight through": "if that is meant, the derivative is a definition: write it in plain "
    "operations, x + (f(x) - x).detach(), and pass it as reference= with trusted=True",
    "inexact": "let an iteration run to its end, or tighten its tolerance; if it is meant so, pass "
    "the tolerance that it can keep",
    "output detached": "an output was made outside of the graph: look for detach(), .item() or "
    "no_grad()",
    "not differentiable": "choose a point beside the kink, or claim a slope between the two",
    "layout ignored": "read arrays through their strides, make them contiguous first, call "
    "resolve_neg() and resolve_conj() before memory is read",
    "cotangent overwritten": "grad_output belongs to the caller: copy it before writing into it",
    "input overwritten": "the backward or the forward writes into an input: copy it first",
    "saved overwritten": "a saved array is changed after it was saved, or by a backward that runs "
    "twice",
    "accumulated": "a buffer is added to and never cleared: allocate it in every backward",
    "noise": "the backward gives another gradient every time: look for atomics, dropout, "
    "uninitialised memory",
    "non-linear": "a backward multiplies by grad_output and does nothing else with it: look for "
    "squares, abs(), clamps, thresholds, rounding, narrower formats, tests for zero",
    "undefined cotangent": "treat a missing grad_output, None, like zero",
    "last call": "keep what the backward needs with the call itself, in ctx or the residuals, and "
    "not in a module, a global or a workspace that the next call writes into",
    "first call": "key what is kept by the numbers it was made from, or make it anew: shapes, "
    "identities and addresses come again with other numbers",
}

# Kind of a finding -> the cause that it is, and its message.
_OF_KINDS = {
    "detached": ("output detached", "{outputs} has a derivative and claims to have none"),
    "kink": (
        "not differentiable",
        "the function has no derivative here, and the claim is no slope between its two",
    ),
    "cotangent": ("cotangent overwritten", "the backward writes into grad_output"),
    "input": ("input overwritten", "an input is written into"),
    "saved": ("saved overwritten", "a saved array is changed after it was saved"),
    "undefined": ("undefined cotangent", "a missing grad_output is not taken for zero"),
    "undefined: raised": ("undefined cotangent", "a missing grad_output is not taken for zero"),
    "undefined tangent": ("undefined cotangent", "a missing tangent is not taken for zero"),
    "last call": ("last call", "the gradient depends on a call made after this one"),
    "first call": ("first call", "at another point the gradient is that of the first"),
    "first point": ("first call", "at another point the gradient is that of the first"),
}


def cause(name: str, message: str, evidence: str = "", score: float = 1.0) -> Cause:
    """A cause with the advice that belongs to its name."""
    return Cause(name, message, evidence, ADVICE[name], score)


def ranked_causes(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """The causes, those that explain most first, each name once."""
    first: dict[str, Cause] = {}
    for found in sorted(causes, key=lambda one: -round(one.score, 3)):
        first.setdefault(found.name, found)
    return tuple(first.values())[:MOST_CAUSES]


def causes_of_kinds(result: CheckResult) -> list[Cause]:
    """Causes that the kinds of findings name, weighed by how many findings are of them."""
    counts = Counter(finding.kind for finding in result.findings)
    found = []
    for kind, (name, message) in _OF_KINDS.items():
        if counts[kind]:
            places = {f.output_name or "" for f in result.findings if f.kind == kind}
            text = message.format(outputs=", ".join(sorted(places)))
            found.append(cause(name, text, score=counts[kind] / len(result.findings)))
    return found
