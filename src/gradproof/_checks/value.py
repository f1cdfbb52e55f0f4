"""The value is that of the user's reference, as far as honest rounding goes."""

from __future__ import annotations

import numpy as np

from gradproof._checks.outcome import failed_check, inconclusive_check, skipped_check
from gradproof._data.formats import ROUNDABLE
from gradproof._data.records import CheckResult, Finding, Verdict
from gradproof._data.space import Values
from gradproof._low_precision.rounding_result import rounding_result
from gradproof._low_precision.rounding_runs import RUNS, ClaimedBesideExact, arithmetic_of
from gradproof._low_precision.rounding_tests import array_deviations
from gradproof._maps.contract import DifferentiableMap, OtherOutputs, Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._measurements import Measurements

_NAME, _REFERENCE = "value", "the reference"


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
    except OtherOutputs:
        text = f"{_REFERENCE} returns outputs of another shape"
        return failed_check(_NAME, text, (Finding(_NAME, text, "value"),), reference=_REFERENCE)
    except Unsupported as missing:
        return inconclusive_check(_NAME, f"{_REFERENCE}: {missing.reason}")
    sides = _values_beside_exact(measurements, reference, exact)
    undefined = np.flatnonzero(np.isfinite(sides.got[0]) != np.isfinite(exact))
    if undefined.size:
        i = int(undefined[0])
        got, right, place = float(sides.got[0, i]), float(exact[i]), sides.space.locate(i)
        message = f"value of {place}: {got:g}, that of {_REFERENCE} is {right:g}"
        finding = Finding(_NAME, message, "value", None, place, got, right, 0.0, 0.0)
        text = "another value than that of the reference"
        return failed_check(_NAME, text, (finding,), reference=_REFERENCE)
    arrays = list(array_deviations(sides, settings.slack))
    found = rounding_result(sides, arrays, reference=_REFERENCE, noun="value", check=_NAME)
    is_right = found.verdict is Verdict.PASSED
    return CheckResult(
        _NAME,
        found.verdict,
        f"it agrees with {_REFERENCE} to {found.bound:.0e}" if is_right else found.summary,
        findings=found.findings,
        resolution=found.bound,
        notes=found.notes,
        reference=_REFERENCE,
        statistics=found.statistics,
    )


def _values_beside_exact(
    measurements: Measurements, reference: DifferentiableMap, exact: Values
) -> ClaimedBesideExact:
    """The value, that of the reference, and how far honest runs of the reference are off."""
    map_, settings = measurements.map, measurements.settings
    grain = arithmetic_of(measurements, exact)
    unit, errors, reason = max(grain.unit, ROUNDABLE), [], ""
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
