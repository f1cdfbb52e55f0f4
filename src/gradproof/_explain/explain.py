"""A failed check with its explanation: first the place, then the causes.

All of it is made of the findings and of what the check has measured. Nothing is asked of the
user's function, and no verdict and no finding is changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gradproof._checks.linearity import NotLinear
from gradproof._data import checks
from gradproof._data.records import Cause, CheckResult, Finding, Verdict
from gradproof._data.results import JacobianEvidence, count_of
from gradproof._explain.causes import named_cause, ranked_causes
from gradproof._explain.entries import causes_of_entries
from gradproof._explain.factors import coarser_formats
from gradproof._explain.place import place_of

_WIDE = 0.05  # of an entry: an error bar that is an interval of slopes
_FEWER = "only a part of the Jacobian was measured, and it shows no cause: check fewer inputs"

# Kind of a finding -> the cause that it is, and its message.
_OF_KINDS = {
    "detached": ("zero", "{} has a derivative and claims to have none"),
    "last call": ("stale", "the gradient depends on a call made after this one"),
    "first call": ("stale", "at another point the gradient is that of the first"),
    "first point": ("stale", "at another point the gradient is that of the first"),
}


def explain_result(result: CheckResult) -> CheckResult:
    """The failed result of a check with place and causes, and without its evidence.

    A claim that is no number has this cause and no other.
    """
    evidence, where, notes = result.evidence, result.where, result.notes
    causes = _causes_of_missing_numbers(result)
    is_missing = bool(causes)
    if not is_missing:
        causes = [*_causes_of_kinds(result), *_causes_of_linearity(evidence)]
    if isinstance(evidence, JacobianEvidence):
        with np.errstate(all="ignore"):
            case = _finite_case(evidence)
            where = place_of(case) or where
            if not (is_missing or _are_at_kinks(evidence)):
                found = causes_of_entries(case)
                causes += found
                notes = notes if found or evidence.whole else (*notes, _FEWER)
    return replace(result, where=where, causes=ranked_causes(causes), notes=notes, evidence=None)


def without_factors_of_nonlinear_rules(results: Sequence[CheckResult]) -> list[CheckResult]:
    """The results; without a factor as a cause where a rule is not linear.

    Entries are claimed for cotangents of 1: of a gradient that is clamped at 1/2 they are halved,
    and for other cotangents they are not.
    """
    if not any(each.name == "linearity" and each.verdict is Verdict.FAILED for each in results):
        return list(results)
    return [
        replace(each, causes=tuple(cause for cause in each.causes if cause.name != "factor"))
        for each in results
    ]


def _causes_of_missing_numbers(result: CheckResult) -> list[Cause]:
    """The cause of claims that are no numbers, as a list; [] where another cause is to be found.

    A check that measures no derivative may read some such numbers from memory that is not its own,
    so that there all findings must be of them.
    """
    missing, row = sum(map(_is_missing, result.findings)), checks.row_of_check(result.name)
    if not missing or (missing < len(result.findings) and not (row and row.derivative)):
        return []
    message = "the claimed derivative is not a number, or infinite"
    return [named_cause("not a number", message, count_of(missing, "finding", "findings"))]


def _is_missing(finding: Finding) -> bool:
    """Whether what is claimed is NaN or infinite; a finding without numbers has neither.

    Where two claims are compared the second stands as measured, with an error of 0.
    """
    claimed, measured = finding.claimed, finding.measured
    if math.isinf(claimed) or (math.isnan(claimed) and math.isfinite(measured)):
        return True
    return math.isnan(measured) and math.isfinite(claimed) and finding.error == 0


def _causes_of_kinds(result: CheckResult) -> list[Cause]:
    """Causes that the kinds of findings name, weighed by how many findings are of them."""
    messages: dict[str, list[str]] = {}
    for finding in result.findings:
        if finding.kind in _OF_KINDS:
            name, message = _OF_KINDS[finding.kind]
            messages.setdefault(name, []).append(message.format(finding.output_name or "an output"))
    return [
        named_cause(name, "; ".join(sorted(set(each))[:3]), score=len(each) / len(result.findings))
        for name, each in messages.items()
    ]


def _causes_of_linearity(evidence: object) -> tuple[Cause, ...]:
    """That a rule returns the same whatever it is given, or rounds it to fewer bits."""
    if not isinstance(evidence, NotLinear):
        return ()
    if evidence.is_ignored and evidence.is_forward:
        return (named_cause("tangent ignored", "forward mode gives the same for every tangent"),)
    if evidence.is_ignored:
        return (named_cause("cotangent ignored", "the gradient is the same for every cotangent"),)
    # Probes have 11 bits: what only moves them has few bits, too, and went through nothing.
    if list(coarser_formats(evidence.product, evidence.unit)) != ["float32"]:
        return ()
    message = f"the {'tangent' if evidence.is_forward else 'gradient'} went through float32"
    return (named_cause("lower precision", message, "all its numbers have 24 bits"),)


def _are_at_kinks(evidence: JacobianEvidence) -> bool:
    """Whether the error bar of every wrong entry is an interval of slopes, or of very few bits.

    What is claimed there is no slope between two sides, whatever the formula. In bfloat16 the bars
    are too wide to tell one formula from another.
    """
    sizes = np.maximum(np.abs(evidence.measured), np.abs(evidence.claimed))
    return bool((evidence.error > _WIDE * sizes)[evidence.wrong].all())


def _finite_case(evidence: JacobianEvidence) -> JacobianEvidence:
    """The entries as recognisers want them: one that was not measured counts as right."""
    blank = ~(np.isfinite(evidence.measured) & np.isfinite(evidence.allowed))
    return replace(
        evidence,
        claimed=np.where(blank, 0.0, evidence.claimed),
        measured=np.where(blank, 0.0, evidence.measured),
        allowed=np.where(blank, 1e125, evidence.allowed),  # whose square is a number
        wrong=evidence.wrong & ~blank,
    )
