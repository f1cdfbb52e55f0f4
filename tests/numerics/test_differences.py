"""The ladder: what it measures lies within its error bar of the truth, and the bar is small."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from gradproof._maps.metered import Metered
from gradproof._measure import probes
from gradproof._measure.ladder import Estimate, Ladder, Line
from gradproof._measure.steps import Plan
from numerics.calculus import KNOWN, Known
from numpy_map import FunctionMap

SCALES = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)
TINY = float(np.finfo(float).tiny)  # a derivative below it, of a function that is 0 beside, is lost
SMOOTH = [known for known in KNOWN if known.smooth]


@pytest.fixture(autouse=True)
def _quiet_arithmetic():
    """As the engine: what overflows in the function under test is not our warning."""
    with np.errstate(all="ignore"):
        yield


def _case(known: Known, scale: float, seed: int) -> tuple[Estimate, np.ndarray]:
    point = scale * np.random.default_rng(seed).standard_normal(64)
    map_ = FunctionMap(np.copy, point, np.zeros((1, 1)))
    direction = probes.tangent(map_, seed, 0)
    return _ladder(known.value, point, direction).solve(), known.along(point, direction)


def _ladder(
    fn: Callable[[np.ndarray], np.ndarray], point, direction, noise: np.ndarray | float = 0.0
) -> Ladder:
    point, direction = np.asarray(point, float), np.asarray(direction, float)
    return Ladder(Line(fn, point, fn(point), direction, 2.0**-53, noise), Plan())


def _holds(found: Estimate, true: np.ndarray) -> np.ndarray:
    """Where the bar covers the truth; nothing is asked where the truth is not finite."""
    covered = np.abs(found.value - true) <= found.error + TINY
    return covered | np.isinf(found.error) | ~np.isfinite(true)


def test_there_are_enough_functions() -> None:
    assert len(KNOWN) >= 25
    assert len({known.name for known in KNOWN}) == len(KNOWN)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_the_truth_lies_within_the_error_bar(known: Known, scale: float) -> None:
    """Of 7e4 outputs none lies outside; a share of 1 in 200 is allowed in each cell."""
    held = np.concatenate([_holds(*_case(known, scale, seed)) for seed in range(5)])
    assert np.mean(~held) <= 0.005


@pytest.mark.parametrize("known", SMOOTH, ids=lambda known: known.name)
def test_the_bars_of_smooth_functions_are_small(known: Known) -> None:
    for seed in range(3):
        found, true = _case(known, 1.0, seed)
        assert np.median(found.error / np.abs(true)) < 1e-6


@pytest.mark.parametrize("scale", [1e-3, 1e3])
@pytest.mark.parametrize("power", [1, 2, 3])
def test_the_bars_of_powers_are_as_small_at_any_scale(power: int, scale: float) -> None:
    known = Known("power", lambda x: x**power, lambda x, u: power * x ** (power - 1) * u)
    found, true = _case(known, scale, 0)
    assert np.max(found.error / np.abs(true)) < 1e-6


@pytest.mark.parametrize("known", SMOOTH, ids=lambda known: known.name)
def test_a_plain_difference_of_the_step_named_lies_within_its_own_bar(known: Known) -> None:
    point = np.random.default_rng(3).standard_normal(64)
    direction = np.where(np.arange(64) % 2, 0.75, -1.25)
    found, true = _ladder(known.value, point, direction).solve(), known.along(point, direction)
    for step in set(found.step.tolist()):
        here = found.step == step
        move = step * direction
        plain = (known.value(point + move) - known.value(point - move)) / (2 * step)
        assert np.all((np.abs(plain - true) <= found.step_error)[here])


@pytest.mark.parametrize("slope", [1.0, 7.0])
def test_the_bar_of_relu_at_its_kink_is_half_the_gap_of_its_slopes(slope: float) -> None:
    found = _ladder(lambda x: slope * np.maximum(x, 0), [0.0], [1.0]).solve()
    assert found.value[0] == pytest.approx(slope / 2, rel=1e-9)
    assert found.error[0] == pytest.approx(slope / 2, rel=1e-4)
    assert found.kink[0] == pytest.approx(slope / 2, rel=1e-6)


@pytest.mark.parametrize("direction", [1.0, -1.0, 0.625])
def test_at_a_kink_the_bar_brackets_both_slopes(direction: float) -> None:
    found = _ladder(lambda x: np.sin(x) + 3 * np.abs(x), [0.0], [direction]).solve()
    left, right = direction - 3 * abs(direction), direction + 3 * abs(direction)
    assert found.value[0] - found.error[0] <= left <= right <= found.value[0] + found.error[0]
    assert found.error[0] == pytest.approx(3 * abs(direction), rel=1e-3)


def test_a_smooth_function_has_no_kink() -> None:
    found = _ladder(np.sin, np.linspace(-1, 1, 50), np.ones(50)).solve()
    assert np.all(found.kink <= found.error)
    assert np.all(found.kink < 1e-6)


@pytest.mark.parametrize("beside", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_kink_beside_the_point_does_not_leave_the_bar(beside: float, sign: int) -> None:
    found = _ladder(np.abs, [sign * beside], [1.0]).solve()
    assert abs(found.value[0] - sign) <= found.error[0]
    if beside >= 1e-6:
        assert found.error[0] < 1e-4


def test_a_constant_offset_costs_its_digits_and_no_more() -> None:
    point, u = np.linspace(0.1, 1, 50), np.ones(50)
    found = _ladder(lambda x: 1e8 + np.sin(x), point, u).solve()
    assert np.all(_holds(found, np.cos(point)))
    assert np.max(found.error) < 1e-4


@pytest.mark.parametrize("frequency", [3e1, 3e2, 3e3, 3e4, 1e5, 1e6])
def test_a_fast_oscillation_does_not_leave_the_bar(frequency: float) -> None:
    point, u = np.linspace(0.1, 1, 200), np.ones(200)
    found = _ladder(lambda x: np.sin(frequency * x), point, u).solve()
    true = frequency * np.cos(frequency * point)
    assert np.all(_holds(found, true))
    assert np.median(found.error) < 1e-3 * frequency


def test_an_oscillation_that_few_rungs_resolve_does_not_leave_the_bar() -> None:
    """Double precision resolves it to 1e-9 of the slope; inconclusive would do, wrong does not."""
    point, u = np.linspace(0.1, 1, 200), np.ones(200)
    found = _ladder(lambda x: np.sin(1e7 * x), point, u).solve()
    assert np.mean(~_holds(found, 1e7 * np.cos(1e7 * point))) <= 0.02


@pytest.mark.parametrize(
    ("fn", "slope"),
    [(np.log, lambda x: 1 / x), (np.sqrt, lambda x: 0.5 / np.sqrt(x)), (np.arccosh, None)],
    ids=["log", "sqrt", "arccosh"],
)
@pytest.mark.parametrize("beside", [1e-2, 1e-3, 1e-4, 1e-5])
def test_rungs_that_leave_the_domain_are_not_used(fn, slope, beside: float) -> None:
    point = np.asarray([1 + beside if slope is None else beside])
    slope = slope or (lambda x: 1 / np.sqrt((x - 1) * (x + 1)))
    found = _ladder(fn, point, [1.0]).solve()
    assert abs(found.value[0] - slope(point)[0]) <= found.error[0]
    assert found.error[0] < 1e-2 * slope(point)[0]


@pytest.mark.parametrize("fn", [np.log, np.sqrt])
def test_the_edge_of_the_domain_has_no_derivative(fn) -> None:
    found = _ladder(fn, [0.0], [1.0]).solve()
    assert np.isinf(found.error[0])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_function_without_value_is_not_measured(value: float) -> None:
    found = _ladder(lambda x: np.full_like(x, value), [1.0, 2.0], [1.0, 1.0]).solve()
    assert np.all(np.isinf(found.error))


def test_one_output_without_value_leaves_the_others_alone() -> None:
    found = _ladder(lambda x: np.stack([np.sin(x[0]), np.nan * x[0]]), [1.0], [1.0]).solve()
    assert abs(found.value[0] - np.cos(1.0)) <= found.error[0] < 1e-6
    assert np.isinf(found.error[1])


@pytest.mark.parametrize("reach", [2.0**-7, 2.0**-15, 2.0**-23])
def test_steps_at_which_the_function_raises_are_left_out(reach: float) -> None:
    def fn(x: np.ndarray) -> np.ndarray:
        if abs(x[0] - 1) > reach:
            raise ValueError("outside")
        return np.exp(x)

    metered = Metered(FunctionMap(fn, [1.0], np.eye(1)), budget=100)
    found = _ladder(metered.value, [1.0], [1.0]).solve()
    assert abs(found.value[0] - np.e) <= found.error[0]
    assert found.error[0] < 1e-2
    assert metered.memo[("raised",)] == "the function raised ValueError: outside"


@pytest.mark.parametrize("told", [True, False])
def test_run_to_run_noise_widens_the_bar_and_stays_within_it(told: bool) -> None:
    """1 output in 50 may lie outside where the noise has to be found in the differences."""
    rng, point = np.random.default_rng(11), np.linspace(-1, 1, 1000)
    size = np.full(1000, 1e-9)
    found = _ladder(
        lambda x: np.sin(x) + size * rng.standard_normal(1000),
        point,
        np.ones(1000),
        noise=2 * size if told else 0.0,
    ).solve()
    assert np.mean(~_holds(found, np.cos(point))) <= (0.0 if told else 0.02)
    assert 1e-8 < np.median(found.error) < 1e-4


def test_a_function_drowned_in_noise_is_not_measured() -> None:
    rng = np.random.default_rng(12)
    found = _ladder(lambda x: rng.standard_normal(100), np.ones(100), np.ones(100)).solve()
    assert np.all(~(found.error < 10))


@pytest.mark.parametrize("known", SMOOTH, ids=lambda known: known.name)
def test_the_bars_of_functionals_hold_and_are_small(known: Known) -> None:
    rng = np.random.default_rng(2)
    point, direction = rng.standard_normal(64), probes._dense(2, 64, 0)
    ladder, true = _ladder(known.value, point, direction), known.along(point, direction)
    rows = rng.standard_normal((5, true.shape[0]))
    found = ladder.of_functionals(rows)
    rounding = 1e-15 * np.abs(rows) @ np.abs(true)
    assert np.all(np.abs(found.value - rows @ true) <= found.error + rounding)
    assert np.median(found.error / np.abs(rows @ true)) < 1e-5


def test_functionals_of_noisy_outputs_count_the_noise() -> None:
    rng, point = np.random.default_rng(13), np.linspace(-1, 1, 100)
    size = np.full(100, 1e-9)
    fn = lambda x: np.sin(x) + size * rng.standard_normal(100)  # noqa: E731
    rows = rng.standard_normal((200, 100))
    found = _ladder(fn, point, np.ones(100), noise=2 * size).of_functionals(rows)
    assert np.all(np.abs(found.value - rows @ np.cos(point)) <= found.error)
    assert np.all(found.error > 1e-8)


def test_functionals_cost_no_evaluation() -> None:
    calls = []
    ladder = _ladder(lambda x: calls.append(1) or np.sin(x), np.ones(5), np.ones(5))
    before = len(calls)
    ladder.of_functionals(np.ones((3, 5)))
    assert len(calls) == before == 1 + 2 * Plan().rungs


def test_blocks_are_estimated_as_if_each_were_alone() -> None:
    size, block = 3 * 2**14 + 5, 2**14
    point, u = np.random.default_rng(0).standard_normal((2, size))
    whole = _ladder(np.tanh, point, u).estimate()
    for start in range(0, size, block):
        part = slice(start, start + block)
        alone = _ladder(np.tanh, point[part], u[part]).estimate()
        for name in Estimate.__dataclass_fields__:
            assert np.array_equal(getattr(whole, name)[part], getattr(alone, name)), name


def test_blocks_of_noisy_outputs_keep_their_own_noise() -> None:
    point, u = np.ones(2**14 + 7), np.ones(2**14 + 7)
    noise = np.linspace(1e-9, 1e-6, point.shape[0])
    found = _ladder(np.sin, point, u, noise=noise).estimate()
    assert found.error[-1] > 100 * found.error[0]


def test_no_output_is_no_problem() -> None:
    found = _ladder(lambda x: x[:0], [1.0], [1.0]).solve()
    assert found.value.shape == found.error.shape == (0,)


def test_the_derivative_of_a_constant_is_zero_to_its_rounding() -> None:
    found = _ladder(lambda x: 0 * x + 3.0, np.ones(5), np.ones(5)).solve()
    assert np.all(found.value == 0)
    assert np.all(found.error < 1e-10)


def test_a_step_function_is_not_measured_as_flat_at_its_jump() -> None:
    found = _ladder(lambda x: np.floor(x), [1.0], [1.0]).solve()
    assert not found.error[0] < 1.0


def test_rungs_do_not_depend_on_who_else_is_measured() -> None:
    """A tanh among a thousand other outputs is known as well as alone, to its rounding."""
    point = np.full(1000, 0.5)
    crowd = lambda x: np.concatenate([np.tanh(x[:1]), 1e6 * np.exp(x[1:])])  # noqa: E731
    among = _ladder(crowd, point, np.ones(1000)).estimate()
    alone = _ladder(np.tanh, point[:1], [1.0]).estimate()
    assert among.value[0] == pytest.approx(alone.value[0], rel=1e-9)
    assert among.error[0] <= 10 * alone.error[0]


_ROUGH = {
    "jump": lambda x: np.floor(10 * x),
    "noise": lambda x: np.sin(1e17 * x),
    "oscillation": lambda x: np.sin(1e7 * x),
    "kink": lambda x: np.abs(x - 0.1),
}


@pytest.mark.parametrize("rough", _ROUGH)
def test_one_output_that_jumps_or_is_noise_does_not_blind_the_others(rough: str) -> None:
    point = np.linspace(0.1, 1, 20)
    fn = lambda x: np.concatenate([_ROUGH[rough](x[:1]), np.tanh(x[1:])])  # noqa: E731
    found = _ladder(fn, point, np.ones(20)).solve()
    true = 1 / np.cosh(point) ** 2
    assert np.all(_holds(found, true)[1:])
    assert np.median(found.error[1:]) < 1e-4


def test_the_slope_of_a_tread_that_is_two_percent_of_all_does_not_leave_the_bar() -> None:
    """Of (1 + erf(x)) / 2 + x p(x), the slope of gelu, fine rungs stay on one tread of erf."""

    def bell(x: np.ndarray) -> np.ndarray:
        return np.exp(-x * x / 2) / np.sqrt(2 * np.pi)

    def slope(x: np.ndarray) -> np.ndarray:
        erf = np.asarray([math.erf(each) for each in x / math.sqrt(2)])
        return (1 + erf) / 2 + x * bell(x)

    held = []
    for u in (8.0, 5.41, -6.3):
        for x in np.linspace(-7.5, -4.5, 61)[:, None]:
            held.append(_holds(_ladder(slope, x, [u]).solve(), u * (2 - x * x) * bell(x)))
    assert np.mean(~np.concatenate(held)) <= 0.005
