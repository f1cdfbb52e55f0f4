"""Slopes of F at a point from a difference table, each with an error bar.

A central difference D(h) = (F(x + hu) - F(x - hu)) / 2h is off by h^2 F''' / 6 + noise / h. Neither
F''' nor the noise is known, and both differ between outputs. So F is evaluated at all steps of a
table, and each output picks its own step and its own level of Richardson extrapolation (Richardson
1911, Ridders 1982) by the error that the other steps show it to have. Where the even part of F
does not vanish faster than h, F has a kink: the slope is then an interval, and the slopes on both
sides of the point are its ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from gradproof._data.space import Mask, Values, finite_values
from gradproof._numdiff.steps import StepTables
from gradproof._numdiff.values import DifferenceTable, FunctionValues

BLOCK = 1 << 14  # outputs that are worked on together: their tables fit a cache
ROUGH_ULPS = 64.0  # noise of more units in the last place is not the function's own rounding
_LEVELS = 3  # of Richardson extrapolation: plain, without h^2, without h^4
_FAR_ABOVE = 256.0  # times the median noise: what is left to such an output alone
_SAMPLE = 1024  # outputs that a median is taken of
SIGMAS = 3.5  # of the noise in a difference of two values
_CURVED = 2.0**-8  # of an output: what exp(k h) departs from its line by before that is abrupt
_SHARP = 5e-4  # bar of a slope from two steps, in parts: half of what a row needs
_AGREES = 0.25  # of a gap: differences at two steps that are this near tell one slope


@dataclass(frozen=True)
class Slopes:
    """Measured slopes, [low, high] +- bar for every output, (m,) each.

    Attributes:
        low, high: ends of the interval; equal where F is smooth. One is infinite where slopes go
            on growing as steps get finer; the other is then the largest finite number of the other
            sign, since any finite claim is a convention there.
        bar: error of both ends; infinite where nothing is known.
        noise: standard deviation of the rounding of F; NaN where F has no value.
        steepness: the largest change of F over the largest step, divided by that step: a slope
            that is small beside it is not distinguished from zero.
        still: outputs that do not change by a bit at any step.
        in_treads: outputs that go in inclined treads: rounding of larger terms, which an estimate
            from shorter steps may not see.
    """

    low: Values
    high: Values
    bar: Values
    noise: Values
    steepness: Values
    still: Mask
    in_treads: Mask

    @cached_property
    def size(self) -> Values:
        """The larger of |low| and |high|."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def middle(self) -> Values:
        return (self.low + self.high) / 2

    @property
    def width(self) -> Values:
        """Of the interval at a kink; 0 where F is smooth, infinite where the slope is."""
        return self.high - self.low

    def gap(self, claimed: Values) -> Values:
        """Distance of a claim to [low, high]; NaN where either is."""
        inside = (self.low <= claimed) & (claimed <= self.high)
        return np.where(inside, 0.0, np.maximum(self.low - claimed, claimed - self.high))

    def merge(self, other: Slopes) -> Slopes:
        """Of each output the estimate with the narrower bar and interval.

        Of an output that goes in treads the one that shows them: the other is that of one tread.
        """
        mine = self.bar + self.width <= other.bar + other.width
        mine |= ~np.isfinite(other.bar)
        mine = np.where(self.in_treads != other.in_treads, self.in_treads, mine)
        mixed = {
            name: np.where(mine, getattr(self, name), getattr(other, name))
            for name in ("low", "high", "bar", "noise", "steepness")
        }
        treads = self.in_treads | other.in_treads
        return Slopes(**mixed, still=self.still & other.still, in_treads=treads)

    def part(self, outputs: slice | Mask) -> Slopes:
        """The slopes of some outputs."""
        return Slopes(*(getattr(self, name)[outputs] for name in _FIELDS))

    def with_part(self, outputs: slice | Mask, part: Slopes) -> Slopes:
        """The same with other slopes of some outputs."""
        found = {name: getattr(self, name).copy() for name in _FIELDS}
        for name, values in found.items():
            values[outputs] = getattr(part, name)
        return Slopes(**found)

    def without_kinks(self) -> Slopes:
        """The middle of each interval, with half its width in the bar."""
        if not (width := self.width).any():
            return self
        middle = self.middle
        return replace(self, low=middle, high=middle, bar=self.bar + width / 2)


