"""Rows and columns of very different size: the smallest are checked like the largest."""

from __future__ import annotations

import numpy as np
import pytest

import gradproof
from claims import MODES, Linear, judge
from gradproof import Verdict

every_mode = pytest.mark.parametrize("mode", MODES)
every_size = pytest.mark.parametrize("size", [7, 600])


def spread_point(size: int) -> np.ndarray:
    """Exponents from -60 to 60, so that the exponentials span 52 powers of ten."""
    return np.random.default_rng(0).permutation(np.linspace(-60, 60, size))


@every_mode
@every_size
@pytest.mark.parametrize("place", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("factor", [0.0, 1.0, 1.01])
def test_a_wrong_row_is_found_however_small_it_is(
    mode: str, size: int, place: float, factor: float
) -> None:
    point = spread_point(size)
    row = int(np.argsort(point)[int(place * (size - 1))])
    slopes = np.exp(point)
    slopes[row] *= factor
    result = judge(np.exp, point, Linear.diagonal(slopes), mode)
    if factor == 1:
        assert result.verdict is Verdict.PASSED, result.summary
    elif mode == "backward" and size > 512 and place < 1:  # of projections: weighed, not seen
        assert result.verdict is not Verdict.PASSED, result.summary
    else:
        assert result.verdict is Verdict.FAILED, result.summary
        assert {finding.output_index for finding in result.findings} == {(row,)}


def test_an_output_below_the_rounding_of_the_function_is_listed() -> None:
    """The last derivative, 1e-5, moves an output of 1e8 by a few units in the last place."""
    slopes, offsets = np.array([1e3, 1e3, 1e-5]), np.array([0.0, 0.0, 1e8])
    point = np.array([1.0, -2.0, 0.5])
    result = judge(lambda x: offsets + slopes * x, point, Linear.diagonal(slopes))
    assert result.verdict is Verdict.PASSED, result.summary
    assert result.notes == ("the derivatives of 1 input are below the rounding of F: not tested",)


def test_rounding_that_stands_for_zero_is_not_listed() -> None:
    """As the gradient of a share that cancels: 1e-18 beside 1, where the derivative is zero."""
    weights = np.arange(1.0, 8.0)

    def function(x: np.ndarray) -> np.ndarray:
        return weights * x[0] * np.cbrt(x[1]) ** 3 / x[1]

    claimed = np.stack([weights, np.full(7, 1e-18)], axis=1)
    result = judge(function, np.array([1.1, 0.7]), Linear.dense(claimed))
    assert result.verdict is Verdict.PASSED, result.summary
    assert not result.notes


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("x", [1e-12, 3.3e-9, 1e-7])
@pytest.mark.parametrize(
    ("fn", "slope"),
    [(np.log, lambda x: 1 / x), (np.sqrt, lambda x: 0.5 / np.sqrt(x))],
    ids=["log", "sqrt"],
)
def test_a_smooth_function_is_as_sharp_near_zero_as_elsewhere(fn, slope, x, seed) -> None:
    point = np.array([x, 1.7 * x, 1.0])
    result = judge(fn, point, lambda x: Linear.diagonal(slope(x)), "forward", seed=seed)
    assert result.verdict is Verdict.PASSED, result.summary


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("factor", [1.0, 1.02])
@pytest.mark.parametrize("point", [[1.003], [0.9985, 2.2, -0.3]], ids=["alone", "beside others"])
def test_a_jump_that_only_the_longest_step_meets_is_no_noise(point, factor, seed) -> None:
    def claimed(x: np.ndarray) -> Linear:
        return Linear.diagonal(factor * np.exp(x))

    result = judge(lambda x: np.exp(x) + (x > 1), point, claimed, seed=seed)
    assert result.verdict is (Verdict.PASSED if factor == 1 else Verdict.FAILED), result.summary


@every_mode
@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_the_largest_numbers_are_judged_by_finite_bars(factor, mode) -> None:
    point = np.array([1.7e308, -1.6e308, 1.79e308, 1.0])
    claimed = Linear.diagonal(np.full(4, 0.5 * factor))
    for seed in range(3):
        result = judge(lambda x: 0.5 * x, point, claimed, mode, seed=seed)
        assert result.verdict is (Verdict.PASSED if factor == 1 else Verdict.FAILED)
        assert all(np.isfinite(finding.allowed) for finding in result.findings)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("factor", [1.0, 1.001])
@pytest.mark.parametrize("volume", [1.0, 1e-6, 1e-9, 1e-15])
def test_numbers_of_several_units_in_one_vector_are_moved_as_each_allows(volume, factor, seed):
    """The steps of the others led out of the domain of the small one: inconclusive."""

    def gradient(p):
        return 1e-9 * np.array([p[1] / p[2], p[0] / p[2], -factor * p[0] * p[1] / p[2] ** 2])

    gas = gradproof.by_hand(lambda p: 1e-9 * p[0] * p[1] / p[2], grad=gradient)
    report = gradproof.check(gas, np.array([2.0, 300.0, volume]), seed=seed)
    assert report.verdict is (Verdict.PASSED if factor == 1 else Verdict.FAILED), str(report)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_right", [True, False])
@pytest.mark.parametrize("tiny", [1e-8, 3e-9, 1e-12, 1e-30])
def test_an_input_that_is_tiny_by_chance_hides_no_column(tiny, is_right, seed):
    """Moved by parts of its own size it changed nothing that could be seen."""
    point = np.random.default_rng(seed).normal(size=16)
    point[3] = tiny
    matrix = np.eye(16) - 1 / 16
    matrix[5, 3] += 0.0 if is_right else 0.5
    centre = gradproof.by_hand(lambda x: x - x.mean(), vjp=lambda x, v: matrix.T @ v)
    report = gradproof.check(centre, point, checks=["backward"], seed=seed)
    assert report.verdict is (Verdict.PASSED if is_right else Verdict.FAILED), str(report)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("factor", [1.0, 1.00001])
def test_outputs_that_do_not_move_drown_no_column(factor, seed):
    """Beside 1.9^9 the column of 0.04^9 counted as lost in rounding, and a note said so."""
    x = np.array([-0.7, 1.9154, 0.0658, 0.4475, -0.8075, 0.0443, 1.048, 0.6262])

    def pull(x, v):
        return v * 9 * x**8 * np.where(abs(x) < 0.1, factor, 1.0)

    def push(x, u):
        return pull(x, u)  # the matrix is diagonal

    power = gradproof.by_hand(lambda x: x**9, vjp=pull, jvp=push)
    report = gradproof.check(power, x, seed=seed)
    assert report.verdict is (Verdict.PASSED if factor == 1 else Verdict.FAILED), str(report)
    assert not any("not tested" in note for note in report["forward"].notes)


@pytest.mark.parametrize("inputs", [40, 600])
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_an_output_that_stands_still_takes_no_weight_from_small_ones(factor, inputs):
    """Sums of outputs, which are compared of a backward that gives rows alone, were its own."""
    large, small = np.random.default_rng(0).normal(size=(2, 20, inputs))

    def value(x):
        return np.concatenate([1e12 * large @ np.sin(x), small @ np.sin(x), [0.5]])

    def pull(x, v):
        return (1e12 * v[:20] @ large + factor * v[20:40] @ small) * np.cos(x)

    mixed = gradproof.by_hand(value, vjp=pull)
    report = gradproof.check(mixed, np.linspace(0.1, 1.1, inputs), checks=["backward"], seed=0)
    assert report.verdict is (Verdict.PASSED if factor == 1 else Verdict.FAILED), str(report)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("factor", [1.0, 1.01, 0.0, -1.0])
@pytest.mark.parametrize("size", [1e-12, 1e-14, 1e-16, 1e-20])
def test_a_whole_array_of_tiny_numbers_is_tested_as_one_of_zeros_is(size, factor, seed) -> None:
    """A bias of 1e-16 is moved by parts of itself, which F does not show."""
    draw = np.random.default_rng(seed)
    x, bias = draw.normal(size=(3, 4)), size * draw.normal(size=4)

    def vjp(x, bias, v):
        gradient = v * np.exp(x + bias)
        return gradient, factor * gradient.sum(axis=0)

    layer = gradproof.by_hand(lambda x, bias: np.exp(x + bias), vjp=vjp)
    result = gradproof.check(layer, (x, bias), checks=("backward",), seed=seed)["backward"]
    assert result.verdict == ("passed" if factor == 1 else "failed"), result.summary
    assert {finding.input_name for finding in result.findings} <= {"bias"}


@pytest.mark.parametrize("power", [0.5, 1.5])
def test_another_slope_where_tiny_numbers_are_not_tiny_accuses_none(power) -> None:
    x, bias = np.array([[0.5, -1.0], [2.0, 0.25]]), np.array([2e-20, 5e-20])

    def vjp(x, bias, v):
        return v * np.exp(x), 1e-9 * v.sum(axis=0) * power * bias ** (power - 1)

    layer = gradproof.by_hand(lambda x, bias: np.exp(x) + 1e-9 * bias**power, vjp=vjp)
    report = gradproof.check(layer, (x, bias), checks=("backward",), seed=0)
    assert report.verdict != "failed", report
