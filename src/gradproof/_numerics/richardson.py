"""The derivative that a ladder of symmetric differences shows, and how far it can be trusted.

From the odd part d_k = (F(x+h_k u) - F(x-h_k u))/2 and the even part
e_k = (F(x+h_k u) + F(x-h_k u))/2 - F(x) of every rung each output chooses its own rung and
Richardson level. The error bar of a candidate is made of

* truncation: the larger distance to its two parents in the Richardson table (Ridders 1982, Adv.
  Eng. Software 4), at level 0 the distance to the next finer rung;
* rounding noise s/h_k, s measured at the finest rungs, where e and d minus their smooth parts
  are nothing but noise, with half a unit in the last place as a floor;
* the kink guard: |e_k|/h_k is exactly the error of D_k with one kink inside the step; for a
  smooth function it decays like h and is switched off. At a kink in x itself the bar is half the
  gap of the one-sided slopes;
* a veto by every finer rung: a candidate may not lie outside the noise bar of a finer rung.

Below double precision the finest steps are large themselves. What is left of curvature or kinks
there must not pass for noise and disarm the veto, which therefore counts only the noise that is
surely there; and a kink seen at a fine rung is one of every coarser rung.

All arrays have one row per rung, coarsest first, and one column per output.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradproof._numerics.coarse import (
    DOUBLE,
    SINGLE,
    grain_shown,
    passed_up,
    plateau,
    sure_noise,
)
from gradproof._numerics.robust import finite, median_of_positive
from gradproof._space import Array, namespace

_NOISE_FACTOR = 5.0 * 0.71  # bar in units of the noise of one evaluation; d has 0.71 of it
_SURE = 1.5  # units in the last place that a difference of two values may always be off
_CAP = 16.0  # how far one sample may raise the noise above its neighbour
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
    """

    value: Array
    error: Array
    kink: Array
    step: Array
    step_error: Array
    noise: Array

    def of(self, outputs: Array) -> Estimate:
        """The same of some outputs, given by their positions."""
        take = namespace(outputs).take
        names = self.__dataclass_fields__
        return Estimate(**{name: take(getattr(self, name), outputs) for name in names})


