"""The last stage: of the evidence that a failing check left, its places, causes and pictures.

An explanation may cost a few calls. It changes no verdict and no finding, and nothing that judges
knows of it: the engine asks for it once, after a check has run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from gradproof._checks.state import OfAnotherCall
from gradproof._data.records import CheckResult, Verdict
from gradproof._explain import behaviour, entries, statistical
from gradproof._explain.diagnose import quietly
from gradproof._judge.found import WrongEntries
from gradproof._verdict.low_precision import FewBits

__all__ = ["explain"]


def explain(result: CheckResult) -> CheckResult:
    """The result of a check with what its evidence tells, and without that.

    Only a failure is explained. Evidence knows the map it is about: that of the check, of a
    derivative of it, or of an oracle. Where no explanation can be had the result stays as it is.
    """
    evidence, bare = result.evidence, replace(result, evidence=None)
    if evidence is None or result.verdict is not Verdict.FAILED:
        return bare
    return quietly(bare, _explanation(evidence))


@functools.singledispatch
def _explanation(evidence: object) -> Callable[[CheckResult], CheckResult]:
    """What explains a failure that left evidence of this class."""
    raise TypeError(f"no explanation is registered for {type(evidence).__name__}")


@_explanation.register
def _(evidence: WrongEntries) -> Callable[[CheckResult], CheckResult]:
    return partial(entries.explained, evidence)


@_explanation.register
def _(evidence: OfAnotherCall) -> Callable[[CheckResult], CheckResult]:
    return partial(behaviour.of_another_call, evidence)


@_explanation.register
def _(evidence: FewBits) -> Callable[[CheckResult], CheckResult]:
    return partial(statistical.of_few_bits, evidence)
