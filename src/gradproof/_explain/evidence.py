"""The last stage: of the evidence that a failing check left, its places, causes and pictures.

An explanation may cost a few calls. It changes no verdict and no finding, and nothing that judges
knows of it: the engine asks for it once, after a check has run.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from functools import partial

from gradproof._checks.backward import DoubleBackward
from gradproof._checks.determinism import NotRepeated
from gradproof._checks.layout import WrongLayouts
from gradproof._checks.linearity import NotLinear
from gradproof._data.records import CheckResult, Verdict
from gradproof._explain import behaviour, entries, kinds, located, statistical
from gradproof._explain.diagnose import cause, quietly, ranked
from gradproof._judge.found import WrongEntries
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
    return kinds.named(_of(result.evidence, bare))


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
