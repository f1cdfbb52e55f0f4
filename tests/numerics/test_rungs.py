"""Which rungs a ladder adds, what counts as known, and sums over outputs, worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gradproof._data.vectors import BLOCK
from gradproof._measure import ladder, steps
from gradproof._measure.ladder import Ladder, Line
from gradproof._measure.richardson import Estimate
from gradproof._measure.steps import Plan

PLAN = Plan()
STEPS = PLAN.steps()
NAN, INF = math.nan, math.inf


def estimate(value, error=0.0, kink=0.0, step=STEPS[0], step_error=0.0) -> Estimate:
    value = np.asarray(value, dtype=float)
    rest = [np.broadcast_to(np.float64(e), value.shape) for e in (error, kink, step, step_error, 0)]
    return Estimate(value, *(1.0 * each for each in rest))


def of(fn=np.sin, point=(1.0,), plan: Plan = PLAN, **more) -> Ladder:
    x = np.array(point)
    return Ladder(Line(fn, x, fn(x), np.ones_like(x), 2.0**-53, **more), plan)


@pytest.mark.parametrize(
    ("value", "error", "known"),
    [
        ([1.0] * 4, 0.99e-4, True),
        ([1.0] * 4, 1.01e-4, False),
        ([1.0] * 4, [1.0, 0, 0, 0], False),  # a quarter of them
        ([1.0] * 5, [1.0, 0, 0, 0, 0], True),
        ([1.0, 0.0], [0.0, 0.0707e-6], True),  # a thousandth of the usual one
        ([1.0, 0.0], [0.0, 0.0709e-6], False),
        ([0.0, 0.0], [1.0, 2.0], True),
        ([0.0, 0.0], [1.0, INF], False),
        ([1.0, 1.0], [0.0, NAN], False),
        ([], [], True),
    ],
)
def test_outputs_are_known_in_parts_of_themselves_or_a_thousandth_of_the_usual(
    value, error, known
) -> None:
    assert ladder.known(estimate(value, error)) is known


def test_a_kink_makes_no_output_unknown() -> None:
    assert ladder.known(estimate([1.0], 0.5, kink=0.49995))
    assert not ladder.known(estimate([1.0], 0.5, kink=0.4995))
    assert ladder.known(estimate([1.0], 0.5), target=0.5)


@pytest.mark.parametrize(
    ("best", "added"),
    [
        (STEPS[0], 2.0**-10),  # between it and the next
        (STEPS[1], 2.0**-18),
        (STEPS[2], 2.0**-35),  # below the finest
        (STEPS[3], 2.0**-35),
    ],
)
def test_a_step_is_added_beside_the_best_ones(best: float, added: float) -> None:
    made = of()
    found = estimate([1.0, 1.0, 1.0], step=[best, best, STEPS[0]])
    assert made._next_step(found) == added


def test_above_the_largest_where_no_step_lies_between_and_as_far_as_the_plan_goes() -> None:
    found, dense = estimate([1.0], step=STEPS[0]), replace(PLAN, ratio=0.5)
    assert of(plan=dense)._next_step(found) == 1.0
    assert of(plan=replace(dense, largest=0.5))._next_step(found) is None
    second = estimate([1.0], step=STEPS[0] / 2)
    assert of(plan=replace(dense, largest=0.5))._next_step(second) is None


def test_below_the_finest_no_further_than_the_plan_goes() -> None:
    found = estimate([1.0], step=STEPS[-1])
    assert of(plan=replace(PLAN, smallest=2.0**-35))._next_step(found) == 2.0**-35
    assert of(plan=replace(PLAN, smallest=2.0**-34))._next_step(found) is None


def test_where_most_bars_exceed_the_values_a_finer_step_is_asked_once() -> None:
    found = estimate([1.0, 1.0, 1.0], error=[2.0, 2.0, 0.0], step=STEPS[0])
    made = of()
    assert made._next_step(found) == 2.0**-35
    made._add(2.0**-35)
    assert made._next_step(found) == 2.0**-10
    half = estimate([1.0, 1.0], error=[2.0, 0.0], step=STEPS[0])
    assert of()._next_step(half) == 2.0**-10


def test_steps_of_outputs_without_a_bar_do_not_count() -> None:
    found = estimate([1.0] * 3, step=[STEPS[0], STEPS[1], STEPS[1]], step_error=[INF, 0.0, 0.0])
    assert of()._next_step(found) == 2.0**-18
    most = estimate([1.0] * 3, step=STEPS[0], step_error=[INF, INF, 0.0])
    assert of()._next_step(most) == 2.0**-35  # hardly any output has one: the finest counts


@pytest.mark.parametrize("size", [1, BLOCK, 2 * BLOCK, 3 * BLOCK])
def test_of_outputs_of_which_a_sample_is_looked_at_all_are_told(size: int) -> None:
    made = of(lambda x: 1.0 + np.arange(size) / size * x[0])
    found = made.solve()
    assert found.value == pytest.approx(np.arange(size) / size, abs=1e-12)


def test_a_sum_over_outputs_is_what_its_values_and_roundings_add_up_to() -> None:
    noise = np.array([3e-10, 4e-10, 0.0])
    made = of(lambda x: np.array([np.sin(x[0]), 4.0 + x[0], 0.5 * x[0]]), noise=noise)
    v = np.array([[2.0, -1.0, 0.0], [0.0, 0.0, 2.0]])
    found = made.of_functionals(v)
    assert found.value == pytest.approx([2 * np.cos(1.0) - 1.0, 1.0], abs=1e-4)
    squares = (2 * 3e-10) ** 2 + 4e-10**2
    assert float(found.noise[0]) == pytest.approx(math.sqrt(squares), rel=1e-6)
    parts = made.of_functionals(v[:, 1:], slice(1, 3))
    alone = made.of_functionals(np.array([[0.0, -1.0, 0.0], [0.0, 0.0, 2.0]]))
    assert parts.value == pytest.approx(alone.value, rel=1e-12)
    assert parts.error == pytest.approx(alone.error, rel=1e-12)


def test_roundings_of_a_sum_add_up_or_as_drawn_signs_let_them() -> None:
    count = 100
    made = of(lambda x: np.full(count, 8.0) + 1e-3 * x[0], plan=replace(PLAN, rungs=3))
    v = np.ones((1, count))
    plain, drawn = made.of_functionals(v), made.of_functionals(v, signs=True)
    half = 2.0**-53 * 8.0  # of a unit in the last place of each
    assert float(plain.noise[0]) >= count * half
    assert 10 * half <= float(drawn.noise[0]) < float(plain.noise[0])


@pytest.mark.parametrize(
    ("limit", "top", "digits"),
    [
        (4.0, 1.0, 8),  # no step is longer than the input
        (2.0**-6, 2.0**-6, 8),
        (1e-6, 2.0**-20, 6),  # down to the finest step there is, in four rungs
        (2.0**-26, 2.0**-26, 4),
        (2.0**-29, 2.0**-29, 3),
        (2.0**-40, 2.0**-30, 3),
    ],
)
def test_below_a_limit_four_rungs_end_above_the_finest_step(
    limit: float, top: float, digits: int
) -> None:
    found = steps.slope(2.0**-53, limit)
    assert (found.top, found.ratio, found.rungs) == (top, 2.0**-digits, 4)
    assert found.largest == top
    assert found.steps()[-1] >= found.smallest
    assert steps.sides(2.0**-53, limit).top == min(2.0 ** math.floor(math.log2(limit)), 2.0**-6)
    single = steps.slope(2.0**-24, limit)
    assert single.top == min(2.0 ** math.floor(math.log2(limit)), 1.0)
    assert single.ratio == steps.slope(2.0**-24, None).ratio


def test_further_directions_take_steps_around_the_best_one() -> None:
    assert steps.short(PLAN, 2.0**-14).steps() == [2.0**-10, 2.0**-14, 2.0**-18]
    assert steps.short(PLAN, 1.0).top == 2.0**-6
    assert steps.short(PLAN, 2.0**-40).top == 2.0**-32
    assert steps.two(PLAN, 2.0**-14).steps() == [2.0**-14, 2.0**-18]
    assert [steps.one_sided(2.0**-k) for k in (53, 24)] == [2.0**-26, 2.0**-12]
    assert [steps.still(2.0**-k) for k in (53, 24)] == [2.0**-30, 2.0**-20]
