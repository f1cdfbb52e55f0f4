"""Measured slopes: the true one lies within the error bar, and the bar is small where it can be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradproof._data.space import Slot, Space
from gradproof._maps.contract import CallCounter, DifferentiableMap
from gradproof._numdiff.slopes import Slopes, measured_slopes
from gradproof._numdiff.steps import step_tables
from gradproof._numdiff.values import FunctionValues
from numerics.calculus import KNOWN, Known

pytestmark = pytest.mark.usefixtures("as_in_the_engine")

Vector = np.ndarray
STEPS = step_tables(2.0**-53)
USUAL, FINE = STEPS.usual, STEPS.fine
TABLES = {"usual": USUAL, "fine": FINE}
SMOOTH = [known for known in KNOWN if known.smooth]
TINY = float(np.finfo(float).tiny)  # a slope below it, of a function that is 0 beside, is lost
SEEDS = st.integers(0, 10**6)


class FlatMap(DifferentiableMap):
    """A function of a flat vector, without a derivative: what `FunctionValues` asks for."""

    def __init__(self, fn: Callable[[Vector], Vector], point: object) -> None:
        self.fn, self.point = fn, np.array(point, float)
        self.resolution, self.counts = 2.0**-53, CallCounter()
        self.domain = Space((Slot("x", self.point.shape),))
        self.codomain = Space((Slot("y", np.shape(fn(self.point.copy()))),))

    def value(self, x: Vector) -> Vector:
        return np.asarray(self.fn(x), float)

    def vjp(self, v: Vector) -> Vector:
        raise NotImplementedError


def slopes_of(
    fn: Callable[[Vector], Vector], point: object, direction: object, table: str = "usual"
) -> Slopes:
    values = FunctionValues(FlatMap(fn, point))
    return measured_slopes(values.table(np.array(direction, float), TABLES[table]))


def covered(found: Slopes, true: Vector) -> Vector:
    """Where a bar holds the true slope; nothing is asked where that is not finite."""
    with np.errstate(invalid="ignore"):
        return (found.gap(true) <= found.bar + TINY) | ~np.isfinite(true)


def random_direction(rng: np.random.Generator, point: Vector) -> Vector:
    sizes = rng.integers(512, 1536, point.size) / 1024
    return np.exp2(np.round(np.log2(np.abs(point)))) * sizes * rng.choice([-1, 1], point.size)


def case(known: Known, scale: float, seed: int, table: str) -> tuple[Slopes, Vector]:
    rng = np.random.default_rng(seed)
    point = scale * rng.standard_normal(48)
    u = random_direction(rng, point)
    return slopes_of(known.value, point, u, table), known.along(point, u)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_the_true_slope_lies_within_the_bar(known: Known, table: str) -> None:
    """1 in 200 may lie outside, in any one function."""
    scales = (1e-3, 1e-1, 1.0, 1e1, 1e3)
    held = [covered(*case(known, scale, seed, table)) for scale in scales for seed in range(3)]
    assert np.mean(~np.concatenate(held)) <= 0.005


@pytest.mark.parametrize("known", SMOOTH, ids=lambda known: known.name)
def test_bars_of_smooth_functions_are_small(known: Known) -> None:
    found, true = case(known, 1.0, 0, "usual")
    assert np.median(found.bar / np.abs(true)) < 1e-6
    assert not found.width[np.isfinite(found.bar)].any()


@given(SEEDS, st.integers(-30, 30), st.sampled_from(sorted(TABLES)))
def test_polynomials_are_known_at_any_scale(seed: int, exponent: int, table: str) -> None:
    rng = np.random.default_rng(seed)
    point = np.ldexp(rng.uniform(0.5, 1, 9), exponent)
    factors = rng.standard_normal(4)[:, None] / np.ldexp(1.0, exponent * np.arange(4))[:, None]
    powers = np.arange(4)[:, None]

    def value(x: Vector) -> Vector:
        return (factors * x**powers).sum(axis=0)

    u = random_direction(rng, point)
    found = slopes_of(value, point, u, table)
    assert covered(found, Known("", value).along(point, u)).all()
    assert np.all(
        found.bar <= 2e-8 * (np.abs(factors[1:]) * 3 * 2.0 ** (exponent * powers[1:])).sum()
    )


@given(SEEDS, st.floats(-12, -5), st.sampled_from(["sin", "exp", "tanh", "cube"]))
def test_noise_widens_the_bars_and_stays_within_them(seed: int, digits: float, name: str) -> None:
    known = next(known for known in KNOWN if known.name == name)
    rng = np.random.default_rng(seed)
    point = rng.uniform(0.25, 2, 100)
    fixed = 10**digits

    def value(x: Vector) -> Vector:
        return known.value(x) + fixed * rng.standard_normal(100)

    u = random_direction(rng, point)
    found = slopes_of(value, point, u)
    assert np.mean(~covered(found, known.along(point, u))) <= 0.02
    assert np.median(found.bar) >= fixed


def test_a_function_drowned_in_noise_has_no_slope() -> None:
    rng = np.random.default_rng(12)
    found = slopes_of(lambda x: rng.standard_normal(100), np.ones(100), np.ones(100))
    assert not np.any(found.bar < 10)


def test_a_constant_offset_costs_its_digits_and_no_more() -> None:
    point = np.linspace(0.1, 1, 50)
    found = slopes_of(lambda x: 1e8 + np.sin(x), point, np.ones(50), "fine")
    assert covered(found, np.cos(point)).all()
    assert np.max(found.bar) < 1e-4


@pytest.mark.parametrize("frequency", [3e1, 3e2, 3e3, 3e4, 1e5, 1e6])
def test_a_fast_oscillation_does_not_leave_the_bar(frequency: float) -> None:
    point = np.linspace(0.1, 1, 200)
    found = slopes_of(lambda x: np.sin(frequency * x), point, np.ones(200), "fine")
    assert covered(found, frequency * np.cos(frequency * point)).all()


@given(
    st.floats(-8, 8),
    st.floats(-8, 8),
    st.sampled_from([1.0, -1.0, 0.625, -1.25]),
    st.sampled_from(sorted(TABLES)),
)
def test_at_a_kink_the_interval_is_that_of_the_slopes_on_both_sides(left, right, u, table) -> None:
    def value(x: Vector) -> Vector:
        return np.sin(x) + np.where(x > 0, right, left) * x + x**2

    found = slopes_of(value, [0.0], [u], table)
    ends = sorted([u * (1 + left), u * (1 + right)])
    reach = found.bar[0] + 1e-12
    assert found.low[0] - reach <= ends[0] <= ends[1] <= found.high[0] + reach
    assert found.width[0] <= ends[1] - ends[0] + 2 * reach
    assert found.bar[0] < max(1e-4, 1e-6 * abs(left - right)) or ends[1] - ends[0] < 1e-3


@pytest.mark.parametrize("beside", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("table", TABLES)
def test_a_kink_beside_the_point_does_not_leave_the_bar(table, sign, beside: float) -> None:
    assert covered(slopes_of(np.abs, [sign * beside], [1.0], table), np.array([float(sign)])).all()


@pytest.mark.parametrize("fn", [np.log, np.sqrt, lambda x: np.arccosh(1 + x)])
@pytest.mark.parametrize("beside", [1e-2, 1e-3, 1e-4, 1e-5])
def test_steps_that_leave_the_domain_are_not_used(fn, beside: float) -> None:
    found = slopes_of(fn, [beside], [1.0], "fine")
    slope = Known("", fn).along(np.array([beside]), np.ones(1))
    assert covered(found, slope).all()
    assert found.bar[0] < 1e-2 * slope


def test_at_the_border_of_the_domain_the_slope_on_one_side_counts() -> None:
    found = slopes_of(lambda x: np.where(x < 0, np.nan, np.sin(3 * x)), [0.0], [1.0], "fine")
    assert found.low[0] == found.high[0] == pytest.approx(3.0, rel=1e-6)
    assert found.bar[0] < 1e-5


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_without_a_value_there_is_no_slope(value: float) -> None:
    found = slopes_of(lambda x: np.full_like(x, value), [1.0, 2.0], [1.0, 1.0])
    assert np.isinf(found.bar).all()


def test_an_output_without_value_leaves_the_others_alone() -> None:
    found = slopes_of(lambda x: np.stack([np.sin(x[0]), np.nan * x[0]]), [1.0], [1.0])
    assert covered(found, np.array([np.cos(1.0), np.nan]))[0]
    assert found.bar[0] < 1e-6
    assert np.isinf(found.bar[1])


def test_where_the_function_raises_it_has_no_value() -> None:
    def fn(x: Vector) -> Vector:
        if abs(x[0] - 1) > 2.0**-7:
            raise ValueError("outside")
        return np.exp(x)

    values = FunctionValues(FlatMap(fn, [1.0]))
    found = measured_slopes(values.table(np.ones(1), FINE))
    assert covered(found, np.array([np.e])).all()
    assert found.bar[0] < 1e-6
    assert values.raised == "the function raised ValueError: outside"


@pytest.mark.parametrize("bits", range(9, 19))
def test_of_a_staircase_neither_slope_is_ruled_out(bits: int) -> None:
    """It stands still between its stairs, and climbs across them."""
    height, slope = 2.0**-bits, 0.7345
    point = np.linspace(0.11, 1, 200)
    found = slopes_of(lambda x: np.floor(slope * x / height) * height, point, np.ones(200), "fine")
    for claimed in (0.0, slope):
        inside = found.gap(np.full(200, claimed)) <= found.bar
        assert np.mean(~inside) <= 0.005


def test_function_values_rounded_to_float32_make_a_bar_of_that_size() -> None:
    point = np.linspace(0.1, 1, 50)
    found = slopes_of(lambda x: np.sin(x).astype(np.float32), point, np.ones(50))
    assert covered(found, np.cos(point)).all()
    assert np.median(found.bar) > 2.0**-24


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("fn", [np.cbrt, lambda x: np.sign(x) * np.sqrt(np.abs(x))])
def test_an_infinite_slope_has_its_sign_and_any_finite_claim_is_in_it(fn, sign: float) -> None:
    found = slopes_of(lambda x: sign * fn(x), [0.0], [1.0], "fine")
    assert np.isinf(found.width).all()
    assert found.gap(np.array([sign * np.inf]))[0] == 0
    assert found.gap(np.array([7.0]))[0] == 0
    assert found.gap(np.array([-sign * np.inf]))[0] == np.inf


@pytest.mark.parametrize("known", SMOOTH, ids=lambda known: known.name)
def test_bars_of_functionals_hold_and_are_small(known: Known) -> None:
    rng = np.random.default_rng(2)
    point = rng.standard_normal(48)
    u = random_direction(rng, point)
    values = FunctionValues(FlatMap(known.value, point))
    true = known.along(point, u)
    weights = rng.standard_normal((5, true.size))
    found = measured_slopes(values.table(u, USUAL).project(weights))
    rounding = 1e-15 * np.abs(weights) @ np.abs(true)
    assert np.all(found.gap(weights @ true) <= found.bar + rounding)
    assert np.median(found.bar / np.abs(weights @ true)) < 1e-5


def test_outputs_in_blocks_are_what_they_are_together() -> None:
    point = np.random.default_rng(0).standard_normal(200)
    u = random_direction(np.random.default_rng(1), point)
    few = slopes_of(np.sin, point, u)
    many = slopes_of(np.sin, np.tile(point, 200), np.tile(u, 200))
    assert np.allclose(many.low.reshape(200, -1), few.low, rtol=1e-9)
    assert covered(many, np.tile(u * np.cos(point), 200)).all()
