"""What a second function says beside its derivative: its value, and which identities it keeps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gradproof._checks.agreement import vector_findings
from gradproof._checks.outcome import failed_check, inconclusive_check, passed_check, skipped_check
from gradproof._checks.users_code import UsersError, users_errors
from gradproof._data.records import CheckResult, Finding, Verdict
from gradproof._data.space import Values
from gradproof._low_precision.rounding_runs import RUNS, ClaimedBesideExact, arithmetic_of
from gradproof._low_precision.rounding_tests import ArrayDeviations, array_deviations, statistics_of
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measurements import Measurements

_NAME, _REFERENCE = "value", "the reference"
_FINEST = 2.0**-40  # unit round-off of the finest arithmetic that doubles can be rounded to
_LARGE = 2.0**20  # size of large cotangents, and one over that of small ones


def check(measurements: Measurements) -> CheckResult:
    """F(x) is that of the reference, as far as honest rounding goes."""
    map_, settings = measurements.map, measurements.settings
    if settings.reference is None:
        return skipped_check(_NAME, "no reference was given")
    try:
        with users_errors():
            reference = map_.map_in_double(settings.reference)
            exact = reference.kept_value()
    except UsersError as error:
        return inconclusive_check(_NAME, f"the reference raised {error}")
    sides = _values_beside_exact(measurements, reference, exact)
    undefined = np.flatnonzero(np.isfinite(sides.got[0]) != np.isfinite(exact))
    if undefined.size:
        return _undefined_result(map_, sides, int(undefined[0]))
    arrays = array_deviations(sides, settings.slack)
    statistics = statistics_of(arrays, sides, _REFERENCE)
    more = {"oracle": _REFERENCE, "statistics": statistics}
    wrong = [array for array in arrays if any(each.is_wrong for each in array.deviations)]
    if wrong:
        count = f"{len(wrong)} array{'s' if wrong[1:] else ''}"
        summary = f"{count} off by more than rounding explains, against {_REFERENCE}"
        findings = tuple(_value_finding(sides, array) for array in wrong)
        return failed_check(_NAME, summary, findings, **more)
    if any(each.is_open for array in arrays for each in array.deviations):
        text = f"it is off by about as much as rounding explains, against {_REFERENCE}"
        return inconclusive_check(_NAME, text, **more)
    resolution = max((array.resolution for array in arrays), default=0.0)
    text = f"it agrees with {_REFERENCE} to {resolution:.0e}"
    return passed_check(_NAME, text, resolution=resolution, **more)


def _values_beside_exact(
    measurements: Measurements, reference: DifferentiableMap, exact: Values
) -> ClaimedBesideExact:
    """The value, that of the reference, and how far honest runs of the reference are off."""
    map_, settings = measurements.map, measurements.settings
    grain = arithmetic_of(map_, exact, settings)
    unit, errors, reason = max(grain.unit, _FINEST), [], ""
    for number in range(RUNS):
        try:
            with users_errors():
                run = reference.rounded_map(unit, grain.tiny, settings.seed + number)
                errors.append(run.kept_value() - exact)
        except (Unsupported, UsersError) as error:
            reason = str(error)
            break
    scaled = grain.unit / unit * np.asarray(errors).reshape(len(errors), 1, exact.size)
    return ClaimedBesideExact(
        space=map_.codomain,
        got=measurements.function.centre[None, :],
        exact=exact[None, :],
        errors=scaled,
        value_errors=scaled[:, 0],
        grain=grain,
        why_no_runs="" if errors else reason,
    )


def _undefined_result(map_: DifferentiableMap, sides: ClaimedBesideExact, i: int) -> CheckResult:
    """One of the two has no finite value where the other one has."""
    got, exact = float(sides.got[0, i]), float(sides.exact[0, i])
    place = map_.codomain.locate(i)
    message = f"value of {place}: {got:g}, that of {_REFERENCE} is {exact:g}"
    finding = Finding(_NAME, message, "value", None, place, got, exact, 0.0, 0.0)
    return failed_check(
        _NAME, "another value than that of the reference", (finding,), oracle=_REFERENCE
    )


def _value_finding(sides: ClaimedBesideExact, array: ArrayDeviations) -> Finding:
    """The entry of one array that is most off."""
    slot, span = sides.space.slots[array.slot], sides.space.span(array.slot)
    worst = max(
        (each for each in array.deviations if each.is_wrong),
        key=lambda each: each.value / max(each.allowed, 1e-300),
    )
    got, exact = sides.got[0, span], sides.exact[0, span]
    largest = int(np.argmax(np.nan_to_num(np.abs(got - exact))))
    k = largest if worst.entry is None else worst.entry[1]
    place, numbers = slot.place(k, array.slot), (float(got[k]), float(exact[k]))
    message = (
        f"value of {place} against {_REFERENCE}: {worst.name} off by {worst.value:.3g}, rounding "
        f"explains {worst.allowed:.2g}; it is {numbers[0]:.6g}, exact {numbers[1]:.6g}"
    )
    return Finding(_NAME, message, "precision", None, place, *numbers, 0.0, worst.allowed)


def identity(
    check_: Callable[[Measurements], CheckResult], measurements: Measurements, found: CheckResult
) -> CheckResult:
    """A failed identity of derivatives, where the reference is a definition.

    It is none where the reference does not keep it either. What is defined may then be another
    function of the cotangent for large and for small ones, as a gradient that is clipped: what is
    claimed of those is held against it instead.

    Args:
        check_: of the identity.
        measurements: of the map.
        found: what the check found of it: a failure.
    """
    map_, settings = measurements.map, measurements.settings
    reference = map_.map_in_double(settings.reference)
    usual = settings.with_precision(reference.resolution)
    defined = Measurements(reference, replace(usual, trusted=False, reference=None))
    own = check_(defined)
    if own.verdict is not Verdict.FAILED:
        return found
    grains = [slot.grain.largest for slot in map_.codomain.slots]
    large = min(_LARGE, *(math.sqrt(largest) for largest in grains))
    for name, factor in (("large", large), ("small", 1 / large)):
        v = factor * measurements.cotangent(0)
        got, expected = map_.vjp(v), reference.vjp(v)
        what = f"for {name} cotangents, against {_REFERENCE}"
        if findings := vector_findings(found.name, measurements, got, expected, what):
            summary = f"off {what}"
            return failed_check(found.name, summary, findings, oracle=_REFERENCE)
    text = f"as {_REFERENCE}, which is the definition, for large and small cotangents"
    return passed_check(found.name, f"{text}; neither keeps the identity: {own.summary}")
