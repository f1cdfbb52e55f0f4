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

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradproof._explain.case import SLACK
from gradproof._explain.localise import Masked, Residual, between, scattered
from gradproof._explain.scaling import common_ratio
from gradproof._space import Array, on_host

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
