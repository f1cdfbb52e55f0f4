"""Probes: every entry is seen, no two errors cancel, and x +- h u is exact."""

from __future__ import annotations

import numpy as np
import pytest

from gradproof._data.settings import fresh_seed
from gradproof._data.space import Grain, Slot, Space
from gradproof._measure import directional, probes
from gradproof._measure.steps import Plan
from numpy_map import FunctionMap


def _map(point: np.ndarray) -> FunctionMap:
    return FunctionMap(lambda x: x.copy(), point, np.zeros((1, 1)))


def _normal(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size)


def _is_power_of_two(values: np.ndarray) -> bool:
    return bool(np.all(np.frexp(values)[0] == 0.5))


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_entries_lie_between_half_and_one_and_a_half_times_a_power_of_two(size: int) -> None:
    map_ = _map(_normal(size))
    scale = probes.scales_of(map_)
    assert _is_power_of_two(scale)
    rho = np.abs(probes.tangent(map_, 0, 0)) / scale
    assert rho.min() >= 0.5
    assert rho.max() <= 1.5


def test_cotangents_lie_between_half_and_one_and_a_half() -> None:
    v = np.abs(probes.cotangent(_map(_normal(1000)), 0, 0))
    assert v.min() >= 0.5
    assert v.max() <= 1.5


@pytest.mark.parametrize("draw", [probes.tangent, probes.cotangent])
def test_both_signs_are_equally_frequent(draw) -> None:
    negative = np.mean(draw(_map(np.ones(10_000)), 3, 0) < 0)
    assert 0.47 < negative < 0.53


def test_sign_and_size_are_independent() -> None:
    u = probes.tangent(_map(np.ones(10_000)), 3, 0)
    assert abs(np.corrcoef(np.sign(u), np.abs(u))[0, 1]) < 0.04


def test_sizes_cover_the_whole_range_and_no_size_is_frequent() -> None:
    u = np.abs(probes.tangent(_map(np.ones(10_000)), 3, 0))
    _, counts = np.unique(u, return_counts=True)
    assert counts.size > 900
    assert counts.max() < 40
    shares = np.histogram(u, bins=4, range=(0.5, 1.5))[0] / u.size
    assert np.all(np.abs(shares - 0.25) < 0.02)


def test_two_equal_errors_cancel_in_hardly_any_draw() -> None:
    pairs = np.stack([probes.cotangent(_map(np.ones(2)), seed, 0) for seed in range(2000)])
    assert np.mean(pairs.sum(axis=1) == 0) < 0.005


@pytest.mark.parametrize("draw", [probes.tangent, probes.cotangent])
def test_one_seed_and_number_give_one_probe(draw) -> None:
    point = _normal(100)
    assert np.array_equal(draw(_map(point), 7, 1), draw(_map(point), 7, 1))


@pytest.mark.parametrize("draw", [probes.tangent, probes.cotangent])
@pytest.mark.parametrize("other", [(7, 1), (8, 0), (0, 7)])
def test_another_seed_or_number_gives_another_probe(draw, other: tuple[int, int]) -> None:
    map_ = _map(np.ones(1000))
    assert np.mean(draw(map_, 7, 0) == draw(map_, *other)) < 0.01


def test_tangent_and_cotangent_of_one_number_are_unrelated() -> None:
    map_ = _map(np.ones(1000))
    assert np.mean(probes.tangent(map_, 7, 0) == probes.cotangent(map_, 7, 0)) < 0.01


def test_a_constant_cotangent_has_one_value_for_each_output() -> None:
    map_ = FunctionMap(lambda x: x, np.ones(7), np.eye(7), outputs=[(3,), (2, 2)])
    v = probes.constant_cotangent(map_, 0)
    assert len(set(v[:3])) == len(set(v[3:])) == 1
    assert v[0] != v[3]


def test_the_global_random_state_of_numpy_is_left_alone() -> None:
    before = np.random.get_state()  # noqa: NPY002  # the legacy state is what must not move
    map_ = _map(_normal(100))
    for number in range(3):
        probes.tangent(map_, fresh_seed(), number)
        probes.cotangent(map_, fresh_seed(), number)
    after = np.random.get_state()  # noqa: NPY002
    assert np.array_equal(before[1], after[1])
    assert before[2:] == after[2:]