def estimate(
    steps: Sequence[float],
    values: tuple[Array, Array, Array],
    rounding: tuple[Array, Array, Array | float],
    resolution: float = 2.0**-53,
) -> Estimate:
    """Best candidate of the Richardson table for every output.

    Args:
        steps: h_k, decreasing, at least three.
        values: F(x), size m; F(x + h_k u) and F(x - h_k u), (K, m).
        rounding: unit in the last place of F(x) and of the largest F beside it, size m; run-to-run
            noise, size m or one number.
        resolution: unit round-off of F's arithmetic.
    """
    (centre, plus, minus), (ulp, ulps, floor) = values, rounding
    xp = namespace(centre)
    ulp, size = finite(ulp), finite(xp.abs(centre))
    if centre.shape[0] == 0:
        return Estimate(centre, centre, centre, centre, centre, centre)
    odd, even = (plus - minus) / 2, (plus + minus) / 2 - centre
    h = xp.reshape(xp.asarray(steps), (-1, 1))
    sizes = xp.abs(odd), xp.abs(even)
    change = finite(xp.maximum(*sizes))
    spread = _noise(xp, steps, odd, even, ulp, floor, exact=resolution <= DOUBLE)
    spread = xp.maximum(spread, plateau(steps, change, sizes, ulp))
    kink = _kink(xp, steps, sizes[1] / h)
    noise = sure = _NOISE_FACTOR * xp.maximum(spread, ulps / 2) / h
    if resolution > DOUBLE:
        usual = _usual(xp, spread, change, (plus, minus), resolution)
        noise = xp.maximum(noise, _NOISE_FACTOR * usual / h)
        heard = sure_noise(steps, finite(even[-2:, :]), xp.max(change, axis=0) > 0)
        heard = xp.maximum(heard, xp.zeros_like(ulp) + floor)
        sure = xp.maximum(_NOISE_FACTOR * heard, _SURE * ulps) / h
        kink = passed_up(kink, sure)
    found, bars, kinks = _candidates(xp, steps, odd / h, noise, sure, kink, resolution > DOUBLE)
    limit = _ROUGH if resolution < SINGLE else _ROUGH_COARSE
    rough = _rough(xp, spread, limit * ulp, xp.max(change, axis=0), size)
    bars = xp.where(xp.isfinite(found) & xp.isfinite(bars) & ~rough, bars, xp.inf)
    best, plain = _smallest(xp, bars), _smallest(xp, bars[: len(steps) - 1, :])
    return Estimate(
        value=_pick(xp, found, best),
        error=_pick(xp, bars, best),
        kink=_pick(xp, kinks, best),
        step=xp.take(xp.reshape(h, (-1,)), plain // bars.shape[1]),
        step_error=_pick(xp, bars, plain),
        noise=spread,
    )


def _smallest(xp: Any, bars: Array) -> Array:
    """Where the smallest bar of every output stands in the flattened table."""
    columns = bars.shape[1]
    return xp.argmin(bars, axis=0) * columns + xp.arange(columns)


def _pick(xp: Any, table: Array, at: Array) -> Array:
    return xp.take(xp.reshape(table, (-1,)), at)


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

    With r = h_k/h_{k-1}, e_k - r^2 e_{k-1} and d_k - r d_{k-1} keep noise of variance 1.5 and 0.5
    and lose the smooth part. A d-sample may exceed the others by the cap only: a kink between
    the finest rungs would otherwise pass for noise.
    """
    samples = []
    for k in (len(steps) - 1, len(steps) - 2):
        ratio = steps[k] / steps[k - 1]
        samples.append(finite(xp.abs(even[k, :] - ratio**2 * even[k - 1, :])) / 1.22)
        samples.append(finite(xp.abs(odd[k, :] - ratio * odd[k - 1, :])) / 0.71)
    e_fine, d_fine, e_next, d_next = samples
    own = xp.maximum(e_fine, xp.minimum(d_fine, _CAP * xp.maximum(e_fine, ulp / 2)))
    next_ = xp.maximum(e_next, d_next)
    own = xp.maximum(own, xp.minimum(next_, _CAP * xp.maximum(own, ulp / 2)))
    # One output has few samples; all together have many. The pool counts in absolute terms or in
    # ulp, whichever is smaller, so that a large output does not drown a small one; and by its
    # median, so that one output that jumps does not blind the others.
    # Of many bits, an output that moves without any noise is exact, and counts; of few, it may be
    # chance. One that stays tells nothing.
    in_ulp = xp.where(ulp > 0, own / xp.where(ulp > 0, ulp, xp.ones_like(ulp)), 0.0)
    told = (own > 0) | (odd[-1, :] != 0) if exact else own > 0
    counted, in_ulp = xp.where(told, own, -1.0), xp.where(told, in_ulp, -1.0)
    pooled = xp.minimum(
        xp.full_like(own, median_of_positive(counted, zero=True)),
        ulp * median_of_positive(in_ulp, zero=True),
    )
    return xp.maximum(xp.maximum(own, pooled), xp.maximum(ulp / 2, xp.zeros_like(ulp) + floor))


def _rough(xp: Any, spread: Array, limit: Array, varied: Array, size: Array) -> Array:
    """Where no step resolves F: noise of many ulp, no smaller than its variation, and large.

    (Noise that is nothing beside F is that of an output which the direction does not move.)

    Where that holds of many outputs it holds of their neighbours too, whose noise came out small
    by chance.
    """
    noisy = (spread > limit) & (spread > _LARGE * size)
    if not bool(xp.any(noisy)):
        return noisy
    noisy = noisy & (spread > median_of_positive(limit))
    noisy = noisy & (spread > _LARGE * median_of_positive(size))
    rough = noisy & (spread > 0.02 * varied)
    share = float(xp.mean(xp.astype(rough, xp.float64)))
    return noisy if share > _SHARE else rough


def _usual(
    xp: Any, spread: Array, change: Array, sides: tuple[Array, Array], resolution: float
) -> Array:
    """Of an output that stands still at the finest rungs, the noise that is usual; else 0.

    What moves it may have been rounded away, where that came from larger numbers that cancelled:
    it is known no better than the other outputs.
    """
    still = (change[-1, :] == 0) & (change[-2, :] == 0)
    if not bool(xp.any(still)):
        return xp.zeros_like(spread)
    grains = [grain_shown(finite(side), resolution) for side in sides]
    return xp.where(still, xp.full_like(spread, max(median_of_positive(spread), *grains)), 0.0)


def _kink(xp: Any, steps: Sequence[float], gap: Array) -> Array:
    """|e_k|/h_k where it does not decay from rung to rung, else 0."""
    decay = [[(fine / coarse) ** 0.5] for coarse, fine in itertools.pairwise(steps)]
    decays = gap[1:, :] <= xp.asarray(decay) * gap[:-1, :]
    stays = xp.where(decays, 0.0, gap[1:, :])
    # The coarsest rung has none above it: it has a kink if the next one has.
    top = xp.where(decays[:1, :], 0.0, gap[:1, :])
    return finite(xp.concat([top, stays]))


def _candidates(
    xp: Any,
    steps: Sequence[float],
    first: Array,
    noise: Array,
    sure: Array,
    kink: Array,
    wide: bool,
) -> tuple[Array, Array, Array]:
    """Values, bars and kink parts of Richardson levels 0 to 2, one row per candidate."""
    rungs, found = len(steps), []
    table = first
    for level in range(min(_LEVELS, rungs)):
        rows = rungs - level
        if level:
            powers = [[(steps[k + level] / steps[k]) ** 2] for k in range(rows)]
            p, coarse, fine = xp.asarray(powers), table[:-1, :], table[1:, :]
            table = (fine - p * coarse) / (1 - p)
            bar = xp.maximum(xp.abs(table - coarse), xp.abs(table - fine))
            value = table
        else:
            rows -= 1  # the finest rung has no finer one to tell its truncation
            value = first[:-1, :]
            bar = xp.abs(value - first[1:, :]) + noise[1:, :]
        bar = bar + 1.1 * noise[level : level + rows, :] + kink[level : level + rows, :]
        bar = _veto(xp, value, bar, first[level:, :], sure[level:, :], wide)
        found.append((value, bar, kink[level : level + rows, :]))
    values, bars, kinks = (xp.concat(list(parts)) for parts in zip(*found, strict=True))
    return values, bars, kinks


def _veto(xp: Any, value: Array, bar: Array, first: Array, noise: Array, wide: bool) -> Array:
    """A bar that reaches, for each row, into the noise bar of every rung finer than it.

    Where it does not by itself, a wide one reaches to the other end.
    """
    rows = value.shape[0]
    for finer in range(1, first.shape[0]):
        count = min(rows, first.shape[0] - finer)
        own, theirs = bar[:count, :], noise[finer : finer + count, :]
        distance = xp.abs(value[:count, :] - first[finer : finer + count, :])
        reach = distance - theirs
        if wide:  # written so that NaN, where a finer rung leaves the domain, stays
            reach = xp.where(distance <= own + theirs, own, distance + theirs)
        reached = xp.maximum(own, reach)
        bar = xp.concat([reached, bar[count:, :]]) if count < rows else reached
    return bar
