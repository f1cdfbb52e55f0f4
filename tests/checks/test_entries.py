"""Wrong entries of a Jacobian are found where they are, at any size, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import gradproof
from claims import MODES, Linear, errors_found, judge
from gradproof import CheckResult, Settings, Verdict

WHOLE = Settings().full_jacobian  # inputs up to which every entry is measured
SIZES = (10, 300, 2000, 100_000)
every_mode = pytest.mark.parametrize("mode", MODES)
# Where nearly every row is wrong, the search takes seconds at the largest size.
every_size_slowly = pytest.mark.parametrize(
    "size", [*SIZES[:-1], pytest.param(SIZES[-1], marks=pytest.mark.slow)]
)


@dataclass(frozen=True)
class Case:
    """A function with its point and its right derivative there."""

    fn: Callable[[np.ndarray], np.ndarray]
    point: np.ndarray
    right: Linear

    def judge(self, mode: str, claimed: Linear | None = None, **options: object) -> CheckResult:
        return judge(self.fn, self.point, claimed or self.right, mode, **options)


def diagonal_case(size: int, seed: int = 0) -> Case:
    point = np.random.default_rng(seed).standard_normal(size)
    return Case(np.tanh, point, Linear.diagonal(1 / np.cosh(point) ** 2))


def dense_case(size: int, seed: int = 0) -> Case:
    rng = np.random.default_rng(seed)
    matrix, point = rng.standard_normal((size, size)) / np.sqrt(size), rng.standard_normal(size)
    right = matrix / np.cosh(matrix @ point)[:, None] ** 2
    return Case(lambda x: np.tanh(matrix @ x), point, Linear.dense(right))


def assert_found(
    result: CheckResult, errors: dict[tuple[int, int], float], *, all_of_them: bool = True
) -> None:
    """Every finding is one of the errors, and of its size; all of the errors are found, or one."""
    assert result.verdict is Verdict.FAILED
    found = errors_found(result)
    assert found
    assert found.keys() == errors.keys() if all_of_them else found.keys() <= errors.keys()
    for at, error in found.items():
        assert error == pytest.approx(errors[at], rel=1e-4)


@every_mode
@pytest.mark.parametrize(
    ("make", "size"),
    [(diagonal_case, size) for size in SIZES] + [(dense_case, size) for size in (1, 2, 300, 1000)],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_right_derivative_passes_and_one_wrong_entry_is_found(
    make: Callable[..., Case], size: int, mode: str, seed: int
) -> None:
    case, errors = make(size, seed), {(size // 3, size // 2): 1e-3}
    right = case.judge(mode, seed=seed)
    assert right.verdict is Verdict.PASSED, right.summary
    assert_found(case.judge(mode, case.right.with_entries(errors), seed=seed), errors)


@every_mode
@every_size_slowly
@pytest.mark.parametrize("pattern", ["scattered", "row", "column", "swapped rows"])
def test_several_wrong_entries_are_all_found_or_some_of_a_large_jacobian(
    size: int, mode: str, pattern: str
) -> None:
    case = diagonal_case(size)
    third, half, last = size // 3, size // 2, size - 1
    slopes = case.right.forward(np.ones(size))
    errors = {
        "scattered": {(third, last): 0.1, (half, 0): 0.2, (last, half): 0.3},
        "row": {(third, 0): 0.3, (third, half): -0.2, (third, last): 0.4},
        "column": {(0, third): 0.3, (half, third): -0.2, (last, third): 0.4},
        "swapped rows": {(1, 1): -slopes[1], (1, last): slopes[last]}
        | {(last, 1): slopes[1], (last, last): -slopes[last]},
    }[pattern]
    result = case.judge(mode, case.right.with_entries(errors))
    assert_found(result, errors, all_of_them=size <= WHOLE)


@every_mode
@every_size_slowly
@pytest.mark.parametrize("factor", [1.001, -1.0, 0.0])
def test_a_jacobian_wrong_by_a_factor_fails_at_its_own_entries(
    size: int, mode: str, factor: float
) -> None:
    case = diagonal_case(size)
    result = case.judge(mode, case.right.with_rows(factor))
    assert result.verdict is Verdict.FAILED
    assert result.findings
    for finding in result.findings:
        assert finding.input_index == finding.output_index
        assert finding.claimed == pytest.approx(factor * finding.measured, rel=1e-4)


@every_mode
@every_size_slowly
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_claim_that_is_no_number_fails_at_its_place(size: int, mode: str, wrong: float) -> None:
    case = diagonal_case(size)
    slopes = 1 / np.cosh(case.point) ** 2
    slopes[size // 3] = wrong
    result = case.judge(mode, Linear.diagonal(slopes))
    assert result.verdict is Verdict.FAILED
    assert all(size // 3 in at for at in errors_found(result))


@every_mode
@pytest.mark.parametrize("size", [2, 300, 2000])
def test_a_single_output_or_input_with_one_wrong_slope_is_found(size: int, mode: str) -> None:
    point, weights = np.random.default_rng(0).standard_normal(size), np.linspace(0.5, 3, size)
    sums = Case(lambda x: np.sin(x).sum(keepdims=True), point, Linear.dense(np.cos(point)[None, :]))
    curve = Case(
        lambda x: np.sin(weights * x),
        np.asarray([0.3]),
        Linear.dense((weights * np.cos(0.3 * weights))[:, None]),
    )
    for case, at in ((sums, (0, size // 2)), (curve, (size // 2, 0))):
        assert case.judge(mode).verdict is Verdict.PASSED
        assert_found(case.judge(mode, case.right.with_entries({at: 0.125})), {at: 0.125})


@every_mode
@pytest.mark.parametrize("part", [0.0, 1e-8, 1e-5, 1e-3, -2.0])
def test_tiling_changes_no_verdict(mode: str, part: float) -> None:
    """Eight inputs, alone and among 79, 624 and 7,999 others like them.

    A mistake may be missed only where the check says that it resolves no mistake of that size.
    """
    for times in (1, 10, 79, 1000):
        point = np.tile(np.linspace(-1, 1, 8), times)
        slopes, at = 1 / np.cosh(point) ** 2, len(point) - 3
        claimed = Linear.diagonal(slopes).with_entries({(at, at): part * slopes[at]})
        result = judge(np.tanh, point, claimed, mode)
        missed = result.verdict is Verdict.PASSED and result.resolution > abs(part)
        right = Verdict.PASSED if abs(part) < 1e-6 else Verdict.FAILED
        assert result.verdict is right or missed, f"{times} times: {result.summary}"


@every_mode
@pytest.mark.parametrize("size", [10, 300, 2000])
def test_tolerances_are_those_of_an_entry(size: int, mode: str) -> None:
    case, at = diagonal_case(size), (size // 2, size // 2)
    slope = float(1 / np.cosh(case.point[size // 2]) ** 2)
    claimed = case.right.with_entries({at: 1e-3 * slope})
    for excusing in ({"rtol": 1.01e-3}, {"atol": 1.01e-3 * slope}):
        found = case.judge(mode, claimed, **excusing).verdict
        by_projections = size > WHOLE and mode == "backward"
        assert found is Verdict.PASSED or (by_projections and found is Verdict.INCONCLUSIVE)
    for excusing in ({"rtol": 0.99e-3}, {"atol": 0.99e-3 * slope}):
        assert case.judge(mode, claimed, **excusing).verdict is Verdict.FAILED


@every_mode
@pytest.mark.parametrize("size", [10, 2000])
def test_an_absolute_tolerance_above_the_whole_jacobian_certifies_nothing(
    size: int, mode: str
) -> None:
    point = np.random.default_rng(0).standard_normal(size)
    zero = Linear.diagonal(0 * point)
    result = judge(lambda x: 1e-6 * np.sin(x), point, zero, mode, atol=1e-3)
    assert result.verdict is Verdict.INCONCLUSIVE or result.resolution >= 1


@every_mode
@pytest.mark.parametrize("size", [10, 300, 2000])
@pytest.mark.parametrize(("slope", "verdict"), [(0.0, "inconclusive"), (1.0, "failed")])
def test_a_constant_function_tests_nothing_but_refutes_a_slope(
    size: int, mode: str, slope: float, verdict: str
) -> None:
    claimed = Linear.diagonal(np.full(size, slope))
    assert judge(lambda x: 0 * x + 2.0, np.ones(size), claimed, mode).verdict == verdict


@every_mode
@pytest.mark.parametrize("options", [{}, {"atol": 1e-9}])
@pytest.mark.parametrize("size", [10, 2000])
def test_an_output_without_value_is_never_passed(
    size: int, mode: str, options: dict[str, float]
) -> None:
    case = diagonal_case(size)

    def fn(x: np.ndarray) -> np.ndarray:
        return np.where(np.arange(size) == size // 2, np.nan, np.tanh(x))

    assert judge(fn, case.point, case.right, mode, **options).verdict is not Verdict.PASSED


@every_mode
@pytest.mark.parametrize("size", [10, 2000])
@pytest.mark.parametrize("frequency", [1e2, 1e4, 1e6, 1e8])
def test_a_fast_oscillation_is_never_accused(size: int, mode: str, frequency: float) -> None:
    point = np.random.default_rng(0).uniform(0.1, 1, size)
    right = Linear.diagonal(frequency * np.cos(frequency * point))
    result = judge(lambda x: np.sin(frequency * x), point, right, mode)
    assert result.verdict is not Verdict.FAILED


@every_mode
def test_a_rough_output_does_not_hide_a_mistake_in_another(mode: str) -> None:
    """One that jumps beside the point; at a jump exactly at the point all may be left open."""
    point = np.linspace(0.1, 1, 10)
    slopes = np.where(np.arange(10) == 0, 0.0, 1 / np.cosh(point) ** 2)
    claimed = Linear.diagonal(slopes).with_entries({(4, 4): 0.1})

    def jumping(shift: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda x: np.where(np.arange(10) == 0, np.floor(10 * x + shift), np.tanh(x))

    result = judge(jumping(0.5), point, claimed, mode)
    assert result.verdict is Verdict.FAILED
    assert (4, 4) in errors_found(result)
    assert judge(jumping(0.0), point, claimed, mode).verdict is not Verdict.PASSED


def test_nothing_to_check_is_passed_and_says_so() -> None:
    result = judge(lambda x: x[:0], np.ones(3), Linear.dense(np.zeros((0, 3))))
    assert result.verdict is Verdict.PASSED
    assert "nothing to check" in result.summary


# A Jacobian of 10^10 entries --------------------------------------------------------------------

LARGE = 100_000


def full_case() -> Case:
    """Every output depends on every input, through three sums."""
    point = np.random.default_rng(0).normal(size=LARGE)
    out, into = (np.random.default_rng(k).normal(size=(LARGE, 3)) for k in (2, 3))
    into = into / np.sqrt(LARGE)
    slope, bent = 1 - np.tanh(point) ** 2, np.cos(into.T @ np.tanh(point))
    linear = Linear(
        lambda u: out @ (bent * (into.T @ (slope * u))),
        lambda v: slope * (into @ (bent * (out.T @ v))),
    )
    return Case(lambda x: out @ np.sin(into.T @ np.tanh(x)), point, linear)


def ones_but(where: slice | int, factor: float) -> np.ndarray:
    scale = np.ones(LARGE)
    scale[where] = factor
    return scale


PATTERNS: dict[str, Callable[[Linear], Linear]] = {
    "tail of rows": lambda a: a.with_rows(ones_but(np.s_[-64:], 0.0)),
    "row": lambda a: a.with_rows(ones_but(777, 0.0)),
    "block of rows": lambda a: a.with_rows(ones_but(np.s_[25_000:37_500], 1.01)),
    "all": lambda a: a.with_rows(1.01),
    "column": lambda a: a.with_columns(ones_but(4242, 0.0)),
    "tail of columns": lambda a: a.with_columns(ones_but(np.s_[-64:], 0.0)),
}


@every_mode
@pytest.mark.parametrize(
    "make", [lambda: diagonal_case(LARGE), full_case], ids=["diagonal", "full"]
)
def test_one_wrong_entry_of_ten_to_the_ten_is_found_in_90_calls_and_60_products(
    make: Callable[[], Case], mode: str
) -> None:
    case = make()
    result = case.judge(mode, case.right.with_entries({(777, 4242): 0.1}))
    assert result.verdict is Verdict.FAILED
    (finding,) = result.findings
    assert (finding.output_index, finding.input_index) == ((777,), (4242,))
    assert finding.claimed - finding.measured == pytest.approx(0.1, abs=2 * finding.allowed)
    assert result.calls["function"] <= 90
    assert result.calls.get("vjp", 0) + result.calls.get("jvp", 0) <= 60


@every_mode
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(
    "make", [lambda: diagonal_case(LARGE), full_case], ids=["diagonal", "full"]
)
def test_a_pattern_is_refuted_by_entries_that_are_wrong(
    make: Callable[[], Case], pattern: str, mode: str
) -> None:
    case = make()
    claimed = PATTERNS[pattern](case.right)
    result = case.judge(mode, claimed)
    assert result.verdict is Verdict.FAILED
    for i, j in errors_found(result):
        unit = np.zeros(LARGE)
        unit[j] = 1.0
        assert claimed.forward(unit)[i] != case.right.forward(unit)[i]
    # The search for the first wrong entry, and up to 64 columns around it for places and causes.
    assert result.calls["function"] <= 420


def test_a_backward_that_gives_rows_alone_shows_a_block_of_entries():
    """Of more than 512 inputs it showed one entry, and no cause."""
    rng = np.random.default_rng(0)

    def backward(a, w, v):
        return v * w * (1 - np.tanh(a) ** 2) / 2, (v * np.tanh(a)).sum(0)

    gated = gradproof.by_hand(lambda a, w: np.tanh(a) * w, vjp=backward)
    found = gradproof.check(gated, (rng.normal(size=(20, 40)), rng.normal(size=40)), seed=0)
    assert "of which 40 x 40 entries were compared" in found["backward"].summary
    assert [cause.name for cause in found["backward"].causes] == ["factor"]


@pytest.mark.parametrize("seed", range(20))
def test_no_two_entries_of_a_short_tangent_have_one_size(seed):
    """Two gradients that were exchanged cancelled along one of 2,048 tangents."""
    tangents = []

    def push(x, u):
        tangents.append(u.copy())
        return u

    same = gradproof.by_hand(lambda x: x.copy(), jvp=push)
    gradproof.check(same, np.ones(1000), checks=["forward"], seed=seed)
    assert len(set(np.abs(tangents[0]))) == 1000


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("large", [1e8, 1e9])
def test_a_large_number_beside_which_every_step_is_many_periods_accuses_none(large, seed):
    """Two steps agree on the mean slope of x y + sin(x), that of y."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, 350))
    x[7] = large

    def backward(x, y, v):
        return v * (y + np.cos(x)), v * x

    right = gradproof.by_hand(lambda x, y: x * y + np.sin(x), vjp=backward)
    assert gradproof.check(right, (x, y), seed=seed).verdict != "failed"


@pytest.mark.parametrize("seed", range(5))
def test_a_right_backward_of_projections_passes_beside_many_outputs_that_stand_still(seed):
    """Of 1,400 outputs that stand still the sum was rounded by more than the others move."""
    rng = np.random.default_rng(seed)
    x, w = 3 * rng.normal(size=(20, 70)), rng.normal(size=70)

    def norm(x, w):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w

    def backward(x, w, v):
        centred = x - x.mean(-1, keepdims=True)
        scale = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        unit, of_unit = centred * scale, v * w
        mean = of_unit.mean(-1, keepdims=True)
        along = unit * (of_unit * unit).mean(-1, keepdims=True)
        return scale * (of_unit - mean - along), (v * unit).sum(0)

    result = gradproof.check(gradproof.by_hand(norm, vjp=backward), (x, w), seed=seed)["backward"]
    assert result.verdict is Verdict.PASSED, result.summary
