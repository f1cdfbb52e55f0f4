"""The judgement of a Jacobian: every mistake is found where it is, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from gradproof._data.records import CheckResult, Verdict
from gradproof._data.settings import RunSettings
from numpy_map import FunctionMap, Linear, found_entries, result_of

SIZES = (10, 300, 2000, 100_000)
# How J can be claimed: the name of the check and what the map is capable of.
MODES: dict[str, tuple[str, dict[str, bool]]] = {
    "backward only": ("backward", {}),
    "transposed": ("backward", {"transposes": True}),
    "forward": ("forward", {"forward": True}),
}
every_mode = pytest.mark.parametrize("mode", MODES)
MEASURED_WHOLE = 512  # inputs, up to which every entry is measured
every_size = pytest.mark.parametrize("size", SIZES)
# Where nearly every row is wrong, the search takes seconds at the largest size.
_LARGE = pytest.param(SIZES[-1], marks=pytest.mark.slow)
every_size_slowly = pytest.mark.parametrize("size", [*SIZES[:-1], _LARGE])


@dataclass(frozen=True)
class Case:
    """A function with its point and its right derivative."""

    fn: Callable[[np.ndarray], np.ndarray]
    point: np.ndarray
    right: Linear

    def judged(self, mode: str, claimed: Linear | None = None, **options: Any) -> CheckResult:
        check, capable = MODES[mode]
        map_ = FunctionMap(self.fn, self.point, claimed or self.right, **capable)
        return result_of(map_, check, **options)


def _diagonal(size: int, seed: int = 0) -> Case:
    point = np.random.default_rng(seed).standard_normal(size)
    return Case(np.tanh, point, Linear.diagonal(1 / np.cosh(point) ** 2))


def _dense(size: int, seed: int = 0) -> Case:
    rng = np.random.default_rng(seed)
    matrix, point = rng.standard_normal((size, size)) / np.sqrt(size), rng.standard_normal(size)
    right = matrix / np.cosh(matrix @ point)[:, None] ** 2
    return Case(lambda x: np.tanh(matrix @ x), point, Linear.dense(right))


def _scattered(size: int, count: int) -> dict[tuple[int, int], float]:
    rng = np.random.default_rng(1)
    rows, columns = rng.permutation(size)[:count], rng.permutation(size)[:count]
    return {(int(rows[k]), int(columns[k])): 0.1 * (k + 1) for k in range(count)}


def _assert_exactly(result: CheckResult, errors: dict[tuple[int, int], float]) -> None:
    assert result.verdict is Verdict.FAILED
    found = found_entries(result)
    assert found.keys() == errors.keys()
    for at, error in errors.items():
        assert found[at] == pytest.approx(error, rel=1e-4)


def _assert_found(result: CheckResult, errors: dict[tuple[int, int], float], size: int) -> None:
    """All of them where the Jacobian is measured as a whole; else what is found is wrong."""
    if size <= RunSettings().full_jacobian:
        _assert_exactly(result, errors)
        return
    assert result.verdict is Verdict.FAILED
    found = found_entries(result)
    assert found
    for at, error in found.items():
        assert error == pytest.approx(errors[at], rel=1e-4)


@every_mode
@every_size
def test_a_right_derivative_passes(size: int, mode: str) -> None:
    for seed in range(20 if size <= 2000 else 3):
        result = _diagonal(size, seed).judged(mode, seed=seed)
        assert result.verdict is Verdict.PASSED, result.summary
        # Projections alone see less the more outputs there are, and have to say so. What is seen of
        # a row is a smaller part of it than of its largest entry.
        bar = 1e-2 if mode == "backward only" else 1e-5
        assert result.resolution < bar * max(1.0, 6 * size**0.5)


@every_mode
@pytest.mark.parametrize("size", [1, 2, 10, 300, 1000])
def test_a_right_dense_derivative_passes(size: int, mode: str) -> None:
    for seed in range(20 if size <= 300 else 3):
        result = _dense(size, seed).judged(mode, seed=seed)
        assert result.verdict is Verdict.PASSED, result.summary


@every_mode
@every_size
@pytest.mark.parametrize("seed", range(3))
def test_one_wrong_entry_is_found_exactly(size: int, mode: str, seed: int) -> None:
    errors, case = {(size // 3, size // 2): -0.01}, _diagonal(size)
    _assert_exactly(case.judged(mode, case.right.with_entries(errors), seed=seed), errors)


@every_mode
@pytest.mark.parametrize("size", [2, 10, 300, 1000])
def test_one_wrong_entry_of_a_dense_jacobian_is_found_exactly(size: int, mode: str) -> None:
    errors, case = {(size // 3, size // 2): 1e-3}, _dense(size)
    _assert_exactly(case.judged(mode, case.right.with_entries(errors)), errors)


@every_mode
@every_size
@pytest.mark.parametrize("seed", range(3))
def test_five_wrong_entries_are_all_found_exactly_or_one_of_them(
    size: int, mode: str, seed: int
) -> None:
    errors, case = _scattered(size, 5), _diagonal(size)
    _assert_found(case.judged(mode, case.right.with_entries(errors), seed=seed), errors, size)


@every_mode
@every_size_slowly
def test_of_three_wrong_entries_of_one_row_one_is_proven(size: int, mode: str) -> None:
    row, case = size // 3, _diagonal(size)
    errors = {(row, 0): 0.3, (row, size // 2): -0.2, (row, size - 1): 0.4}
    result = case.judged(mode, case.right.with_entries(errors))
    _assert_found(result, errors, size)


@every_mode
@every_size
def test_three_wrong_entries_of_one_column_are_all_found_exactly(size: int, mode: str) -> None:
    column, case = size // 3, _diagonal(size)
    errors = {(0, column): 0.3, (size // 2, column): -0.2, (size - 1, column): 0.4}
    result = case.judged(mode, case.right.with_entries(errors))
    if mode == "backward only":  # of projections one row is known at a time
        _assert_found(result, errors, size)
    else:
        _assert_exactly(result, errors)


@every_mode
@every_size_slowly
def test_a_wrong_row_is_named(size: int, mode: str) -> None:
    case, error = _diagonal(size), np.random.default_rng(2).standard_normal(size)
    result = case.judged(mode, case.right.with_row(size // 3, error))
    found = found_entries(result)
    assert result.verdict is Verdict.FAILED
    assert {i for i, _ in found} == {size // 3}
    assert all(found[at] == pytest.approx(error[at[1]], rel=1e-4) for at in found)
    assert len(found) >= (min(size, 3) if size <= MEASURED_WHOLE else 1)


@every_mode
@every_size_slowly
def test_a_wrong_column_is_named(size: int, mode: str) -> None:
    case, error = _diagonal(size), np.random.default_rng(2).standard_normal(size)
    result = case.judged(mode, case.right.with_column(size // 2, error))
    found = found_entries(result)
    assert result.verdict is Verdict.FAILED
    assert {j for _, j in found} == {size // 2}
    assert all(found[at] == pytest.approx(error[at[0]], rel=1e-4) for at in found)
    assert f"x[{size // 2}]" in result.summary


@every_mode
@every_size_slowly
@pytest.mark.parametrize("factor", [1.001, 0.5, -1.0, 0.0])
def test_a_jacobian_wrong_by_a_factor_fails_at_its_own_entries(
    size: int, mode: str, factor: float
) -> None:
    case = _diagonal(size)
    result = case.judged(mode, case.right.scaled(factor))
    assert result.verdict is Verdict.FAILED
    assert result.findings
    for finding in result.findings:
        assert finding.input_index == finding.output_index
        assert finding.claimed == pytest.approx(factor * finding.measured, rel=1e-4)


@every_mode
@every_size_slowly
@pytest.mark.parametrize("seed", range(3))
def test_swapped_rows_are_four_wrong_entries(size: int, mode: str, seed: int) -> None:
    case = _diagonal(size)
    slopes = 1 / np.cosh(case.point) ** 2
    a, b = 1, size - 1
    errors = {(a, a): -slopes[a], (b, b): -slopes[b], (a, b): slopes[b], (b, a): slopes[a]}
    result = case.judged(mode, case.right.with_rows_swapped(a, b), seed=seed)
    if size <= MEASURED_WHOLE:
        _assert_exactly(result, errors)
    else:
        assert result.verdict is Verdict.FAILED
        assert set(found_entries(result)) <= set(errors)


@every_mode
@every_size_slowly
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_claim_that_is_no_number_fails(size: int, mode: str, wrong: float) -> None:
    case = _diagonal(size)
    slopes = 1 / np.cosh(case.point) ** 2
    slopes[size // 3] = wrong
    result = case.judged(mode, Linear.diagonal(slopes))
    assert result.verdict is Verdict.FAILED
    assert all(size // 3 in at for at in found_entries(result))


@every_mode
@pytest.mark.parametrize("size", [1, 300, 2000])
def test_a_single_output_with_one_wrong_partial_is_found(size: int, mode: str) -> None:
    point = np.random.default_rng(0).standard_normal(size)
    right = Linear.dense(np.cos(point)[None, :])
    case = Case(lambda x: np.sin(x).sum(keepdims=True), point, right)
    assert case.judged(mode).verdict is Verdict.PASSED
    errors = {(0, size // 2): 0.125}
    _assert_exactly(case.judged(mode, right.with_entries(errors)), errors)


@every_mode
@pytest.mark.parametrize("size", [2, 300, 2000])
def test_a_single_input_with_one_wrong_output_is_found(size: int, mode: str) -> None:
    weights = np.linspace(0.5, 3, size)
    right = Linear.dense((weights * np.cos(0.3 * weights))[:, None])
    case = Case(lambda x: np.sin(weights * x), np.asarray([0.3]), right)
    assert case.judged(mode).verdict is Verdict.PASSED
    errors = {(size // 2, 0): 0.125}
    _assert_exactly(case.judged(mode, right.with_entries(errors)), errors)


@every_mode
@pytest.mark.parametrize("part", [0.0, 1e-8, 1e-7, 1e-5, 1e-3, 1.0, -2.0])
def test_tiling_changes_no_verdict(mode: str, part: float) -> None:
    """Eight inputs, alone and among 79, 624 and 7,999 others like them.

    A mistake may be missed only where the check says that it resolves no mistake of that size.
    """
    for times in (1, 10, 79, 1000):
        result = _tiled(times, part, mode)
        missed = result.verdict is Verdict.PASSED and result.resolution > abs(part)
        right = Verdict.PASSED if abs(part) < 1e-6 else Verdict.FAILED
        assert result.verdict is right or missed, f"{times} times: {result.summary}"


def _tiled(times: int, part: float, mode: str) -> CheckResult:
    """A block of a Jacobian, many times; an entry of the last one is wrong by a part of itself."""
    point = np.tile(np.linspace(-1, 1, 8), times)
    slopes = 1 / np.cosh(point) ** 2
    at = point.shape[0] - 3
    claimed = Linear.diagonal(slopes).with_entries({(at, at): part * slopes[at]})
    return Case(np.tanh, point, claimed).judged(mode)


@every_mode
@every_size_slowly
@pytest.mark.parametrize("factor", [1e-6, 1e-12, 1e12])
def test_a_zero_derivative_of_a_small_function_fails(size: int, mode: str, factor: float) -> None:
    point = np.random.default_rng(0).standard_normal(size)
    case = Case(lambda x: factor * np.sin(x), point, Linear.diagonal(0 * point))
    assert case.judged(mode).verdict is Verdict.FAILED


@every_mode
@pytest.mark.parametrize("size", [10, 2000])
def test_an_absolute_tolerance_above_the_whole_jacobian_certifies_nothing(
    size: int, mode: str
) -> None:
    point = np.random.default_rng(0).standard_normal(size)
    case = Case(lambda x: 1e-6 * np.sin(x), point, Linear.diagonal(0 * point))
    result = case.judged(mode, atol=1e-3)
    assert result.verdict is Verdict.INCONCLUSIVE or result.resolution >= 1


@every_mode
@pytest.mark.parametrize("size", [10, 300, 2000])
def test_tolerances_are_those_of_an_entry(size: int, mode: str) -> None:
    case, at = _diagonal(size), (size // 2, size // 2)
    slope = float(1 / np.cosh(case.point[size // 2]) ** 2)
    claimed = case.right.with_entries({at: 1e-3 * slope})
    for excusing in ({"rtol": 1.01e-3}, {"atol": 1.01e-3 * slope}):
        found = case.judged(mode, claimed, **excusing).verdict
        by_projections = size > RunSettings().full_jacobian and mode == "backward only"
        assert found is Verdict.PASSED or (by_projections and found is Verdict.INCONCLUSIVE)
    for excusing in ({"rtol": 0.99e-3}, {"atol": 0.99e-3 * slope}):
        assert case.judged(mode, claimed, **excusing).verdict is Verdict.FAILED


@every_mode
@pytest.mark.parametrize("size", [10, 300, 2000])
def test_a_constant_function_tests_nothing(size: int, mode: str) -> None:
    case = Case(lambda x: 0 * x + 2.0, np.ones(size), Linear.diagonal(np.zeros(size)))
    assert case.judged(mode).verdict is Verdict.INCONCLUSIVE


@every_mode
@pytest.mark.parametrize("size", [10, 300, 2000])
def test_a_derivative_claimed_of_a_constant_function_fails(size: int, mode: str) -> None:
    case = Case(lambda x: 0 * x + 2.0, np.ones(size), Linear.diagonal(np.ones(size)))
    assert case.judged(mode).verdict is Verdict.FAILED


@every_mode
@pytest.mark.parametrize("options", [{}, {"atol": 1e-9}])
@pytest.mark.parametrize("size", [10, 300, 2000])
def test_an_output_without_value_is_never_passed(
    size: int, mode: str, options: dict[str, float]
) -> None:
    def fn(x: np.ndarray) -> np.ndarray:
        return np.where(np.arange(size) == size // 2, np.nan, np.tanh(x))

    right = _diagonal(size)
    case = Case(fn, right.point, right.right)
    assert case.judged(mode, **options).verdict is not Verdict.PASSED


@every_mode
@pytest.mark.parametrize("size", [10, 300, 2000])
@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_a_slope_between_those_of_a_kink_is_not_refuted(size: int, mode: str, slope: float) -> None:
    assert _kinked(size, slope).judged(mode).verdict is not Verdict.FAILED


@every_mode
@pytest.mark.parametrize("size", [10, 300, 2000])
@pytest.mark.parametrize("slope", [-1.0, 2.0, 100.0])
def test_a_slope_outside_those_of_a_kink_is_refuted(size: int, mode: str, slope: float) -> None:
    result = _kinked(size, slope).judged(mode)
    assert result.verdict is Verdict.FAILED
    assert found_entries(result).keys() == {(size // 2, size // 2)}


def _kinked(size: int, slope: float) -> Case:
    """A relu with one input exactly at its kink, where `slope` is claimed."""
    point = np.random.default_rng(0).standard_normal(size)
    point[size // 2] = 0.0
    slopes = np.where(point == 0, slope, np.where(point > 0, 1.0, 0.0))
    return Case(lambda x: np.maximum(x, 0), point, Linear.diagonal(slopes))


@every_mode
@pytest.mark.parametrize("size", [10, 2000])
@pytest.mark.parametrize("frequency", [1e2, 1e4, 1e6, 1e7, 1e8])
def test_a_fast_oscillation_is_never_accused(size: int, mode: str, frequency: float) -> None:
    point = np.random.default_rng(0).uniform(0.1, 1, size)
    slopes = frequency * np.cos(frequency * point)
    case = Case(lambda x: np.sin(frequency * x), point, Linear.diagonal(slopes))
    assert case.judged(mode).verdict is not Verdict.FAILED


@every_mode
def test_a_rough_output_does_not_hide_a_mistake_in_another(mode: str) -> None:
    """One that jumps beside the point; at a jump exactly at the point all may be left open."""
    point = np.linspace(0.1, 1, 10)
    slopes = np.where(np.arange(10) == 0, 0.0, 1 / np.cosh(point) ** 2)

    def jumping(shift: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda x: np.where(np.arange(10) == 0, np.floor(10 * x + shift), np.tanh(x))

    claimed = Linear.diagonal(slopes).with_entries({(4, 4): 0.1})
    result = Case(jumping(0.5), point, claimed).judged(mode)
    assert result.verdict is Verdict.FAILED
    assert (4, 4) in found_entries(result)
    assert Case(jumping(0.0), point, claimed).judged(mode).verdict is not Verdict.PASSED


def test_nothing_to_check_is_passed_and_says_so() -> None:
    for fn, point in ((lambda x: x[:0], np.ones(3)), (lambda x: np.ones(2), np.ones(0))):
        shape = (fn(point).shape[0], point.shape[0])
        result = result_of(FunctionMap(fn, point, np.zeros(shape)), "backward")
        assert result.verdict is Verdict.PASSED
        assert "nothing to check" in result.summary


def test_a_double_backward_that_contradicts_the_backward_is_not_believed() -> None:
    """J u by the double backward is wrong, J^T v is right: the backward passes."""
    case = _diagonal(50)
    wrong = Linear(lambda u: 0 * u, case.right.backward)
    assert case.judged("transposed", wrong).verdict is Verdict.PASSED


def test_a_right_double_backward_does_not_excuse_a_wrong_backward() -> None:
    case = _diagonal(50)
    wrong = Linear(case.right.forward, lambda v: 1.01 * case.right.backward(v))
    assert case.judged("transposed", wrong).verdict is Verdict.FAILED


@every_size
def test_a_right_derivative_costs_at_most_20_evaluations_and_12_vjps(size: int) -> None:
    for mode in MODES:
        result = _diagonal(size).judged(mode)
        assert result.calls.get("value", 0) <= 20
        assert result.calls.get("vjp", 0) + result.calls.get("jvp", 0) <= 12


@every_mode
def test_a_wrong_entry_of_ten_to_the_ten_costs_at_most_60_calls_of_each_kind(mode: str) -> None:
    case = _diagonal(100_000)
    result = case.judged(mode, case.right.with_entries({(99_999, 31_415): 0.1}))
    assert found_entries(result).keys() == {(99_999, 31_415)}
    assert all(count <= 60 for count in result.calls.values())


def test_findings_speak_of_slots_and_indices_of_the_user() -> None:
    point = np.linspace(0.1, 1, 10)
    claimed = Linear.diagonal(np.cos(point)).with_entries({(7, 3): 0.5})
    shapes = {"inputs": [(2, 2), (6,)], "outputs": [(5,), (5,)]}
    (finding,) = result_of(FunctionMap(np.sin, point, claimed, **shapes), "backward").findings
    assert (finding.input_name, finding.input_index) == ("x0", (1, 1))
    assert (finding.output_name, finding.output_index) == ("y1", (2,))
    assert "x0[1, 1] -> y1[2]: claimed 0.5, measured" in finding.message
