"""Columns and runs of columns told from noisy residuals: the right ones, or none."""

from __future__ import annotations

import numpy as np
import pytest

from gradproof._locate import hypotheses
from gradproof._locate.decode import Draws, Residual, weights_of
from gradproof._locate.hypotheses import Common, Lines, Weighed, common, missing

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

    def single(self) -> list[int | None]:
        draws = Draws(self.residual, self.residual(LIKE), LIKE)
        draws.ask()
        while draws.worthwhile():
            draws.ask()
        return [draws.column(row) for row in draws.rows]


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


def _weighed(right: np.ndarray, gaps: np.ndarray, noise: float, seed: int, draws: int) -> Weighed:
    """Some draws of rows that should be `right` and are claimed with gaps."""
    rng = np.random.default_rng(seed)
    count = right.shape[0]

    def residual(weights: np.ndarray) -> Residual:
        value = gaps @ weights + noise * rng.normal(size=count)
        return Residual(value, np.full(count, 5 * noise), right @ weights)

    found = Draws(residual, residual(LIKE), LIKE)
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


# The numbers by which a run is fitted, worked out by hand.


def test_the_columns_with_the_largest_terms_show_a_run_best() -> None:
    terms = np.array([[0.0, 3.0, -1.0, 0.0], [0.0, 1.0, -2.0, 0.5]])
    assert hypotheses.largest(terms) == (1, 2)
    assert hypotheses.largest(terms, low=10, number=3) == (11, 12, 13)
    assert hypotheses.largest(terms, number=4) == (1, 2, 3)
    assert hypotheses.largest(0 * terms) == ()


@pytest.mark.parametrize(
    ("factor", "claimed", "ratio"),
    [(0.25, False, 1.25), (0.2, True, 1.25), (1.0, True, None), (-1.0, False, 0.0)],
)
def test_claimed_over_right(factor: float, claimed: bool, ratio: float | None) -> None:
    assert hypotheses._ratio(factor, claimed=claimed) == ratio


def test_so_many_rows_say_the_same() -> None:
    draws = np.array([1.0, -2.0, 3.0])[:, None]
    assert hypotheses._alike(draws * np.ones((1, 4))) == pytest.approx(4.0)
    assert hypotheses._alike(np.eye(3)) == pytest.approx(1.0)
    assert hypotheses._alike(np.diag([3.0, 1.0])) == pytest.approx(2 * 9 / 10)
    assert hypotheses._alike(np.zeros((2, 2))) == 1.0


def seen_of(values: np.ndarray, size: int = 100) -> Weighed:
    """Residuals of one row, in units of their thresholds."""
    found = [Residual(np.array([value]), np.ones(1), np.ones(1)) for value in values]
    return Weighed(found, size, None)


def test_a_fit_leaves_a_sixteenth_of_the_squares_and_two_thresholds_at_most() -> None:
    predicted = np.array([1.0, -1.0, 2.0, -2.0, 1.5, 0.5])
    across = np.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    for size, part, fits in ((2.5, 0.9, True), (2.5, 1.1, False), (30.0, 0.9, False)):
        total = size**2 * float(predicted @ predicted)
        left = part * total / 15 / 2  # of each of the two: a fifteenth of what is explained
        residuals = size * predicted + np.sqrt(left) * across
        fit = hypotheses._fit(seen_of(residuals), predicted, parameters=1, kinds=1)
        assert (fit is not None) is fits
    fit = hypotheses._fit(seen_of(3.0 * predicted), predicted, parameters=1, kinds=1)
    assert fit.factor == 3.0
    assert fit.believed
    assert hypotheses._fit(seen_of(0 * predicted), predicted, 1, 1) is None
    assert hypotheses._fit(seen_of(predicted), 0 * predicted, 1, 1) is None


def test_a_fit_of_few_residuals_or_of_very_many_kinds_is_not_believed() -> None:
    predicted = np.array([1.0, -1.0])
    assert not hypotheses._fit(seen_of(3.0 * predicted), predicted, 2, 1).believed
    assert hypotheses._fit(seen_of(3.0 * predicted), predicted, 1, 1).believed
    noisy = 3.0 * predicted + np.array([1e-2, 1e-2])
    odds = hypotheses._fit(seen_of(noisy), predicted, 1, 1)
    assert odds.noise == pytest.approx(2e-4)
    assert not odds.believed  # one number in 300 is so close by chance


SUMS = hypotheses._Sums(
    np.array([2.0, 1.0]), np.array([[0.0, 1.0, 1.0, 3.0, 3.0], [0.0, 0.0, 0.0, 1.0, 2.0]])
)


def test_what_a_run_predicts_and_explains() -> None:
    assert SUMS.between(1, 3).tolist() == [[2.0], [1.0]]
    assert SUMS.explained(1, 3).tolist() == [5.0]  # all of it
    assert SUMS.explained(1, 2).tolist() == [0.0]  # a column of zeros
    assert SUMS.explained(0, slice(1, 5)).tolist() == [4.0, 4.0, 49 / 10, 64 / 13]
    assert SUMS.explained(slice(0, 2), slice(1, 3)).tolist() == [4.0, 0.0]


def test_the_best_run_is_found_among_pieces() -> None:
    assert hypotheses._best(SUMS) in {(1, 3), (2, 3)}
    pieces = list(hypotheses._windows(SUMS, 4))
    assert pieces == [(5.0, 2, 3), (5.0, 1, 3), (64 / 13, 0, 4)]
    assert hypotheses._improved(SUMS, 1, 4) in {(1, 3), (2, 3)}


def test_residuals_are_told_in_units_of_their_thresholds() -> None:
    found = [
        Residual(np.array([2.0, 3.0]), np.array([4.0, 2.0]), np.array([1.0, 8.0])),
        Residual(np.array([1.0, 1.0]), np.array([2.0, 1.0]), np.array([4.0, 5.0])),
    ]
    lines = Lines(np.ones((2, 2)), [np.array([1.0, 2.0]), np.array([3.0, 5.0])], claimed=True)
    seen = Weighed(found, 2, lines)
    assert seen.residuals.tolist() == [0.5, 1.5, 0.5, 1.0]
    assert seen.measured.tolist() == [0.25, 4.0, 2.0, 5.0]
    assert lines.terms.tolist() == [[1.0, 2.0], [1.0, 2.0]]
    sums = hypotheses._sums(seen, lines)
    assert sums.residuals.tolist() == [0.5, 1.5, 0.5, 1.0]
    assert sums.prefix.tolist() == [
        [0.0, 0.25, 0.75],
        [0.0, 0.5, 1.5],
        [0.0, 1.5, 4.0],
        [0.0, 3.0, 8.0],
    ]
