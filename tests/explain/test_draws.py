"""Columns and runs of columns told from noisy residuals: the right ones, or none."""

from __future__ import annotations

import numpy as np
import pytest

from gradproof._data.space import Slot, Space
from gradproof._locate.decode import Draws, Residual, single_columns, weights_of
from gradproof._locate.hypotheses import Common, Lines, Order, Weighed, common, missing, reordered

SIZE = 20_000
LIKE = np.ones(SIZE)


class Rows:
    """Rows with gaps of 1 in some columns, seen through noise of a normal distribution."""

    def __init__(self, columns: list[list[int]], noise: float, seed: int = 0) -> None:
        self.columns, self.noise, self.calls = columns, noise, 0
        self.rng = np.random.default_rng(seed)

    def residual(self, weights: np.ndarray) -> Residual:
        self.calls += 1
        exact = np.asarray([weights[columns].sum() for columns in self.columns])
        noise = self.noise * self.rng.normal(size=len(self.columns))
        return Residual(exact + noise, np.full(len(self.columns), 5 * self.noise), exact)

    def single(self, low: int = 0, high: int = SIZE) -> list[int | None]:
        return single_columns(self.residual, self.residual(LIKE), LIKE, range(low, high))


@pytest.mark.parametrize("noise", [1e-6, 1e-3, 0.01, 0.03])
@pytest.mark.parametrize("seed", range(5))
def test_one_wrong_column_is_told_through_noise(noise: float, seed: int) -> None:
    columns = [[int(j)] for j in np.random.default_rng(seed).integers(0, SIZE, 4)]
    assert Rows(columns, noise, seed).single() == [column[0] for column in columns]


def test_the_less_noise_the_fewer_draws() -> None:
    calls = []
    for noise in (1e-6, 1e-3, 0.03):
        rows = Rows([[7]], noise)
        rows.single()
        calls.append(rows.calls)
    assert calls == sorted(calls)
    assert calls[0] <= 4
    assert calls[-1] <= 10


@pytest.mark.parametrize("seed", range(20))
def test_of_two_wrong_columns_none_is_told(seed: int) -> None:
    two = [int(j) for j in np.random.default_rng(seed).choice(SIZE, 2, replace=False)]
    assert Rows([two], 0.01, seed).single() == [None]


def test_a_row_whose_gap_is_below_its_bar_is_not_told() -> None:
    assert Rows([[7]], 0.5).single() == [None]


def test_columns_outside_a_piece_are_not_told() -> None:
    assert Rows([[150]], 1e-3).single(100, 200) == [150]
    assert Rows([[250]], 1e-3).single(100, 200) == [None]


def _weighed(right: np.ndarray, gaps: np.ndarray, noise: float, seed: int, draws: int) -> Weighed:
    """Some draws of rows that should be `right` and are claimed with gaps."""
    rng = np.random.default_rng(seed)
    count = right.shape[0]

    def residual(weights: np.ndarray) -> Residual:
        value = gaps @ weights + noise * rng.normal(size=count)
        return Residual(value, np.full(count, 5 * noise), right @ weights)

    found = Draws(residual, residual(LIKE), LIKE, range(SIZE))
    for _ in range(draws):
        found.ask()
    tangents = [LIKE, *(weights_of(LIKE, k) for k in range(draws))]
    return Weighed([found.whole, *found.found], SIZE, Lines(right + gaps, tangents, claimed=True))


def _fit(
    low: int, high: int, noise: float, seed: int, *, extra: int | None = None
) -> Common | None:
    """The fit of a run that is 1 % too large, in four rows, from eight draws."""
    right = np.random.default_rng(seed).normal(size=(4, SIZE))
    gaps = np.zeros((4, SIZE))
    gaps[:, low:high] = 0.01 * right[:, low:high]
    if extra is not None:
        gaps[:, extra] = 0.5 * right[:, extra]
    return common(_weighed(right, gaps, noise, seed, 8))


