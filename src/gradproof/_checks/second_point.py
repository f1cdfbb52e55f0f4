"""What one call leaves behind changes no other: a second point has its own derivative.

A backward that reads what the last forward left is right as long as that was made next to the
point; one that reads what the first call left is right as long as there is one point only. So
another call is made far away, the kept call is asked again, and the derivative there is measured.
Two further calls share something with the first: the arrays that held the point, and the buffers
that the function writes.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from gradproof._checks.agreement import gradient_repeats, value_findings, vector_findings
from gradproof._checks.outcome import (
    evidence_of_block,
    failed_check,
    inconclusive_check,
    passed_check,
    skipped_check,
)
from gradproof._data.records import CheckResult, Finding, Verdict
from gradproof._data.results import PointResult
from gradproof._data.space import OPEN, Space, Values, norm
from gradproof._data.visible import short_list
from gradproof._low_precision.combine import mode_result
from gradproof._maps.contract import Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._measurements import Measurements
from gradproof._numdiff.probes import Kind, random_bits, random_moves, round_to_formats
from gradproof._numdiff.steps import NEIGHBOUR

_NAME = "second_point"
# How far second points lie, in parts of a scale, and whether some signs are turned; best first.
_FAR = ((0.5, True), (0.5, False), (-0.5, False), (1 / 16, False), (-1 / 16, False))
_NEAR = (NEIGHBOUR, 1 / 16, -1 / 16)  # where what was kept is wrong too, and no domain is left
_NUMBER = 128  # of the random direction in which they lie
_MOST_POINTS = 3  # at which a derivative is measured, where it is not decided at the first
_LARGE_VALUES = 2.0**20  # times those at the point: the domain of F has been left
_ROUNDED = 2.0**-5  # of a gradient: far less than what a call leaves behind changes
_ROUNDINGS = 64.0  # of few bits, by which an array of claims may be off and is nearly the same
_UNCHANGED = "a call far away changes no gradient of the one before"

_SUMMARIES = {
    "last call": "the backward reads what the last call left, not its own",
    "first call": "what was kept from the first call is used for another",
    "first point": "the derivative at a second point is wrong",
    "second point": "the derivative at a second point is wrong",
}


def check(measurements: Measurements) -> CheckResult:
    """J^T v of the kept call stays what it was, and another point has its own."""
    map_ = measurements.map
    if not measurements.settings.other_inputs:
        return skipped_check(_NAME, "no other inputs are to be tried")
    if not (map_.domain.size and map_.codomain.size):
        return skipped_check(_NAME, "no entries to move")
    if reason := measurements.randomness:
        return skipped_check(_NAME, reason)
    _ = measurements.gradient  # of the kept call, before any call far away
    reason, tried = "", list[CheckResult]()
    for radius, is_turned in _FAR:
        there = _measurements_nearby(measurements, radius, is_turned=is_turned)
        if isinstance(there, str):
            reason = there
            continue
        tried.append(_result_at(measurements, there))
        is_decided = tried[-1].verdict is not Verdict.PASSED or tried[-1].resolution >= 0
        if is_decided or len(tried) == _MOST_POINTS:
            break
    if not tried:
        return skipped_check(_NAME, f"at the second points tried the function {reason}")
    if tried[-1].verdict is Verdict.FAILED:
        map_.value(map_.point)  # of which later checks find the last call
    return tried[-1]


def _point_nearby(measurements: Measurements, radius: float, *, is_turned: bool) -> Values:
    """A random point this far from the map's, in parts of the scales, (n,).

    In numbers of its arrays; half way to the limit of an input where it would leave that. The first
    entry of each array of several is the point's own: a cache may know an array by that. Of what
    `is_turned`, some entries of inputs with both signs have the other one.
    """
    domain, point = measurements.map.domain, measurements.map.point
    seed = measurements.settings.seed
    x = point + radius * measurements.scales * random_moves(
        domain, seed, Kind.NEARBY_POINT, _NUMBER
    )
    turns = random_bits(seed, Kind.TURNED_SIGNS, _NUMBER, domain.size)
    for position, slot in enumerate(domain.slots):
        span, entry = domain.span(position), len(slot.parts)
        values, own = x[span], point[span]
        if is_turned and slot.limits == OPEN and (values < 0).any() and (values > 0).any():
            flips = turns[span] if turns[span].any() else ~turns[span]
            values[flips] *= -1
        lower, upper = slot.limits
        for limit, is_beyond in ((lower, values <= lower), (upper, values >= upper)):
            values[is_beyond] = (own[is_beyond] + limit) / 2
        if slot.size > entry:
            values[:entry] = own[:entry]
    return round_to_formats(domain, x)


def _measurements_nearby(
    measurements: Measurements, radius: float, *, is_turned: bool = False
) -> Measurements | str:
    """Those of the function at a random point this far away; or why it is not asked there.

    Values that are very much larger than at the point tell that its domain has been left.
    """
    here = measurements.function.centre
    x = _point_nearby(measurements, radius, is_turned=is_turned)
    try:
        with users_errors():
            there = measurements.map.map_at(x)
            value = there.kept_value()
    except UsersError as error:
        return f"raised {error}"
    if value.shape != here.shape:
        return "returns other shapes"
    known = np.isfinite(here)
    if not np.isfinite(value[known]).all() or (np.isnan(value) & ~np.isnan(here)).any():
        return "has no finite value"
    largest = measurements.largest_value
    if largest and np.abs(value[known]).max(initial=0.0) > _LARGE_VALUES * largest:
        return "has values very much larger than at the point"
    # Of kinks at a second point neighbours tell no more than it tells of the first.
    settings = replace(measurements.settings, other_inputs=False)
    return Measurements(there, settings, measurements.claimed_unit)


def _result_at(measurements: Measurements, there: Measurements) -> CheckResult:
    """The result at one second point, at which F has just been called."""
    if findings := _findings_of_kept_call(measurements, "a call at a second point"):
        return _failed_result(findings)
    result = _measured_result(measurements, there)
    if result.verdict is not Verdict.PASSED:
        return result
    findings = _findings_of_shared_calls(measurements, there)
    findings = findings or _findings_of_kept_call(measurements, "all calls at a second point")
    return _failed_result(findings, notes=result.notes) if findings else result


def _failed_result(findings: tuple[Finding, ...], **more: Any) -> CheckResult:
    return failed_check(_NAME, _SUMMARIES[findings[0].kind], findings, **more)


def _findings_of_kept_call(measurements: Measurements, calls: str) -> tuple[Finding, ...]:
    """Where the kept call has another gradient since some calls than before."""
    got = measurements.map.vjp(measurements.cotangent)
    what = f"asked again after {calls}, against before"
    return _steady_findings(measurements, got, measurements, what, "last call")


def _steady_findings(
    owner: Measurements, got: Values, measurements: Measurements, what: str, kind: str
) -> tuple[Finding, ...]:
    """Findings where a gradient is not that of its `owner`, though two in a row are the same.

    What differs from run to run is no matter of state. Two backwards in a row are compared at the
    first point, that of `measurements`. `what` says how the gradient was made.
    """
    findings = vector_findings(_NAME, owner.backward, got, owner.gradient, what, kind=kind)
    if not findings:
        return ()
    measurements.map.value(measurements.map.point)  # so that the last call is at the point again
    return findings if gradient_repeats(measurements) else ()


def _measured_result(measurements: Measurements, there: Measurements) -> CheckResult:
    """The derivative that is claimed at a second point, held against differences there."""
    try:
        with users_errors():
            result = _quick_result(there)
            if result.verdict is Verdict.FAILED:
                result = mode_result(there, "backward", _NAME)
    except UsersError as error:
        return inconclusive_check(_NAME, f"at a second point the backward raised {error}")
    if result.verdict is Verdict.PASSED:
        finely = f", to {result.bound:.0e}" if result.bound > 0 else ""
        text = f"{_UNCHANGED}, and has its own derivative{finely}"
        return passed_check(_NAME, text, resolution=result.bound)
    # No entry is wrong by itself: F has kinks within the steps, or is not resolved.
    is_of_rows_only = {finding.kind for finding in result.findings} == {"row"}
    is_decided = result.verdict is not Verdict.INCONCLUSIVE and not is_of_rows_only
    if not is_decided or _is_off_by_rounding(there, result.findings):
        note = f"at a second point the backward was not decided: {result.summary}"
        return passed_check(_NAME, _UNCHANGED, notes=(note,))
    return _result_of_failure(measurements, there, result)


def _quick_result(there: Measurements) -> PointResult:
    """The derivative at a second point along one tangent.

    In few bits it is that of the same function in float64 where the claims in few bits are nearly
    the same: what a call leaves behind changes them by more than rounding, which needs no model.
    """
    with contextlib.suppress(Unsupported, UsersError), users_errors():
        if not there.is_double and "double" in there.settings.references and not there.reference:
            exact, part = there.double, min(_ROUNDINGS * there.unit, math.sqrt(there.unit))
            expected = exact.map.vjp(there.cotangent)
            if _are_near(there.map.domain, there.gradient, expected, part):
                result = mode_result(exact, "backward", _NAME, quick=True)
                if result.verdict is Verdict.PASSED:
                    return replace(result, bound=max(result.bound, part))
    return mode_result(there, "backward", _NAME, quick=True)


def _is_off_by_rounding(there: Measurements, findings: tuple[Finding, ...]) -> bool:
    """Whether in few bits the gradients that findings name are exact but for a small part.

    More than rounding explains may be rounding that the first point has not, as of larger logits.
    What a call leaves behind changes gradients by far more.
    """
    named = {finding.input.slot for finding in findings if finding.input}
    with contextlib.suppress(Unsupported, UsersError), users_errors():
        if named and not there.is_double:
            exact = there.reference() if there.reference is not None else there.double.map
            expected = exact.vjp(there.cotangent)
            return _are_near(there.map.domain, there.gradient, expected, _ROUNDED, named)
    return False


def _are_near(
    space: Space, got: Values, expected: Values, part: float, slots: Iterable[int] | None = None
) -> bool:
    """Whether no array of `got` is further from that of `expected` than a part of its size.

    Of all arrays, or of those in some slots.
    """
    spans = map(space.span, range(len(space.slots)) if slots is None else slots)
    return all(norm(got[at] - expected[at]) <= part * norm(expected[at]) for at in spans)


def _result_of_failure(
    measurements: Measurements, there: Measurements, result: PointResult
) -> CheckResult:
    """A failure at a second point, unless the function may just not be made for such inputs.

    What was kept from the first call is all that is claimed, or it is wrong beside the first point
    too.
    """
    is_of_first = np.array_equal(there.gradient, measurements.gradient)
    kind = "first point" if is_of_first else "second point"
    findings = tuple(
        replace(finding, check=_NAME, kind=kind, message=f"at a second point: {finding.message}")
        for finding in result.findings
    ) or (Finding(_NAME, f"at a second point: {result.summary}", kind),)
    if is_of_first:
        return _failed_result(findings)
    if names := there.map.carried_arrays():
        text = (
            "at a second point the derivative is wrong, but each call writes into "
            f"{short_list(names)}, on which the next value depends"
        )
        return inconclusive_check(_NAME, text)
    for radius in _NEAR:
        neighbour = _measurements_nearby(measurements, radius)
        with contextlib.suppress(UsersError), users_errors():
            if isinstance(neighbour, str):
                continue
            if mode_result(neighbour, "backward", _NAME).verdict is Verdict.FAILED:
                evidence = evidence_of_block(there, result.block)
                return _failed_result(findings, evidence=evidence)
    text = (
        f"{findings[0].message}; nearer it is right: the rule may be wrong there, as in another "
        "branch or an iteration that was cut off, what was kept from the first call may be used, "
        "or the function is not made for such inputs"
    )
    return inconclusive_check(_NAME, text)


def _findings_of_shared_calls(
    measurements: Measurements, there: Measurements
) -> tuple[Finding, ...]:
    """Where calls at both points that share arrays differ from those that share nothing.

    A call that raises then, or has another value, is not compared: it is another function.
    """
    map_ = measurements.map
    for ask, how in (
        (map_.products_in_reused_arrays, "held by the arrays that held the other point"),
        (map_.products_of_overtaken_call, "with buffers that a call at the other point wrote"),
    ):
        try:
            with users_errors():
                here, value, gradient = ask(there.map.point, measurements.cotangent)
        except (Unsupported, UsersError):
            continue
        if here is not None:
            findings = _steady_findings(measurements, here, measurements, how, "last call")
            if findings:
                return findings
        what = f"at a second point, {how}"
        if value_findings(_NAME, there, value, what, "first call"):
            continue
        if findings := _steady_findings(there, gradient, measurements, what, "first call"):
            return findings
    return ()
