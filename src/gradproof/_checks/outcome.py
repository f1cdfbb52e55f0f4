"""Results of checks, by verdict, and the evidence of a failure."""

from __future__ import annotations

from typing import Any

from gradproof._data.records import CheckResult, Finding, Verdict
from gradproof._data.results import JacobianEvidence, MeasuredBlock
from gradproof._measurements import Measurements


def passed_check(name: str, summary: str, **more: Any) -> CheckResult:
    """A check that found nothing wrong; `more` are further fields of the result."""
    return CheckResult(name, Verdict.PASSED, summary, **more)


def skipped_check(name: str, reason: str) -> CheckResult:
    """A check that could not be asked."""
    return CheckResult(name, Verdict.SKIPPED, reason)


def inconclusive_check(name: str, reason: str, **more: Any) -> CheckResult:
    """A check that was asked and decided nothing."""
    return CheckResult(name, Verdict.INCONCLUSIVE, reason, **more)


def failed_check(
    name: str, summary: str, findings: tuple[Finding, ...], **more: Any
) -> CheckResult:
    """A check that found something wrong; `findings` say where, largest gap first."""
    return CheckResult(name, Verdict.FAILED, summary, findings=findings, **more)


def evidence_of_block(
    measurements: Measurements, block: MeasuredBlock | None
) -> JacobianEvidence | None:
    """Measured entries with the map that they are of; None where nothing was measured."""
    if block is None:
        return None
    map_, value = measurements.map, measurements.function.centre
    return JacobianEvidence(
        **vars(block),
        domain=map_.domain,
        codomain=map_.codomain,
        point=map_.given_point,
        value=value,
    )
