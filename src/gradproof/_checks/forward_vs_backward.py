"""Forward mode against the backward: <v, J u> = <J^T v, u>, no differences."""

from __future__ import annotations

import math

import numpy as np

from gradproof._checks.agreement import ULPS_OF_VALUE
from gradproof._checks.outcome import failed_check, passed_check, skipped_check
from gradproof._data.records import CheckResult, Finding
from gradproof._data.space import Values, finite_values, norm
from gradproof._measurements import Measurements

_NAME, _AGREE = "forward_vs_backward", "forward mode and backward agree"
_NEVER = 8.0  # roots of the sum of squares, that a sum of random signs is never larger than
_KINKS = 2.5  # half-widths: one for each mode, and what is like them


def check(measurements: Measurements) -> CheckResult:
    """Both modes claim one and the same Jacobian, to rounding."""
    if measurements.settings.trusted:
        return skipped_check(_NAME, "each mode is held against the reference, a definition")
    u, v = measurements.tangent, measurements.cotangent
    forward, backward = measurements.forward.product, measurements.gradient
    is_infinite = [bool(np.isinf(claim).any()) for claim in (forward, backward)]
    # In few bits one mode alone may be beyond the largest number of its format.
    is_excused = all(is_infinite) or (any(is_infinite) and not measurements.is_double)
    if is_excused or np.isnan(forward).any() or np.isnan(backward).any():
        text = "a claim is NaN or beyond the largest number, which the check of its mode judges"
        return skipped_check(_NAME, text)
    left, right = float(v @ forward), float(backward @ u)
    gap, allowed = abs(left - right), _allowed_gap(measurements, left)
    if gap <= allowed:
        return passed_check(_NAME, _AGREE)
    # Nothing that F or its backward rounds knows the signs of a probe.
    allowed += _sum_of_random_signs(u * measurements.backward.rounding)
    allowed += _sum_of_random_signs(v * measurements.forward.rounding)
    if not gap <= allowed:
        slopes = measurements.slopes
        width = np.where(np.isfinite(slopes.bar), slopes.width, 0.0)
        # At a kink each mode may claim another slope between the two. Whether it does lie between
        # is for the checks of the two modes to say.
        allowed += _KINKS * _sum_of_random_signs(v * width / 2)
        # Claims that are both below the error bars are rounding. Differences in few bits see next
        # to nothing: their bars excuse no claim.
        bars = _sum_of_random_signs(v * slopes.bar) if measurements.is_double else 0.0
        allowed += bars if max(abs(left), abs(right)) <= bars else 0.0
        if width.any() and not gap <= allowed:  # along a tangent, kinks of both signs may cancel
            text = "the modes disagree, as they may at a kink, where each has a check of its own"
            return skipped_check(_NAME, text)
    if gap <= allowed:
        return passed_check(_NAME, _AGREE)
    message = (
        f"forward mode and backward disagree: <v, J u> is {left:.6g}, <J^T v, u> is {right:.6g}; "
        f"the gap is {gap:.3g}, allowed {allowed:.2g}"
    )
    finding = Finding(
        _NAME, message, _NAME, claimed=left, measured=right, error=0.0, allowed=allowed
    )
    return failed_check(_NAME, "the two modes claim different Jacobians", (finding,))


def _allowed_gap(measurements: Measurements, total: float) -> float:
    """What the two sides may differ by, by rounding and by what the user tolerates.

    Both are sums: terms of random signs err by the root of the sum of their squares. In a sum where
    all terms cancel the rounding of F itself is what is left.
    """
    u, v = measurements.tangent, measurements.cotangent
    unit, settings = measurements.arithmetic_unit, measurements.settings
    forward = finite_values(np.abs(v * measurements.forward.product))
    backward = finite_values(np.abs(measurements.gradient * u))
    value = finite_values(v * measurements.function.centre)
    allowed = math.sqrt(unit) * (norm(forward) + norm(backward))
    if math.isfinite(total):  # an infinite claim allows nothing
        allowed += math.sqrt(unit) * abs(total) / math.sqrt(max(v.size, 1))
    allowed += ULPS_OF_VALUE * unit * norm(value)
    allowed += settings.slack * (forward.sum() + backward.sum())
    return float(allowed + settings.atol * np.abs(u).sum())


def _sum_of_random_signs(terms: Values) -> float:
    """A bound of a sum of terms of known sizes, whose signs are drawn with a probe.

    Terms that are not finite are left out.
    """
    sizes = finite_values(np.abs(terms))
    return float(min(sizes.sum(), _NEVER * norm(sizes)))
