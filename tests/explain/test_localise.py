"""Group testing: the wrong entries, all of them, no other, at a cost that grows like log n."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from gradproof._locate.decode import MANY, Residual, columns_of_rows, rows_by_splitting

SIZES = [1, 2, 3, 5, 8, 10, 17, 300, 1000, 1024, 100_000]


@dataclass
class Hidden:
    """Errors by (row, column) of a matrix with few rows, seen through masked probes only."""

    errors: dict[tuple[int, int], float]
    rows: int
    size: int
    noise: float = 0.0
    calls: int = field(default=0)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.size)
        signs = self.rng.choice([-1.0, 1.0], self.size)
        self.probe = signs * self.rng.uniform(0.5, 1.5, self.size)

    def residual(self, mask: np.ndarray) -> Residual:
        self.calls += 1
        value = self.noise * self.rng.uniform(-1, 1, self.rows)
        for (i, j), error in self.errors.items():
            value[i] += error * self.probe[j] * mask[j]
        return Residual(value, np.full(self.rows, 2 * self.noise + 1e-12))

    def columns(self) -> list[tuple[int, ...] | None]:
        whole = self.residual(np.ones(self.size))
        self.calls = 0
        return columns_of_rows(self.residual, whole, self.size, np.ones(self.size))


def _pick(count: int, size: int, seed: int) -> list[int]:
    chosen = np.random.default_rng(seed).choice(size, count, replace=False)
    return sorted(int(j) for j in chosen)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(3))
def test_one_wrong_entry_is_found_in_log_n_residuals(size: int, seed: int) -> None:
    (column,) = _pick(1, size, seed)
    hidden = Hidden({(0, column): -0.01}, 1, size)
    assert hidden.columns() == [(column,)]
    assert hidden.calls <= max(1, math.ceil(math.log2(size)))


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_every_column_of_a_small_row_is_found(size: int) -> None:
    found = [Hidden({(0, j): 2.0}, 1, size).columns() for j in range(size)]
    assert found == [[(j,)] for j in range(size)]


@pytest.mark.parametrize("size", [10, 300, 100_000])
def test_rows_with_one_wrong_entry_each_share_their_residuals(size: int) -> None:
    columns = _pick(5, size, 1)
    hidden = Hidden({(i, j): 0.5 + i for i, j in enumerate(columns)}, 5, size)
    assert hidden.columns() == [(j,) for j in columns]
    assert hidden.calls <= math.ceil(math.log2(size))


def test_the_same_column_in_every_row_is_found_in_every_row() -> None:
    hidden = Hidden({(i, 77): 10.0**-i for i in range(4)}, 4, 1000)
    assert hidden.columns() == [(77,)] * 4


@pytest.mark.parametrize("count", [2, 3, 5, 8])
@pytest.mark.parametrize("size", [10, 300, 1000, 100_000])
@pytest.mark.parametrize("seed", range(3))
def test_several_wrong_entries_of_a_row_are_all_found(count: int, size: int, seed: int) -> None:
    columns = _pick(count, size, seed)
    hidden = Hidden({(0, j): 1.0 + k for k, j in enumerate(columns)}, 1, size)
    assert hidden.columns() == [tuple(columns)]
    levels = math.ceil(math.log2(size))
    assert hidden.calls <= levels + 2 * count * levels


def test_rows_of_one_and_of_several_wrong_entries_are_told_apart() -> None:
    errors = {(0, 5): 1.0, (1, 5): 1.0, (1, 90): 3.0, (2, 299): -2.0}
    assert Hidden(errors, 3, 300).columns() == [(5,), (5, 90), (299,)]


@pytest.mark.parametrize("size", [10, 300, 1000])
def test_a_row_wrong_everywhere_is_given_up_at_a_bounded_cost(size: int) -> None:
    hidden = Hidden({(0, j): 1.0 for j in range(size)}, 1, size)
    assert hidden.columns() == [None]
    assert hidden.calls <= math.ceil(math.log2(size)) + 2 * (2 * MANY)


def test_a_row_given_up_does_not_hide_the_others() -> None:
    errors = {(0, j): 1.0 for j in range(300)} | {(1, 3): 1.0, (2, 9): 1.0, (2, 200): 1.0}
    assert Hidden(errors, 3, 300).columns() == [None, (3,), (9, 200)]


def test_noise_below_the_threshold_misleads_nobody() -> None:
    errors = {(0, 123): 1.0, (1, 7): 1.0, (1, 250): -1.0}
    assert Hidden(errors, 2, 300, noise=1e-3).columns() == [(123,), (7, 250)]


def test_an_entry_that_is_not_a_number_is_found() -> None:
    hidden = Hidden({}, 1, 300)

    def residual(mask: np.ndarray) -> Residual:
        hidden.calls += 1
        return Residual(np.asarray([np.nan if mask[200] else 0.0]), np.asarray([1e-12]))

    found = columns_of_rows(residual, residual(np.ones(300)), 300, np.ones(300))
    assert found == [(200,)]


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