@pytest.mark.parametrize("ends", [(5_000, 7_500), (SIZE - 64, SIZE), (4_242, 4_243), (0, 100)])
@pytest.mark.parametrize("seed", range(3))
def test_a_run_is_fitted_exactly_where_noise_is_small(ends: tuple[int, int], seed: int) -> None:
    fit = _fit(*ends, 1e-5, seed)
    assert fit is not None
    assert (fit.low, fit.high, fit.sure, fit.believed) == (*ends, True, True)
    assert fit.ratio == pytest.approx(1.01, rel=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_a_run_whose_ends_drown_in_noise_is_never_told_too_short(seed: int) -> None:
    fit = _fit(5_000, 7_500, 2e-3, seed)
    assert fit is not None
    assert fit.low <= 5_000
    assert fit.high >= 7_500
    assert not fit.sure or (fit.low, fit.high) == (5_000, 7_500)


@pytest.mark.parametrize("seed", range(5))
def test_a_run_and_a_column_elsewhere_are_no_run(seed: int) -> None:
    assert _fit(5_000, 7_500, 1e-4, seed, extra=15_000) is None


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_no_run(seed: int) -> None:
    assert _fit(0, 0, 1e-3, seed) is None


@pytest.mark.parametrize("seed", range(3))
def test_a_factor_of_everything_needs_no_rows(seed: int) -> None:
    right = np.random.default_rng(seed).normal(size=(4, SIZE))
    seen = _weighed(right, 0.01 * right, 1e-3, seed, 4)
    fit = common(Weighed(seen.found, SIZE, None))
    assert fit is not None
    assert (fit.low, fit.high, fit.measure) == (0, SIZE, ())
    assert fit.ratio == pytest.approx(1.01, rel=1e-4)


@pytest.mark.parametrize("factor", [0.01, 0.5])
def test_rows_that_say_the_same_count_as_one(factor: float) -> None:
    """Of a few numbers, told eight times each, something always fits."""
    right = np.tile(np.random.default_rng(0).normal(size=(1, SIZE)), (8, 1))
    gaps = np.zeros_like(right)
    gaps[:, 3::7] = factor * right[:, 3::7]
    fit = common(_weighed(right, gaps, 1e-3, 0, 4))
    assert fit is None or not fit.believed


SPACE = Space((Slot("x", (100, 200)),))
ORDERS = {
    "reversed": (lambda a: a[:, ::-1], Order("reversed")),
    "rolled": (lambda a: np.roll(a, 1, axis=1), Order("rolled", 1)),
    "rolled along an axis": (
        lambda a: np.roll(a.reshape(-1, 100, 200), -1, axis=2).reshape(len(a), -1),
        Order("rolled", -1, 1),
    ),
    "transposed": (
        lambda a: a.reshape(-1, 100, 200).swapaxes(1, 2).reshape(len(a), -1),
        Order("transposed"),
    ),
}


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("claimed", [True, False])
def test_a_gradient_in_another_order_is_told_from_the_draws_alone(name: str, claimed: bool) -> None:
    change, order = ORDERS[name]
    right = np.random.default_rng(1).normal(size=(2, SIZE))
    seen = _weighed(right, change(right) - right, 1e-4, 1, 4)
    lines = seen.lines if claimed else Lines(right, seen.lines.tangents, claimed=False)
    found = reordered(Weighed(seen.found, SIZE, lines), SPACE)
    assert found is not None
    assert found.order == order
    assert reordered(_weighed(right, 0.3 * right[::-1], 1e-4, 1, 4), SPACE) is None


def test_of_columns_in_which_nothing_is_claimed_those_that_are_right_are_left_out() -> None:
    right = np.random.default_rng(2).normal(size=(3, SIZE))
    right[:, 15_000:] = 0.0
    gaps = np.zeros_like(right)
    gaps[:, 300:400] = -right[:, 300:400]
    seen = _weighed(right, gaps, 1e-6, 2, 4)

    def residual(weights: np.ndarray) -> Residual:
        return Residual(gaps @ weights, np.full(3, 1e-6), right @ weights)

    found = missing(seen, residual, LIKE)
    assert found is not None
    assert (found.low, found.high, found.ratio) == (300, 400, 0.0)
    gaps[:, 7_000] = 1.0
    assert missing(seen, residual, LIKE) is None
