"""What is different below double precision, where the finest steps are large themselves.

Curvature and kinks are then still seen at the finest rungs. They must not pass for noise, or no
fine rung could contradict a coarse one; and the spacing of the numbers matters.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradproof._data.settings import DOUBLE
from gradproof._data.space import Array, namespace
from gradproof._data.vectors import finite, median_of_positive, sampled, two_to, unpacked
from gradproof._measure.one_sided import kink_guard
from gradproof._measure.steps import SINGLE

_SAMPLE = 250  # values of which a median is taken


def units(resolution: float, size: Array) -> Array:
    """Unit in the last place of numbers of this size, in arithmetic of this unit round-off.

    Below the smallest normal number it shrinks no more, and arithmetic is free to say zero
    there, but for float16, which has few numbers to spare: it counts to its smallest one.
    """
    xp = namespace(size)
    least = 2.0**-1022 if resolution < DOUBLE else 2.0**-126
    least = 2.0**-24 if resolution == 2.0**-11 else least
    return xp.maximum(2 * resolution * size, xp.full_like(size, least))


def sure_noise(steps: Sequence[float], even: Array, moves: Array) -> Array:
    """Noise of one evaluation that is surely there, from the even parts of the two finest rungs.

    The even part e_k is noise, of standard deviation 1.22, and a smooth part, or a kink's, which
    only add to it in the mean: the smaller one of e_k and e_k - (h_k/h_{k-1})^2 e_{k-1} has less
    of them. An output counts at least the median of all that move: along one coordinate few may.
    """
    xp = namespace(even)
    fine = even[-1, :]
    own = xp.minimum(xp.abs(fine), xp.abs(fine - (steps[-1] / steps[-2]) ** 2 * even[-2, :])) / 1.22
    some = own[:: max(1, own.shape[0] // _SAMPLE)]
    some = xp.sort(some[moves[:: max(1, own.shape[0] // _SAMPLE)]])
    if some.shape[0] == 0:
        return own
    return xp.maximum(own, xp.zeros_like(own) + some[some.shape[0] // 2])


def usual_noise(spread: Array, change: Array, digit: float) -> Array:
    """Of an output that stands still at the finest rungs, the noise that is usual; else 0.

    What moves it may have been rounded away, where that came from larger numbers that cancelled:
    it is known no better than the other outputs.
    """
    xp = namespace(spread)
    still = (change[-1, :] == 0) & (change[-2, :] == 0)
    if not bool(xp.any(still)):
        return xp.zeros_like(spread)
    return xp.where(still, xp.full_like(spread, max(median_of_positive(spread), digit)), 0.0)


def grain_shown(values: Array, resolution: float) -> float:
    """Median over the outputs (columns) of the finest digit that their values show; 0 without any.

    A number that comes from larger ones that cancelled, as x - tanh(x) near 0, has the grain of
    those: it is a small multiple of it, with zeros in all its digits below. Of a few hundred
    outputs that are not all zero; most numbers show their own last digit within a few rungs. One
    that stands still at all of them, as 0.5 does, shows no more than that: those that move are
    asked by themselves, too, and the finer answer counts.
    """
    xp = namespace(values)
    some = xp.nonzero(xp.any(values != 0, axis=0))[0]
    if some.shape[0] == 0:
        return 0.0
    values = xp.take(values, some[:: max(1, some.shape[0] // _SAMPLE)], axis=1)
    moves, size = xp.any(values != values[:1, :], axis=0), xp.abs(values)
    digit = xp.where(size > 0, two_to(xp.floor(xp.log2(xp.where(size > 0, size, 1.0)))), xp.inf)
    finest = digit
    for _ in range(round(-math.log2(resolution))):
        # The remainder of the digits so far: where it is zero, nothing finer is shown.
        size = size - xp.where(size >= digit, digit, 0.0)
        finest = xp.where(size > 0, digit / 2, finest)
        digit = digit / 2
    own = xp.min(finest, axis=0)
    told = [xp.sort(each) for each in (own, own[moves]) if each.shape[0]]
    return min(float(each[each.shape[0] // 2]) for each in told)


def passed_up(kink: Array, noise: Array) -> Array:
    """Kinks, a rung having also those of every finer one, less what may be noise there.

    Where kinks are closer than the steps, |e_k|/h_k may be small at a coarse rung by chance.
    """
    xp = namespace(kink)
    rows, finer = [kink[-1, :]], kink[-1, :] - noise[-1, :]
    for k in reversed(range(kink.shape[0] - 1)):
        rows.append(xp.maximum(kink[k, :], finer))
        finer = xp.maximum(finer, kink[k, :] - noise[k, :])
    return xp.stack(rows[::-1])


def plateau(
    change: Array,
    sizes: tuple[Array, Array],
    ulp: Array,
    resolution: float,
) -> Array:
    """Height of the plateau of an output that does not move at all at the finest rungs.

    Arithmetic in fewer bits, or in larger numbers, than the output shows makes F piecewise
    constant: where the steps are fine no noise is then seen, and a derivative of exactly zero. The
    smallest change on both sides bounds the height; where there is none, the rounding of the
    largest output does. (A change on one side alone is a switch, as at the border of a clamp, and
    an output that is exactly zero is switched off, as relu's is.)
    """
    xp = namespace(ulp)
    still = (change[-1, :] == 0) & (ulp > 0)
    if not bool(xp.any(still)):
        return xp.zeros_like(ulp)
    odd, even = sizes
    # The two parts are computed in double precision, in which F has so large a last place.
    rounding = min(0.5, 2.0**-54 / resolution) * ulp + 2.0**-52 * change
    both = (change > 0) & (xp.abs(odd - even) > rounding)
    still = still & (change[-2, :] == 0)
    smallest = xp.min(xp.where(both, change, xp.inf), axis=0)
    height = xp.where(xp.isfinite(smallest), smallest, xp.max(ulp) / 2)
    return xp.where(still, height, 0.0)


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


_UNIT = 2.0**-53
_HIGH = 64.0  # unit round-offs that a step may be high
_SMALL = 2.0**-10  # of the largest output, or of 1: a larger one's own rounding hides such steps
_STEPPED = 4.0  # units in the last place that a step is high at least
_TRUNCATED = 8.0  # times what truncation leaves of a gap from one pair of rungs to the next
_LASTING = 10.0  # times what a rung did not see that is noise


def staircase(
    steps: Sequence[float], odd: Array, even: Array, sizes: tuple[Array, Array]
) -> Array | None:
    """Noise of the outputs that are staircases, 0 of the others; None where all are others.

    Args:
        steps: h_k, decreasing.
        odd: odd parts d_k, one row per rung.
        even: even parts e_k.
        sizes: |F(x)| and its unit in the last place.
    """
    size, ulp = sizes
    xp = namespace(size)
    largest = float(xp.max(size))
    small = size <= _SMALL * max(1.0, largest)
    if not bool(xp.any(small)):
        return None
    few = xp.nonzero(small)[0]
    parts = [finite(xp.take(part, few, axis=1)) for part in (odd, even)]
    # A zero that stays one may be a number lost beside the largest output.
    lost = (xp.take(size, few) == 0) & xp.all((parts[0] == 0) & (parts[1] == 0), axis=0)
    noise = _stepped(
        steps, parts[0], parts[1], xp.take(ulp, few), _HIGH * _UNIT * max(1.0, largest)
    )
    noise = xp.where(lost, _UNIT * largest, noise)
    if not bool(xp.any(noise > 0)):
        return None
    place = xp.clip(xp.searchsorted(few, xp.arange(size.shape[0])), None, few.shape[0] - 1)
    return xp.where(small, xp.take(noise, place), 0.0)


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
        bends = 2 * gap > xp.maximum(xp.abs(here), xp.abs(finer))
        # The finer rung stayed on the tread: so much of the step it did not see.
        unseen = steps[k + 1] * gap
        sample = xp.maximum(xp.abs(odd[k, :]), xp.abs(even[k, :]))
        if k:
            fine = steps[k] / steps[k - 1]
            sample = xp.maximum(
                xp.abs(odd[k, :] - fine * odd[k - 1, :]),
                xp.abs(even[k, :] - fine**2 * even[k - 1, :]),
            )
        noise = xp.maximum(4 * unseen, xp.clip(sample, None, highest))
        stepped = (unseen <= highest) & (unseen > _STEPPED * ulp)
        found = xp.where(clean & bends & stepped, noise, found)
        if k:
            before = xp.abs(odd[k - 1, :] / steps[k - 1] - here)
            lasts = (unseen <= _HIGH * _UNIT) & (
                gap > _TRUNCATED * (steps[k] / steps[k - 1]) ** 2 * before
            )
            found = xp.where(lasts & stepped, xp.maximum(found, _LASTING * unseen), found)
    return found


# The derivative that a ladder of symmetric differences shows, and how far it can be trusted.
#
# From the odd part d_k = (F(x+h_k u) - F(x-h_k u))/2 and the even part e_k = (F(x+h_k u) +
# F(x-h_k u))/2 - F(x) of every rung each output chooses its own rung and Richardson level. The
# error bar of a candidate is made of
#
# * truncation: the larger distance to its two parents in the Richardson table (Ridders 1982, Adv.
# Eng. Software 4), at level 0 the distance to the next finer rung; * rounding noise s/h_k, s
# measured at the finest rungs, where e and d minus their smooth parts are nothing but noise, with
# half a unit in the last place as a floor; * the kink guard: |e_k|/h_k is exactly the error of
# D_k with one kink inside the step; for a smooth function it decays like h and is switched off.
# At a kink in x itself the bar is half the gap of the one-sided slopes; * a veto by every finer
# rung: a candidate may not lie outside the noise bar of a finer rung.
#
# Below double precision the finest steps are large themselves. What is left of curvature or kinks
# there must not pass for noise and disarm the veto, which therefore counts only the noise that is
# surely there; and a kink seen at a fine rung is one of every coarser rung.
#
# All arrays have one row per rung, coarsest first, and one column per output.


_NOISE_FACTOR = 5.0 * 0.71  # bar in units of the noise of one evaluation; d has 0.71 of it
_SURE = 1.5  # units in the last place that a difference of two values may always be off
_CAP = 16.0  # how far one sample may raise the noise above its neighbour
# Of F, by which a part of it may be rounded, in bfloat16; more is no rounding, but F that bends.
_NARROW = 2.0**-8
_SMOOTH = 4.0  # times the next order, where a step is no longer small beside a bend of F
_ROUGH = 64.0  # noise in ulp above which, if it is also large beside F's variation, F is rough
_ROUGH_COARSE = 8.0  # the same in arithmetic of 16 bits or fewer, where few ulp are much of F
_LARGE = 1e-4  # noise in parts of F above which F can be rough
_SHARE = 0.25  # of rough outputs above which all noisy ones are
_LEVELS = 3


@dataclass(frozen=True)
class Estimate:
    """Measured derivative of each output along one direction.

    Attributes:
        value: derivative D, size m.
        error: error bar B, infinite where nothing could be measured.
        kink: the part of B that a kink at, or near, the point makes.
        step: best step of a plain central difference, per output.
        step_error: error bar of that plain difference.
        noise: of one evaluation.

    Of a large map all but the value may be in single precision.
    """

    value: Array
    error: Array
    kink: Array
    step: Array
    step_error: Array
    noise: Array

    def span(self, outputs: slice) -> Estimate:
        """The same of consecutive outputs."""
        if outputs.stop - outputs.start == self.value.shape[0] and not self._is_short:
            return self
        names = self.__dataclass_fields__
        return Estimate(**{name: unpacked(getattr(self, name)[outputs]) for name in names})

    @property
    def _is_short(self) -> bool:
        """Whether some of it is in single precision."""
        return bool(self.error.dtype != self.value.dtype)

    def of(self, outputs: Array) -> Estimate:
        """The same of some outputs, given by their positions."""
        take = namespace(outputs).take
        names = self.__dataclass_fields__
        return Estimate(**{name: unpacked(take(getattr(self, name), outputs)) for name in names})


def parts(centre: Array, plus: Array, minus: Array) -> tuple[Array, Array]:
    """Odd and even part of F at both ends of a step; no sum of two values leaves the range."""
    even = 0.5 * (plus - centre)
    even += 0.5 * (minus - centre)
    return 0.5 * plus - 0.5 * minus, even


def largest(centre: Array, odd: Array, even: Array) -> Array:
    """Size of the largest finite F at the coarsest and the finest rung; the others lie between."""
    xp = namespace(centre)
    ends = [finite(xp.abs(centre + even[k, :]) + xp.abs(odd[k, :])) for k in (0, -1)]
    return xp.maximum(*ends)


_DECAYS = 8.0  # times h^2, as which the even part and the truncation of a smooth F fall


def smooth(
    steps: Sequence[float], values: tuple[np.ndarray[Any, Any], ...], resolution: float
) -> Estimate | None:
    """Plain differences of outputs that are smooth, each of the better of two rungs; else None.

    Where every even part and every truncation falls with h^2, into the noise of the finest rungs,
    no kink, stair or narrow part of F widens a bar of `estimate`, whose table has these candidates
    among others: its bars are these or smaller. The noise here is at least its own, for an output
    counts the worst of all where it counts the median there.

    Args:
        steps: h_k, decreasing, at least four.
        values: F(x), size m; F(x + h_k u) and F(x - h_k u), (K, m); arrays of NumPy.
        resolution: unit round-off of F's arithmetic, in double precision.
    """
    centre, plus, minus = values
    h = np.asarray(steps)[:, None]
    odd, even = parts(centre, plus, minus)
    size = np.maximum(np.abs(centre), np.maximum(np.abs(plus[0]), np.abs(minus[0])))
    largest = float(size.max())
    if not 0 < largest < np.inf:
        return None
    # A zero that stays one may be a number lost beside the largest output.
    unit = np.where(size == 0, _UNIT * largest, 2 * resolution * size)
    ratio = h[1:] / h[:-1]
    samples = [np.abs(even[-1]), np.abs(odd[-1] - ratio[-1] * odd[-2])]
    samples.append(np.abs(even[-2] - ratio[-2] ** 2 * even[-3]))
    own = np.maximum.reduce(samples)
    pooled = np.minimum(unit * np.max(own / unit), np.max(own))
    spread = np.maximum(1.5 * np.maximum(own, pooled), unit / 2)
    noise = _NOISE_FACTOR * spread
    slopes = odd / h
    apart, bent = np.abs(slopes[:-1] - slopes[1:]), np.abs(even)
    falls = apart[1:] <= _DECAYS * ratio[:-1] ** 2 * apart[:-1] + 2 * noise / h[2:]
    decays = bent[1:] <= _DECAYS * ratio**2 * bent[:-1] + 2 * noise
    calm = spread <= np.maximum(_ROUGH * unit, _LARGE * size)
    if not (calm.all() and decays.all() and falls.all()):
        return None
    bars = apart[:2] + noise / h[1:3] + 1.1 * noise / h[:2]
    best = bars[1] < bars[0]
    value, error = np.where(best, slopes[1], slopes[0]), np.where(best, bars[1], bars[0])
    for finer, step in zip(slopes[2:], steps[2:], strict=True):
        error = np.maximum(error, np.abs(value - finer) - noise / step)
    used = np.where(best, steps[1], steps[0])
    return Estimate(value, error, np.zeros_like(value), used, error, spread)


def estimate(
    steps: Sequence[float],
    values: tuple[Array, Array, Array],
    rounding: tuple[Array, Array, Array | float],
    resolution: float = 2.0**-53,
) -> Estimate:
    """Best candidate of the Richardson table for every output.

    Args:
        steps: h_k, decreasing, at least two.
        values: F(x), size m; the odd and even parts d_k and e_k, (K, m).
        rounding: unit in the last place of F(x) and of the largest F beside it, size m; run-to-run
            noise, size m or one number.
        resolution: unit round-off of F's arithmetic.
    """
    (centre, odd, even), (ulp, ulps, floor) = values, rounding
    xp = namespace(centre)
    if centre.shape[0] == 0:
        return Estimate(centre, centre, centre, centre, centre, centre)
    ulp, size = finite(ulp), finite(xp.abs(centre))
    h = xp.reshape(xp.asarray(steps), (-1, 1))
    sizes = xp.abs(odd), xp.abs(even)
    change = finite(xp.maximum(*sizes))
    spread = _noise(xp, steps, odd, even, ulp, floor, exact=resolution <= DOUBLE)
    if resolution <= DOUBLE:
        narrow = _unexplained(xp, steps, odd, even)
        spread = xp.where(narrow <= _NARROW * size, xp.maximum(spread, narrow), spread)
    spread = xp.maximum(spread, plateau(change, sizes, ulp, resolution))
    stairs = staircase(steps, odd, even, (size, ulp)) if resolution <= DOUBLE else None
    spread = spread if stairs is None else xp.maximum(spread, stairs)
    kink = kink_guard(steps, sizes[1] / h)
    noise = sure = _NOISE_FACTOR * xp.maximum(spread, ulps / 2) / h
    if resolution > DOUBLE:
        sides = (finite(centre + even + way * odd) for way in (1, -1))
        digit = max(grain_shown(side, resolution) for side in sides)
        usual = usual_noise(spread, change, digit)
        noise = xp.maximum(noise, _NOISE_FACTOR * usual / h)
        heard = sure_noise(steps, finite(even[-2:, :]), xp.max(change, axis=0) > 0)
        heard = xp.maximum(heard, xp.zeros_like(ulp) + floor)
        sure = xp.maximum(_NOISE_FACTOR * heard, _SURE * ulps) / h
        kink = passed_up(kink, sure)
    found = _candidates(xp, steps, odd / h, (noise, sure, kink), resolution > DOUBLE)
    limit = _ROUGH if resolution < SINGLE else _ROUGH_COARSE
    rough = _rough(xp, spread, limit * ulp, change, size)
    if rough is not None:
        found = [(value, xp.where(rough, xp.inf, bar), bent) for value, bar, bent in found]
    return _best(xp, steps, found, spread)


def _best(
    xp: Any, steps: Sequence[float], found: Sequence[tuple[Array, Array, Array]], noise: Array
) -> Estimate:
    """Of the candidates (value, bar, kink part) the one with the smallest bar, the first of equals.

    Plain differences come first, coarsest rung first. A bar that is not finite is infinite.
    """
    value, bar, kink = found[0]
    error = xp.where(bar < xp.inf, bar, xp.inf)
    step, step_error = xp.full_like(bar, steps[0]), error
    for k, (other, bar, bent) in enumerate(found[1:], start=1):
        better = bar < error
        value, kink = xp.where(better, other, value), xp.where(better, bent, kink)
        error = xp.where(better, bar, error)
        if k < len(steps) - 1:
            step, step_error = xp.where(better, steps[k], step), error
    return Estimate(value, error, kink, step, step_error, noise)


def _noise(
    xp: Any,
    steps: Sequence[float],
    odd: Array,
    even: Array,
    ulp: Array,
    floor: Array | float,
    *,
    exact: bool,
) -> Array:
    """Rounding noise of one evaluation of each output, from the two finest pairs of rungs.

    Of two rungs there is one pair.

    With r = h_k/h_{k-1}, e_k - r^2 e_{k-1} and d_k - r d_{k-1} keep noise of variance 1.5 and 0.5
    and lose the smooth part. A d-sample may exceed the others by the cap only: a kink between
    the finest rungs would otherwise pass for noise.
    """
    samples = []
    for k in (len(steps) - 1, max(1, len(steps) - 2)):
        ratio = steps[k] / steps[k - 1]
        for part, power, share in ((even, 2, 1.22), (odd, 1, 0.71)):
            sample = part[k, :] - ratio**power * part[k - 1, :]
            sample = finite(xp.abs(sample))
            sample /= share
            samples.append(sample)
    e_fine, d_fine, e_next, d_next = samples
    half = ulp / 2
    own = xp.maximum(e_fine, xp.minimum(d_fine, _CAP * xp.maximum(e_fine, half)))
    next_ = xp.maximum(e_next, d_next)
    own = xp.maximum(own, xp.minimum(next_, _CAP * xp.maximum(own, half)))
    # One output has few samples; all together have many. The pool counts in absolute terms or in
    # ulp, whichever is smaller, so that a large output does not drown a small one; and by its
    # median, so that one output that jumps does not blind the others.
    # Of many bits, an output that moves without any noise is exact, and counts; of few, it may be
    # chance. One that stays tells nothing.
    some, units = sampled(own), sampled(ulp)
    told = (some > 0) | (sampled(odd[-1, :]) != 0) if exact else some > 0
    in_units = xp.where(units > 0, some / xp.where(units > 0, units, xp.ones_like(units)), 0.0)
    pooled = ulp * median_of_positive(xp.where(told, in_units, -1.0), zero=True)
    most = median_of_positive(xp.where(told, some, -1.0), zero=True)
    pooled = xp.clip(pooled, None, most)
    if exact:  # nor is it blinded by a jump of the only one that moves
        moves = (odd[-1, :] != 0) | (odd[0, :] != 0) | (even[0, :] != 0)
        pooled = xp.where(moves, pooled, 0.0)
    own = xp.maximum(own, pooled)
    least = half if isinstance(floor, float) and floor == 0 else xp.maximum(half, 0 * half + floor)
    return xp.maximum(own, least)


def _unexplained(xp: Any, steps: Sequence[float], odd: Array, even: Array) -> Array:
    """Noise of one evaluation that no kink and no curvature explains, at whichever rung it shows.

    A part of F in fewer bits stands still for the finest steps: two rungs there agree on a slope
    without it. Coarser rungs show its rounding, and what rounds them rounds every finer one.

    One kink at a distance d makes e_k = (h_k - d)/2 times its gap: at least as much as e_{k-1}
    less by r = h_k/h_{k-1}; and d_k - r d_{k-1} of it is e_k - r e_{k-1}. The smooth part of that
    is r h_{k-1}^3 F'''/6, which falls by r (h_{k-1}/h_{k-2})^2 from one rung to the next.
    """
    found = xp.zeros_like(even[0, :])
    before: tuple[float, Array] | None = None
    for k in range(1, len(steps)):
        ratio = steps[k] / steps[k - 1]
        bent = ratio * xp.abs(even[k - 1, :])
        sample = xp.abs(even[k, :]) - (1 + ratio) * bent
        found = xp.maximum(found, finite(sample) / 1.22)
        apart = xp.abs(odd[k, :] - ratio * odd[k - 1, :])
        if before is not None:
            smooth = _SMOOTH * ratio * before[0] ** 2 * before[1]
            sample = apart - xp.abs(even[k, :]) - bent - smooth
            found = xp.maximum(found, finite(sample) / 0.71)
        before = ratio, apart
    return found


def _rough(xp: Any, spread: Array, limit: Array, change: Array, size: Array) -> Array | None:
    """Where no step resolves F: noise of many ulp, no smaller than its variation, and large.

    (Noise that is nothing beside F is that of an output which the direction does not move.)

    Where that holds of many outputs it holds of their neighbours too, whose noise came out small
    by chance. None: nowhere.
    """
    noisy = spread > xp.maximum(limit, _LARGE * size)
    if not bool(xp.any(noisy)):
        return None
    noisy = noisy & (spread > median_of_positive(limit))
    noisy = noisy & (spread > _LARGE * median_of_positive(size))
    rough = noisy & (spread > 0.02 * xp.max(change, axis=0))
    share = float(xp.mean(xp.astype(rough, xp.float64)))
    return noisy if share > _SHARE else rough


def _candidates(
    xp: Any,
    steps: Sequence[float],
    first: Array,
    doubts: tuple[Array, Array, Array],
    wide: bool,
) -> list[tuple[Array, Array, Array]]:
    """Value, bar and kink part of every rung at Richardson levels 0 to 2; `doubts` are (K, m).

    With T' = T_fine + (T_fine - T_coarse) p / (1 - p) the larger distance to the two parents is
    that to the coarse one, |T_fine - T_coarse| / (1 - p).
    """
    noise, sure, kink = doubts
    added = 1.1 * noise
    added += kink
    found = []
    table = [first[k, :] for k in range(len(steps))]
    for level in range(min(_LEVELS, len(steps))):
        if level:
            table, bars = _extrapolated(xp, steps, table, level)
        else:
            # The finest rung has no finer one to tell its truncation.
            bars = [xp.abs(one - finer) for one, finer in itertools.pairwise(table)]
            for k, bar in enumerate(bars):
                bar += noise[k + 1, :]
        for k, bar in enumerate(bars):
            bar += added[level + k, :]
            # At level 0 the bar reaches the next finer rung as it is.
            finer = range(level + k + (1 if level else 2), len(steps))
            bar = _veto(xp, table[k], bar, [(first[f, :], sure[f, :]) for f in finer], wide)
            found.append((table[k], bar, kink[level + k, :]))
    return found


def _extrapolated(
    xp: Any, steps: Sequence[float], table: list[Array], level: int
) -> tuple[list[Array], list[Array]]:
    """The next level of a Richardson table, and the distance of each value to its parents."""
    values, bars = [], []
    for k, (coarse, fine) in enumerate(itertools.pairwise(table)):
        p = (steps[k + level] / steps[k]) ** 2
        apart = fine - coarse
        values.append(fine + p / (1 - p) * apart)
        bars.append(xp.abs(apart) / (1 - p))
    return values, bars


def _veto(
    xp: Any, value: Array, bar: Array, finer: Sequence[tuple[Array, Array]], wide: bool
) -> Array:
    """A bar that reaches into the noise bar of every finer rung, given as (value, noise).

    Where it does not by itself, a wide one reaches to the other end.
    """
    for theirs, noise in finer:
        distance = xp.abs(value - theirs)
        reach = distance - noise
        if wide:  # written so that NaN, where a finer rung leaves the domain, stays
            reach = xp.where(distance <= bar + noise, bar, distance + noise)
        bar = xp.maximum(bar, reach)
    return bar
