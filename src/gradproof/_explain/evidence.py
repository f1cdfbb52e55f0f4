"""The last stage: of the evidence that a failing check left, its places, causes and pictures.

An explanation may cost a few calls. It changes no verdict and no finding, and nothing that judges
knows of it: the engine asks for it once, after a check has run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from gradproof._checks.backward import DoubleBackward
from gradproof._checks.determinism import NotRepeated
from gradproof._checks.layout import WrongLayouts
from gradproof._checks.linearity import NotLinear
from gradproof._data.records import CheckResult, Verdict
from gradproof._explain import behaviour, entries, kinds, statistical
from gradproof._explain.diagnose import cause, quietly, ranked
from gradproof._judge.found import WrongEntries
from gradproof._verdict.low_precision import FewBits

Explanation = Callable[[CheckResult], CheckResult]


def explain(result: CheckResult) -> CheckResult:
    """The result of a check with what its evidence and its findings tell, and without evidence.

    Only a failure is explained. Evidence knows the map it is about: that of the check, of a
    derivative of it, or of an oracle. Where no explanation can be had the result stays as it is.
    """
    evidence, bare = result.evidence, replace(result, evidence=None)
    if result.verdict is not Verdict.FAILED:
        return bare
    told = bare if evidence is None else quietly(bare, _explanation(evidence))
    return kinds.named(told)


@functools.singledispatch
def _explanation(evidence: object) -> Explanation:
    """What explains a failure that left evidence of this class."""
    raise TypeError(f"no explanation is registered for {type(evidence).__name__}")


@_explanation.register
def _(evidence: WrongEntries) -> Explanation:
    return partial(entries.explained, evidence)


@_explanation.register
def _(evidence: FewBits) -> Explanation:
    return partial(statistical.of_few_bits, evidence)


@_explanation.register
def _(evidence: NotLinear) -> Explanation:
    return partial(behaviour.nonlinear, evidence)


@_explanation.register
def _(evidence: NotRepeated) -> Explanation:
    return partial(behaviour.unsteady, evidence)


@_explanation.register
def _(evidence: WrongLayouts) -> Explanation:
    return partial(behaviour.of_layouts, evidence)


@_explanation.register
def _(evidence: DoubleBackward) -> Explanation:
    """A backward that is right and whose own derivative lacks what goes through the input."""

    def explained(result: CheckResult) -> CheckResult:
        if evidence.of is not None:
            result = quietly(result, _explanation(evidence.of))
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

    return explained
