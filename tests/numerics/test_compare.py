"""The one comparator: NaN fails, and the size of an array changes nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gradproof._data.vectors import rms
from gradproof._judge.decide import Bar, Tolerance, decide, explained

NAN, INF = math.nan, math.inf


def _ok(claimed: float, measured: float, error: float = 0.0, **tolerances: float) -> bool:
    one, other, bar = (np.asarray([value]) for value in (claimed, measured, error))
    tolerance = Tolerance(tolerances.get("atol", 0.0), tolerances.get("rtol", 0.0))
    return bool(decide(one, other, Bar(bar), 0.0, tolerance).close[0])


@pytest.mark.parametrize(
    ("claimed", "measured", "error"),
    [(NAN, 1.0, 0.0), (1.0, NAN, 0.0), (NAN, NAN, 0.0), (1.0, 1.0, NAN), (NAN, 1.0, INF)],
)
def test_nan_on_any_side_never_passes(claimed: float, measured: float, error: float) -> None:
    assert not _ok(claimed, measured, error, atol=1e300, rtol=1e300)


@pytest.mark.parametrize(("gap", "allowed"), [(NAN, 1.0), (0.0, NAN), (NAN, NAN), (NAN, INF)])
def test_nan_explains_nothing_and_is_explained_by_nothing(gap: float, allowed: float) -> None:
    assert not explained(np.asarray(gap), np.asarray(allowed))
    assert not explained(gap, allowed)


def test_a_gap_exactly_as_large_as_allowed_is_accepted_and_the_next_double_is_not() -> None:
    assert _ok(1.5, 1.0, 0.5)
    assert not _ok(np.nextafter(1.5, 2.0), 1.0, 0.5)


def test_zero_against_zero_needs_no_tolerance() -> None:
    assert _ok(0.0, 0.0)
    assert _ok(-0.0, 0.0)
    assert not _ok(5e-324, 0.0)


def test_a_relative_tolerance_excuses_nothing_where_zero_is_measured() -> None:
    assert not _ok(1e-30, 0.0, rtol=1.0)
    assert _ok(0.0, 1e-30, rtol=1.0)


@pytest.mark.parametrize("infinite", [INF, -INF])
def test_an_infinite_claim_against_a_finite_measurement_fails(infinite: float) -> None:
    with np.errstate(invalid="ignore"):
        assert not _ok(infinite, 1.0, 0.1, atol=1e300)
        assert not _ok(infinite, infinite)


def test_allowed_is_the_bar_plus_atol_plus_rtol_of_the_measured_value() -> None:
    ones = np.ones(1)
    comparison = decide(9 * ones, -8 * ones, Bar(0.5 * ones), 2.0, Tolerance(0.25, 0.125))
    assert comparison.allowed.tolist() == [0.5 + 0.25 + 1.0 + 2.0]
    assert comparison.gap.tolist() == [17.0]


def test_tiling_a_thousand_times_changes_no_verdict() -> None:
    rng = np.random.default_rng(0)
    measured, error = rng.standard_normal(50), 1e-3 * rng.random(50)
    claimed = measured + 2e-3 * rng.standard_normal(50)
    tolerance = Tolerance(1e-4, 1e-4)
    once = decide(claimed, measured, Bar(error), 0.0, tolerance).close
    claims, truths, bars = (np.tile(values, 1000) for values in (claimed, measured, error))
    assert 0 < once.sum() < 50
    tiled = decide(claims, truths, Bar(bars), 0.0, tolerance).close
    assert np.array_equal(tiled, np.tile(once, 1000))


def _told(right: object, wrong: object) -> tuple[bool, bool, bool]:
    return bool(right), bool(wrong), not right and not wrong


def _verdicts(gap: float, error: float, kink: float, small: float | None) -> tuple[bool, ...]:
    found = decide(1.0 + gap, 1.0, Bar(error, kink), 0.0, small=small)
    return _told(found.right, found.wrong)


RIGHT, WRONG, OPEN = (True, False, False), (False, True, False), (False, False, True)


@pytest.mark.parametrize(
    ("gap", "error", "kink", "small", "expected"),
    [
        (0.5, 1.0, 0.0, None, RIGHT),
        (1.5, 1.0, 0.0, None, WRONG),
        (0.5, 1.0, 0.0, 0.75, OPEN),  # within a bar that is not small
        (1.5, 1.0, 0.0, 0.75, OPEN),  # perhaps an accident
        (4.5, 1.0, 0.0, 0.75, WRONG),
        (1.5, 1.0, 1.0, 0.75, WRONG),  # the half-gap of a kink is exact
        (0.0, INF, 0.0, None, OPEN),
        (NAN, 1.0, 0.0, None, WRONG),
        (9.0, INF, 0.0, None, OPEN),  # nothing was measured
        (9.0, NAN, 0.0, None, OPEN),
    ],
)
def test_of_right_wrong_and_open_exactly_one_holds(gap, error, kink, small, expected) -> None:
    assert _verdicts(gap, error, kink, small) == expected
    arrays = decide(
        *(np.asarray([v]) for v in (1.0 + gap, 1.0)),
        Bar(np.asarray([error]), np.asarray([kink])),
        0.0,
        small=small,
    )
    assert _told(arrays.right[0], arrays.wrong[0]) == expected


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e-160, 1.0, 1e160, 1e308])
def test_rms_neither_overflows_nor_underflows(scale: float) -> None:
    values = scale * np.asarray([1.0, -1.0, 1.0, 0.0])
    assert rms(values) == pytest.approx(scale * math.sqrt(0.75), rel=1e-3, abs=0.0)


def test_rms_leaves_out_what_is_not_finite() -> None:
    assert rms(np.asarray([3.0, NAN, -3.0, INF, -INF])) == 3.0


@pytest.mark.parametrize("values", [[], [0.0, 0.0], [NAN, INF]])
def test_rms_of_nothing_is_zero(values: list[float]) -> None:
    assert rms(np.asarray(values)) == 0.0


def test_rms_does_not_grow_with_the_size() -> None:
    values = np.random.default_rng(0).standard_normal(100)
    assert rms(np.tile(values, 1000)) == pytest.approx(rms(values), rel=1e-12)
