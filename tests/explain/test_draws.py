"""Columns and runs of columns told from noisy residuals: the right ones, or none."""

from __future__ import annotations

import numpy as np
import pytest

from gradproof._locate.decode import Draws, Piece, Residual, pieces_by_draws, weights_of
from gradproof._locate.hypotheses import fitted

SIZE = 20_000
LIKE = np.ones(SIZE)
WHOLE = Piece(0, SIZE)


class Rows:
    """Rows with gaps of 1 in some columns, seen through noise of a normal distribution."""

    def __init__(self, columns: list[list[int]], noise: float, seed: int = 0) -> None:
        self.columns, self.noise, self.calls = columns, noise, 0
        self.rng = np.random.default_rng(seed)

    def residual(self, weights: np.ndarray) -> Residual:
        self.calls += 1
        exact = np.asarray([weights[columns].sum() for columns in self.columns])
        noise = self.noise * self.rng.normal(size=len(self.columns))
        return Residual(exact + noise, np.full(len(self.columns), 5 * self.noise))

    def pieces(self) -> list[Piece]:
        whole = self.residual(LIKE)
        return pieces_by_draws(self.residual, whole, SIZE, LIKE, WHOLE, whole.threshold)


@pytest.mark.parametrize("noise", [1e-6, 1e-3, 0.01, 0.03])
@pytest.mark.parametrize("seed", range(5))
def test_one_wrong_column_is_told_through_noise(noise: float, seed: int) -> None:
    columns = [[int(j)] for j in np.random.default_rng(seed).integers(0, SIZE, 4)]
    found = [piece.column for piece in Rows(columns, noise, seed).pieces()]
    assert found == [column[0] for column in columns]


def test_the_less_noise_the_fewer_draws() -> None:
    calls = []
    for noise in (1e-6, 1e-3, 0.03):
        rows = Rows([[7]], noise)
        rows.pieces()
        calls.append(rows.calls)
    assert calls == sorted(calls)
    assert calls[0] <= 4
    assert calls[-1] <= 10


@pytest.mark.parametrize("seed", range(20))
def test_of_two_wrong_columns_none_is_told(seed: int) -> None:
    two = [int(j) for j in np.random.default_rng(seed).choice(SIZE, 2, replace=False)]
    assert Rows([two], 0.01, seed).pieces() == [WHOLE]


def test_a_row_whose_gap_is_below_its_bar_is_not_told() -> None:
    assert Rows([[7]], 0.5).pieces() == [WHOLE]


def test_columns_outside_a_piece_are_not_told() -> None:
    part, rows = Piece(100, 200), Rows([[150]], 1e-3)
    whole = rows.residual(LIKE)
    found = pieces_by_draws(rows.residual, whole, SIZE, LIKE, part, whole.threshold)
    assert found == [Piece(150, 151)]


def _fit(low: int, high: int, noise: float, seed: int, *, extra: int | None = None) -> object:
    """The fit of a run that is 1 % too large, in four rows, from six draws."""
    rng = np.random.default_rng(seed)
    terms = rng.normal(size=(4, SIZE))
    gaps = np.zeros(SIZE)
    gaps[low:high] = 0.01
    if extra is not None:
        gaps[extra] = 0.5

    def residual(weights: np.ndarray) -> Residual:
        value = terms @ (gaps * weights) + noise * rng.normal(size=4)
        return Residual(value, np.full(4, 5 * noise))

    draws = Draws(residual, residual(LIKE), LIKE, WHOLE, np.full(4, 5 * noise))
    for _ in range(6):
        draws.ask()
    weights = [LIKE, *(weights_of(LIKE, k) for k in range(6))]
    return fitted([draws.whole, *draws.found], weights, terms)


@pytest.mark.parametrize("ends", [(5_000, 7_500), (SIZE - 64, SIZE), (4_242, 4_243), (0, 100)])
@pytest.mark.parametrize("seed", range(3))
def test_a_run_is_fitted_exactly_where_noise_is_small(ends: tuple[int, int], seed: int) -> None:
    fit = _fit(*ends, 1e-5, seed)
    assert fit is not None
    assert (fit.run.low, fit.run.high, fit.sure) == (*ends, True)
    assert fit.run.factor == pytest.approx(0.01, rel=1e-2)


@pytest.mark.parametrize("seed", range(20))
def test_a_run_whose_ends_drown_in_noise_is_never_told_too_short(seed: int) -> None:
    fit = _fit(5_000, 7_500, 2e-3, seed)
    assert fit is not None
    assert fit.run.low <= 5_000
    assert fit.run.high >= 7_500
    assert not fit.sure or (fit.run.low, fit.run.high) == (5_000, 7_500)


@pytest.mark.parametrize("seed", range(5))
def test_a_run_and_a_column_elsewhere_are_no_run(seed: int) -> None:
    assert _fit(5_000, 7_500, 1e-4, seed, extra=15_000) is None


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_no_run(seed: int) -> None:
    assert _fit(0, 0, 1e-3, seed) is None
