"""The law: monotone in claim, bar, rounding and tolerance; NaN is never right."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradproof._compare.tolerances import bound_of_entry, decide, rounding_of_claim
from gradproof._data.space import root_mean_square
from gradproof._numdiff.slopes import Slopes

NAN, INF = math.nan, math.inf
NUMBERS = st.floats(-1e6, 1e6)
SIZES = st.floats(0, 1e6)
BARS = SIZES | st.just(INF)


def slopes(low: object, high: object, bar: object) -> Slopes:
    ends = np.atleast_1d(np.asarray(low, float)), np.atleast_1d(np.asarray(high, float))
    size = ends[0].size
    return Slopes(
        low=ends[0],
        high=ends[1],
        bar=np.broadcast_to(np.asarray(bar, float), size),
        noise=np.where(np.isnan(ends[0]), NAN, 0.0),
        steepness=np.zeros(size),
        still=np.zeros(size, bool),
        in_treads=np.zeros(size, bool),
    )


def law(
    claimed: float,
    low: float,
    bar: float = 0.0,
    rounding: float = 0.0,
    tolerance: float = 0.0,
    width: float = 0.0,
    resolution: float = 1e-2,
) -> str:
    found = decide(
        slopes(low, low + width, bar), np.array([claimed]), rounding, tolerance, 1.0, resolution
    )
    assert not (found.wrong & found.open).any()
    return "wrong" if found.wrong[0] else "open" if found.open[0] else "right"


@given(NUMBERS, NUMBERS, BARS, SIZES, SIZES, SIZES)
def test_wrong_is_further_away_than_bar_rounding_and_tolerance(c, m, b, s, t, width) -> None:
    distance = max(0.0, m - c, c - (m + width))
    assert (law(c, m, b, s, t, width) == "wrong") == (distance > b + s + t)


@given(NUMBERS, NUMBERS, BARS, SIZES, SIZES, SIZES, SIZES)
def test_what_is_open_stays_so_with_a_wider_bar_or_rounding(c, m, b, s, t, wider, more) -> None:
    if law(c, m, b, s, t) == "open":
        assert law(c, m, b + wider, s + more, t) == "open"


@given(NUMBERS, NUMBERS, SIZES, SIZES)
def test_what_is_open_is_so_because_bar_and_rounding_are_not_small(c, m, b, s) -> None:
    if law(c, m, b, s, tolerance=INF) == "open":
        assert b + s > 1e-2 * max(abs(c), abs(m))
    if b + s <= 1e-2 * max(abs(c), abs(m)):
        assert law(c, m, b, s) != "open"


@given(NUMBERS, BARS, st.sampled_from([0.0, 1e300, INF]), SIZES)
def test_a_claim_of_nan_is_wrong(m, b, t, s) -> None:
    assert law(NAN, m, b, s, t) == "wrong"


@given(NUMBERS | st.sampled_from([NAN, INF, -INF]), SIZES, SIZES | st.just(INF))
def test_nothing_is_right_where_nan_is_measured(c, s, t) -> None:
    assert law(c, NAN, INF, s, t) != "right"
    assert law(c, NAN, 0.0, s, t) != "right"
    assert law(c, 1.0, NAN, s, t) != "right"


@pytest.mark.parametrize("claimed", [INF, -INF])
@pytest.mark.parametrize("tolerance", [0.0, 1e300, INF])
def test_an_infinite_claim_beside_a_finite_slope_is_wrong(claimed, tolerance) -> None:
    assert law(claimed, 1.0, 0.1, tolerance=tolerance) == "wrong"
    assert law(claimed, 1.0, INF, tolerance=tolerance) == "open"  # nothing was measured


def test_an_infinite_slope_allows_finite_claims_and_infinity_of_its_sign() -> None:
    most = float(np.finfo(float).max)
    grows = slopes([-most] * 4, [INF] * 4, 1.0)
    found = decide(grows, np.array([INF, -INF, 7.0, NAN]), 0.0, 0.0, 1.0, 1e-2)
    assert found.wrong.tolist() == [False, True, False, True]


def test_an_infinite_claim_changes_nothing_for_others() -> None:
    measured = slopes([1.0, 1.0, 1.0], [1.0, 1.0, 1.0], 1e-9)
    claims = np.array([1.0, 2.0, INF])
    tolerance = 1e-3 * measured.size
    found = decide(measured, claims, 0.0, tolerance, 1.0, 1e-2)
    assert found.wrong.tolist() == [False, True, True]
    assert not found.open.any()


def test_a_gap_as_large_as_allowed_is_accepted_and_the_next_double_is_not() -> None:
    assert law(1.5, 1.0, 0.25, 0.125, 0.125, resolution=1.0) == "right"
    assert law(float(np.nextafter(1.5, 2)), 1.0, 0.25, 0.125, 0.125, resolution=1.0) == "wrong"


def test_zero_beside_zero_needs_no_tolerance() -> None:
    assert law(0.0, 0.0) == law(-0.0, 0.0) == "right"
    assert law(5e-324, 0.0) == "wrong"


@given(st.floats(1e-12, 1e-3), st.integers(1, 10**6))
def test_the_bound_of_an_entry_grows_with_the_root_of_the_row(part: float, inputs: int) -> None:
    assert part <= bound_of_entry(part, inputs) <= 6.0001 * part * math.sqrt(inputs)


def test_a_claim_is_rounded_by_a_part_of_its_largest_term() -> None:
    found = rounding_of_claim(2.0**-53, np.array([1.0, NAN, INF]), np.array([0.5, 4.0, 2.0]))
    assert found.tolist() == [2.0**-45, 2.0**-43, 2.0**-44]


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e-160, 1.0, 1e160, 1e308])
def test_the_root_mean_square_neither_overflows_nor_underflows(scale: float) -> None:
    values = scale * np.asarray([1.0, -1.0, 1.0, 0.0])
    assert root_mean_square(values) == pytest.approx(scale * math.sqrt(0.75), rel=1e-3, abs=0.0)


def test_the_root_mean_square_is_that_of_finite_values() -> None:
    assert root_mean_square(np.asarray([3.0, NAN, -3.0, INF, -INF])) == 3.0
    assert root_mean_square(np.asarray([NAN])) == root_mean_square(np.zeros(0)) == 0.0