def test_a_state_seeded_by_the_user_does_not_repeat_the_fresh_seeds() -> None:
    seeds = set()
    for _ in range(5):
        np.random.seed(0)  # noqa: NPY002  # what a user's conftest does
        seeds.add(fresh_seed())
    assert len(seeds) == 5


STEPS = [1.0, *Plan().steps(), 2.0**-13, 2.0**-35, Plan().smallest]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("size", [1e-200, 1e-3, 1.0, 1e3, 1e200])
def test_moving_there_and_back_is_exact_within_a_binade(step: float, size: float) -> None:
    point = size * _normal(1000)
    map_ = _map(point)
    move = step * probes.tangent(map_, 0, 0)
    exact = ((point + move) - point == move) & (point - (point - move) == move)
    # A coordinate far below its neighbours has finer digits; one that is carried over the next
    # power of two, as only coarse steps do, loses its last bit.
    scale = probes.scales_of(map_)
    within = (scale <= np.abs(point)) & (np.abs(point) + np.abs(move) < 2 * scale)
    assert within.mean() > (0.9 if step < 0.1 else 0.1)
    assert np.all(exact[within])


@pytest.mark.parametrize("step", STEPS)
def test_moving_zero_is_exact(step: float) -> None:
    move = step * probes.tangent(_map(np.zeros(100)), 0, 0)
    assert np.all(np.abs(move) >= step / 2)
    assert np.array_equal((np.zeros(100) + move) / step, probes.tangent(_map(np.zeros(100)), 0, 0))


@pytest.mark.parametrize("step", Plan().steps())
@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1.0, 1e3, 1e200])
def test_the_step_taken_differs_from_the_step_asked_for_by_rounding_of_the_point_only(
    step: float, scale: float
) -> None:
    point = scale * _normal(1000)
    u = probes.tangent(_map(point), 0, 0)
    taken = ((point + step * u) - (point - step * u)) / 2
    assert np.all(np.abs(taken - step * u) <= np.spacing(np.abs(point) + np.abs(step * u)))


def test_a_zero_coordinate_moves_like_the_others() -> None:
    point = np.asarray([0.0, 8.0, 9.0, -10.0])
    assert probes.scales_of(_map(point)).tolist() == [8.0] * 4


def test_a_point_of_zeros_moves_by_about_one() -> None:
    assert probes.scales_of(_map(np.zeros(5))).tolist() == [1.0] * 5


def test_a_tiny_coordinate_moves_by_a_sixteenth_of_the_typical_one_at_least() -> None:
    scale = probes.scales_of(_map(np.asarray([1e-30, 1.0, 1.5, 1.25, 5e-324])))
    assert scale.tolist() == [1 / 16, 1.0, 1.0, 1.0, 1 / 16]


def test_a_huge_coordinate_moves_in_proportion_and_leaves_the_others_alone() -> None:
    scale = probes.scales_of(_map(np.asarray([1e200, 1.0, 1.0, 1.0, 2.0**700])))
    assert scale[1:].tolist() == [1.0, 1.0, 1.0, 2.0**700]
    assert 0.5e200 < scale[0] <= 1e200


@pytest.mark.parametrize("size", [1e-300, 1e-150, 1e150, 1e300])
def test_scales_follow_the_size_of_the_whole_point(size: float) -> None:
    point = size * np.asarray([1.0, -1.0, 1.25])
    scale = probes.scales_of(_map(point))
    assert np.all((scale <= np.abs(point)) & (2 * scale > np.abs(point)))


def test_each_slot_has_its_own_scale() -> None:
    space = Space((Slot("a", (2,)), Slot("b", (3,))))
    point = np.asarray([1e6, 0.0, 1e-6, 0.0, 0.0])
    scale = probes.scales(space, point)
    assert scale.tolist() == [2.0**19] * 2 + [2.0**-20] * 3


def test_real_and_imaginary_part_share_a_scale() -> None:
    space = Space((Slot("z", (3,), parts=("real", "imag")),))
    point = np.asarray([8.0, 0.0, 1e-9, 9.0, 10.0, 4.0])
    assert probes.scales(space, point).tolist() == [8.0] * 6


def test_an_empty_slot_has_no_scale_and_harms_nobody() -> None:
    space = Space((Slot("a", (0, 3)), Slot("b", (2,))))
    assert probes.scales(space, np.asarray([4.0, 5.0])).tolist() == [4.0, 4.0]


