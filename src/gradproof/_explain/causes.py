"""Every cause by its name, with the advice that belongs to it; and the order of several."""

from __future__ import annotations

from collections.abc import Iterable

from gradproof._data.records import Cause

MOST_CAUSES = 3

# What to look at for each cause: one sentence, for the person whose function is wrong.
ADVICE = {
    "not a number": "look for 0/0, 0 * inf, log(0) or sqrt(0) in the derivative, also on branches "
    "that a where() or a mask throws away",
    "zero": "look for detach(), .data, .item(), a result computed without gradient, a returned "
    "None, a loop that ends too early, or a value that was saved as if it were a constant",
    "unspecified entries": "where only the entries that a sparse tensor stores are variables, as "
    "of torch.sparse.mm, pass settings=gradproof.Settings(masked=True); masked=True to gradcheck",
    "sign": "look for a minus that is missing: b in a - b, 1 - x, -log; or for abs(); of one "
    "that is reversed on purpose pass the definition as reference= with trusted=True",
    "factor": "look in the chain rule for a factor that is applied twice, forgotten, or another "
    "one, for a mean taken for a sum, a 2 of a square, a scale that is 1 in the tests",
    "missing term": "look for a term of the formula that was left out, as that through a "
    "normaliser, a mean or a variance, or for one that does not belong there, as an epsilon",
    "missing mask": "look for a mask, a where() or a clamp of the forward that the backward does "
    "not apply; if it is meant (straight through), write x + (f(x) - x).detach() and pass it as "
    "reference= with trusted=True",
    "missing reduction": "sum the gradient over the dimensions along which the input was broadcast",
    "overwritten": "what is stored should be added: look for an assignment where +=, index_add_, "
    "np.add.at or an atomic add belongs",
    "transposed": "look at the strides or the index order with which the gradient is written, and "
    "for a matrix that the way back wants transposed",
    "misplaced": "look for an index that is off by one or is another one, for a permute(), "
    "reshape() or flip() that is not undone, and at the order of the gradients that are returned",
    "conjugate": "gradients of complex functions want conj() of the factors; see the convention "
    "of the framework",
    "symmetric input": "check lambda a: f((a + a.T) / 2) instead, which asks for symmetric "
    "directions only",
    "cotangent ignored": "the rule returns what it has saved: multiply by grad_output, entry by "
    "entry",
    "tangent ignored": "the rule returns what it has saved: multiply by the tangent",
    "lower precision": "look for casts, as .float(), for buffers and constants in fewer bits, and "
    "for autocast",
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
