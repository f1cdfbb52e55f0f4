"""A failed check with its explanation: first the place, then the causes, and a picture.

All of it is made of the findings and of what the check has measured. Nothing is asked of the
user's function, and no verdict and no finding is changed.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gradproof._data.evidence import EvidenceElsewhere
from gradproof._data.records import Cause, CheckResult, Patch, Verdict
from gradproof._data.results import MeasuredBlock, ProductBlock
from gradproof._data.space import Indices, Space, Values
from gradproof._explain.behaviour import causes_of_behaviour, causes_of_kinds
from gradproof._explain.case import WrongJacobian
from gradproof._explain.causes import named_cause, ranked_causes
from gradproof._explain.entries import causes_of_entries
from gradproof._explain.place import place_of
from gradproof._explain.products import explanation_of_products

_WIDE = 0.05  # of an entry: an error bar that is an interval of slopes, in double precision
_SIDE = 12  # rows and columns of a patch at most
# Checks of the derivative of a backward, by the mode of differentiation.
_SECOND_ORDER = ("second_order", "third_order", "forward_over_reverse")
_FEWER = (
    "no cause is named of a few measured entries: check fewer inputs, or outputs, to see the whole "
    "Jacobian"
)


def explain_result(
    result: CheckResult, domain: Space, codomain: Space, point: Values, value: Values
) -> CheckResult:
    """The result with place, causes and a patch of the Jacobian, and without its evidence.

    Only a failure is explained.

    Args:
        result: of one check.
        domain, codomain: of the map that the check is about; the evidence may have its own, as
            that of a second derivative.
        point: values of its inputs, (n,).
        value: values of its outputs, (m,).
    """
    evidence, bare = result.evidence, replace(result, evidence=None)
    if result.verdict is not Verdict.FAILED:
        return bare
    if isinstance(evidence, EvidenceElsewhere):
        domain, codomain = evidence.domain, evidence.codomain
        point, value, evidence = evidence.point, evidence.value, evidence.evidence
    found = bare
    with np.errstate(all="ignore"):
        if isinstance(evidence, MeasuredBlock):
            found = _result_with_place_and_causes(bare, evidence, domain, codomain, point, value)
        elif isinstance(evidence, ProductBlock):
            known = point if evidence.space == domain else np.zeros(evidence.space.size)
            where, causes = explanation_of_products(evidence, known, codomain, value)
            found = replace(bare, where=where, causes=causes)
        else:
            found = replace(bare, causes=causes_of_behaviour(evidence))
    missing = sum(_is_missing(finding.claimed, finding.measured) for finding in result.findings)
    if missing and not found.causes:
        message = "the claimed derivative is not a number, or infinite, where it was measured"
        return replace(found, causes=(named_cause("not a number", message, f"{missing} findings"),))
    return replace(found, causes=ranked_causes((*causes_of_kinds(result), *found.causes)))


def _is_missing(claimed: float, measured: float) -> bool:
    """Whether the claim is NaN or infinite; a finding without numbers has neither."""
    return math.isinf(claimed) or (math.isnan(claimed) and math.isfinite(measured))


def _result_with_place_and_causes(
    result: CheckResult,
    evidence: MeasuredBlock,
    domain: Space,
    codomain: Space,
    point: Values,
    value: Values,
) -> CheckResult:
    """The failure with its place, causes and picture, from measured entries."""
    case = case_of(evidence, domain, codomain, point, value)
    case = replace(case, is_forward=result.name.startswith("forward"))
    where = place_of(case) or result.where
    is_number = bool(np.isfinite(case.claimed[case.wrong]).all())
    causes = causes_of_entries(case) or (_causes_of_kinks(evidence) if is_number else ())
    if result.name in _SECOND_ORDER:
        causes = tuple(map(_second_order_cause, causes))
    patch = _patch(evidence, domain, codomain) if case.wrong.any() else None
    notes = result.notes
    if not causes and is_number and not evidence.whole and evidence.columns.size > 1:
        notes = (*notes, _FEWER)
    return replace(result, where=where, causes=causes, patch=patch, notes=notes)


def case_of(
    evidence: MeasuredBlock, domain: Space, codomain: Space, point: Values, value: Values
) -> WrongJacobian:
    """The measured entries as recognisers want them, finite.

    An entry without a measured number counts as right, whatever is claimed.
    """
    claimed, measured, allowed = evidence.claimed, evidence.measured, evidence.allowed
    blank = ~(np.isfinite(measured) & np.isfinite(allowed))
    return WrongJacobian(
        claimed=np.where(blank, 0.0, claimed),
        measured=np.where(blank, 0.0, measured),
        allowed=np.where(blank, 1e125, allowed),  # whose square is a number
        wrong=evidence.wrong & ~blank,
        rows=evidence.rows,
        columns=evidence.columns,
        domain=domain,
        codomain=codomain,
        point=point,
        value=value,
        whole=evidence.whole,
    )


def _causes_of_kinks(evidence: MeasuredBlock) -> tuple[Cause, ...]:
    """That every wrong entry lies at a kink: its error bar is the interval of its slopes.

    Of a block without wrong entries it is the gradient as a whole that is none near a kink.
    """
    wrong = evidence.wrong
    if not wrong.any():
        message = "each entry is a slope at a kink, but together they are no gradient near it"
        return (named_cause("not differentiable", message, score=0.5),)
    claimed, error, measured = (
        table[wrong] for table in (evidence.claimed, evidence.error, evidence.measured)
    )
    if not (error > _WIDE * np.maximum(np.abs(measured), np.abs(claimed))).all():
        return ()
    message = "the function has no derivative there, and the claim is no slope between its sides"
    slopes = f"slopes from {measured[0] - error[0]:.3g} to {measured[0] + error[0]:.3g}"
    return (named_cause("not differentiable", message, slopes, 0.5),)


def _second_order_cause(found: Cause) -> Cause:
    """The cause as it is for the derivative of a backward: zero is a value taken as a constant."""
    if found.name != "zero" or found.message.startswith("nothing arrives at cotangent"):
        return found
    message = f"{found.message}: the backward uses a value that depends on it as a constant"
    return named_cause("saved intermediate", message, found.evidence, found.score)


def _patch(evidence: MeasuredBlock, domain: Space, codomain: Space) -> Patch:
    """The entries around the one with the largest gap."""
    gap = np.abs(evidence.claimed - evidence.measured)
    gap = np.where(evidence.wrong, np.where(np.isnan(gap), np.inf, gap), -1.0)
    first = np.unravel_index(int(np.argmax(gap)), gap.shape)
    rows = _nearest_positions(evidence.rows, int(first[0]))
    columns = _nearest_positions(evidence.columns, int(first[1]))
    at = np.ix_(rows, columns)
    claimed, measured, error = (
        tuple(map(tuple, table[at].tolist()))
        for table in (evidence.claimed, evidence.measured, evidence.error)
    )
    return Patch(
        outputs=tuple(str(codomain.locate(int(i))) for i in evidence.rows[rows]),
        inputs=tuple(str(domain.locate(int(j))) for j in evidence.columns[columns]),
        claimed=claimed,
        measured=measured,
        error=error,
        wrong=tuple(map(tuple, evidence.wrong[at].tolist())),
    )


def _nearest_positions(coordinates: Indices, middle: int) -> Indices:
    """Positions of the coordinates nearest to one of them, in order."""
    distance = np.abs(coordinates - coordinates[middle])
    return np.sort(np.argsort(distance, kind="stable")[:_SIDE])
