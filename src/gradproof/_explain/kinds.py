"""Causes that the kinds of the findings name by themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gradproof._checks.state import SUMMARIES
from gradproof._data.records import Cause, CheckResult
from gradproof._explain.case import counted
from gradproof._explain.diagnose import cause, ranked

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
    told = {"outputs": ", ".join(outputs), "number": counted(number)}
    name, message, evidence = (*_CAUSES[kind], "")[:3]
    return cause(name, message.format(**told), evidence.format(**told), score)
