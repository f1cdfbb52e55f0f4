"""The last stage: of the evidence that a failing check left, its places, causes and pictures.

An explanation may cost a few calls. It changes no verdict and no finding, and nothing that judges
knows of it: the engine asks for it once, after a check has run.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from gradproof._checks.backward import DoubleBackward
from gradproof._checks.determinism import NotRepeated
from gradproof._checks.layout import WrongLayouts
from gradproof._checks.linearity import NotLinear
from gradproof._checks.state import SUMMARIES
from gradproof._data.checks import row
from gradproof._data.records import Cause, CheckResult, Verdict
from gradproof._explain import behaviour, entries, located, statistical
from gradproof._explain.diagnose import cause, quietly, ranked
from gradproof._judge.found import WrongEntries, count
from gradproof._locate.search import Search
from gradproof._verdict.low_precision import FewBits


def explain(result: CheckResult) -> CheckResult:
    """The result of a check with what its evidence and its findings tell, and without evidence.

    Only a failure is explained. Evidence knows the map it is about: that of the check, of a
    derivative of it, or of an oracle. Where no explanation can be had the result stays as it is.
    """
    bare = result if result.evidence is None else replace(result, evidence=None)
    if result.verdict is not Verdict.FAILED:
        return bare
    return _named(_of(result.evidence, bare))


def _of(evidence: object, result: CheckResult) -> CheckResult:
    """What this evidence tells of a failure; nothing where there is none, or it cannot be had."""
    told = explained.dispatch(type(evidence))
    if told is explained.dispatch(object) and evidence is not None:
        raise TypeError(f"no explanation is registered for {type(evidence).__name__}")
    return quietly(result, partial(told, evidence))


@functools.singledispatch
def explained(evidence: object, result: CheckResult) -> CheckResult:  # noqa: ARG001  # there is none
    """The failure with what evidence of a class tells of it."""
    return result


explained.register(WrongEntries, entries.explained)
explained.register(Search, located.explained)
explained.register(FewBits, statistical.of_few_bits)
explained.register(NotLinear, behaviour.nonlinear)
explained.register(NotRepeated, behaviour.unsteady)
explained.register(WrongLayouts, behaviour.of_layouts)


@explained.register
def _(evidence: DoubleBackward, result: CheckResult) -> CheckResult:
    """A backward that is right and whose own derivative lacks what goes through the input."""
    result = _of(evidence.of, result)
    places = [finding.input for finding in result.findings if finding.input is not None]
    if not places or any(place.slot >= evidence.inputs for place in places):
        return result
    names = ", ".join(sorted({place.name for place in places}))
    found = cause(
        "saved intermediate",
        f"the derivative of the backward lacks what depends on {names}: the backward uses a "
        "result of the forward as a constant",
    )
    return replace(result, causes=ranked((found, *result.causes)))


# Causes that need no numbers: the kinds of the findings name them.

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


def _named(result: CheckResult) -> CheckResult:
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
