"""Which columns of a few rows are wrong, from weighted residuals alone.

The residual r(w) = (claimed - measured)(w u) of a row is linear in its error: it is the sum over
its wrong columns j of e_j u_j w_j. A hypothesis predicts r for every weight vector w. Weights are
drawn in no order: a wrong hypothesis predicts one residual by chance only, and several never. One
is believed that predicts them all, where chance would hardly do as well.

A row wrong in one column has r(w) = w_j r(1): each draw leaves of all columns the part that the
noise of a ratio cannot tell from it. No base has to be chosen for that noise, as group tests by the
digits of j need one (Hwang 1972). Of a row wrong in several columns the half with the larger
residual is followed, down to one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradproof._data.space import Array, Indices, Values, namespace, on_host
from gradproof._data.vectors import KEPT
from gradproof._measure.sizes import FINE

# Their square roots are independent over the rationals: weights of no two draws are related.
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23)
MOST = len(_PRIMES)  # draws: of a row whose gap is not twice its bar they tell a column
CHANCE = 1e-4  # odds that some hypothesis of its kind fits as well by accident, at most
_NOISE = 1.25  # for a ratio of residuals may be off by the thresholds of both, and some more


@dataclass(frozen=True)
class Residual:
    """Claimed minus measured for a few rows, and below which size it means nothing.

    All as numbers of the host, whatever they are made from: they are read one by one.
    """

    value: Array  # claimed minus measured
    threshold: Array  # what is no evidence of anything
    measured: Array  # what was measured

    def __post_init__(self) -> None:
        for name in ("value", "threshold", "measured"):
            object.__setattr__(self, name, on_host(getattr(self, name)))

    def __sub__(self, other: Residual) -> Residual:
        threshold = self.threshold + other.threshold
        return Residual(self.value - other.value, threshold, self.measured - other.measured)

    def of(self, rows: list[int]) -> Residual:
        """Those of some rows."""
        return Residual(self.value[rows], self.threshold[rows], self.measured[rows])

    @property
    def nothing(self) -> bool:
        return bool((np.abs(self.value) <= self.threshold).all())

    @property
    def size(self) -> float:
        """The largest; infinity where one is no number."""
        largest = float(np.abs(self.value).max())
        return largest if largest == largest else math.inf


Weighted = Callable[[Array], Residual]  # weights (size n, -1 to 1) -> residual of the rows


def weights_of(like: Array, number: int) -> Array:
    """A weight from -1 to 1 for every column, in no order; others for each draw."""
    xp = namespace(like)
    weights = xp.astype(xp.arange(like.shape[0]), xp.float64)
    weights *= _PRIMES[number] ** 0.5
    weights -= xp.floor(weights)
    weights *= 2.0
    weights -= 1.0
    return weights


def _weights_at(columns: Indices, number: int) -> Values:
    """The weights of some columns, on the host."""
    part = columns * _PRIMES[number] ** 0.5
    return np.asarray(2.0 * (part - np.floor(part)) - 1.0)


@dataclass
class Draws:
    """Residuals of some columns, weighed."""

    weighted: Weighted  # weights -> residual of the rows
    whole: Residual  # of the unweighed probe
    like: Array  # an array whose library the weights are made with
    found: list[Residual] = field(default_factory=list)  # residuals so far
    # Per row, those that no draw rules out; None before the first.
    columns: dict[int, Indices] = field(default_factory=dict)

    @property
    def rows(self) -> range:
        return range(self.whole.value.shape[0])

    @property
    def size(self) -> int:
        """Of all columns, how many there are."""
        return int(self.like.shape[0])

    def ask(self) -> None:
        """One more residual."""
        self.found.append(self.weighted(weights_of(self.like, len(self.found))))
        for row in self.rows:
            kept = [part[self._fits(row, part)] for part in self._left(row)]
            self.columns[row] = np.concatenate(kept)

    def _left(self, row: int) -> Iterator[Indices]:
        """The columns that no draw ruled out so far, in parts."""
        if row in self.columns:
            yield self.columns[row]
            return
        for start in range(0, self.size, KEPT):
            yield np.arange(start, min(start + KEPT, self.size))

    def _fits(self, row: int, columns: Indices) -> Any:
        """Which of them the last draw leaves."""
        last, total = self.found[-1], float(self.whole.value[row])
        bars = float(self.whole.threshold[row] + last.threshold[row])
        with np.errstate(all="ignore"):
            ratio = np.divide(last.value[row], total)
            slack = np.maximum(FINE, _NOISE * np.divide(bars, abs(total)))
        return np.abs(ratio - _weights_at(columns, len(self.found) - 1)) <= slack

    def column(self, row: int) -> int | None:
        """The only column in which a row is wrong, as far as it is known."""
        if not self.open(row):
            return None
        columns, total = self.columns[row], self.whole.value[row]
        misfits = sum(
            (found.value[row] / total - _weights_at(columns, number)) ** 2
            for number, found in enumerate(self.found)
        )
        best = int(np.argmin(misfits))
        return int(columns[best]) if self._by_chance(float(misfits[best])) <= CHANCE else None

    def _by_chance(self, misfit: float) -> float:
        """How many columns would fit as well by chance: those in a ball around the ratios."""
        k = len(self.found)
        radius = max(FINE * k**0.5, misfit**0.5) / 2  # of weights spread over a length of 2
        volume = math.pi ** (k / 2) / math.gamma(k / 2 + 1) * float(radius**k)
        return float(self.size * volume)

    def open(self, row: int) -> bool:
        """Whether a row may be wrong in one column only."""
        return bool(self.columns[row].size)

    def worthwhile(self) -> bool:
        """Whether another draw may tell the column of a row whose gap stands above its bar."""
        return len(self.found) < MOST and any(
            self.open(row) and not self.whole.of([row]).nothing and self.column(row) is None
            for row in self.rows
        )


def only(like: Array, columns: Sequence[int] | Indices) -> Array:
    """One in these columns, zero elsewhere."""
    weights = namespace(like).zeros(like.shape[0])
    weights[namespace(like).asarray(columns)] = 1.0
    return weights


def one_column(
    weighted: Weighted, whole: Residual, like: Array, few: Sequence[int] | Indices = ()
) -> int:
    """A column in which one row is wrong: one of a few, if that shows there, or else of all.

    Of two halves the one with the larger residual is followed. Where only one half is no number,
    what is left for the other is none either: it is that half.
    """
    value, columns = whole, np.arange(like.shape[0])
    if len(few) and not (some := weighted(only(like, few))).nothing:
        value, columns = some, np.asarray(few)
    while columns.size > 1:
        left, right = np.split(columns, [columns.size // 2])
        first = weighted(only(like, left))
        halves = (first, left), (value - first, right)
        value, columns = max(halves, key=lambda half: half[0].size)
    return int(columns[0])
