"""Causes that need no numbers: the kinds of the findings name them, or several checks together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from gradproof._checks.state import SUMMARIES
from gradproof._data.checks import row
from gradproof._data.records import Cause, CheckResult, Verdict
from gradproof._explain.diagnose import cause, ranked
from gradproof._judge.found import count

_UNDEFINED = "undefined cotangent", "a cotangent that is None is not taken for zero"
# Kind of a finding -> name of the cause, its message, and what was counted where that says more.
_CAUSES: dict[str, tuple[str, ...]] = {
    "detached": ("output detached", "{outputs} has a derivative and claims to have none"),
    "kink": (
        "not differentiable",
        "the function has no derivative here, and the claim is no slope between its two",
        "{number} at kinks",
    ),
    "cotangent": ("cotangent overwritten", "the backward writes into the cotangent"),
    "input": ("input overwritten", "an input is written into"),
    "saved": ("saved overwritten", "a saved array is changed after it was saved"),
    "undefined": _UNDEFINED,
    "undefined: raised": _UNDEFINED,
    "undefined tangent": _UNDEFINED,
    "first call": ("first call", SUMMARIES["first call"]),
    "first point": ("first call", "the gradient there is that of the first point"),
    "last call": ("last call", SUMMARIES["last call"]),
}


def named(result: CheckResult) -> CheckResult:
    """The failure with what the kinds of its findings name, before what was found otherwise."""
    counts = Counter(one.kind for one in result.findings if one.kind in _CAUSES)
    score = counts.total() / max(1, len(result.findings))
    found = [_cause(result, kind, number, score) for kind, number in counts.items()]
    return replace(result, causes=ranked((*found, *result.causes)))


def _cause(result: CheckResult, kind: str, number: int, score: float) -> Cause:
    outputs = dict.fromkeys(one.output_name or "" for one in result.findings if one.kind == kind)
    told = {"outputs": ", ".join(outputs), "number": count(number)}
    name, message, evidence = (*_CAUSES[kind], "")[:3]
    return cause(name, message.format(**told), evidence.format(**told), score)


# Causes that one check alone cannot name: what several of them say together.
#
# A backward that is not linear in its cotangent, or gives another gradient every time, has no
# Jacobian: what is read off its rows says nothing. Such causes come before those of the numbers.


# What a Jacobian read off a non-linear backward row by row still shows.
_OF_NUMBERS = frozenset({"offset", "absolute value", "one cotangent for all", "zero"})


def crossed(results: Iterable[CheckResult]) -> tuple[CheckResult, ...]:
    """The results; failed ones with the causes that the others name."""
    results = tuple(results)
    failed = [
        (found, result)
        for result in results
        if result.verdict is Verdict.FAILED and (found := row(result.name)) is not None
    ]
    deeper = sorted(failed, key=lambda pair: -pair[0].explains)
    causes = [one for check, result in deeper if check.explains for one in result.causes]
    if not causes:
        return results
    explained = {check.name for check, _ in failed if check.explained}
    matrix = [one for c, r in failed if c.derivative and c.explained for one in r.causes]
    special = [one for one in matrix if one.name in _OF_NUMBERS and one.score == 1]
    return tuple(
        replace(result, causes=ranked((*special, *causes, *result.causes)))
        if result.name in explained
        else result
        for result in results
    )
