"""What is allowed, in numbers that are worked out by hand: `_judge/decide.py`."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gradproof._data.settings import Settings
from gradproof._judge import decide as law
from gradproof._judge.decide import Bar, Tolerance, decide
from gradproof._measure.richardson import Estimate
from numpy_map import FunctionMap

DOUBLE, SINGLE, HALF = 2.0**-53, 2.0**-24, 2.0**-11


pytestmark = pytest.mark.usefixtures("as_in_the_engine")


def of(unit: float = DOUBLE, value=(1.0,)) -> FunctionMap:
    """A map of this precision; its value is the same everywhere."""
    map_ = FunctionMap(lambda x: np.array(value), [1.0], np.ones((len(value), 1)))
    map_.resolution = unit
    return map_


def rows(value, error, kink=0.0) -> Estimate:
    value = np.asarray(value, dtype=float)
    bars = (np.broadcast_to(np.asarray(each, dtype=float), value.shape) for each in (error, kink))
    return Estimate(value, *bars, *3 * [np.zeros_like(value)])


# The law.


def test_tolerances_are_those_of_the_settings() -> None:
    settings = Settings(atol=0.25, rtol=0.125)
    assert law.of_user(settings) == Tolerance(0.25, 0.125)
    assert law.of_claims(settings) == Tolerance(0.25, settings.slack)
    assert Tolerance(0.5, 0.25).beside(-8.0) == 2.5
    assert Tolerance(0.5).beside(math.inf) == 0.5  # nothing in parts of what is infinite


def test_a_bar_is_widened_only_where_it_is_not_small() -> None:
    found = decide(5.0, 1.0, Bar(2.0, 0.5), 0.25, Tolerance(0.125), small=2.0)
    assert (found.gap, found.allowed, found.further) == (4.0, 2.375, 2.0 + 3 * 1.5 + 0.375)
    assert found.sharp
    assert found.wrong
    wide = decide(5.0, 1.0, Bar(2.0, 0.5), 0.25, Tolerance(0.125), small=1.9)
    assert not wide.sharp
    assert not wide.wrong
    assert not wide.right
    assert decide(8.0, 1.0, Bar(2.0, 0.5), 0.25, Tolerance(0.125), small=1.9).wrong


def test_a_larger_rounding_widens_both_allowances() -> None:
    found = decide(5.0, 1.0, Bar(2.0), 0.25).plus(0.5)
    assert (found.allowed, found.further) == (2.75, 8.75)


# Sums of terms whose signs are drawn.


def test_few_terms_may_add_up_and_many_do_not() -> None:
    assert law.drawn(np.array([3.0, -4.0])) == 7.0
    assert law.drawn(np.full(64, 2.0)) == 128.0  # eight roots of the sum of squares: 8 * 8 * 2
    assert law.drawn(np.full(10_000, 2.0)) == pytest.approx(8 * 100 * 2.0)
    assert law.drawn(np.full(1 << 17, 2.0)) == pytest.approx(8 * 2.0 * math.sqrt(1 << 17))
    assert law.drawn(np.array([3.0, math.inf])) == 3.0


def test_the_rounding_of_an_inner_product() -> None:
    """64 roundings of all its terms; of eight roots of their squares where signs count."""
    one, other = np.full(1024, 2.0), np.tile([3.0, -3.0], 512)
    total, rounding = law.dot_and_rounding(of(DOUBLE), one, other)
    assert (total, rounding) == (0.0, 64 * DOUBLE * 6.0 * 1024)
    total, rounding = law.dot_and_rounding(of(SINGLE), one, other)
    assert (total, rounding) == (0.0, pytest.approx(64 * SINGLE * 8 * 6.0 * 32))
    _, rounding = law.dot_and_rounding(of(HALF), one, other)
    assert rounding == 64 * HALF * 6.0 * 1024
    total, _ = law.dot_and_rounding(of(DOUBLE), np.ones(1 << 17), np.ones(1 << 17))
    assert total == 1 << 17


@pytest.mark.parametrize(("unit", "counts"), [(DOUBLE, False), (SINGLE, True), (HALF, False)])
def test_signs_count_in_single_precision(unit: float, counts: bool) -> None:
    assert law.signs_count(of(unit)) is counts


# To what something is verified.


@pytest.mark.parametrize(
    ("unit", "inputs", "probes", "times"),
    [
        (DOUBLE, 1, 1, 1.0),  # one entry is seen as it is
        (DOUBLE, 2, 1, 4.0),  # no more than all of them: 2, each moved by a half
        (DOUBLE, 9, 1, 18.0),
        (DOUBLE, 100, 1, 60.0),  # 3 roots of 100, moved by a half
        (DOUBLE, 100, 2, 120.0),  # and weighed by a half
        (SINGLE, 100, 1, 1.0),
    ],
)
def test_a_part_of_a_row_in_parts_of_its_largest_entry(unit, inputs, probes, times) -> None:
    assert law.of_largest(of(unit), 1e-6, inputs, probes) == pytest.approx(times * 1e-6)


def test_what_is_unseen_in_parts_of_the_smallest_column() -> None:
    unseen, columns = np.array([1e-9, 4e-9, 0.0, 0.0]), np.array([2.0, 0.5, 0.0])
    found = law.of_smallest(of(), unseen, np.array([1.0, 2.0, 3.0, 4.0]), columns)
    assert found == pytest.approx(4e-9 * math.sqrt(4) / 0.5)


def test_where_every_row_has_its_own_column_none_hides_another() -> None:
    unseen, sizes = np.full(3, 1e-9), np.array([1.0, 1e-6, 3.0])
    assert law.of_smallest(of(), unseen, sizes[::-1], sizes) == 0.0
    assert law.of_smallest(of(), unseen, np.zeros(3), np.zeros(3)) == 0.0
    other = np.array([1.0, 1.1e-6, 3.0])
    assert law.of_smallest(of(), unseen, other, sizes) == pytest.approx(1e-3 * math.sqrt(3))


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (1e-9, 1e-9),
        (1.0000001e-9, 2e-9),
        (9.5e-9, 1e-8),
        (0.35, 0.4),
        (3.0, 3.0),
        (0.0, 0.0),
        (math.inf, math.inf),
    ],
)
def test_a_bound_is_told_in_one_digit_and_never_smaller(part: float, told: float) -> None:
    assert law.rounded_up(part) == told


# The rounding of a claim.


def test_sums_in_another_order_keep_half_the_digits() -> None:
    assert law.half_the_digits(of(2.0**-40)) == 2.0**-20


def test_the_rounding_of_an_entry_is_that_of_its_row() -> None:
    assert law.of_entry(of(DOUBLE), 3.0) == 3e-12
    assert law.of_entry(of(SINGLE), 3.0) == 3 * 16 * SINGLE


@pytest.mark.parametrize("error", [0.0, 1e-9])
def test_an_entry_measured_as_zero_may_be_half_the_digits_of_its_row(error: float) -> None:
    """And where its whole row is, 64 roundings of the other rows."""
    value, errors = np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[0.0, error], [0.0, 0.0]])
    size, typical = np.array([[2.0], [0.0]]), np.array([[8.0]])
    found = law.of_entries(of(2.0**-52), (value, errors), size, typical)
    flat = 64 * 2.0**-52 * 8.0
    assert found.tolist() == [[2e-12, 2.0**-26 * 2.0 + 2e-12], [flat, flat]]


def test_the_rounding_of_a_row_along_a_tangent() -> None:
    """64 roundings of what the claim mixes, and 1e-10 of the row, or 64 roundings of it."""
    found = rows([4.0, 0.0, 0.0], error=[0.0, 0.0, 1e-9])
    unit = 64 * DOUBLE
    told = law.of_row(of(), found, 2.0, 8.0)
    assert told == pytest.approx([2 * unit + 4e-10, 8 * unit, 2 * unit], rel=1e-12)
    assert law.of_row(of(), found, 16.0, 8.0)[1] == 16 * unit
    single = law.of_row(of(SINGLE), found, 0.0, 8.0)
    assert single[0] == 64 * SINGLE * 4.0


def test_the_rounding_of_a_sum_and_of_a_vector() -> None:
    assert law.of_sum(3.0) == pytest.approx(3e-10)
    assert law.of_vector(of(2.0**-40), 3.0, 5.0) == 3 * 2.0**-20 + 5.0


def test_two_values_are_the_same_to_half_the_digits_and_their_noise() -> None:
    map_, expected = of(2.0**-40), np.array([3.0, 4.0, math.inf])
    root = math.sqrt(12.5)  # of the finite values
    edge = 2.0**-20 * (np.array([3.0, 4.0]) + root) + 4 * 0.5  # four bars
    for factor, same in ((0.999, True), (1.001, False)):
        got = np.append(expected[:2] + factor * edge, 7.0)
        found = law.same_value(map_, got, expected, 0.5)
        assert (~found.wrong).tolist() == [same, same, True]


def test_two_modes_are_the_same_to_half_the_digits_and_the_rounding_of_the_value() -> None:
    """Of <v, J u>, which adds up v * J u, and <J^T v, u>."""
    map_ = of(2.0**-40, value=(3.0, 4.0))
    v, u = np.array([1.0, -1.0]), np.array([2.0])
    found = law.two_modes(map_, (v, u), (np.array([3.0, 4.0]), np.array([7.0])))
    assert (found.claimed, found.measured) == (-1.0, 14.0)
    value = 64 * 2.0**-40 * 5.0
    assert found.allowed == pytest.approx(2.0**-20 * (5.0 + 14.0) + value, rel=1e-12)


def test_the_rounding_of_second_derivatives_is_64_times_that_of_the_first() -> None:
    found = law.of_second_order(of(2.0**-40), 3.0, 5.0)
    assert found == pytest.approx(64 * (2.0**-20 * 3.0 + 64 * 2.0**-40 * 5.0), rel=1e-12)