def test_no_direction_is_drawn_before_it_is_asked_for():
    map_ = _map(np.asarray((0.5, 1.5)))
    assert not directional.counts(map_)
    assert not [key for key in map_.memo if key[0] == "tangent probe"]


def test_only_what_is_whole_beside_the_point_too_counts():
    assert not directional.counts(_map(np.asarray((1.0, 2.0))))
    assert directional.counts(FunctionMap(np.floor, np.asarray((1.3, 2.0)), np.zeros((1, 1))))


# Numbers of few bits, limits, and points close by.


def grained(*units: float, limits=(-np.inf, np.inf)) -> Space:
    return Space(
        tuple(Slot(f"x{k}", (3,), grain=Grain(unit), limits=limits) for k, unit in enumerate(units))
    )


def test_draws_are_made_to_fit_the_bits_of_their_array() -> None:
    draws = np.array([0.5, -1.4990234375, 1.01] * 3)
    space = grained(2.0**-53, 2.0**-24, 2.0**-8)
    found = probes._fitted(space, draws, moves=True)
    assert found[:3].tolist() == draws[:3].tolist()
    assert found[3:6].tolist() == [0.5, -1.5, 65 / 64]
    assert found[6:].tolist() == [1.0, -7 / 4, 6 / 4]  # of {4, 5, 6, 7}/4
    found = probes._fitted(space, draws, moves=False)
    assert found[3:6].tolist() == [0.5, -1.4990234375, round(1.01 * 1024) / 1024]
    assert found[6:].tolist() == [0.5, -1.5, round(1.01 * 128) / 128]
    assert draws.tolist() == [0.5, -1.4990234375, 1.01] * 3
    assert probes._fitted(grained(2.0**-53), draws[:3], moves=True)[0] == 0.5


def test_a_point_in_few_bits_is_a_number_of_its_array() -> None:
    values = np.array([1.0 + 2.0**-9, -3.0 - 2.0**-5, 0.0] * 2)
    found = probes.on_grid(grained(2.0**-8, 2.0**-53), values)
    assert found[:3].tolist() == [1.0, -3.03125, 0.0]
    assert found[3:].tolist() == values[3:].tolist()
    assert probes.on_grid(grained(), values[:0]).tolist() == []


def test_a_point_outside_of_the_limits_lies_half_way_to_them() -> None:
    map_ = _map(np.array([1.0, 2.0, 5.0]))
    map_.domain = grained(2.0**-53, limits=(0.0, 6.0))
    tried = np.array([-1.0, 6.0, 5.5])
    assert probes._in_limits(map_, tried).tolist() == [0.5, 4.0, 5.5]
    assert tried.tolist() == [-1.0, 6.0, 5.5]
    map_.domain = grained(2.0**-53, limits=(0.0, np.inf))
    assert probes._in_limits(map_, np.array([0.0, 9.0, 9.0])).tolist() == [0.5, 9.0, 9.0]


def test_a_whole_step_stays_inside_the_limits() -> None:
    space = grained(2.0**-53, limits=(0.0, 6.0))
    point = np.array([1.0, 5.5, 3.0])
    found = probes.scales(space, point)
    assert found.tolist() == [0.5, 0.25, 1.0]
    assert (point + 1.75 * found < 6.0).all()
    assert (point - 1.75 * found > 0.0).all()


def test_the_scale_is_no_smaller_than_normal_numbers_of_few_bits_are() -> None:
    space = Space((Slot("x", (3,), grain=Grain(2.0**-11, 2.0**-24, 65504.0)),))
    assert probes.scales(space, np.array([2.0**-20, 0.0, 2.0**-22]), 0.0).tolist() == [
        2.0**-14,
        2.0**-14,
        2.0**-14,
    ]


def test_a_nearby_point_lies_in_parts_of_the_scale_from_the_point_or_from_zero() -> None:
    map_ = _map(np.array([4.0, -1.0]))
    scale = probes.scales_of(map_)
    far = probes.nearby(map_, 0, 3, 0.25) - map_.point
    small = probes.nearby(map_, 0, 3, 0.25, of_zero=True)
    assert np.allclose(far, small, rtol=1e-12)
    assert (np.abs(far) >= 0.125 * scale).all()
    assert (np.abs(far) <= 0.375 * scale).all()
    assert not np.array_equal(far, probes.nearby(map_, 0, 4, 0.25) - map_.point)
