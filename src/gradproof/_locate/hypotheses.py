"""One run of wrong columns, all by one factor: where it begins and ends, from a few residuals.

The residual of the probe cut off at x tells both whether anything before x is wrong and, less the
whole, whether anything after it is. As soon as a piece lies inside the run, and the rows are known
(as claimed, or as they should be), its residual gives the factor, and that of the part before it
the place where the run begins: the residual is the factor times the sum of the row's terms from
there on, and these sums are different for different places.

Sums of random terms come back to where they were: several places may fit. Residuals of all columns,
with weights that follow no order, tell them apart, and what comes out is a guess until one of them
agrees that was not used to find it. A column that belongs to the run and is right, or the other way
round, adds its entry times a weight to each: it is overlooked with the odds of a random number to
lie within the threshold around a given one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradproof._data.space import Array, on_host
from gradproof._locate.decode import Masked, Residual, between, scattered
from gradproof._measure.statistics import SLACK, common_ratio

_CHECKS = 4  # of them, at most, to tell places apart
_ALIKE = 8  # places that may stay alike
_PAIRS = 1_000_000  # first and last columns that are told apart
_LONG = 8  # parts of the whole: a piece as long that is not wrong by one factor says that none is
END = 64  # parts of the whole: a run that begins in the first and ends in the last is none
_NEAR = 1e-6

Values = np.ndarray[Any, np.dtype[np.float64]]
Indices = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Run:
    """Columns from `low` to before `high`, or every `step`-th of them.

    Attributes:
        low: the first.
        high: the one after the last.
        factor: residual in parts of the rows there; None where it is not one number, and no more
            is known than that nothing outside is wrong.
        within: a column between those, wrong as far as is known.
        step: from one to the next.
    """

    low: int
    high: int
    factor: float | None
    within: int
    step: int = 1


@dataclass
class Search:
    """The state of one search.

    Attributes:
        residual: weights -> residual of the rows.
        whole: of the unmasked probe.
        lines: terms of the rows, (rows, size); None where they are not known.
        like: an array whose library the masks are made with.
        known: residuals of the columns before some place.
        asked: how many residuals were measured.
        drawn: of all columns with weights in no order, by the number of the draw.
        begins: places before which nothing is wrong, and before which something is.
        ends: places after which something is wrong, and after which nothing is.
    """

    residual: Masked
    whole: Residual
    lines: Values | None
    like: Array
    known: dict[int, Residual] = field(default_factory=dict)
    asked: int = 0
    drawn: dict[int, Residual] = field(default_factory=dict)
    begins: tuple[int, int] = (0, 0)
    ends: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        size = self.like.shape[0]
        self.begins = self.ends = (0, size)
        self.known[size] = self.whole
        self.known[0] = self.whole - self.whole
        self.sums = None
        if self.lines is not None:
            zero = np.zeros((self.lines.shape[0], 1))
            self.sums = np.concatenate([zero, np.cumsum(self.lines, axis=1)], axis=1)

    def ask(self, x: int) -> None:
        """The residual of the columns before x, and what it says of both ends."""
        if x in self.known:
            return
        found = self.known[x] = self.weighed(between(0, x, self.like))
        if found.nothing:
            self.begins = max(self.begins[0], x), self.begins[1]
        else:
            self.begins = self.begins[0], min(self.begins[1], x)
        if (self.whole - found).nothing:
            self.ends = self.ends[0], min(self.ends[1], x)
        else:
            self.ends = max(self.ends[0], x), self.ends[1]

    def weighed(self, weights: Array) -> Residual:
        """The residual of weighed columns."""
        self.asked += 1
        return self.residual(weights)

    def found(self) -> bool:
        return self.begins[1] - self.begins[0] == 1 == self.ends[1] - self.ends[0]

    def next(self) -> int:
        """The middle of the wider of the two brackets."""
        low, high = max(self.begins, self.ends, key=lambda ends: ends[1] - ends[0])
        return (low + high) // 2


def run_of(
    residual: Masked,
    whole: Residual,
    lines: Values | None,
    like: Array,
    span: tuple[int, int],
    most: int,
) -> Run | None:
    """The run in which all that is wrong with the rows lies; None where that is nearly all.

    Args:
        residual: weights (size n, 0 to 1) -> residual of the rows for the weighed probe.
        whole: of the unmasked probe.
        lines: terms of the rows along the probe, as claimed or as they should be.
        like: an array whose library the masks are made with.
        span: where the wrong columns are thought to lie.
        most: residuals to measure, and a few more to make sure.
    """
    size = like.shape[0]
    search = Search(residual, whole, lines, like)
    for x in [x for x in span if 0 < x < size]:
        search.ask(x)
    if span == (0, size):
        search.ask(size - size // END)
        if search.begins[0] == 0:
            search.ask(size // END)
    while not search.found() and search.asked < most:
        low, high = search.begins[1], search.ends[0]
        if low < high:
            found = _guess(search) if search.sums is not None else None
            if found is not None:
                return found
            if high - low > size // _LONG:
                return None
        search.ask(search.next())
    return _enclosed(search)


def _enclosed(search: Search) -> Run | None:
    """Where the search stopped, if nothing outside of that is wrong."""
    low, high = search.begins[0], search.ends[1]
    weights = scattered(search.like)
    weights[low:high] = 0.0
    if not search.residual(weights).nothing:
        return None
    inner = search.begins[1], search.ends[0]
    low_, high_ = inner if inner[0] < inner[1] else (low, high)
    within = (low_ + high_) // 2
    if search.lines is not None:
        within = low_ + int(np.abs(search.lines[:, low_:high_]).max(axis=0).argmax())
    return Run(low, high, None, within)


def _guess(search: Search) -> Run | None:
    """The run, from its factor inside; None where it is not known yet, or there is none."""
    assert search.lines is not None
    assert search.sums is not None
    low, high = search.begins[1], search.ends[0]
    inside = search.known[high] - search.known[low]
    terms = search.sums[:, high] - search.sums[:, low]
    ratio = common_ratio(inside.value, terms, inside.threshold)
    if ratio is None or not ratio[0]:
        return None
    factor, off = ratio[0], _NEAR + abs(ratio[1] / ratio[0])
    before, after = search.known[low], search.whole - search.known[high]
    # A column whose terms are all zero cannot be told from a right one.
    live = np.asarray(search.lines.any(axis=0))
    starts = np.arange(search.begins[0], low)[live[search.begins[0] : low]]
    stops = 1 + np.arange(high, search.ends[1])[live[high : search.ends[1]]]
    before, after = search.known[low], search.whole - search.known[high]
    reach = search.sums[:, low, None] - search.sums[:, starts]
    starts = starts[_fits(before, factor * reach, off).all(axis=0)]
    reach = search.sums[:, stops] - search.sums[:, high, None]
    stops = stops[_fits(after, factor * reach, off).all(axis=0)]
    if not 0 < starts.size * stops.size <= _PAIRS:
        return None
    return _agreed(search, starts, stops, (factor, off))


def _fits(found: Residual, expected: Values, off: float) -> Mask:
    """Row by row, for several expectations at once, which may be off by a part of themselves."""
    axes = (slice(None), *(None,) * (expected.ndim - 1))
    value, bar = found.value[axes], found.threshold[axes]
    return np.asarray(np.abs(value - expected) <= SLACK * bar + off * np.abs(expected))


def _agreed(
    search: Search, starts: Indices, stops: Indices, factor: tuple[float, float]
) -> Run | None:
    """The pair of places that explains all columns, however they are weighed.

    Of a few that no weights tell apart, since what is between them is below the bars, the widest.
    """
    assert search.lines is not None
    open_, number = np.ones((starts.size, stops.size), dtype=bool), 0
    for draw in range(1, 1 + _CHECKS):
        last, number = number, int(open_.sum())
        weights = scattered(search.like, draw)
        sums = np.cumsum(search.lines * on_host(weights), axis=1)
        sums = np.concatenate([np.zeros((sums.shape[0], 1)), sums], axis=1)
        if draw not in search.drawn:
            search.drawn[draw] = search.weighed(weights)
        found = search.drawn[draw]
        expected = factor[0] * (sums[:, None, stops] - sums[:, starts, None])
        open_ &= _fits(found, expected, factor[1]).all(axis=0)
        left = int(open_.sum())
        if left == number and (left == 1 or (left == last and left <= _ALIKE)):
            first, final = np.argwhere(open_).T
            low, high = int(starts[first.min()]), int(stops[final.max()])
            return Run(low, high, factor[0], low)
        if not left:
            return None
    return None


# Every k-th column wrong, all by one factor, as it fits residuals that were measured anyway.
#
# As a run of columns does (`fitted`), such a set predicts every weighed residual up to its
# factor. There are few of them: the one that explains most is believed where it leaves nothing
# that the noise does not explain, where chance would not explain as much, and where no other
# comes near.


_LARGEST_STEP = 16
_WITHIN = 2.0  # thresholds that a residual may be off by
_LEFT = 1e-3  # of the squares of the residuals, that may be left unexplained
_APART = 100.0  # times as much, at least, that every other set leaves
_LEAST = 5  # residuals: with fewer chance might explain as much

Numbers = np.ndarray[Any, np.dtype[np.float64]]


def combed(found: Sequence[Residual], weights: Sequence[Numbers], terms: Numbers) -> Run | None:
    """The columns low, low + step, ... that explain all residuals; None where none do.

    Args:
        found: residuals of the rows.
        weights: of the columns, for each.
        terms: of the rows along the probe, (rows, n).
    """
    residuals = np.concatenate([one.value / one.threshold for one in found])
    total = float(residuals @ residuals)
    if len(found) < _LEAST or not 0 < total < np.inf:
        return None
    tried = []
    for step, low, predicted in _predictions(found, weights, terms):
        size = float(predicted @ predicted)
        factor = float(residuals @ predicted) / size if size else 0.0
        off = residuals - factor * predicted
        tried.append((float(off @ off), step, low, factor, float(np.abs(off).max())))
    (left, step, low, factor, worst), other = sorted(tried)[:2]
    if left > _LEFT * total or worst > _WITHIN or other[0] < _APART * left:
        return None
    within = low + step * int(np.abs(terms[:, low::step]).max(axis=0).argmax())
    return Run(low, terms.shape[1], factor, within, step)


def _predictions(
    found: Sequence[Residual], weights: Sequence[Numbers], terms: Numbers
) -> Iterator[tuple[int, int, Numbers]]:
    """Step, first column, and the residuals of a factor of one, in units of their thresholds."""
    parts: dict[tuple[int, int], list[Numbers]] = {}
    for one, weight in zip(found, weights, strict=True):
        product = terms * weight
        for step in range(2, min(_LARGEST_STEP, terms.shape[1] - 1) + 1):
            for low in range(step):
                sums = product[:, low::step].sum(axis=1) / one.threshold
                parts.setdefault((step, low), []).append(sums)
    for (step, low), sums in parts.items():
        yield step, low, np.concatenate(sums)


# One run of wrong columns, all by one factor, as it fits residuals that were measured anyway.
#
# With the terms of the rows (as claimed, or as they should be) a run from a to b predicts every
# weighed residual up to its factor: sums of the terms between two places, of which prefix sums
# make one subtraction. The run whose prediction explains most is looked for among pieces of all
# lengths and then improved end by end. It is believed where chance would not explain as much, and
# its ends are known as sharply as the rest, which is noise, tells them from their neighbours.


_CHANCE = -9.0  # logarithm of the odds that some run explains as much by accident
_SIGMAS = 36.0  # loss of fit, in units of the noise, that tells an end from another
_PLACES = 512  # ends that are tried in pairs
_SEEDS = 3  # runs that are improved
_TURNS = 8  # improvements of both ends
_AROUND = 128  # places around each end that are tried in pairs, ever closer
_CLOSER = 8
_FITTED_WITHIN = 2.0  # thresholds that a residual may be off by
_LARGEST = 1.0 / 16  # of the residuals, that may be left unexplained

Places = int | slice
Floats = np.ndarray[Any, np.dtype[np.float64]]


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

    residuals: Floats
    prefix: Floats  # (residuals, n + 1)

    def explained(self, low: Places, high: Places) -> Floats:
        """The part of the squares of the residuals that runs explain, one for each pair."""
        low, high = (slice(at, at + 1) if isinstance(at, int) else at for at in (low, high))
        predicted = self.prefix[:, high] - self.prefix[:, low]
        along = self.residuals @ predicted
        size = np.einsum("ij,ij->j", predicted, predicted)
        return np.where(size > 0, along**2 / np.where(size > 0, size, 1.0), 0.0)

    def factor(self, low: int, high: int) -> float:
        predicted = self.prefix[:, high] - self.prefix[:, low]
        return float(self.residuals @ predicted / (predicted @ predicted))


def fitted(found: Sequence[Residual], weights: Sequence[Floats], terms: Floats) -> Fit | None:
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
    if not np.abs(off).max() <= _FITTED_WITHIN:
        return None
    lost = _SIGMAS * left / max(freedom, 1.0)
    first = np.flatnonzero(best - sums.explained(slice(high), high) <= lost)
    last = np.flatnonzero(best - sums.explained(low, slice(low + 1, None)) <= lost) + low + 1
    starts, stops = ((int(places.min()), int(places.max())) for places in (first, last))
    within = low + int(np.abs(terms[:, low:high]).max(axis=0).argmax())
    run = Run(starts[0], stops[1], factor, within)
    return Fit(run, starts, stops, believed=freedom >= 1 and odds <= _CHANCE)


def _alike(off: Floats) -> float:
    """How many rows make the same error, (residuals, rows): those count as one."""
    squares = np.linalg.svd(off, compute_uv=False) ** 2
    return max(1.0, float(off.shape[1] * squares[0] / max(float(squares.sum()), 1e-300)))


def _sums(found: Sequence[Residual], weights: Sequence[Floats], terms: Floats) -> _Sums:
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


def _best_pair(sums: _Sums, chosen: Floats) -> tuple[float, int, int]:
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
