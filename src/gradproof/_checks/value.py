"""The value is that of the user's reference, as far as honest rounding goes."""

from __future__ import annotations

import numpy as np

from gradproof._checks.outcome import failed_check, inconclusive_check, passed_check, skipped_check
from gradproof._checks.users_code import UsersError, users_errors
from gradproof._data.records import CheckResult, Finding
from gradproof._data.space import Values
from gradproof._low_precision.rounding_runs import RUNS, ClaimedBesideExact, arithmetic_of
from gradproof._low_precision.rounding_tests import ArrayDeviations, array_deviations, statistics_of
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measurements import Measurements

_NAME, _REFERENCE = "value", "the reference"
_FINEST = 2.0**-40  # unit round-off of the finest arithmetic that doubles can be rounded to


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
        finding = _finding_of_undefined_value(sides, int(undefined[0]))
        text = "another value than that of the reference"
        return failed_check(_NAME, text, (finding,), reference=_REFERENCE)
    arrays = array_deviations(sides, settings.slack)
    more = {"reference": _REFERENCE, "statistics": statistics_of(arrays, sides, _REFERENCE)}
    wrong = [array for array in arrays if any(each.is_wrong for each in array.deviations)]
    if wrong:
        count = f"{len(wrong)} array{'s' if wrong[1:] else ''}"
        summary = f"{count} off by more than rounding explains, against {_REFERENCE}"
        findings = tuple(_finding_of_worst_entry(sides, array) for array in wrong)
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


def _finding_of_undefined_value(sides: ClaimedBesideExact, i: int) -> Finding:
    """That one of the two has no finite value in an entry where the other one has."""
    got, exact = float(sides.got[0, i]), float(sides.exact[0, i])
    place = sides.space.locate(i)
    message = f"value of {place}: {got:g}, that of {_REFERENCE} is {exact:g}"
    return Finding(_NAME, message, "value", None, place, got, exact, 0.0, 0.0)


def _finding_of_worst_entry(sides: ClaimedBesideExact, array: ArrayDeviations) -> Finding:
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
