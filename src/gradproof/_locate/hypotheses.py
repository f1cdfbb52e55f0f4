"""What rows that are wrong in many columns may have in common.

Each hypothesis predicts every weighted residual that was measured: all columns are off by a
factor, or one run of them is. The factor that fits best is taken; what it leaves is noise, or the
hypothesis is wrong. It is believed where nothing is left that the noise does not explain, and where
chance would hardly leave as little.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gradproof._data.space import Array, Mask, Values, namespace
from gradproof._locate.decode import (
    CHANCE,
    Residual,
    Weighted,
    only,
    weights_of,
)
from gradproof._measure.sizes import FINE, MANY, TRIES
from gradproof._measure.statistics import FACTOR

_LEFT = 1.0 / 16  # of the squares of the residuals, that may be left unexplained

Places = int | slice


@dataclass(frozen=True)
class Lines:
    """Rows of a Jacobian, each as long as the input."""

    values: Values  # the rows, (rows, n)
    tangents: Sequence[Values]  # along which the residuals were measured, the whole tangent first
    claimed: bool  # whether the rows are as claimed; else they are as they should be

    @property
    def terms(self) -> Values:
        """Of the rows along the whole tangent."""
        return self.values * self.tangents[0]


@dataclass(frozen=True)
class Weighed:
    """What was measured of some rows."""

    found: Sequence[Residual]  # their residuals, that of the whole tangent first
    size: int  # number of columns
    lines: Lines | None  # the rows; None where they are not known

    def stacked(self, parts: Sequence[Values]) -> Values:
        """A number for each row and residual, in units of the threshold there."""
        units = (one.threshold for one in self.found)
        return np.concatenate([part / unit for part, unit in zip(parts, units, strict=True)])

    @property
    def residuals(self) -> Values:
        return self.stacked([one.value for one in self.found])

    @property
    def measured(self) -> Values:
        return self.stacked([np.asarray(one.measured) for one in self.found])


@dataclass(frozen=True)
class Common:
    """What explains the rows."""

    rows: int  # how many it explains
    low: int  # first column that is wrong
    high: int  # the one after the last
    among: Mask | None = None  # which columns, where these are not all between those
    ratio: float | None = None  # claimed over right; None where it is no factor
    sure: bool = True  # whether it is all of these columns, and not only some inside
    # Whether chance would hardly explain as much; else more residuals may tell.
    believed: bool = True
    measure: tuple[int, ...] = ()  # columns that show it best


def common(seen: Weighed) -> Common | None:
    """A factor of all columns, or of a run of them; None where neither explains the rows."""
    return _everything(seen) or (None if seen.lines is None else _run(seen, seen.lines))


def _everything(seen: Weighed) -> Common | None:
    """Every row is multiplied by one number: r(w) is that less one, times what was measured."""
    fit = _fit(seen, seen.measured, parameters=1, kinds=1)
    if fit is None or not fit.believed:
        return None
    shown = () if seen.lines is None else largest(seen.lines.terms)
    return Common(seen.found[0].value.size, 0, seen.size, ratio=1 + fit.factor, measure=shown)


def largest(terms: Values, low: int = 0, number: int = 2) -> tuple[int, ...]:
    """The columns, counted from `low`, with the largest terms, NaN first; none of zeros."""
    size = np.nan_to_num(np.abs(terms), nan=np.inf).max(axis=0)
    order = np.argsort(size)[: -1 - number : -1]
    return tuple(low + int(j) for j in order if size[j] > 0)


@dataclass(frozen=True)
class _Fit:
    """How well a prediction explains the residuals."""

    factor: float  # of the prediction
    noise: float  # variance of what is left
    believed: bool  # whether chance would hardly leave as little


def _fit(seen: Weighed, predicted: Values, parameters: int, kinds: float) -> _Fit | None:
    """The factor that fits best, of `kinds` predictions that were tried; None where none does.

    Of k residuals of noise a fit of p parameters leaves a part q or less by chance with odds of
    about q^((k - p) / 2).
    """
    residuals = seen.residuals
    total, size = float(residuals @ residuals), float(predicted @ predicted)
    if not 0 < total < math.inf or not 0 < size < math.inf:
        return None
    factor = float(residuals @ predicted) / size
    off = residuals - factor * predicted
    left = max(float(off @ off), FINE**2 * total)
    # Each may be off by its own threshold, and by that of what is predicted.
    if not (left <= _LEFT * total and np.abs(off).max() <= 2):
        return None
    count = len(seen.found)
    noisy = residuals.size / _alike(off.reshape(count, -1)) - parameters
    freedom = min(noisy, residuals.size / _alike(residuals.reshape(count, -1)) - parameters)
    odds = math.log(kinds) + freedom / 2 * math.log(left / total)
    return _Fit(factor, left / max(noisy, 1.0), believed=freedom >= 1 and odds <= math.log(CHANCE))


def _alike(values: Values) -> float:
    """How many rows say the same, (residuals, rows): those count as one."""
    squares = np.linalg.svd(values, compute_uv=False) ** 2
    return max(1.0, float(values.shape[1] * squares[0] / max(float(squares.sum()), 1e-300)))


# One run of wrong columns, all by one factor.
#
# With the terms of the rows a run from a to b predicts every weighted residual up to its factor:
# the sum of the terms between two places, of which prefix sums make one subtraction. The run whose
# prediction explains most is looked for among pieces of all lengths and then improved end by end.
# Its ends are known as sharply as what is left, which is noise, tells them from their neighbours.


@dataclass(frozen=True)
class _Sums:
    """Residuals in units of their noise, and the prefix sums of what a run predicts of them."""

    residuals: Values
    prefix: Values  # (residuals, n + 1)

    def between(self, low: Places, high: Places) -> Values:
        """What runs predict, (residuals, runs)."""
        low, high = (slice(at, at + 1) if isinstance(at, int) else at for at in (low, high))
        return np.asarray(self.prefix[:, high] - self.prefix[:, low])

    def explained(self, low: Places, high: Places) -> Values:
        """The part of the squares of the residuals that runs explain, one for each pair."""
        predicted = self.between(low, high)
        along = self.residuals @ predicted
        size = np.einsum("ij,ij->j", predicted, predicted)
        return np.where(size > 0, along**2 / np.where(size > 0, size, 1.0), 0.0)


def _run(seen: Weighed, lines: Lines) -> Common | None:
    sums = _sums(seen, lines)
    if not (np.isfinite(sums.residuals).all() and np.isfinite(sums.prefix[:, -1]).all()):
        return None
    low, high = _best(sums)
    predicted = sums.between(low, high)[:, 0]
    fit = _fit(seen, predicted, parameters=3, kinds=float(seen.size) ** 2)
    if fit is None:
        return None
    # A loss of fit by so many standard deviations tells an end from another.
    lost = float(sums.explained(low, high)[0]) - FACTOR**2 * fit.noise
    first = np.flatnonzero(sums.explained(slice(high), high) >= lost)
    last = np.flatnonzero(sums.explained(low, slice(low + 1, None)) >= lost) + low + 1
    return Common(
        seen.found[0].value.size,
        int(first.min()),
        int(last.max()),
        ratio=_ratio(fit.factor, claimed=lines.claimed),
        sure=first.size == 1 == last.size,
        believed=fit.believed,
        measure=largest(lines.terms[:, low:high], low),
    )


def _ratio(factor: float, *, claimed: bool) -> float | None:
    """Claimed over right, of a gap in parts of what is claimed, or else of what is right.

    None where all that is claimed is too much.
    """
    if not claimed:
        return 1 + factor
    return None if factor == 1 else 1 / (1 - factor)


def _sums(seen: Weighed, lines: Lines) -> _Sums:
    rows, size = lines.values.shape
    prefix = np.zeros((len(seen.found) * rows, size + 1))
    for k, (one, tangent) in enumerate(zip(seen.found, lines.tangents, strict=True)):
        part = prefix[k * rows : (k + 1) * rows, 1:]
        np.multiply(lines.values, tangent, out=part)
        part /= one.threshold[:, None]
        np.cumsum(part, axis=1, out=part)
    return _Sums(seen.residuals, prefix)


def _best(sums: _Sums) -> tuple[int, int]:
    """The run that explains most: the best seeds, improved until no other end explains more."""
    size = sums.prefix.shape[1] - 1
    seeds = sorted(_windows(sums, size))[-MANY:]
    found = [_improved(sums, low, high) for _, low, high in seeds]
    return max(found, key=lambda ends: float(sums.explained(*ends)[0]))


def _windows(sums: _Sums, size: int) -> Iterator[tuple[float, int, int]]:
    """The best piece of each length that is a power of two, each overlapping half of the next."""
    length = 1
    while length <= size:
        step = max(1, length // 2)
        count = (size - length) // step + 1
        low, high = (slice(at, at + (count - 1) * step + 1, step) for at in (0, length))
        explained = sums.explained(low, high)
        at = int(np.argmax(explained))
        yield float(explained[at]), at * step, at * step + length
        length *= 2


def _improved(sums: _Sums, low: int, high: int) -> tuple[int, int]:
    """One end after the other, to where it explains most."""
    for _ in range(TRIES):  # it may not end by itself, where rounding makes two runs alike
        high = low + 1 + int(np.argmax(sums.explained(low, slice(low + 1, None))))
        low = int(np.argmax(sums.explained(slice(high), high)))
    return low, high


# Something is missing where nothing is claimed.


def missing(seen: Weighed, weighted: Weighted, like: Array) -> Common | None:
    """All that is wrong lies in the columns, not nearly all, in which no row claims anything.

    Of a few runs of them those are right in which no residual shows anything.
    """
    lines = seen.lines
    if lines is None or not lines.claimed:
        return None
    empty = ~lines.values.any(axis=0)
    if not 0 < int(empty.sum()) <= seen.size // 2:
        return None
    others = namespace(like).asarray(np.where(empty, 0.0, 1.0))
    if not all(weighted(weights_of(like, k) * others).nothing for k in range(2)):
        return None
    ends = np.flatnonzero(np.diff(np.r_[False, empty, False].astype(np.int8)))
    runs = [range(int(low), int(high)) for low, high in ends.reshape(-1, 2)]
    if 1 < len(runs) <= TRIES:
        runs = [run for run in runs if not weighted(only(like, run)).nothing]
    if not runs:
        return None
    among = np.zeros(seen.size, dtype=bool)
    for run in runs:
        among[run.start : run.stop] = True
    return Common(lines.values.shape[0], runs[0].start, runs[-1].stop, among=among, ratio=0.0)
