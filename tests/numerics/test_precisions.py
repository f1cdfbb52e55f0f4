"""The ladder below double precision: its bars hold there too, and say how little is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gradproof._measure import probes
from gradproof._measure.noise import units
from gradproof._measure.richardson import Estimate
from gradproof._measure.steps import Plan
from numerics.calculus import KNOWN, Known
from numerics.precisions import BRAIN, COARSE, HALF, SINGLE, Precision, Vector

SCALES = (1e-3, 1e-1, 1.0, 1e1, 1e3)
ALLOWED = {"float32": 1e-3, "bfloat16": 1e-2, "float16": 1e-2}

every_precision = pytest.mark.parametrize("precision", COARSE, ids=lambda p: p.name)


@pytest.fixture(autouse=True)
def _quiet_arithmetic():
    with np.errstate(all="ignore"):
        yield


def _measured(
    precision: Precision, fn: Callable[[Vector], Vector], point, seed: int = 0
) -> tuple[Estimate, Vector, Vector]:
    ladder = precision.ladder(fn, point, seed)
    return ladder.solve(), ladder.line.point, ladder.line.direction


def _outside(precision: Precision, known: Known, scale: float, seed: int) -> np.ndarray:
    """Whether each output's bar misses the truth; only of outputs that have a value and a truth."""
    point = scale * np.random.default_rng(seed).standard_normal(64)
    found, x, u = _measured(precision, known.value, point, seed)
    true = known.along(x, u)
    counted = np.isfinite(true) & np.isfinite(precision.run(known.value)(x))
    return ~(np.abs(found.value - true) <= found.error)[counted]


# Coverage ----------------------------------------------------------------------------------------


@every_precision
def test_the_truth_lies_within_the_error_bar_as_often_as_promised(precision: Precision) -> None:
    outside = [
        _outside(precision, known, scale, seed)
        for known in KNOWN
        for scale in SCALES
        for seed in range(2)
    ]
    assert np.mean(np.concatenate(outside)) <= ALLOWED[precision.name]


@pytest.mark.parametrize(
    ("precision", "bar"), [(SINGLE, 1e-3), (HALF, 0.2), (BRAIN, 1.0)], ids=lambda v: str(v)[-10:]
)
def test_the_bars_of_smooth_functions_are_of_use(precision: Precision, bar: float) -> None:
    point = np.linspace(0.5, 1.5, 50)
    for fn, slope in ((np.sin, np.cos), (np.exp, np.exp), (np.square, lambda x: 2 * x)):
        found, x, u = _measured(precision, fn, point)
        assert np.median(found.error / np.abs(slope(x) * u)) < bar


@every_precision
def test_sums_of_outputs_keep_their_bars(precision: Precision) -> None:
    point, rows = np.linspace(0.5, 1.5, 50), np.random.default_rng(0).choice([-1.0, 1.0], (50, 50))
    ladder = precision.ladder(np.tanh, point)
    found = ladder.of_functionals(rows)
    true = rows @ (ladder.line.direction / np.cosh(ladder.line.point) ** 2)
    assert np.all(np.abs(found.value - true) <= found.error)


# What a coarse rung must not hide ----------------------------------------------------------------


@pytest.mark.parametrize("frequency", [1e2, 1e3, 3e3])
def test_an_oscillation_that_only_the_finest_steps_resolve_is_not_flat(frequency: float) -> None:
    """Curvature left at the finest rung is no noise: it would let coarse rungs stand."""
    point = np.random.default_rng(1).uniform(1, 2, 200)
    found, x, u = _measured(SINGLE, lambda x: np.sin(frequency * x), point)
    true = frequency * np.cos(frequency * x) * u
    assert np.mean(np.abs(found.value - true) > found.error) <= 0.01


@every_precision
def test_kinks_closer_than_the_steps_are_seen_at_the_finer_rungs(precision: Precision) -> None:
    outside = []
    for seed in range(20):
        point = np.random.default_rng(seed).standard_normal(64)
        found, x, u = _measured(precision, np.sort, point, seed)
        order = np.argsort(x, kind="stable")
        unique = np.diff(x[order], prepend=np.nan, append=np.nan)
        alone = (unique[1:] != 0) & (unique[:-1] != 0)
        outside.append((np.abs(found.value - u[order]) > found.error)[alone])
    assert np.mean(np.concatenate(outside)) <= 0.2


@every_precision
def test_what_rounding_made_zero_is_not_known_to_be_flat(precision: Precision) -> None:
    """tanh(x) rounds to x: the derivative of x - tanh(x) is x^2, and nothing is seen of it."""

    def fn(x: Vector) -> Vector:
        return x - precision.round(np.tanh(x))

    found, x, u = _measured(precision, fn, precision.unit * np.linspace(1, 2, 20))
    assert np.all(found.value == 0)
    assert np.all(x**2 * np.abs(u) <= found.error)


@every_precision
def test_one_output_that_shows_the_grain_speaks_for_those_that_are_zero(
    precision: Precision,
) -> None:
    """Where x - tanh(x) is one last bit of x at the largest step and 0 elsewhere."""
    point = np.full(20, precision.unit)
    point[0] = 0.75 * precision.unit**0.5 * 3**0.5

    def fn(x: Vector) -> Vector:
        return x - precision.round(np.tanh(x))

    found, x, u = _measured(precision, fn, point)
    assert np.all((x**2 * np.abs(u) <= found.error)[1:])


