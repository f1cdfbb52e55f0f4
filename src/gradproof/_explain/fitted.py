"""One run of wrong columns, all by one factor, as it fits residuals that were measured anyway.

With the terms of the rows (as claimed, or as they should be) a run from a to b predicts every
weighed residual up to its factor: sums of the terms between two places, of which prefix sums make
one subtraction. The run whose prediction explains most is looked for among pieces of all lengths
and then improved end by end. It is believed where chance would not explain as much, and its ends
are known as sharply as the rest, which is noise, tells them from their neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradproof._explain.localise import Residual
from gradproof._explain.runs import Run

_CHANCE = -9.0  # logarithm of the odds that some run explains as much by accident
_SIGMAS = 36.0  # loss of fit, in units of the noise, that tells an end from another
_PLACES = 512  # ends that are tried in pairs
_SEEDS = 3  # runs that are improved
_TURNS = 8  # improvements of both ends
_AROUND = 128  # places around each end that are tried in pairs, ever closer
_CLOSER = 8
_WITHIN = 2.0  # thresholds that a residual may be off by
_LARGEST = 1.0 / 16  # of the residuals, that may be left unexplained

Places = int | slice
Numbers = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Fit:
    """A run and how well it is known.

    Attributes:
        run: it, its ends as far out as they may lie.
        starts: the first and the last place where it may begin.
        stops: likewise, where it may end.
        believed: whether chance would not explain as much; else more residuals may tell.
    """

    run: Run
    starts: tuple[int, int]
    stops: tuple[int, int]
    believed: bool

    @property
    def sure(self) -> bool:
        """Whether the ends can lie nowhere else."""
        return self.starts[0] == self.starts[1] and self.stops[0] == self.stops[1]


@dataclass(frozen=True)
class _Sums:
    """Residuals in units of their noise, and the prefix sums of what a run predicts of them."""

    residuals: Numbers
    prefix: Numbers  # (residuals, n + 1)

    def explained(self, low: Places, high: Places) -> Numbers:
        """The part of the squares of the residuals that runs explain, one for each pair."""
        low, high = (slice(at, at + 1) if isinstance(at, int) else at for at in (low, high))
        predicted = self.prefix[:, high] - self.prefix[:, low]
        along = self.residuals @ predicted
        size = np.einsum("ij,ij->j", predicted, predicted)
        return np.where(size > 0, along**2 / np.where(size > 0, size, 1.0), 0.0)

    def factor(self, low: int, high: int) -> float:
        predicted = self.prefix[:, high] - self.prefix[:, low]
        return float(self.residuals @ predicted / (predicted @ predicted))


def fitted(found: Sequence[Residual], weights: Sequence[Numbers], terms: Numbers) -> Fit | None:
    """The run that explains all residuals, as far as they are; None where none does.

    Args:
        found: residuals of the rows.
        weights: of the columns, for each.
        terms: of the rows along the probe, (rows, n).
    """
    sums = _sums(found, weights, terms)
    if not (np.isfinite(sums.residuals).all() and np.isfinite(sums.prefix[:, -1]).all()):
        return None
    total = float(sums.residuals @ sums.residuals)
    low, high = _best(sums)
    best = float(sums.explained(low, high)[0])
    left = max(total - best, 1e-12 * total)
    if not left <= _LARGEST * total:  # residuals that are no numbers, or terms of zero, included
        return None
    size = terms.shape[1]
    factor = sums.factor(low, high)
    off = sums.residuals - factor * (sums.prefix[:, high] - sums.prefix[:, low])
    freedom = sums.residuals.size / _alike(off.reshape(len(found), -1)) - 3
    odds = 2 * math.log(size) + freedom / 2 * math.log(left / total)
    if not np.abs(off).max() <= _WITHIN:
        return None
    lost = _SIGMAS * left / max(freedom, 1.0)
    first = np.flatnonzero(best - sums.explained(slice(high), high) <= lost)
    last = np.flatnonzero(best - sums.explained(low, slice(low + 1, None)) <= lost) + low + 1
    starts, stops = ((int(places.min()), int(places.max())) for places in (first, last))
    within = low + int(np.abs(terms[:, low:high]).max(axis=0).argmax())
    run = Run(starts[0], stops[1], factor, within)
    return Fit(run, starts, stops, believed=freedom >= 1 and odds <= _CHANCE)


def _alike(off: Numbers) -> float:
    """How many rows make the same error, (residuals, rows): those count as one."""
    squares = np.linalg.svd(off, compute_uv=False) ** 2
    return max(1.0, float(off.shape[1] * squares[0] / max(float(squares.sum()), 1e-300)))


def _sums(found: Sequence[Residual], weights: Sequence[Numbers], terms: Numbers) -> _Sums:
    rows, size = terms.shape
    prefix = np.zeros((len(found) * rows, size + 1))
    for k, (one, weight) in enumerate(zip(found, weights, strict=True)):
        part = prefix[k * rows : (k + 1) * rows, 1:]
        np.multiply(terms, weight / one.threshold[:, None], out=part)
        np.cumsum(part, axis=1, out=part)
    return _Sums(np.concatenate([one.value / one.threshold for one in found]), prefix)


def _best(sums: _Sums) -> tuple[int, int]:
    """The run that explains most: the best seeds, improved until no other end explains more."""
    size = sums.prefix.shape[1] - 1
    tried = [*_windows(sums, size), _pairs(sums, size)]
    found = [_improved(sums, low, high) for _, low, high in sorted(tried, reverse=True)[:_SEEDS]]
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


def _pairs(sums: _Sums, size: int) -> tuple[float, int, int]:
    """The best pair of a coarse set of places."""
    return _best_pair(sums, np.linspace(0, size, min(size, _PLACES) + 1))


def _best_pair(sums: _Sums, chosen: Numbers) -> tuple[float, int, int]:
    places = np.unique(chosen.astype(np.int64))
    prefix = sums.prefix[:, places]
    along = sums.residuals @ prefix
    square = np.einsum("ij,ij->j", prefix, prefix)
    between = square[:, None] + square[None, :] - 2 * prefix.T @ prefix
    usable = np.triu(between > 1e-9 * square.max(), 1)
    gained = (along[None, :] - along[:, None]) ** 2
    explained = np.where(usable, gained / np.where(usable, between, 1.0), 0.0)
    low, high = np.unravel_index(int(np.argmax(explained)), explained.shape)
    return float(explained[low, high]), int(places[low]), int(places[high])


def _improved(sums: _Sums, low: int, high: int) -> tuple[int, int]:
    """Both ends together, ever closer to where they are, and then one after the other."""
    size = sums.prefix.shape[1] - 1
    reach = high - low
    while reach > 1:
        around = [np.linspace(at - reach, at + reach, _AROUND + 1) for at in (low, high)]
        places = np.concatenate([*around, [low, high]])
        _, low, high = _best_pair(sums, places[(places >= 0) & (places <= size)])
        reach //= _CLOSER
    for _ in range(_TURNS):
        before = low, high
        high = low + 1 + int(np.argmax(sums.explained(low, slice(low + 1, None))))
        low = int(np.argmax(sums.explained(slice(high), high)))
        if (low, high) == before:
            break
    return low, high
