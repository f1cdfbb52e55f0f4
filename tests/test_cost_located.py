"""A pattern of wrong entries in a Jacobian of 10^10 is refuted by a wrong entry of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from numpy_map import FunctionMap, Linear, report_of

N = 100_000
ONE = 60  # calls of the function, and VJPs, for one wrong entry
FINE = 22  # calls more where the usual steps leave a row open, as where sums of 10^5 terms cancel
MANY = 260  # where many are wrong: columns around the one that was located are measured as well
X = np.random.default_rng(0).normal(size=N)
ORDER = np.random.default_rng(1).permutation(N)
Made = tuple[Callable[..., Any], Linear]
Change = Callable[[Linear], Linear]


def diagonal() -> Made:
    return np.tanh, Linear.diagonal(1 - np.tanh(X) ** 2)


def dense() -> Made:
    """Sums of a growing number of sines, in a random order."""
    slope, size = np.cos(X), np.sqrt(N)

    def pulled(v: np.ndarray) -> np.ndarray:
        ordered = np.empty_like(v)
        ordered[ORDER] = v
        return np.cumsum(ordered[::-1])[::-1] * slope / size

    linear = Linear(lambda u: np.cumsum(slope * u)[ORDER] / size, pulled)
    return lambda x: np.cumsum(np.sin(x))[ORDER] / size, linear


def full() -> Made:
    """Every output depends on every input, through three sums."""
    out, into = (np.random.default_rng(k).normal(size=(N, 3)) for k in (2, 3))
    into = into / np.sqrt(N)
    slope, bent = 1 - np.tanh(X) ** 2, np.cos(into.T @ np.tanh(X))
    linear = Linear(
        lambda u: out @ (bent * (into.T @ (slope * u))),
        lambda v: slope * (into @ (bent * (out.T @ v))),
    )
    return lambda x: out @ np.sin(into.T @ np.tanh(x)), linear


def rows(where: object, factor: float) -> Change:
    scale = np.ones(N)
    scale[where] = factor
    return lambda a: Linear(lambda u: scale * a.forward(u), lambda v: a.backward(scale * v))


def columns(where: object, factor: float) -> Change:
    scale = np.ones(N)
    scale[where] = factor
    return lambda a: Linear(lambda u: a.forward(scale * u), lambda v: scale * a.backward(v))


def entries(errors: dict[tuple[int, int], float]) -> Change:
    return lambda a: a.with_entries(errors)


MADE = {"diagonal": diagonal, "dense": dense, "full": full}
FEW = {(777, 4242): 0.01, (5, 9): 0.02, (50_000, 3): 0.01, (9, 99_999): -0.03, (3, 3): 0.05}
PATTERNS: dict[str, Change] = {
    "few": entries(FEW),
    "tail of rows": rows(np.s_[-64:], 0.0),
    "row": rows(777, 0.0),
    "block of rows": rows(np.s_[25_000:37_500], 1.01),
    "all": lambda a: a.scaled(1.01),
    "column": columns(4242, 0.0),
    "block of columns": columns(np.s_[25_000:37_500], 0.0),
    "tail of columns": columns(np.s_[-64:], 0.0),
}
MODES = {
    "projections": ("backward", {}),
    "transposed": ("backward", {"transposes": True}),
    "forward": ("forward", {"forward": True}),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MADE)
def test_one_wrong_entry_is_found_exactly_in_60_calls_and_60_vjps(name: str, mode: str) -> None:
    check, options = MODES[mode]
    fn, right = MADE[name]()
    map_ = FunctionMap(fn, X, right.with_entries({(777, 4242): 0.1}), **options)
    result = report_of(map_, check)[check]
    assert result.verdict == "failed"
    (finding,) = result.findings
    assert (finding.output_index, finding.input_index) == ((777,), (4242,))
    assert finding.claimed - finding.measured == pytest.approx(0.1, abs=2 * finding.allowed)
    assert map_.calls["value"] <= ONE + (0 if name == "diagonal" else FINE)
    assert map_.calls["vjp"] + map_.calls["jvp"] <= ONE


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(
    "name", ["diagonal", pytest.param("dense", marks=pytest.mark.slow), "full"]
)
def test_a_pattern_is_refuted_by_entries_that_are_wrong(name: str, pattern: str, mode: str) -> None:
    check, options = MODES[mode]
    fn, right = MADE[name]()
    claimed = PATTERNS[pattern](right)
    map_ = FunctionMap(fn, X, claimed, **options)
    result = report_of(map_, check)[check]
    assert result.verdict == "failed"
    assert result.findings
    for finding in result.findings:
        assert finding.output_index is not None
        if finding.input_index is not None:
            j = finding.input_index[0]
            e = np.zeros(N)
            e[j] = 1.0
            true, told = right.forward(e), claimed.forward(e)
            i = finding.output_index[0]
            assert told[i] != true[i]
            assert finding.claimed == pytest.approx(told[i], rel=1e-3, abs=1e-12)
            assert abs(finding.measured - true[i]) <= finding.error + 1e-12
    assert map_.calls["value"] <= MANY
    assert map_.calls["vjp"] + map_.calls["jvp"] <= MANY


@pytest.mark.parametrize("mode", MODES)
def test_a_right_map_passes_in_few_calls(mode: str) -> None:
    check, options = MODES[mode]
    fn, right = diagonal()
    map_ = FunctionMap(fn, X, right, **options)
    assert report_of(map_, check)[check].verdict == "passed"
    assert map_.calls["value"] <= 40
    assert map_.calls["vjp"] + map_.calls["jvp"] <= 40


@pytest.mark.parametrize("mode", ["projections", "transposed"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", [np.s_[:, 7], np.s_[3, 7]], ids=["column", "entry"])
def test_what_is_no_number_is_found_though_0_times_it_is_none(
    where: Any, bad: float, mode: str
) -> None:
    right = np.random.default_rng(0).normal(size=(1_000, 1_000))
    claimed = right.copy()
    claimed[where] = bad
    linear = Linear(lambda u: claimed @ u, lambda v: claimed.T @ v)
    map_ = FunctionMap(lambda x: right @ x, np.ones(1_000), linear, **MODES[mode][1])
    with np.errstate(invalid="ignore"):
        result = report_of(map_, "backward")["backward"]
    assert result.verdict == "failed"
    assert map_.calls["value"] <= MANY
    assert map_.calls["vjp"] <= MANY


class Single(FunctionMap):
    """The same function, and the same derivative, in single precision alone."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.resolution = 2.0**-24

    def value(self, x: np.ndarray) -> np.ndarray:
        self.calls["value"] += 1
        return _single(self.fn(_single(x)))

    def vjp(self, v: np.ndarray) -> np.ndarray:
        return _single(super().vjp(v))

    def jvp(self, u: np.ndarray) -> np.ndarray:
        return _single(super().jvp(u))

    def transposed_vjp(self, u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        along, back = super().transposed_vjp(u, v)
        return _single(along), _single(back)


def _single(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("mode", ["transposed", "forward"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_in_single_precision_without_double_a_pattern_is_refuted(pattern: str, mode: str) -> None:
    check, options = MODES[mode]
    fn, right = diagonal()
    map_ = Single(fn, _single(X), PATTERNS[pattern](right), **options)
    assert report_of(map_, check)[check].verdict == "failed"


@pytest.mark.parametrize("mode", MODES)
def test_in_single_precision_without_double_a_right_map_passes(mode: str) -> None:
    check, options = MODES[mode]
    fn, right = diagonal()
    map_ = Single(fn, _single(X), right, **options)
    result = report_of(map_, check)[check]
    assert result.verdict != "failed"
    assert mode == "projections" or result.verdict == "passed"
