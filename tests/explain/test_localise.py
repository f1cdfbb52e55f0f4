"""Group testing: the wrong entries, all of them, no other, at a cost that grows like log n."""

from __future__ import annotations

import gc
import math
import weakref
from dataclasses import dataclass, field

import numpy as np
import pytest

from gradproof._data.settings import Settings
from gradproof._judge.claims import Backward
from gradproof._locate.decode import Draws, Residual, one_column
from gradproof._locate.search import locate, rows_by_splitting
from gradproof._measure.sizes import MANY
from gradproof._verdict.judge import look
from numpy_map import FunctionMap

SIZES = [1, 2, 3, 5, 8, 10, 17, 300, 1000, 1024, 100_000]


def told(draws: Draws) -> list[int | None]:
    """The only wrong column of each row, from as many draws as may tell it."""
    draws.ask()
    while draws.worthwhile():
        draws.ask()
    return [draws.column(row) for row in draws.rows]


@dataclass
class Hidden:
    """Errors by (row, column) of a matrix with few rows, seen through weighted probes only."""

    errors: dict[tuple[int, int], float]
    rows: int
    size: int
    noise: float = 0.0
    calls: int = field(default=0)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.size)
        signs = self.rng.choice([-1.0, 1.0], self.size)
        self.probe = signs * self.rng.uniform(0.5, 1.5, self.size)

    def residual(self, weights: np.ndarray) -> Residual:
        self.calls += 1
        value = self.noise * self.rng.uniform(-1, 1, self.rows)
        for (i, j), error in self.errors.items():
            value[i] += error * self.probe[j] * weights[j]
        return Residual(value, np.full(self.rows, 2 * self.noise + 1e-12), 0 * value)

    def _whole(self) -> Residual:
        whole = self.residual(np.ones(self.size))
        self.calls = 0
        return whole

    def single(self) -> list[int | None]:
        return told(Draws(self.residual, self._whole(), np.ones(self.size)))


def _pick(count: int, size: int, seed: int) -> list[int]:
    chosen = np.random.default_rng(seed).choice(size, count, replace=False)
    return sorted(int(j) for j in chosen)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(3))
def test_one_wrong_entry_is_found_in_four_residuals_at_most(size: int, seed: int) -> None:
    (column,) = _pick(1, size, seed)
    hidden = Hidden({(0, column): -0.01}, 1, size)
    assert hidden.single() == [column]
    assert hidden.calls <= 4


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_every_column_of_a_small_row_is_found(size: int) -> None:
    found = [Hidden({(0, j): 2.0}, 1, size).single() for j in range(size)]
    assert found == [[j] for j in range(size)]


@pytest.mark.parametrize("size", [10, 300, 100_000])
def test_rows_with_one_wrong_entry_each_share_their_residuals(size: int) -> None:
    columns = _pick(5, size, 1)
    hidden = Hidden({(i, j): 0.5 + i for i, j in enumerate(columns)}, 5, size)
    assert hidden.single() == columns
    assert hidden.calls <= 4


def test_the_same_column_in_every_row_is_found_in_every_row() -> None:
    hidden = Hidden({(i, 77): 10.0**-i for i in range(4)}, 4, 1000)
    assert hidden.single() == [77] * 4


def test_columns_beyond_a_block_of_those_looked_at_at_a_time_are_found() -> None:
    columns = [65_535, 65_536, 199_999]
    assert Hidden(dict.fromkeys(enumerate(columns), 1.0), 3, 200_000).single() == columns


def test_of_a_row_wrong_in_many_columns_one_that_is_wrong_is_found() -> None:
    wrong = set(_pick(200, 1000, 3))
    hidden = Hidden({(0, j): 1.0 for j in wrong}, 1, 1000)
    found = one_column(hidden.residual, hidden.residual(np.ones(1000)), np.ones(1000))
    assert found in wrong
    few = [*range(5), min(wrong)]
    hidden.calls = 0
    shown = one_column(hidden.residual, hidden.residual(np.ones(1000)), np.ones(1000), few)
    assert shown in wrong.intersection(few)
    assert hidden.calls <= 5


def test_noise_below_the_threshold_misleads_nobody() -> None:
    errors = {(0, 123): 1.0, (1, 7): 1.0}
    assert Hidden(errors, 2, 300, noise=1e-3).single() == [123, 7]
    assert Hidden({(0, 7): 1.0, (0, 250): -1.0}, 1, 300, noise=1e-3).single() == [None]


def test_an_entry_that_is_not_a_number_is_found() -> None:
    def residual(weights: np.ndarray) -> Residual:
        value = np.asarray([np.nan if weights[200] else 0.0])
        return Residual(value, np.asarray([1e-12]), 0 * value)

    whole = residual(np.ones(300))
    assert told(Draws(residual, whole, np.ones(300))) == [None]
    assert one_column(residual, whole, np.ones(300)) == 200


@dataclass
class HiddenRows:
    """Errors by row, seen through cotangents on ranges of rows only."""

    errors: dict[int, float]
    size: int
    calls: int = 0

    def residual(self, low: int, high: int) -> tuple[float, float]:
        self.calls += 1
        assert 0 <= low < high <= self.size
        return sum(e for i, e in self.errors.items() if low <= i < high), 1e-9

    def rows(self) -> tuple[tuple[int, ...], bool]:
        return rows_by_splitting(self.residual, self.size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(3))
def test_one_wrong_row_is_found_in_two_log_m_projections(size: int, seed: int) -> None:
    (row,) = _pick(1, size, seed)
    hidden = HiddenRows({row: 0.3}, size)
    assert hidden.rows() == ((row,), True)
    assert hidden.calls <= 2 * math.ceil(math.log2(size))


@pytest.mark.parametrize("count", [2, 5, MANY])
@pytest.mark.parametrize("size", [10, 300, 100_000])
def test_several_wrong_rows_are_all_found(count: int, size: int) -> None:
    rows = _pick(count, size, 4)
    # Powers of four with alternating signs: no two sums are equal.
    hidden = HiddenRows({i: (-4.0) ** k for k, i in enumerate(rows)}, size)
    assert hidden.rows() == (tuple(rows), True)
    assert hidden.calls <= 2 * count * math.ceil(math.log2(size))


def test_of_many_wrong_rows_the_ends_and_the_strongest_are_found_and_it_says_so() -> None:
    errors = dict.fromkeys(range(0, 1000, 7), 1.0) | {333: 1e6, 334: -1e7}
    rows, complete = HiddenRows(errors, 1000).rows()
    assert rows == (0, 333, 334, 994)
    assert not complete


def test_the_cost_of_many_wrong_rows_is_bounded() -> None:
    hidden = HiddenRows(dict.fromkeys(range(100_000), 1.0), 100_000)
    hidden.rows()
    assert hidden.calls <= 2 * MANY * math.ceil(math.log2(100_000))


def test_a_row_that_is_not_a_number_is_found() -> None:
    assert HiddenRows({41: math.nan}, 100).rows() == ((41,), True)


def test_a_search_that_is_read_no_more_is_freed_at_once() -> None:
    """Its vectors are as long as the input: they must not wait for garbage to be collected."""
    claimed = np.diag(np.where(np.arange(2000) == 7, 2.0, 1.0))
    map_ = FunctionMap(lambda x: x + 0.0, np.ones(2000), claimed)
    settings = Settings(seed=0)
    claim = Backward(map_, settings)
    found = locate(claim, look(claim))
    assert [finding.input.index for finding in found.findings] == [(7,)]
    still_there = weakref.ref(found)
    gc.disable()
    try:
        del found
        assert still_there() is None
    finally:
        gc.enable()
