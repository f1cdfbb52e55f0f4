"""Every cause by its name, with what to look at; and the order of several."""

from __future__ import annotations

from collections.abc import Iterable

from gradproof._data.records import Cause

MOST_CAUSES = 3

# What to look at for each cause: one sentence, for the person whose function is wrong.
ADVICE = {
    # Seen in measured entries: `entries.py` has their order.
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
    "overwritten": "what is stored should be added: look for an assignment where +=, index_add_, "
    "np.add.at or an atomic add belongs",
    "conjugate": "gradients of complex functions want conj() of the factors; see the convention "
    "of the framework",
    "symmetric input": "the input is symmetric, and along symmetric directions the claim is right: "
    "check lambda a: f((a + a.T) / 2) instead",
    "cotangent ignored": "the rule returns what it has saved: multiply by grad_output, entry by "
    "entry",
    "lower precision": "look for casts, as .float(), for buffers and constants in fewer bits, and "
    "for autocast",
    "straight through": "if that is meant, the derivative is a definition: write it in plain "
    "operations, x + (f(x) - x).detach(), and pass it as reference= with trusted=True",
    "inexact": "let an iteration run to its end, or tighten its tolerance; if it is meant so, pass "
    "the tolerance that it can keep",
    "saved intermediate": "a result of the forward that depends on the input was saved as if it "
    "were a constant: save inputs, or recompute it in the backward",
    "not differentiable": "choose a point beside the kink, or claim a slope between the two",
    # Found by a check that asks for nothing else: `behaviour.py`.
    "output detached": "an output was made outside of the graph: look for detach(), .item() or "
    "no_grad()",
    "layout ignored": "read arrays through their strides, make them contiguous first, call "
    "resolve_neg() and resolve_conj() before memory is read",
    "in place": "grad_output, inputs and what was saved belong to others: copy before writing",
    "not repeatable": "the backward gives another gradient every time: look for atomics, dropout, "
    "uninitialised memory, or a buffer that is added to and never cleared",
    "non-linear": "a backward multiplies by grad_output and does nothing else with it: look for "
    "squares, abs(), clamps, thresholds, rounding, narrower formats, tests for zero",
    "undefined cotangent": "treat a missing grad_output, None, like zero",
    "stale": "keep what the backward needs with the call itself, in ctx or the residuals, and not "
    "in a module, a global or a workspace; shapes, identities and addresses are no key for it, "
    "since they come again with other numbers",
}


def named_cause(name: str, message: str, evidence: str = "", score: float = 1.0) -> Cause:
    """A cause with the advice that belongs to its name."""
    return Cause(name, message, evidence, ADVICE[name], score)


def ranked_causes(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """The causes, those that explain most first, each name once."""
    first: dict[str, Cause] = {}
    for found in sorted(causes, key=lambda one: -round(one.score, 3)):
        first.setdefault(found.name, found)
    return tuple(first.values())[:MOST_CAUSES]
