"""The noise of F: one estimate for each output, which every bar is made of.

What it sees is a table: F(x), and at every step h_k of a ladder the odd part d_k = (F(x + h_k u) -
F(x - h_k u))/2 and the even part e_k = (F(x + h_k u) + F(x - h_k u))/2 - F(x). What it says of F is
that each value is off by a number of standard deviation s that no step makes smaller: the rounding
of F's arithmetic, or of a part of it, the grain of what cancels, jumps between two steps.

With r = h_k/h_{k-1} the differences e_k - r^2 e_{k-1} and d_k - r d_{k-1} lose the smooth part and
keep noise, of variance 1.5 s^2 and 0.5 s^2. s is the largest of what five rules read from them:

* at the two finest pairs of rungs nothing but noise is left (`of_finest`: the table of Moré and
  Wild, 2011, with two rows), half a unit in the last place at the least. One output has four such
  samples, all together have many: the median of all counts for each;
* at a coarser rung it is what neither one kink nor curvature explains (`narrow`): a part of F
  in fewer bits stands still for the finest steps. Many kinks may leave as much; where bisection
  showed that F does not jump (`unseen`), it is theirs;
* an output that stands still at the finest steps stands on a tread: its height is the smallest move
  to both sides at a coarser step (`_plateau`), or a rounding of the largest output;
* a tread may slope, where F is a smooth factor times one that is piecewise constant (`_stepped`);
* in few bits an output that stands still has the noise that is usual.

Two numbers come of it. The bar is wide enough for all that may be noise. Below double precision
the finest steps are large themselves, and curvature and kinks are still in s: there a second one
holds what surely is noise (`_sure`), and no finer rung is disarmed by more.

Values on a line need no table of steps (`along`, `of_jumps`): what is smooth along a line leaves
nothing of high differences, and noise of standard deviation s leaves s times the root of the sum
of the squares of the binomial coefficients (Moré and Wild, Estimating Computational Noise, SIAM
Journal on Scientific Computing 33, 2011).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradproof._data.settings import DOUBLE
from gradproof._data.space import FORMATS, Array, Grain, namespace
from gradproof._data.vectors import finite, median_of_positive, sampled
from gradproof._measure.sizes import FEW_ULPS, ROUNDINGS, SMALL
from gradproof._measure.steps import SINGLE

FACTOR = 5.0 * 0.71  # bar in units of the noise of one evaluation; d has 0.71 of it
UNIT = Grain().unit  # of doubles
DECAYS = 8.0  # times h^2, as which the even part and the truncation of a smooth F fall
# Noise in parts of F above which F can be rough, if it is also more than `ROUNDINGS` in ulp. So
# high, in unit round-offs of 1, a step of a saturated function may be too.
LARGE = 1e-4
_SHARE = 0.25  # of rough outputs above which all noisy ones are
_SURE = 1.5  # units in the last place that a difference of two values may always be off
_CAP = 16.0  # how far one sample may raise the noise above its neighbour
# Of F, by which a part of it may be rounded, in bfloat16; more is no rounding, but F that bends.
NARROW = FORMATS["bfloat16"].unit


@dataclass(frozen=True)
class Table:
    """F beside a point: one row per step, coarsest first, and one column per output."""

    steps: Sequence[float]  # h_k, decreasing, at least two
    centre: Array  # F(x), size m
    odd: Array  # (F(x + h_k u) - F(x - h_k u)) / 2, (K, m)
    even: Array  # (F(x + h_k u) + F(x - h_k u)) / 2 - F(x), (K, m)
    ulp: Array  # unit in the last place of F(x), size m
    ulps: Array  # of the largest F beside it, size m
    floor: Array | float  # run-to-run noise, size m or one number
    resolution: float  # unit round-off of F's arithmetic
    # Whether a part of F may be in fewer bits. Where F has kinks only, what many of them leave at a
    # coarse rung looks the same.
    narrow: bool = True

    @property
    def is_double(self) -> bool:
        return self.resolution <= DOUBLE

    @property
    def change(self) -> Array:
        """The larger of both parts, (K, m); what is not finite is 0."""
        xp = namespace(self.odd)
        return finite(xp.maximum(xp.abs(self.odd), xp.abs(self.even)))

    @functools.cached_property
    def noise(self) -> Noise:
        """What of all this is noise."""
        return of(self)


@dataclass(frozen=True)
class Noise:
    """Noise of every output, size m."""

    spread: Array  # standard deviation of one evaluation
    bar: Array  # of d_k, wide enough for all that may be noise
    sure: Array  # of d_k, what surely is noise


def of(table: Table) -> Noise:
    """The noise that a table of steps shows."""
    xp, change = namespace(table.centre), table.change
    spread = of_finest(table)
    if table.is_double and table.narrow:
        spread = xp.maximum(spread, narrow(table))
    spread = xp.maximum(spread, _plateau(table, change))
    if table.is_double:
        stairs = staircase(table)
        spread = spread if stairs is None else xp.maximum(spread, stairs)
    bar = FACTOR * xp.maximum(spread, table.ulps / 2)
    if table.is_double:
        return Noise(spread, bar, bar)
    # What moves an output that stands still may have been rounded away, where that came from
    # larger numbers that cancelled: it is known no better than the others.
    still = xp.max(change[-2:, :], axis=0) == 0
    bar = xp.where(still, xp.maximum(bar, FACTOR * median_of_positive(spread)), bar)
    heard = xp.maximum(_sure(table, change), xp.zeros_like(spread) + table.floor)
    return Noise(spread, bar, xp.maximum(FACTOR * heard, _SURE * table.ulps))


def of_finest(table: Table) -> Array:
    """Noise of one evaluation from the two finest pairs of rungs; of two rungs there is one pair.

    A d-sample may exceed the others by the cap only: a kink between the finest rungs would
    otherwise pass for noise.
    """
    steps, odd, even, exact = table.steps, table.odd, table.even, table.is_double
    xp, ulp, samples = namespace(odd), finite(table.ulp), []
    for k in (len(steps) - 1, max(1, len(steps) - 2)):
        ratio = steps[k] / steps[k - 1]
        for part, power, share in ((even, 2, 1.22), (odd, 1, 0.71)):
            sample = finite(xp.abs(part[k, :] - ratio**power * part[k - 1, :]))
            if power == 2:  # that of a kink in the point falls with the step, and is no noise
                kink = finite(xp.abs(part[k, :] - ratio * part[k - 1, :]))
                sample = xp.minimum(sample, kink)
            sample /= share
            samples.append(sample)
    e_fine, d_fine, e_next, d_next = samples
    half = ulp / 2
    own = xp.maximum(e_fine, xp.minimum(d_fine, _CAP * xp.maximum(e_fine, half)))
    next_ = xp.maximum(e_next, d_next)
    own = xp.maximum(own, xp.minimum(next_, _CAP * xp.maximum(own, half)))
    # Of many bits, an output that moves without any noise is exact, and counts; of few, it may be
    # chance. One that stays tells nothing.
    told = (own > 0) | (odd[-1, :] != 0) if exact else own > 0
    pooled = usual(own, ulp, told)
    if exact:  # nor is it blinded by a jump of the only one that moves
        moves = (odd[-1, :] != 0) | (odd[0, :] != 0) | (even[0, :] != 0)
        pooled = xp.where(moves, pooled, 0.0)
    own = xp.maximum(own, pooled)
    return xp.maximum(own, xp.maximum(half, 0 * half + table.floor))


def usual(own: Array, size: Array, told: Array | None = None) -> Array:
    """The noise that counts for every output: the median of those that have any, or were `told`.

    One output has few samples; all together have many. They count as they are or in parts of a
    size, whichever is less, so that a large output does not drown a small one; by their median, so
    that one that jumps does not blind the others.
    """
    xp, some, sizes = namespace(own), sampled(own), sampled(size)
    parts = xp.where(sizes > 0, some / xp.where(sizes > 0, sizes, 1.0), 0.0)
    if told is not None:
        some, parts = (xp.where(sampled(told), one, -1.0) for one in (some, parts))
    absolute = median_of_positive(some, zero=told is not None)
    return xp.clip(median_of_positive(parts, zero=told is not None) * size, None, absolute)


def narrow(table: Table) -> Array:
    """Noise of a part of F in fewer bits, of few parts of F; 0 of outputs without.

    It is what no kink and no curvature explains, at whichever rung it shows. A part of F in fewer
    bits stands still for the finest steps: two rungs there agree on a slope without it. Coarser
    rungs show its rounding, and what rounds them rounds every finer one.

    One kink at a distance d makes e_k = (h_k - d)/2 times its gap: at least as much as e_{k-1}
    less by r = h_k/h_{k-1}; and d_k - r d_{k-1} of it is e_k - r e_{k-1}. The smooth part of e_k
    is e_{k+1} (h_k/h_{k+1})^2. That of d_k - r d_{k-1} is r h_{k-1}^3 F'''/6, which falls by
    r (h_{k-1}/h_{k-2})^2 from one rung to the next.
    """
    steps, odd, even = table.steps, table.odd, table.even
    xp, found = namespace(even), namespace(even).zeros_like(even[0, :])
    before: tuple[float, Array] | None = None
    for k in range(1, len(steps)):
        ratio = steps[k] / steps[k - 1]
        bent = ratio * xp.abs(even[k - 1, :])
        curved = xp.abs(even[k, :])
        if k + 1 < len(steps):  # by as much as the next finer rung tells
            fine = (steps[k] / steps[k + 1]) ** 2
            curved = xp.minimum(curved, xp.abs(even[k, :] - fine * even[k + 1, :]))
        sample = curved - (1 + ratio) * bent
        found = xp.maximum(found, finite(sample) / 1.22)
        apart = xp.abs(odd[k, :] - ratio * odd[k - 1, :])
        if before is not None:
            smooth = DECAYS * ratio * before[0] ** 2 * before[1]
            sample = apart - xp.abs(even[k, :]) - bent - smooth
            found = xp.maximum(found, finite(sample) / 0.71)
        before = ratio, apart
    return xp.where(found <= NARROW * finite(xp.abs(table.centre)), found, 0.0)


def _plateau(table: Table, change: Array) -> Array:
    """Height of the plateau of an output that does not move at all at the finest rungs.

    Arithmetic in fewer bits, or in larger numbers, than the output shows makes F piecewise
    constant: where the steps are fine no noise is then seen, and a derivative of exactly zero. The
    smallest change on both sides bounds the height; where there is none, the rounding of the
    largest output does. (A change on one side alone is a switch, as at the border of a clamp, and
    an output that is exactly zero is switched off, as relu's is.)
    """
    xp, ulp = namespace(change), finite(table.ulp)
    still = (change[-1, :] == 0) & (ulp > 0)
    if not bool(xp.any(still)):
        return xp.zeros_like(ulp)
    # The two parts are computed in double precision, in which F has so large a last place.
    rounding = min(0.5, UNIT / 2 / table.resolution) * ulp + 2 * UNIT * change
    both = (change > 0) & (xp.abs(xp.abs(table.odd) - xp.abs(table.even)) > rounding)
    still = still & (change[-2, :] == 0)
    smallest = xp.min(xp.where(both, change, xp.inf), axis=0)
    height = xp.where(xp.isfinite(smallest), smallest, xp.max(ulp) / 2)
    return xp.where(still, height, 0.0)


# In double precision: outputs that are staircases whose treads slope, and zeros that are lost.
#
# x (1 + erf(x)) far below zero has treads as wide as 1 + erf(x) keeps its value, and on one of
# them the slope of its first factor: the finest rungs see a clean line, without any noise and
# with a wrong slope. What tells it from a function that bends there is that all that the finest
# rungs did not see is a few roundings of 1, where functions saturate, or of the largest output.
#
# Of x (1 + erf(x)) that slope is wrong by far; of its derivative, (1 + erf(x)) + x p(x), by 2 %,
# the first term being the smaller one. Truncation by as much would fall with the square of the
# step. A gap between two rungs that is not so much smaller than the one before is none: what the
# finer rung did not see of its step is noise.

_LASTING = 10.0  # times what a rung did not see that is noise


def staircase(table: Table) -> Array | None:
    """Noise of the outputs that are staircases, 0 of the others; None where all are others."""
    xp, ulp = namespace(table.centre), finite(table.ulp)
    size = finite(xp.abs(table.centre))
    few, largest = small(size), float(xp.max(size))
    if not few.shape[0]:
        return None
    odd, even = (finite(xp.take(part, few, axis=1)) for part in (table.odd, table.even))
    noise = of_small(table.steps, (odd, even), xp.take(size, few), xp.take(ulp, few), largest)
    if not bool(xp.any(noise > 0)):
        return None
    found = xp.zeros_like(size)
    found[few] = noise
    return found


def small(size: Array) -> Array:
    """Positions of outputs that are small beside the largest, or 1: others are no staircases."""
    xp = namespace(size)
    return xp.nonzero(size <= SMALL * max(1.0, float(xp.max(size))))[0]


def of_small(
    steps: Sequence[float],
    rungs: tuple[Array, Array],
    size: Array,
    ulp: Array,
    largest: float,
) -> Array:
    """Noise of `small` outputs that are staircases; `largest` is the size of the largest of all."""
    odd, even = rungs
    noise = _stepped(steps, odd, even, ulp, ROUNDINGS * UNIT * max(1.0, largest))
    # A zero that stays one may be a number lost beside the largest output.
    xp = namespace(size)
    lost = (size == 0) & xp.all((odd == 0) & (even == 0), axis=0)
    return xp.where(lost, UNIT * largest, noise)


def _stepped(steps: Sequence[float], odd: Array, even: Array, ulp: Array, highest: float) -> Array:
    """Noise of the outputs whose finest rungs lie on one tread."""
    xp = namespace(odd)
    found, clean = xp.zeros_like(ulp), ulp < highest
    for k in range(len(steps) - 2, -1, -1):
        ratio = steps[k + 1] / steps[-1]
        straight = xp.abs(odd[k + 1, :] - ratio * odd[-1, :]) <= 2 * (1 + ratio) * ulp
        clean = clean & straight & (xp.abs(even[k + 1, :]) <= 2 * ulp)
        here, finer = odd[k, :] / steps[k], odd[k + 1, :] / steps[k + 1]
        gap = xp.abs(here - finer)
        # The finer rung stayed on the tread: so much of the step it did not see.
        unseen = steps[k + 1] * gap
        bends = 2 * gap > xp.maximum(xp.abs(here), xp.abs(finer))
        tread = clean & bends & (unseen <= highest)
        if k:
            before = xp.abs(odd[k - 1, :] / steps[k - 1] - here)
            lasts = gap > DECAYS * (steps[k] / steps[k - 1]) ** 2 * before
            tread = tread | (lasts & (unseen <= ROUNDINGS * UNIT))
        tread = tread & (unseen > FEW_ULPS * ulp)
        found = xp.where(tread, xp.maximum(found, _LASTING * unseen), found)
    return found


def _sure(table: Table, change: Array) -> Array:
    """Noise of one evaluation that is surely there, from the even parts of the two finest rungs.

    The even part e_k is noise, of standard deviation 1.22, and a smooth part, or a kink's, which
    only add to it in the mean: the smaller one of e_k and e_k - (h_k/h_{k-1})^2 e_{k-1} has less
    of them. An output counts at least the median of all that move: along one coordinate few may.
    """
    xp, ratio = namespace(change), table.steps[-1] / table.steps[-2]
    before, fine = finite(table.even[-2, :]), finite(table.even[-1, :])
    own = xp.minimum(xp.abs(fine), xp.abs(fine - ratio**2 * before)) / 1.22
    some = xp.sort(sampled(own)[sampled(xp.max(change, axis=0)) > 0])
    return own if some.shape[0] == 0 else xp.maximum(own, 0 * own + some[some.shape[0] // 2])


def rough(table: Table, spread: Array) -> Array | None:
    """Where no step resolves F: noise of many ulp, no smaller than its variation, and large.

    (Noise that is nothing beside F is that of an output which the direction does not move.)

    Where that holds of many outputs it holds of their neighbours too, whose noise came out small
    by chance. None: nowhere.
    """
    xp, size = namespace(spread), finite(namespace(spread).abs(table.centre))
    # Of few bits few ulp are much of F: those of two values.
    limit = (ROUNDINGS if table.resolution < SINGLE else 2 * FEW_ULPS) * finite(table.ulp)
    noisy = spread > xp.maximum(limit, LARGE * size)
    if not bool(xp.any(noisy)):
        return None
    noisy = noisy & (spread > median_of_positive(limit))
    noisy = noisy & (spread > LARGE * median_of_positive(size))
    found = noisy & (spread > 0.02 * xp.max(table.change, axis=0))
    share = float(xp.mean(xp.astype(found, xp.float64)))
    return noisy if share > _SHARE else found


def units(resolution: float, size: Array) -> Array:
    """Unit in the last place of numbers of this size, in arithmetic of this unit round-off.

    Below the smallest normal number it shrinks no more, and arithmetic is free to say zero
    there, but for float16, which has few numbers to spare: it counts to its smallest one.
    """
    xp = namespace(size)
    half = FORMATS["float16"]
    least = FORMATS["float64" if resolution < DOUBLE else "float32"].normal
    least = half.tiny if resolution == half.unit else least
    return xp.maximum(2 * resolution * size, xp.full_like(size, least))


def shown(sizes: Array, direction: Array, resolution: float) -> Array:
    """Sizes of the outputs, those that are zero everywhere being as large as the largest.

    Of an output that is zero everywhere nothing is known but that its arithmetic may have rounded
    it away, as x - tanh(x) is near 0: it is no finer than the other outputs or, where they are
    all zero, than the move of x. In double precision nothing that matters is lost so.
    """
    if resolution < DOUBLE or 0 in (sizes.shape[0], direction.shape[0]):
        return sizes
    xp = namespace(sizes)
    others = float(xp.max(sizes)) or float(xp.max(xp.abs(direction)))
    return xp.where(sizes == 0, others, sizes)


# On a line: the order of differences, how many points, and how far apart. One output is known to a
# factor of a few from eight differences. Of a line as long as x 1/x leaves 2e-5 of itself, which
# falls by 2^4 as the spacing halves.
_SHORT, _LONG = (6, 14, 2.0**-11), (4, 17, 2.0**-5)


def along(function: Callable[[Array], Array], point: Array, direction: Array) -> Array:
    """Standard deviation of the noise of each output, from values on a line through the point."""
    order, count, spacing = _SHORT
    return _of_table(_table(function, point, direction, count, spacing), order)


def of_jumps(function: Callable[[Array], Array], point: Array, direction: Array) -> Array:
    """Noise of each output on a line so long that a smooth function leaves something of its own.

    That falls by 2^4 where the spacing is halved, and what jumps leave does not: 0 where it falls
    by more than half of that in orders of two.
    """
    xp, (order, count, spacing) = namespace(point), _LONG
    table = _table(function, point, direction, count, spacing)
    fine, coarse = (_of_table(part, order) for part in (table, table[::2, :]))
    stays = 2.0 ** (order / 2) * fine > coarse
    return xp.where(xp.isfinite(fine) & stays, fine, 0.0)


def _table(
    function: Callable[[Array], Array], point: Array, direction: Array, count: int, spacing: float
) -> Array:
    moves = [(k - (count - 1) / 2) * spacing for k in range(count)]
    return namespace(point).stack([function(point + move * direction) for move in moves])


def _of_table(table: Array, order: int) -> Array:
    xp = namespace(table)
    for _ in range(order):
        table = table[1:, :] - table[:-1, :]
    return xp.sqrt(xp.mean(table**2, axis=0) / math.comb(2 * order, order))
