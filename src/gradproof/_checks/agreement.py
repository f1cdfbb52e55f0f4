"""Two vectors that must be the same: two claims of J^T v, or of J u, up to rounding, or exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gradproof._data.formats import SINGLE
from gradproof._data.records import Finding, digits
from gradproof._data.settings import RunSettings
from gradproof._data.space import Mask, Values
from gradproof._data.vectors import finite_values
from gradproof._measurements import Measurements

_OF_LARGEST = 1e-10  # of the largest entry of the array, that a sum in another order may be off by
_ULPS_OF_VALUE = 64.0  # of F, that a derivative in which everything cancels may be off by
_FEW_ULPS = 4.0  # the same in 16 bits, where 64 would be a part of F that matters


def vector_findings(
    check: str,
    measurements: Measurements,
    got: Values,
    expected: Values,
    what: str,
    *,
    terms: Sequence[Values] = (),
    forward: bool = False,
    kind: str = "",
    tolerance: Values | float = 0.0,
    most: int = 8,
) -> tuple[Finding, ...]:
    """Findings for the entries in which a vector is not what it should be, largest gap first.

    Allowed are half the digits of the terms that are added up, a few units in the last place of F
    per unit of the input, what the user tolerates and, measured only where there is a gap, what
    rounding does to the claim. Entries of `expected` that are not finite are not judged.

    Args:
        check: name of the check.
        measurements: of the map.
        got: the vector under test, (n,), or (m,) with `forward`.
        expected: what it should be.
        what: how `got` was made, for the message.
        terms: vectors whose sizes together bound the rounding of `got`; `expected` where empty.
        forward: whether they are tangents J u; else gradients J^T v.
        kind: of the findings; the name of the check where it is "".
        tolerance: further gap that is allowed.
        most: findings at most.
    """
    if np.array_equal(got, expected):
        return ()
    space = measurements.map.codomain if forward else measurements.map.domain
    allowed = allowed_gap(measurements, expected, terms, forward=forward) + tolerance
    wrong = _disagreements(measurements, got, expected, terms, allowed, forward=forward)
    if not wrong.any():
        return ()
    rounding = measurements.pushforward_rounding if forward else measurements.gradient_rounding
    allowed = allowed + rounding
    wrong = wrong & _disagreements(measurements, got, expected, terms, allowed, forward=forward)
    gap = np.abs(got - expected)
    gap = np.where(np.isnan(gap), np.inf, gap)
    order = np.argsort(-np.where(wrong, gap, -1.0), kind="stable")[: min(most, int(wrong.sum()))]
    found = []
    for j in order:
        place, numbers = space.locate(int(j)), (float(got[j]), float(expected[j]))
        shown = digits(*numbers)
        message = (
            f"{'tangent' if forward else 'gradient'} of {place}: {what}: got "
            f"{numbers[0]:.{shown}g}, expected {numbers[1]:.{shown}g}; the gap is "
            f"{abs(numbers[0] - numbers[1]):.3g}, allowed {allowed[j]:.2g}"
        )
        found.append(
            Finding(
                check,
                message,
                kind or check,
                input=None if forward else place,
                output=place if forward else None,
                claimed=numbers[0],
                measured=numbers[1],
                error=0.0,
                allowed=float(allowed[j]),
            )
        )
    return tuple(found)


def vectors_agree(
    measurements: Measurements,
    got: Values,
    expected: Values,
    *,
    terms: Sequence[Values] = (),
    forward: bool = False,
    tolerance: Values | float = 0.0,
) -> bool:
    """Whether `vector_findings` finds nothing, without a measurement to excuse a gap."""
    if np.array_equal(got, expected):
        return True
    allowed = allowed_gap(measurements, expected, terms, forward=forward) + tolerance
    wrong = _disagreements(measurements, got, expected, terms, allowed, forward=forward)
    return not wrong.any()


def allowed_gap(
    measurements: Measurements,
    expected: Values,
    terms: Sequence[Values] = (),
    *,
    forward: bool = False,
) -> Values:
    """What two claims of a vector may differ by, by rounding and by what the user tolerates."""
    settings, unit = measurements.settings, measurements.arithmetic_unit
    size = _term_sizes(expected, terms)
    space = measurements.map.codomain if forward else measurements.map.domain
    allowed = math.sqrt(unit) * size
    if forward:  # entries of J u are rounded by each other
        allowed += math.sqrt(unit) * float(np.sqrt(np.mean(size**2))) if size.size else 0.0
    else:
        for position, slot in enumerate(space.slots):
            if slot.size:
                span = space.span(position)
                allowed[span] += _OF_LARGEST * float(size[span].max())
    ulps = (_ULPS_OF_VALUE if unit < SINGLE else _FEW_ULPS) * unit * measurements.largest_value
    allowed += ulps if forward else ulps / measurements.scales
    allowed += settings.atol
    allowed += settings.slack * size
    return allowed


def _term_sizes(expected: Values, terms: Sequence[Values]) -> Values:
    size = np.zeros_like(expected)
    for term in terms or (expected,):
        size += finite_values(np.abs(term))
    return size


def _disagreements(
    measurements: Measurements,
    got: Values,
    expected: Values,
    terms: Sequence[Values],
    allowed: Values,
    *,
    forward: bool,
) -> Mask:
    """Mask of the entries that differ by more than is allowed.

    Beyond the largest number of its format an entry has no right value, nor where a part of what is
    added up may be beyond it.
    """
    space = measurements.map.codomain if forward else measurements.map.domain
    with np.errstate(invalid="ignore", over="ignore"):
        wrong = ~(np.abs(got - expected) <= allowed) & np.isfinite(expected)
    if not wrong.any():
        return np.asarray(wrong)
    size = _term_sizes(expected, terms)
    for position, slot in enumerate(space.slots):
        span = space.span(position)
        wrong[span] &= np.abs(expected[span]) <= slot.grain.largest / 2
        wrong[span] &= ~np.isinf(got[span]) | (8 * size[span] <= slot.grain.largest)
    return np.asarray(wrong)


def modes_gap(
    measurements: Measurements, v: Values, u: Values, pushforward: Values, gradient: Values
) -> tuple[float, float, float, float]:
    """<v, J u> and <J^T v, u>, their gap and what is allowed.

    Both are sums: terms of random signs err by the root of the sum of their squares. In a sum where
    all terms cancel the rounding of F itself is what is left.
    """
    left, right = _finite_dot(v, pushforward), _finite_dot(gradient, u)
    size = _root_of_squares(v * pushforward) + _root_of_squares(gradient * u)
    unit, settings = measurements.arithmetic_unit, measurements.settings
    allowed = math.sqrt(unit) * size + math.sqrt(unit) * abs(left) / math.sqrt(max(v.size, 1))
    value = np.nan_to_num(measurements.function.centre, nan=0.0, posinf=0.0, neginf=0.0)
    allowed += _ULPS_OF_VALUE * unit * _root_of_squares(v * value)
    allowed += settings.slack * (
        _finite_dot(np.abs(v), np.abs(pushforward)) + _finite_dot(np.abs(gradient), np.abs(u))
    )
    allowed += settings.atol * float(np.abs(u).sum())
    return left, right, abs(left - right), allowed


def identity_finding(
    check: str, sides: tuple[float, float], allowed: float, message: str
) -> Finding:
    """The finding that two numbers are not one, as they must be.

    Args:
        check: name of the check.
        sides: the two numbers.
        allowed: what they may differ by.
        message: what they are; the gap is added.
    """
    gap = abs(sides[0] - sides[1])
    text = f"{message}; the gap is {gap:.3g}, allowed {allowed:.2g}"
    return Finding(
        check, text, check, claimed=sides[0], measured=sides[1], error=0.0, allowed=allowed
    )


def _finite_dot(one: Values, other: Values) -> float:
    used = (one != 0) & (other != 0)
    return float(one[used] @ other[used])


def _root_of_squares(terms: Values) -> float:
    good = np.nan_to_num(terms, nan=0.0, posinf=0.0, neginf=0.0)
    return float(np.sqrt(good @ good))


def differing_entries(settings: RunSettings, first: Values, second: Values) -> Mask:
    """Entries in which two gradients of one cotangent differ by more than is tolerated.

    Where both are no number, or infinite likewise, they are the same.
    """
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    largest = np.max(np.abs(first), initial=0.0, where=np.isfinite(first))
    allowed = settings.nondeterminism + settings.relative_nondeterminism * largest
    with np.errstate(invalid="ignore"):
        return np.asarray(~same & ~(np.abs(second - first) <= allowed))


def gradient_repeats(measurements: Measurements) -> bool:
    """Whether one more backward of cotangent 0 gives the first gradient again.

    A gradient that is another one in every run differs in every comparison, whatever that is about.
    """
    first, again = measurements.gradient(0), measurements.map.vjp(measurements.cotangent(0))
    return not differing_entries(measurements.settings, first, again).any()
