"""Wrong columns of rows whose residuals are noisy, by residuals of all columns weighed in no order.

Of a row that is wrong in column j only, the residual of the probe weighed by w is w[j] times the
whole. Each draw of weights leaves of all columns the part that the noise of a ratio cannot tell
from it, whatever the noise: no base has to be chosen for it, as digits need one, and rows of
different noise share their draws. The column that fits best is believed as soon as chance would
hardly let any of the others fit as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradproof._explain.localise import Masked, Piece, Residual, inside
from gradproof._space import Array, namespace, on_host

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)  # their square roots have no relation
MOST = 9  # draws: of a row whose gap is not twice its bar they tell a column
LAST = len(_PRIMES)  # draws there are
_CHANCE = 1e-4  # of a fit as good as the best, were the row not wrong in one column
_LEAST = 1e-6  # of the whole, that a fit is never better than
_NOISE = 1.25  # for a ratio of residuals may be off by the thresholds of both, and some more

Numbers = np.ndarray[Any, np.dtype[np.float64]]


@dataclass
class Draws:
    """Residuals of some columns, weighed.

    Attributes:
        residual: weights (size n, -1 to 1) -> residual of the rows for the weighed probe.
        whole: of the unweighed probe.
        like: an array whose library the weights are made with.
        span: the columns.
        bar: threshold of one residual, where that of the whole adds up those of several.
        found: residuals so far.
        misfits: per row and column, the sum of squares of what the ratios are off by.
        fits: per row, the columns that no ratio rules out.
    """

    residual: Masked
    whole: Residual
    like: Array
    span: Piece
    bar: Numbers
    found: list[Residual] = field(default_factory=list)

    def __post_init__(self) -> None:
        shape = self.whole.value.shape[0], self.span.high - self.span.low
        self.misfits, self.fits = np.zeros(shape), np.ones(shape, dtype=bool)

    def ask(self) -> None:
        """One more residual."""
        weights = inside(weights_of(self.like, len(self.found)), self.span)
        found = self.residual(weights)
        self.found.append(found)
        here = on_host(weights[self.span.low : self.span.high])
        for row, total in enumerate(self.whole.value):
            if total:
                off = float(found.value[row]) / float(total) - here
                self.fits[row] &= np.abs(off) <= self._slack(row)
                self.misfits[row] += off * off

    def _slack(self, row: int) -> float:
        """By how much a ratio may be off."""
        bars = float(self.whole.threshold[row] + self.bar[row])
        return max(_LEAST, _NOISE * bars / abs(float(self.whole.value[row])))

    def column(self, row: int) -> int | None:
        """The only column in which a row is wrong, as far as it is known."""
        if not self.open(row):
            return None
        misfits = np.where(self.fits[row], self.misfits[row], np.inf)
        best = int(np.argmin(misfits))
        told = self._by_chance(float(misfits[best])) <= _CHANCE
        return self.span.low + best if told else None

    def _by_chance(self, misfit: float) -> float:
        """How many columns would fit as well by chance: those in a ball around the ratios."""
        k, size = len(self.found), self.misfits.shape[1]
        radius = max(_LEAST * k**0.5, misfit**0.5) / 2  # of weights spread over a length of 2
        return float(size * math.pi ** (k / 2) / math.gamma(k / 2 + 1) * radius**k)

    def open(self, row: int) -> bool:
        """Whether a row may be wrong in one column only."""
        return bool(self.whole.value[row]) and bool(self.fits[row].any())

    def worthwhile(self) -> bool:
        """Whether another draw may tell the column of a row whose gap stands above its bar."""
        rows = range(self.whole.value.shape[0])
        return len(self.found) < MOST and any(
            self.open(row) and not self.whole.zero(row) and self.column(row) is None for row in rows
        )


def pieces_by_draws(
    residual: Masked,
    whole: Residual,
    size: int,  # noqa: ARG001  # as the other takes
    like: Array,
    part: Piece,
    bar: Numbers,
) -> list[Piece]:
    """The same as `localise.pieces_by_digits` says, where residuals are noisy."""
    draws = Draws(residual, whole, like, part, bar)
    while draws.worthwhile():
        draws.ask()
    columns = (draws.column(row) for row in range(whole.value.shape[0]))
    return [part if j is None else Piece(j, j + 1) for j in columns]


def weights_of(like: Array, number: int) -> Array:
    """A weight from -1 to 1 for every column, in no order; others for each number."""
    xp = namespace(like)
    weights = xp.astype(xp.arange(like.shape[0]), xp.float64)
    weights *= _PRIMES[number] ** 0.5
    weights -= xp.floor(weights)
    weights *= 2.0
    weights -= 1.0
    return weights