@every_precision
def test_an_output_switched_off_beside_others_is_flat(precision: Precision) -> None:
    point = np.concatenate([np.linspace(-2, -1, 10), np.linspace(1, 2, 10)])
    found, _, _ = _measured(precision, lambda x: 1e-3 * np.maximum(x, 0), point)
    assert np.all(found.value[:10] == 0)
    assert np.all(found.error[:10] <= 128 * precision.unit * 1e-3)


@every_precision
def test_a_function_that_underflows_is_known_to_its_smallest_number(precision: Precision) -> None:
    """Slopes below the smallest normal number, or for float16 the smallest, may be lost."""
    point = np.log(precision.tiny) * np.linspace(0.9, 1.2, 40)
    found, x, u = _measured(precision, np.exp, point)
    assert np.all(np.abs(found.value - np.exp(x) * u) <= found.error)


@every_precision
def test_what_the_dtype_cannot_resolve_is_not_measured(precision: Precision) -> None:
    point = np.random.default_rng(2).uniform(1, 2, 100)
    found, x, u = _measured(precision, lambda x: np.sin(4 * x / precision.unit), point)
    true = 4 * np.cos(4 * x / precision.unit) * u / precision.unit
    assert np.mean(np.abs(found.value - true) > found.error) <= 0.01


# Steps and directions ----------------------------------------------------------------------------


@every_precision
def test_no_calls_are_spent_beyond_the_plan_of_16_bits(precision: Precision) -> None:
    ladder = precision.ladder(np.exp, np.linspace(-1, 1, 9))
    ladder.solve(np.arange(9), 1e-12)
    planned = Plan.of(precision.unit).steps()
    assert ladder.steps == planned if precision is not SINGLE else len(ladder.steps) > 6


@every_precision
def test_a_move_within_a_binade_is_exact(precision: Precision) -> None:
    """Every planned step, and in single precision the smallest one that may be added."""
    map_ = precision.map(np.copy, np.random.default_rng(3).standard_normal(1000))
    scale, u = probes.scales_of(map_), probes.tangent(map_, 0, 0)
    plan = Plan.of(precision.unit)
    for step in {*plan.steps(), plan.smallest}:
        for moved in (map_.point + step * u, map_.point - step * u):
            within = (scale <= np.abs(map_.point)) & (np.abs(moved) < 2 * scale)
            assert within.mean() > 0.2
            assert np.array_equal(precision.round(moved)[within], moved[within])


@pytest.mark.parametrize("precision", [BRAIN, HALF], ids=lambda p: p.name)
def test_directions_of_16_bits_have_four_sizes_and_two_signs(precision: Precision) -> None:
    map_ = precision.map(np.copy, np.ones(1000))
    sizes = set(probes.tangent(map_, 0, 0).tolist())
    assert sizes == {sign * size / 4 for sign in (-1, 1) for size in (4, 5, 6, 7)}


@every_precision
def test_cotangents_are_numbers_of_their_dtype(precision: Precision) -> None:
    map_ = precision.map(np.copy, np.ones(1000))
    for v in (probes.cotangent(map_, 0, 0), probes.constant_cotangent(map_, 0)):
        assert np.array_equal(precision.round(v), v)
        assert np.all((np.abs(v) >= 0.5) & (np.abs(v) <= 1.5))


def test_slots_of_double_precision_keep_their_draws() -> None:
    map_ = BRAIN.map(np.copy, np.ones(100))
    plain = SINGLE.map(np.copy, np.ones(100))
    draws = probes._dense(0, 100, 0)
    assert not np.array_equal(probes._fitted(map_.domain, draws, moves=True), draws)
    assert np.max(np.abs(probes._fitted(plain.domain, draws, moves=True) - draws)) <= 2.0**-7
    assert np.array_equal(draws, probes._dense(0, 100, 0))  # the draws are left as they were


def test_a_point_of_subnormal_numbers_moves_by_normal_ones() -> None:
    map_ = HALF.map(np.copy, 2.0**-24 * np.arange(1, 9))
    assert set(probes.scales_of(map_).tolist()) == {2.0**-14}


@pytest.mark.parametrize("resolution", [2.0**-53, 2.0**-24, 2.0**-11, 2.0**-8])
def test_a_unit_in_the_last_place_is_relative_down_to_a_smallest_one(resolution: float) -> None:
    sizes = np.asarray([1.0, 1e4, 0.0])
    found = units(resolution, sizes)
    assert np.array_equal(found[:2], 2 * resolution * sizes[:2])
    assert 0 < found[2] <= 2.0**-24


@every_precision
@pytest.mark.parametrize("beside", [2.0, 0.5, 0.1])
def test_rungs_that_leave_the_domain_are_not_used(precision: Precision, beside: float) -> None:
    """A NaN at a rung contradicts nothing and is not taken for agreement either."""
    point = np.full(20, beside)

    def fn(x: Vector) -> Vector:
        return np.log(x - 0.5 * precision.round(point))

    found, x, u = _measured(precision, fn, point)
    assert np.all(np.abs(found.value - u / (0.5 * x)) <= found.error)