_FIELDS = tuple(field.name for field in fields(Slopes))


def slopes_along(function: FunctionValues, u: Values, steps: StepTables) -> Slopes:
    """The slope of every output along u, (n,): 4 evaluations of F, and more where it is not smooth.

    Outputs that two steps show to be plainly smooth need no more. The usual step table is made for
    the others; of few outputs for all of them, so that they are compared at the same steps.
    """
    if steps.quick is None or not function.repeats:
        return measured_slopes(function.table(u, steps.usual))
    slopes = measured_slopes(function.table(u, steps.quick))
    rough = ~np.isfinite(slopes.bar)
    if not rough.any():
        return slopes
    if rough.size <= BLOCK:
        return measured_slopes(function.table(u, steps.usual))
    return slopes.with_part(rough, measured_slopes(function.table(u, steps.usual, outputs=rough)))


def column_slopes(
    function: FunctionValues, u: Values, columns: Sequence[int], steps: StepTables
) -> Slopes:
    """The slopes along single coordinates of u side by side, (len(columns) * m,) outputs.

    A column in which all outputs are plainly smooth costs 4 evaluations, another one more.
    """
    if steps.quick is None or not function.repeats:
        return measured_slopes(function.column_tables(u, columns, steps.usual))
    slopes = measured_slopes(function.column_tables(u, columns, steps.quick))
    rough = ~np.isfinite(slopes.bar).reshape(len(columns), -1).all(axis=1)
    if not rough.any():
        return slopes
    chosen = np.asarray(columns)[rough].tolist()
    rest = measured_slopes(function.column_tables(u, chosen, steps.usual))
    return slopes.with_part(np.repeat(rough, slopes.bar.size // len(columns)), rest)


def measured_slopes(table: DifferenceTable) -> Slopes:
    """The slope of every output at step 0, worked out block by block.

    Of a table of two steps nothing is known of outputs that are not plainly smooth.
    """
    slopes_of = _slopes_of_two_steps if len(table.steps) == 2 else _slopes_with_sides
    with np.errstate(all="ignore"):
        size = table.centre.size
        if size <= BLOCK or table.group < size:
            return slopes_of(table)
        masks = ("still", "in_treads")
        found = {name: np.empty(size, bool if name in masks else float) for name in _FIELDS}
        for start in range(0, size, BLOCK):
            here = slice(start, min(start + BLOCK, size))
            part = slopes_of(table.part(here))
            for name in _FIELDS:
                found[name][here] = getattr(part, name)
        return Slopes(**found)


def _slopes_of_two_steps(table: DifferenceTable) -> Slopes:
    """The slopes of outputs that are plainly smooth or stand still; an infinite bar of the others.

    The slope is the difference D at the finer step. Its error is less than that of the coarser one
    by the ratio of the steps at least, as of x |x|, whose D falls as h; of most functions by its
    square.
    """
    coarse, fine = table.steps.tolist()
    centre, ahead, behind, ratio = table.centre, table.ahead, table.behind, fine / coarse
    slope = (ahead - behind) * (0.5 / table.steps[:, None])
    even = (ahead + behind) * 0.5 - centre
    # Of an even part that falls as h^2, or that a kink makes at the coarse step alone, noise is
    # left; a kink at the point leaves much more. That is one sample of it, which may be small by
    # chance: no output is quieter than is usual among all, in its own ulps or by itself. One to
    # which that does injustice needs the whole table.
    ulp = 2 * table.unit * np.maximum(np.abs(centre), np.abs(ahead[0]))
    noise = np.minimum(np.abs(even[1]), np.abs(even[1] - ratio**2 * even[0]))
    noise = np.maximum(noise, np.maximum(table.jitter, 0.5 * ulp))
    in_ulps, usual = _usual_noise(np.array([noise / np.where(ulp > 0, ulp, np.inf), noise]))
    noise = np.fmax(noise, np.fmax(in_ulps * ulp, usual))
    value, size = slope[1], np.abs(slope[1])
    truncation, rounding = 2 * ratio * np.abs(value - slope[0]), 1.2 * SIGMAS / fine * noise
    finite = finite_values(value)
    typical = math.sqrt(finite.dot(finite) / finite.size)
    smooth = truncation <= 1e-6 * np.maximum(size, typical / 2)
    # A slope may be small by chance, and is tested beside the others; unless its output is small
    # too, and known better than by the noise of the others.
    smooth &= (rounding <= _SHARP * size) | (
        (rounding <= 1e-7 * typical) & (noise <= _FAR_ABOVE * ulp)
    )
    smooth &= noise <= ROUGH_ULPS * np.maximum(ulp, max(0.0, float(ulp.sum()) / max(ulp.size, 1)))
    # Whole numbers may be counts, which go in stairs below the finer step.
    smooth &= (ahead[1] != centre) & (ahead[1] != np.floor(ahead[1]))
    bar = truncation + rounding
    bar[~smooth] = np.inf
    still = value == 0
    if still.any():
        still &= (ahead == centre).all(axis=0) & (behind == centre).all(axis=0)
        bar = np.where(still, _bars_at_rest(table, ulp, noise), bar)
    # The larger move to either side is the odd part and the even part, in size.
    steepness = np.abs(slope[0]) + np.abs(even[0]) / coarse
    return Slopes(value, value.copy(), bar, noise, steepness, still, np.zeros_like(still))


def _central_slopes(table: DifferenceTable) -> Slopes:
    """Slopes from central differences, and the interval of a kink where the even part shows one."""
    h = table.steps[:, None]
    odd, even = (table.ahead - table.behind) / 2, (table.ahead + table.behind) / 2 - table.centre
    difference = odd / h
    ulps = 2 * table.unit * np.maximum(np.abs(table.ahead), np.abs(table.behind))
    ulp = np.maximum(2 * table.unit * np.abs(table.centre), np.nan_to_num(ulps[-1]))
    noise = np.maximum(_noise_of_values(even, odd, table.steps, ulp, table.group), table.jitter)
    noise, stairs, treads = _noise_with_staircases(table, noise, ulp)
    # No difference of two values is known better than these are rounded.
    bars = SIGMAS * np.maximum(noise, np.nan_to_num(ulps) / 2) / h
    kink = _kink_widths(np.abs(even) / h, table.steps, bars)
    value, bar, width = _best_level(difference, table.steps, bars, kink)

    moves = table.moves
    moved = np.nan_to_num(moves).max(axis=0)
    # Noise of many units in the last place, which is most of what F moves by, and larger than is
    # known beforehand: no slope means anything.
    usual_ulp = np.median(ulp) if ulp.size else 0.0
    rough = (noise > ROUGH_ULPS * np.maximum(ulp, usual_ulp)) & (noise > 0.02 * moved)
    unknown = (stairs | rough) & (noise > 2 * table.jitter)
    bar = np.where(unknown, np.inf, bar - width)
    bar = np.where(np.isfinite(value), bar, np.inf)
    still = (moves == 0).all(axis=0) & (table.jitter == 0)
    bar = np.nan_to_num(bar, nan=np.inf, posinf=np.inf)
    bar = np.where(still, _bars_at_rest(table, ulp, noise), bar)
    # An interval that is no wider than the bar is no kink.
    real = width > bar
    bar, width = bar + np.where(real, 0.0, width), np.where(real, width, 0.0)
    low, high, bar = _ends_at_infinity(difference, bars, value - width, value + width, bar)
    steepness = moved / table.steps[0]
    noise = np.where(np.isfinite(table.centre), noise, np.nan)
    return Slopes(low, high, bar, noise, steepness, still, treads)


def some_scale_agrees(table: DifferenceTable, slopes: Slopes, claimed: Values) -> Mask:
    """Outputs whose claim is off the slopes, but is what differences on some scale say, (m,).

    Two neighbouring steps of the table agree to a quarter of the gap, and the claim lies between
    them or no further away than they are from each other. F then has another slope on that scale,
    as a staircase has, and the claim is not proved wrong. Where F is smooth this cannot happen: a
    difference that is off by c h^2 differs from the next by most of that.
    """
    h, gap, noise = table.steps[:, None], slopes.gap(claimed), measured_slopes(table).noise
    difference = (table.ahead - table.behind) / (2 * h)
    largest = np.nan_to_num(np.abs(difference)).max(axis=0)
    difference = np.where(SIGMAS * noise / h < 0.1 * largest, difference, np.nan)
    one, other = difference[:-1], difference[1:]
    distance = np.abs(one - other)
    near = np.abs(claimed - (one + other) / 2) <= 1.5 * distance + slopes.bar
    agrees = (near & (distance <= _AGREES * gap)).any(axis=0)
    return np.asarray(agrees & (gap > slopes.bar) & np.isfinite(gap))


def _bars_at_rest(table: DifferenceTable, ulp: Values, noise: Values) -> Values:
    """Bars of outputs that stand still: the rounding of their terms over the largest step.

    An output of zero may be the remainder of terms as large as other outputs.
    """
    rounding = np.fmax(ulp, np.fmin(noise, _FAR_ABOVE * ulp))
    largest = np.max(rounding, initial=0.0, where=np.isfinite(rounding))
    return np.asarray(np.where(table.centre == 0, largest, rounding) / table.steps[0])


def _noise_of_values(even: Values, odd: Values, steps: Values, ulp: Values, group: int) -> Values:
    """Standard deviation of the rounding of F, (m,), from the finest steps.

    There the even part of F is curvature * h^2, or h at a kink, and the odd part is slope * h. What
    is left of two steps without these is noise. The odd part may hold a kink between two steps: it
    counts for at most 16 times what the even part says.
    """

    def remainder(k: int) -> tuple[Values, Values]:
        r = steps[k] / steps[k - 1]
        smooth, kink = even[k] - r**2 * even[k - 1], even[k] - r * even[k - 1]
        # Of three, or two, independent roundings: their standard deviation is taken out.
        of_even = np.minimum(np.abs(smooth), np.abs(kink)) / 1.22
        of_odd = np.abs(odd[k] - r * odd[k - 1]) / 0.71
        return np.nan_to_num(of_even, posinf=0.0), np.nan_to_num(of_odd, posinf=0.0)

    last = len(steps) - 1
    of_even, of_odd = remainder(last)
    coarser = np.maximum(*remainder(last - 1)) if last > 1 else of_even
    floor = ulp / 2
    own = np.maximum(of_even, np.minimum(of_odd, 16 * np.maximum(of_even, floor)))
    own = np.maximum(own, np.minimum(coarser, 16 * np.maximum(own, floor)))
    # Two samples each say little: no output is quieter than is usual among all, in its own ulps.
    each = np.maximum(own, floor).reshape(-1, max(group, 1))
    ulps = np.where(ulp > 0, ulp, np.inf).reshape(each.shape)
    usual = _usual_noise(each / ulps) * ulp.reshape(each.shape)
    pooled = np.maximum(each, np.minimum(_usual_noise(each), usual))
    return np.asarray(pooled.reshape(-1))


def _usual_noise(noise: Values) -> Values:
    """Root mean square of each row, (k, 1): outputs far above the median count as little above it.

    One output that jumps at the point says nothing of the rounding of the others.
    """
    sample = noise[:, :: max(1, noise.shape[1] // _SAMPLE)]  # whose median is near enough
    middle = (sample.shape[1] - 1) // 2
    median = np.partition(sample, middle, axis=1)[:, middle : middle + 1]
    squares = np.fmin(noise, _FAR_ABOVE * median) ** 2
    return np.asarray(np.sqrt(np.add.reduce(squares, axis=1, keepdims=True) / noise.shape[1]))


def _noise_with_staircases(
    table: DifferenceTable, noise: Values, ulp: Values
) -> tuple[Values, Mask, Mask]:
    """The noise, at least the smallest move of outputs that go in stairs; high stairs; treads.

    A staircase moves at coarse steps, to both sides. At the two finest steps it stands still, or
    jumps by one height where the point is at an edge: 0.5 + 0.5 erf(x) far out, or F computed in
    float32 inside. It is as noisy as its smallest move. If that is many units in the last place of
    what F returns it is no rounding: standing still may be its slope as well as climbing. An output
    of zero that moves there by less than the rounding of the largest one, and along no line, if it
    moves at all, may have been rounded away beside it.

    Treads may be inclined, as those of x (1 + erf(x)) are. There F is straight, or nearly, at one
    step, and at the next one departs from its line by more than the third power of the step
    allows, which hardly any smooth function does. Where it departs by so little that it may be
    rounding of larger terms, of as many treads as that step may be longer, it is as noisy as that.
    More is a kink that the longer step reaches.
    """
    moved = np.stack([table.ahead, table.behind]) - table.centre
    moves = np.abs(moved)
    smallest = np.where(moves > 0, moves, np.inf).min(axis=(0, 1))
    stairs = (moves > 0).all(axis=0).any(axis=0) & (moves[:, -1] == moves[:, -2]).all(axis=0)
    stairs &= np.isfinite(smallest)
    noise = np.where(stairs, np.maximum(noise, smallest), noise)
    largest = np.max(np.abs(table.centre), initial=0.0, where=np.isfinite(table.centre))
    ratio = table.steps[:-1, None] / table.steps[1:, None]
    departure = np.abs(moved[:, :-1] - ratio * moved[:, 1:]).max(axis=0)
    rounded = 2 * table.unit * largest
    rounded_away = (table.centre == 0) & (moves[:, -2:] <= rounded).all(axis=(0, 1))
    rounded_away &= departure[-1] >= moves[:, -2].max(axis=0) / 2
    noise = np.where(rounded_away, np.maximum(noise, rounded), noise)
    rounding = 2 * ratio[1:] * ulp
    abrupt = departure[:-1] > ratio[:-1] ** 3 * np.maximum(departure[1:], rounding)
    # A function that varies much over the longest steps, as exp(x) far out, is abrupt as well, but
    # at the shorter one already departs by a good part of itself.
    abrupt &= departure[1:] <= _CURVED * np.abs(table.centre)
    height = np.where(abrupt, departure[:-1], np.inf).min(axis=0, initial=np.inf)
    tread = ROUGH_ULPS * table.unit * largest
    # One tread, or as many as the longer step may cross.
    inclined = height <= np.maximum(tread, np.minimum(ratio.max() * tread, np.abs(table.centre)))
    high = stairs & (smallest > 2 * tread)
    return np.where(inclined, np.maximum(noise, height), noise), high, inclined


def _kink_widths(even_slopes: Values, steps: Values, bars: Values) -> Values:
    """Half the difference of the slopes on both sides, at steps that a kink is in reach of, (K, m).

    At a kink the even part over h does not vanish with h; it is exactly that half, and the error of
    the central difference. A kink that a finer step shows is in reach of coarser ones too, though
    curvature may hide it there.
    """
    kink = np.zeros_like(even_slopes)
    for k in range(1, len(steps)):
        decays = even_slopes[k] <= (steps[k] / steps[k - 1]) ** 0.5 * even_slopes[k - 1]
        kink[k] = np.where(decays, 0.0, even_slopes[k])
    kink[0] = np.where(kink[1] > bars[1], even_slopes[0], 0.0)
    for k in reversed(range(len(steps) - 1)):
        plain = kink[k + 1] > 2 * bars[k + 1]
        kink[k] = np.where(plain, np.fmax(kink[k], kink[k + 1]), kink[k])
    return kink


def _best_level(
    difference: Values, steps: Values, bars: Values, kink: Values
) -> tuple[Values, Values, Values]:
    """Of all steps and levels the estimate with the smallest error: value, bar, half-width, (m,).

    The error of an extrapolated value is its distance to both of its parents (Ridders 1982): one
    alone may agree by chance. A finer step may contradict whatever the coarser ones agree on: the
    bar then reaches twice as far as it contradicts.
    """
    h, count = steps[:, None], len(steps)
    best_bar = np.full(difference.shape[1], np.inf)
    best, width = difference[-1].copy(), np.zeros(difference.shape[1])
    level = difference
    for order in range(min(_LEVELS, count - 1)):
        parents = level
        if order:
            p = (h[order:] / h[: count - order]) ** 2
            level = (parents[1:] - p * parents[:-1]) / (1 - p)
        for k in range(len(level)):
            finest = k + order  # step that the value is made of
            if order == 0 and finest + 1 == count:
                continue
            if order == 0:  # an error of c h^2 shows all but the part r^2 of it
                r = steps[k + 1] / steps[k]
                error = np.abs(level[k] - difference[k + 1]) / (1 - r**2) + bars[k + 1]
            else:
                error = np.maximum(np.abs(level[k] - parents[k]), np.abs(level[k] - parents[k + 1]))
            bar = error + 1.1 * bars[finest]
            for finer in range(finest + 1, count):
                contradiction = np.abs(level[k] - difference[finer]) - bars[finer] - kink[finer]
                bar = np.maximum(bar, 2 * contradiction)
            total = bar + kink[finest]
            better = np.isfinite(level[k]) & (total < best_bar)
            best_bar = np.where(better, total, best_bar)
            best = np.where(better, level[k], best)
            width = np.where(better, kink[finest], width)
    return best, best_bar, width


def _ends_at_infinity(
    slope: Values, bars: Values, low: Values, high: Values, bar: Values
) -> tuple[Values, Values, Values]:
    """The ends and bars, where slopes go on growing at the finest steps: an infinite slope.

    A finite claim is then a convention, and an infinite one of the other sign is wrong.
    """
    most = np.finfo(float).max
    grows = np.abs(slope[-1]) - bars[-1] > 1.5 * (np.abs(slope[-2]) + bars[-2])
    positive = slope[-1] > 0
    low = np.where(grows, np.where(positive, -most, -np.inf), low)
    high = np.where(grows, np.where(positive, np.inf, most), high)
    return low, high, np.where(grows, bars[-1], bar)


def _slopes_with_sides(table: DifferenceTable) -> Slopes:
    """The slopes, at a kink those on both sides, at the border of the domain of F that on one."""
    found = _central_slopes(table)
    ahead, behind = (
        np.asarray(np.isfinite(side[-3:]).all(axis=0)) for side in (table.ahead, table.behind)
    )
    kinks = (found.width > 0) & np.isfinite(found.bar)
    rows = (kinks | (ahead != behind)) & np.isfinite(table.centre) & (ahead | behind)
    if not rows.any():
        return found
    part = found.part(rows)
    noise = 5 * part.noise
    right = _one_sided_slopes(table.ahead[:, rows] - table.centre[rows], table.steps, noise)
    left = _one_sided_slopes(table.centre[rows] - table.behind[:, rows], table.steps, noise)
    both = ahead[rows] & behind[rows]
    only = [np.where(ahead[rows], one, two) for one, two in zip(right, left, strict=True)]
    low = np.where(both, np.minimum(right[0], left[0]), only[0])
    high = np.where(both, np.maximum(right[1], left[1]), only[1])
    bar = np.where(both, np.maximum(right[2], left[2]), only[2])
    before = np.where(both, part.bar + part.width, np.inf)
    better = (bar <= before) | np.isinf(high - low)
    low, high = np.where(better, low, part.low), np.where(better, high, part.high)
    bar = np.where(better, bar, part.bar)
    return found.with_part(rows, replace(part, low=low, high=high, bar=bar))


def _one_sided_slopes(moved: Values, steps: Values, noise: Values) -> tuple[Values, Values, Values]:
    """Both ends of the slope and its bar on one side, (m,): free of curvature."""
    h = steps[:, None]
    slope, bars = moved / h, noise / h
    best, error = slope[-1].copy(), np.full(slope.shape[1], np.inf)
    before = slope[0]
    for k in range(len(steps) - 1):
        r = h[k + 1] / h[k]
        value = (slope[k + 1] - r * slope[k]) / (1 - r)
        bar = np.maximum(np.abs(value - slope[k + 1]), np.abs(value - before)) + bars[k + 1]
        for finer in range(k + 2, len(steps)):
            bar = np.maximum(bar, np.abs(value - slope[finer]) - bars[finer])
        better = np.isfinite(value) & (bar < error)
        best, error, before = np.where(better, value, best), np.where(better, bar, error), value
    return _ends_at_infinity(slope, bars, best, best, error)
