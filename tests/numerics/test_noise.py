"""The noise of a function, from a table of differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gradproof._measure import evaluate, noise, unseen

POINT, DIRECTION = np.array([0.7, -1.3]), np.array([0.9, 1.6])


def smooth(x):
    return np.array([np.sin(3 * x[0]) * np.exp(x[1]), x[0] ** 2 + 5])


@pytest.mark.parametrize("size", [1e-12, 1e-7, 1e-4])
def test_it_is_told_of_single_outputs(size):
    draws = np.random.default_rng(0)
    for _ in range(20):
        found = noise.along(lambda x: smooth(x) + size * draws.normal(size=2), POINT, DIRECTION)
        assert ((size / 6 < found) & (found < 3 * size)).all()


def test_what_is_smooth_leaves_nothing_but_the_rounding_of_doubles():
    found = noise.along(smooth, POINT, DIRECTION)
    assert (found < 1e-14).all()


def test_single_precision_inside_shows():
    found = noise.along(lambda x: smooth(x.astype(np.float32).astype(float)), POINT, DIRECTION)
    assert ((found > 2.0**-27) & (found < 2.0**-21)).all()


# What a table of steps shows, in numbers that are worked out by hand.

DOUBLE, SINGLE, HALF = 2.0**-53, 2.0**-24, 2.0**-11


def table(odd, even, steps=(1.0, 0.5, 0.25), centre=(1.0,), resolution=DOUBLE, **more):
    """A table of one output or more; a unit in the last place is one of 1."""
    odd, even = (np.array(part, dtype=float).reshape(len(steps), -1) for part in (odd, even))
    centre = np.broadcast_to(np.array(centre, dtype=float), odd.shape[1:])
    known = {"ulp": np.full(odd.shape[1], 2 * resolution), "floor": 0.0, **more}
    known = {"ulps": known["ulp"], **known}
    return noise.Table(list(steps), centre, odd, even, resolution=resolution, **known)


def test_units_in_the_last_place_end_where_numbers_are_no_longer_normal():
    sizes = np.array([1.0, 8.0, 0.0])
    for unit, least in ((DOUBLE, 2.0**-1022), (SINGLE, 2.0**-126), (2.0**-8, 2.0**-126)):
        assert noise.units(unit, sizes).tolist() == [2 * unit, 16 * unit, least]
    assert noise.units(HALF, sizes).tolist() == [2.0**-10, 2.0**-7, 2.0**-24]


def test_below_double_precision_a_zero_is_as_large_as_the_others():
    sizes, move = np.array([0.0, 3.0, 1.0]), np.array([-5.0, 1.0])
    assert noise.shown(sizes, move, DOUBLE / 2) is sizes
    assert noise.shown(sizes, move, SINGLE).tolist() == [3.0, 3.0, 1.0]
    assert noise.shown(0 * sizes, move, SINGLE).tolist() == [5.0, 5.0, 5.0]
    assert noise.shown(sizes[:0], move, SINGLE).tolist() == []
    assert noise.shown(sizes, move[:0], SINGLE) is sizes


@pytest.mark.parametrize(
    ("even", "sure"),
    [
        ([0.0, 8.0, 2.0], [0.0]),
        ([0.0, 0.0, 1.22], [1.0]),
        ([0.0, 2.44, 1.22], [0.5]),  # what falls with the square of the step is no noise
        ([0.0, -2.44, 1.22], [1.0]),
    ],
)
def test_what_surely_is_noise_is_the_part_that_does_not_fall_with_the_step(even, sure):
    known = table([1.0, 0.5, 0.25], even)
    assert noise._sure(known, known.change) == pytest.approx(sure)


def test_an_output_counts_at_least_the_median_of_all_that_move():
    odd = np.array([[0.0, 1.0, 1.0, 1.0]] * 3)
    even = np.array([[0.0] * 4, [0.0] * 4, [0.0, 1.22, 2.44, 12.2]])
    known = table(odd, even)
    assert noise._sure(known, known.change) == pytest.approx([2.0, 2.0, 2.0, 10.0])
    nothing = table(0 * odd, 0 * even)
    assert noise._sure(nothing, nothing.change).tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("odd", "even", "height"),
    [
        ([4.0, 0.0, 0.0], [1.0, 0.0, 0.0], 4.0),  # the smallest move to both sides
        ([2.0, 3.0, 0.0], [1.0, 1.0, 0.0], 0.0),  # it moves at the last step but one
        ([2.0, 0.0, 0.0], [2.0, 0.0, 0.0], DOUBLE),  # to one side: a rounding of the largest
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], DOUBLE),
        ([4.0, 2.0, 1.0], [1.0, 0.0, 0.0], 0.0),
    ],
)
def test_an_output_that_stands_still_stands_on_a_tread(odd, even, height):
    known = table(odd, even)
    assert noise._plateau(known, known.change).tolist() == [height]


def test_a_tread_is_as_high_as_the_largest_output_is_rounded():
    odd = np.zeros((3, 2))
    known = table(odd, odd, ulp=np.array([2.0, 6.0]))
    assert noise._plateau(known, known.change).tolist() == [3.0, 3.0]
    switched_off = table(odd, odd, ulp=np.array([0.0, 6.0]))
    assert noise._plateau(switched_off, switched_off.change).tolist() == [0.0, 3.0]


STEPS = (2.0**-6, 2.0**-14, 2.0**-22, 2.0**-30)


def stairs(height: float, slope: float = 1.0, at: int = 1):
    """A line on whose treads the finest steps lie, and which is `height` higher at rung `at`."""
    odd = slope * np.array(STEPS)
    odd[: at + 1] += height
    return odd


def test_a_line_without_steps_has_no_noise():
    line = table(stairs(0.0), [0.0] * 4, STEPS)
    assert noise.staircase(line) is None


@pytest.mark.parametrize(
    ("roundings", "size", "told"),
    [
        (60.0, 2.0**-20, True),
        (70.0, 2.0**-20, False),  # 64 at most
        (3.9, 2.0**-10, False),
        (4.1, 2.0**-10, True),  # and four units in its own last place
        (60.0, 2.0**-9, False),  # whose own rounding hides them
    ],
)
def test_steps_of_a_few_roundings_of_one_are_told_beside_a_line(roundings, size, told):
    """So much the finer rung did not see of the step: the part of its own length of the gap."""
    unseen = roundings * DOUBLE
    height = unseen * STEPS[1] / STEPS[2]
    odd = stairs(height, slope=height / STEPS[1] / 8)
    found = noise.staircase(
        table(
            odd, [0.0] * 4, STEPS, centre=(size,), ulp=np.array([DOUBLE if size == 2.0**-10 else 0])
        )
    )
    assert (found is not None) is told
    assert not told or found[0] >= 3.2 * unseen


def test_a_zero_that_stays_one_may_be_lost_beside_the_largest_output():
    odd = np.array([[1.0, 0.0, 0.0]] * 4) * np.array(STEPS)[:, None]
    odd[0, 2] = 1e-30
    known = table(odd, 0 * odd, STEPS, centre=(8.0, 0.0, 0.0), ulp=np.array([8 * DOUBLE, 0, 0]))
    found = noise.staircase(known)
    assert found[:2].tolist() == [0.0, 8 * DOUBLE]
    assert 0 < found[2] <= 1e-30  # one that moves is known better


def test_the_usual_noise_is_the_median_as_it_is_or_in_parts_of_a_size():
    own, size = np.array([1.0, 2.0, 9.0, 0.0]), np.array([1.0, 4.0, 1.0, 8.0])
    assert noise.usual(own, size).tolist() == [1.0, 2.0, 1.0, 2.0]  # 2, or 1 of the size
    told = np.array([True, False, False, True])
    assert noise.usual(own, size, told).tolist() == [1.0, 1.0, 1.0, 1.0]
    assert noise.usual(own, 0 * size).tolist() == [0.0] * 4
    assert noise.usual(0 * own, size).tolist() == [0.0] * 4


def test_an_output_is_rough_where_its_noise_is_many_roundings_and_large():
    """More than 64 units in the last place, a ten-thousandth of it, and 2 % of its change."""
    ulp = 2 * DOUBLE

    def rough(spread, change=1e-9, centre=1.0, resolution=DOUBLE):
        known = table([change] * 3, [0.0] * 3, centre=(centre,), resolution=resolution)
        found = noise.rough(known, np.array([spread]))
        return found is not None and bool(found[0])

    assert rough(1.1e-4, change=1e-3)
    assert not rough(0.9e-4, change=1e-3)
    assert not rough(1.1e-4, change=1e-2)
    assert rough(65 * ulp, change=0.0, centre=1e-12)
    assert not rough(63 * ulp, change=0.0, centre=1e-12)
    unit = 2.0**-12
    assert rough(17 * unit, change=0.0, centre=1e-2, resolution=unit)
    assert not rough(15 * unit, change=0.0, centre=1e-2, resolution=unit)


def test_where_many_outputs_are_rough_their_noisy_neighbours_are_too():
    change = np.tile([1e-3, 1e-3, 1e-3, 1.0], (3, 1))
    known = table(change, 0 * change)
    spread = np.full(4, 1e-3)
    assert noise.rough(known, spread).tolist() == [True] * 4
    few = table(np.tile([1e-3, 1.0, 1.0, 1.0], (3, 1)), 0 * change)
    assert noise.rough(few, spread).tolist() == [True, False, False, False]


def test_high_differences_of_noise_are_its_deviation():
    values = np.array([1.0, -1.0] * 8)[:, None]  # whose n-th differences are 2^n
    assert noise._of_table(values, 1) == pytest.approx([2 / 2**0.5])
    assert noise._of_table(values, 4) == pytest.approx([16 / 70**0.5])
    line = np.arange(16.0)[:, None] ** 3
    assert noise._of_table(line, 4).tolist() == [0.0]


def test_jumps_are_told_from_a_smooth_function_on_a_long_line():
    jumps = noise.of_jumps(
        lambda x: np.array([np.floor(40 * x[0]), np.sin(3 * x[0]), np.exp(5 * x[0]), 2.0]),
        np.array([0.7]),
        np.array([1.0]),
    )
    assert jumps[0] > 0.1
    assert jumps[1:].max() < 1e-12
    moves = []
    noise.of_jumps(lambda x: moves.append(float(x[0])) or x, np.zeros(1), np.ones(1))
    assert moves == [(k - 8) / 32 for k in range(17)]
    moves.clear()
    noise.along(lambda x: moves.append(float(x[0])) or x, np.zeros(1), np.ones(1))
    assert moves == [(k - 6.5) / 2048 for k in range(14)]


def test_what_a_coarse_rung_shows_is_noise_unless_curvature_or_kinks_explain_it():
    steps = (1.0, 0.5, 0.25, 0.125)
    odd = np.array(steps)[:, None]
    lone = table(odd, [0.0, 1e-6, 0.0, 0.0], steps)
    assert noise.of(lone).spread == pytest.approx([1e-6 / 1.22])
    assert noise.of(replace(lone, narrow=False)).spread.max() < 1e-14  # bisected, and no jump
    curved = table(odd, [0.0, 1e-6, 0.25e-6, 0.25e-6 / 4], steps)  # whose kinks cancel at the first
    assert noise.narrow(curved).tolist() == [0.0]


def test_noise_from_run_to_run_is_that_of_all_outputs_in_parts_of_each():
    value, again = np.array([100.0, 1.0, 0.0]), np.array([101.0, 1.0, 0.0])
    shared = 100 * (1e-4 / 3) ** 0.5  # the root mean square of 1 %, 0 and 0
    found = evaluate._spread(value, again)
    np.testing.assert_allclose(found, 2**0.5 * np.array([1.0, shared / 100, 0.0]), rtol=1e-12)


@pytest.mark.parametrize(
    ("steps", "resolution", "outputs", "asked"),
    [
        ((1.0, 0.5, 0.25), DOUBLE, 1, True),
        ((1.0, 0.5, 0.25), SINGLE, 1, False),
        ((1.0, 0.5), DOUBLE, 1, False),
        ((1.0, 0.5, 0.25), DOUBLE, 0, False),
    ],
)
def test_what_the_longest_step_alone_sees_is_asked_of_three_steps_in_double_precision(
    steps, resolution, outputs, asked
):
    odd = np.array([[1.125 * step if step == 1.0 else step] * outputs for step in steps])
    known = table(odd, 0 * odd, steps, centre=(1.0,) * outputs, resolution=resolution)
    moves = []

    def along(move):
        moves.append(move)
        return np.full(outputs, 1.0 + move)

    found = unseen.seen_by_few(along, known)
    assert bool(moves) is asked
    assert found.noise is None
    assert not found.kinks
