"""Columns of a Jacobian: which of two estimates is believed, which columns are moved together."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from gradproof._data.settings import Settings
from gradproof._measure import directional, jacobian
from gradproof._measure.one_sided import KINK, Kinks
from gradproof._measure.richardson import Estimate
from numpy_map import FunctionMap

DOUBLE, SINGLE = 2.0**-53, 2.0**-24
SETTINGS = Settings(seed=0)
INF, NAN = math.inf, math.nan


pytestmark = pytest.mark.usefixtures("as_in_the_engine")


def rows(value, error=0.0, kink=0.0, other=0.0) -> Estimate:
    value = np.asarray(value, dtype=float)
    rest = (np.broadcast_to(np.asarray(e, dtype=float), value.shape) for e in (error, kink, other))
    error, kink, other = rest
    return Estimate(value, error, kink, other, other, other)


def of(fn=np.copy, at=(1.0, 2.0)) -> FunctionMap:
    return FunctionMap(fn, at, np.zeros((len(fn(np.array(at, dtype=float))), len(at))))


def test_of_two_estimates_the_sharper_is_believed() -> None:
    one = rows([1.0, 1.0, 1.0, 1.0], error=[0.1, 0.3, NAN, 0.2], kink=1.0, other=1.0)
    other = rows([1.2, 1.2, 1.2, 1.2], error=[0.2, 0.2, 0.2, 0.2], kink=2.0, other=2.0)
    found = jacobian._sharper(one, other)
    assert found.value.tolist() == [1.0, 1.2, 1.0, 1.0]
    assert found.kink.tolist() == found.noise.tolist() == [1.0, 2.0, 1.0, 1.0]
    assert found.error[[0, 1, 3]].tolist() == [0.1, 0.2, 0.2]


@pytest.mark.parametrize(("gap", "bar"), [(0.375, 0.125), (0.5, 0.5), (-0.5, 0.5)])
def test_bars_that_do_not_meet_reach_to_the_other_value(gap: float, bar: float) -> None:
    """An eighth and a quarter: neither is believed to less than the distance of the two."""
    found = jacobian._sharper(rows([1.0], error=0.125), rows([1.0 + gap], error=0.25))
    assert (float(found.value[0]), float(found.error[0])) == (1.0, bar)


def test_a_derivative_per_input_has_its_steps_in_units_of_the_input() -> None:
    found = jacobian._per_input(rows([8.0], error=4.0, kink=2.0, other=6.0), 2.0)
    told = {field.name: float(getattr(found, field.name)[0]) for field in fields(Estimate)}
    expected = {"value": 4.0, "error": 2.0, "kink": 1.0, "step": 12.0, "step_error": 3.0}
    assert told == {**expected, "noise": 6.0}


@pytest.mark.parametrize(
    ("error", "kink", "wide", "bent"),
    [
        (0.04, 0.0, False, False),  # a hundredth of the largest entry, 4
        (0.05, 0.0, True, True),
        (0.05, 0.03, False, True),  # a kink makes it wide, which steps do not mend
        (INF, 0.0, False, True),
        (NAN, 0.0, False, True),
    ],
)
def test_a_bar_is_wide_beside_the_largest_entry_of_its_column(error, kink, wide, bent) -> None:
    found = rows([-4.0, 0.0], error=[0.0, error], kink=[0.0, kink])
    assert jacobian._wide(found).tolist() == [False, wide]
    assert jacobian._bent(found).tolist() == [False, bent]
    assert jacobian._bent(found, least=5.0).tolist() == [False, bent and error != 0.05]


def test_an_output_without_a_bar_is_lost_where_it_has_a_value_and_a_slope() -> None:
    found = rows([1.0, 1.0, NAN, 1.0], error=[INF, INF, INF, 1.0])
    centre = np.array([1.0, NAN, 1.0, 1.0])
    assert jacobian._lost(centre, found).tolist() == [True, False, False, False]
    assert jacobian._open(centre, found)
    assert not jacobian._open(np.full(4, NAN), rows([1.0], error=0.0).of(np.zeros(4, dtype=int)))


def test_a_unit_vector() -> None:
    assert jacobian.unit(np.zeros(3), 1).tolist() == [0.0, 1.0, 0.0]
    assert jacobian.unit(np.zeros(3), 0, 2.5, count=2).tolist() == [2.5, 0.0]


def test_a_column_is_moved_off_the_grid_of_powers_of_two_by_its_own_scale_and_its_arrays() -> None:
    map_ = of(at=(1.0, 2.0**-30, 1.0))
    assert jacobian._column_scales(map_, 0) == [1 + 361 / 1024]
    own, usual = jacobian._column_scales(map_, 1)
    assert own == 2.0**-30 * (1 + 361 / 1024)
    assert usual > 2.0**-10
    map_.resolution = SINGLE
    assert jacobian._column_scales(map_, 0) == [1.25]
    assert jacobian.own_scale(map_, 0) == 1.25


def test_a_plain_difference_has_an_absolute_step() -> None:
    map_ = of(lambda x: np.array([x[0] ** 3, x[1]]), at=(2.0, 5.0))
    assert jacobian.classic_column(map_, 0.5, 0) == pytest.approx([12.25, 0.0])


# Columns that may be moved together.


@pytest.mark.parametrize(
    ("claimed", "meet"),
    [
        ([[1, 0, 0, 0], [0, 1, 1, 0]], False),
        ([[1, 0, 0, 0], [1, 1, 1, 0]], True),  # three of four
        ([[1, 1, 0, 0], [0, 0, 1, 1]], False),  # a half
        ([[0, 0]], True),  # one output
        (np.zeros((0, 3)), False),
        (np.zeros((3, 0)), False),
    ],
)
def test_most_columns_meet_in_one_output(claimed, meet: bool) -> None:
    assert jacobian.meet(np.array(claimed, dtype=float)) is meet


def test_columns_without_a_common_row_are_guessed_to_act_apart() -> None:
    map_ = of(at=(1.0,) * 6)
    pattern = np.array(
        [[1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0]], dtype=bool
    )
    assert jacobian._guessed(map_, pattern) == [[0, 2, 3], [1], [4, 5]]
    assert jacobian._guessed(map_, np.ones((2, 6), dtype=bool)) == []


def owners(fn, at=(1.0,) * 5, columns=(0, 1, 2, 3, 4)):
    found = jacobian._owners(of(fn, at), SETTINGS, columns)
    return None if found is None else found.tolist()


def test_the_columns_of_a_group_are_told_by_the_outputs_that_change() -> None:
    assert owners(lambda x: x[[4, 2, 0, 0, 1, 3]]) == [4, 2, 0, 0, 1, 3]
    assert owners(lambda x: np.array([x[3], 7.0, x[1]])) == [3, -1, 1]
    assert owners(lambda x: x[[4, 2]], columns=(1, 2, 4)) == [4, 2]
    assert owners(lambda x: np.array([x[0] + x[3], x[1]])) is None  # acts with two
    assert owners(lambda x: np.array([x[0], np.log(-x[1])])) is None  # has no value
    assert owners(lambda x: np.array([max(x[0], 1.0)])) == [0]  # moves to one side


def test_a_group_of_columns_is_each_of_them() -> None:
    map_ = of(lambda x: np.array([np.sin(x[0]), abs(x[1] - 2.0)]))
    group = jacobian._Group(map_, [0, 1], np.array([0, 1]))
    scaled = group.direction
    assert scaled.tolist() == [jacobian.own_scale(map_, 0), jacobian.own_scale(map_, 1)]
    plus, _ = group.at(0.5, plain=True)
    assert plus.tolist() == map_.value(map_.point + 0.5).tolist()
    slopes = group.slopes(SETTINGS)
    calls = map_.calls["value"]
    assert group.slopes(SETTINGS) is slopes
    mine = slopes.only(np.array([True, False]))
    assert mine.value / scaled[0] == pytest.approx([math.cos(1.0), 0.0])
    assert mine.error[1] == 0
    sides = group.sides(SETTINGS)
    assert int(sides.kind[1]) == KINK
    assert group.sides(SETTINGS) is sides
    told = Kinks(*(getattr(sides, field.name) for field in fields(Kinks)))
    assert told.right[1] / scaled[1] == pytest.approx(1.0)
    assert map_.calls["value"] >= calls


def test_along_a_smooth_direction_two_steps_do() -> None:
    map_ = of(lambda x: np.sin(x))
    u = np.array([1.0, -1.0])
    found = jacobian.smooth_along(map_, SETTINGS, u, 1.0)
    assert found.estimate.value == pytest.approx(u * np.cos([1.0, 2.0]))
    assert jacobian.smooth_along(of(lambda x: np.abs(x - 1.0)), SETTINGS, u, 1.0) is None
    plan = directional.plan(map_, SETTINGS, 1.0)
    two = jacobian._of_two(plan)
    assert two.steps() == plan.steps()[1:3]
    assert replace(two, top=plan.top, rungs=plan.rungs) == plan


def test_only_a_column_with_wide_bars_is_asked_more() -> None:
    u = np.array([1.0, 1.0])

    def rough(x):  # one output of five
        return np.concatenate([np.sin(x), np.cos(x), np.sin(x[:1]) + 1e-5 * np.sin(1e13 * x[:1])])

    for map_, more in ((of(np.sin), False), (of(rough), True)):
        plain = directional.direction_of(map_, SETTINGS, u).estimate
        spent = map_.calls["value"]
        map_.calls.clear()
        along = directional.direction_of(map_, SETTINGS, u)
        found = jacobian._sharpened(along).estimate
        assert (map_.calls["value"] > spent) is more
        assert found.value.shape == plain.value.shape


def test_another_first_tangent_leaves_nothing_behind() -> None:
    for known in (False, True):
        map_ = of(np.sin)
        before = directional.along(map_, SETTINGS, 0) if known else None
        u = np.array([0.5, -2.0])
        found = directional.direction_of(map_, SETTINGS, u)
        kept = dict(map_.memo)
        with directional.first_tangent(map_, SETTINGS, u, found):
            assert directional.along(map_, SETTINGS, 0) is found
            assert directional.along(map_, SETTINGS, 0).direction is u
        assert map_.memo == kept
        assert before is None or directional.along(map_, SETTINGS, 0) is before
