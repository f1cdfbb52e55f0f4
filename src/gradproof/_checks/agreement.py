"""Two vectors that must be the same: two claims of J^T v, or of J u, up to rounding, or exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from gradproof._data.formats import SINGLE
from gradproof._data.records import Finding, Place, digits_of_gap
from gradproof._data.settings import RunSettings
from gradproof._data.space import Mask, Values, finite_values
from gradproof._measurements import Measurements

_OF_LARGEST = 1e-10  # of the largest entry of the array, that a sum in another order may be off by
ULPS_OF_VALUE = 64.0  # of F, that a derivative in which everything cancels may be off by
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
    lost: float = 0.0,
    rounding: Callable[[], Values] | None = None,
    times: float = 1.0,
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
        lost: further gap that is allowed in every entry.
        rounding: measures what rounding does besides to `got`, where it is not `expected`.
        times: of all that is allowed, that a gap must be larger than.
        most: findings at most.
    """
    if got.shape == expected.shape and (got == expected).all():
        return ()
    space = measurements.map.codomain if forward else measurements.map.domain
    size = np.sum([finite_values(np.abs(term)) for term in terms or (expected,)], axis=0)
    allowed = _allowed_gap(measurements, size, forward=forward) + lost
    wrong = _disagreements(measurements, got, expected, size, allowed, forward=forward)
    if not wrong.any():
        return ()
    allowed += measurements.pushforward_rounding if forward else measurements.gradient_rounding
    wrong &= _disagreements(measurements, got, expected, size, allowed, forward=forward)
    if rounding is not None and wrong.any():
        allowed += rounding()
    if rounding is not None or times > 1:
        wrong &= _disagreements(measurements, got, expected, size, times * allowed, forward=forward)
    gap = np.nan_to_num(np.abs(got - expected), nan=np.inf, posinf=np.inf)
    order = np.argsort(-np.where(wrong, gap, -1.0), kind="stable")[: min(most, int(wrong.sum()))]
    findings = []
    for j in order:
        place, numbers = space.locate(int(j)), (float(got[j]), float(expected[j]))
        text = f"{'tangent' if forward else 'gradient'} of {place}: {what}"
        findings.append(gap_finding(check, kind, text, place, numbers, float(allowed[j]), forward))
    return tuple(findings)


def gap_finding(
    check: str,
    kind: str,
    text: str,
    place: Place,
    numbers: tuple[float, float],
    allowed: float,
    forward: bool = False,
) -> Finding:
    """The finding that one entry is the first of two numbers and not the second."""
    got, expected = numbers
    shown = digits_of_gap(got, expected)
    message = (
        f"{text}: got {got:.{shown}g}, expected {expected:.{shown}g}; the gap is "
        f"{abs(got - expected):.3g}, allowed {allowed:.2g}"
    )
    return Finding(
        check,
        message,
        kind or check,
        input=None if forward else place,
        output=place if forward else None,
        claimed=got,
        measured=expected,
        error=0.0,
        allowed=allowed,
    )


def _allowed_gap(measurements: Measurements, size: Values, *, forward: bool) -> Values:
    """What two claims of a vector may differ by, by rounding and by what the user tolerates.

    `size` is that of the terms that are added up in each entry.
    """
    settings, unit = measurements.settings, measurements.arithmetic_unit
    allowed = math.sqrt(unit) * size
    ulps = (ULPS_OF_VALUE if unit < SINGLE else _FEW_ULPS) * unit * measurements.largest_value
    if forward:  # entries of J u are rounded by each other
        allowed += math.sqrt(unit) * float(np.sqrt(np.mean(size**2))) if size.size else 0.0
        allowed += ulps
    else:
        for position, slot in enumerate(measurements.map.domain.slots):
            if slot.size:
                span = measurements.map.domain.span(position)
                allowed[span] += _OF_LARGEST * float(size[span].max())
        allowed += ulps / measurements.scales
    return np.asarray(allowed + settings.atol + settings.slack * size)


def _disagreements(
    measurements: Measurements,
    got: Values,
    expected: Values,
    size: Values,
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
    if wrong.any():
        for position, slot in enumerate(space.slots):
            span, largest = space.span(position), slot.grain.largest
            wrong[span] &= np.abs(expected[span]) <= largest / 2
            wrong[span] &= ~np.isinf(got[span]) | (8 * size[span] <= largest)
    return np.asarray(wrong)


def repeat_finding(
    check: str, measurements: Measurements, first: Values, second: Values
) -> Finding | None:
    """The worst entry in which another backward of one cotangent differs from the first.

    None where they are the same, up to what the user tolerates.
    """
    if np.array_equal(first, second):
        return None
    wrong = differing_entries(measurements.settings, first, second)
    if not wrong.any():
        return None
    gap = np.where(wrong, np.nan_to_num(np.abs(second - first), nan=np.inf, posinf=np.inf), -1.0)
    worst = int(np.argmax(gap))
    place = measurements.map.domain.locate(worst)
    text = f"gradient of {place}: another backward of the same cotangent against the first"
    numbers = float(second[worst]), float(first[worst])
    allowed = _tolerated_repeat_gap(measurements.settings, first)
    return gap_finding(check, "nondeterministic", text, place, numbers, allowed)


def differing_entries(settings: RunSettings, first: Values, second: Values) -> Mask:
    """Entries in which two gradients of one cotangent differ by more than is tolerated.

    Where both are no number, or infinite likewise, they are the same.
    """
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore"):
        near = np.abs(second - first) <= _tolerated_repeat_gap(settings, first)
    return np.asarray(~same & ~near)


def _tolerated_repeat_gap(settings: RunSettings, first: Values) -> float:
    largest = float(np.max(np.abs(first), initial=0.0, where=np.isfinite(first)))
    return settings.nondeterminism + settings.relative_nondeterminism * largest


def gradient_repeats(measurements: Measurements) -> bool:
    """Whether one more backward of the cotangent gives the first gradient again.

    A gradient that is another one in every run differs in every comparison, whatever that is about.
    """
    first, again = measurements.gradient, measurements.map.vjp(measurements.cotangent)
    return not differing_entries(measurements.settings, first, again).any()
