"""The derivative that a ladder of symmetric differences shows, and how far it can be trusted.

Each output chooses its own rung and Richardson level. The error bar of a candidate is made of

* truncation: the larger distance to its two parents in the Richardson table (Ridders 1982, Adv.
  Eng. Software 4), at level 0 the distance to the next finer rung;
* noise (`noise`), divided by the step;
* the kink guard: |e_k|/h_k is exactly the error of D_k with one kink inside the step; for a smooth
  function it decays like h and is switched off. At a kink in x itself the bar is half the gap of
  the one-sided slopes;
* a veto by every finer rung: a candidate may not lie outside the noise bar of a finer rung. Below
  double precision a kink seen at a fine rung is one of every coarser rung.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from gradproof._data.space import Array, namespace
from gradproof._data.vectors import finite, median_of_positive, rms
from gradproof._measure import noise as measured
from gradproof._measure.noise import DECAYS, FACTOR, LARGE, UNIT, Table
from gradproof._measure.sizes import FINE, ROUNDINGS, SMALL

_LEVELS = 3


Same = TypeVar("Same", bound="PerOutput")


@dataclass(frozen=True)
class PerOutput:
    """Arrays with a number for every output: what is done to one of them is done to all."""

    def each(self: Same, made: Callable[..., Array], *others: Same) -> Same:
        """What is made of each array, and of those of others that go with it."""
        return type(self)(*map(made, *(vars(one).values() for one in (self, *others))))

    def of(self: Same, outputs: Array) -> Same:
        """A copy for some outputs, given by their positions."""
        take = namespace(outputs).take
        return self.each(lambda values: take(values, outputs))

    def put(self: Same, outputs: Array, others: Same) -> Same:
        """A copy with other numbers for some outputs, given by their positions."""

        def both(values: Array, new: Array) -> Array:
            made = 1.0 * values
            made[outputs] = new
            return made

        return self.each(both, others)

    def only(self: Same, mask: Array) -> Same:
        """A copy that is zero for the outputs outside a mask."""
        where = namespace(mask).where
        return self.each(lambda values: where(mask, values, 0))


@dataclass(frozen=True)
class Estimate(PerOutput):
    """Measured derivative of each output along one direction."""

    value: Array  # derivative D, size m
    error: Array  # error bar B, infinite where nothing could be measured
    kink: Array  # the part of B that a kink at, or near, the point makes
    step: Array  # best step of a plain central difference, per output
    step_error: Array  # error bar of that plain difference
    noise: Array  # of one evaluation

    def span(self, outputs: slice) -> Estimate:
        """The same of consecutive outputs."""
        whole = outputs.stop - outputs.start == self.value.shape[0]
        return self if whole else self.each(lambda values: values[outputs])


def parts(centre: Array, plus: Array, minus: Array) -> tuple[Array, Array]:
    """Odd and even part of F at both ends of a step; no sum of two values leaves the range."""
    even = 0.5 * (plus - centre)
    even += 0.5 * (minus - centre)
    return 0.5 * plus - 0.5 * minus, even


def largest(centre: Array, odd: Array, even: Array) -> Array:
    """Size of the largest finite F in the point, at the coarsest and at the finest rung."""
    xp = namespace(centre)
    size = xp.where(xp.isfinite(centre), abs(centre), 0.0)  # asks no device, as `finite` does
    for k in (0, -1):
        size = xp.maximum(size, finite(abs(centre + even[k, :]) + abs(odd[k, :])))
    return size


def smooth(
    steps: Sequence[float],
    values: tuple[np.ndarray[Any, Any], ...],
    resolution: float,
    *,
    many: bool = False,
) -> Estimate | None:
    """Plain differences of outputs that are smooth, each of the better of two rungs; else None.

    Where every even part and every truncation falls with h^2, into the noise of the finest rungs,
    no kink, stair or narrow part of F widens a bar of `estimate`, whose table has these candidates
    among others: its bars are these or smaller. The noise here is at least its own, for an output
    counts the worst of all where it counts the median there.

    `values` are F(x), and odd and even parts d_k and e_k, (K, m), of at least three steps.
    """
    centre, odd, even = values
    xp, (h, squares) = namespace(centre), _columns_of(tuple(steps))
    size = np.maximum(np.abs(centre), np.abs(centre + even[0]) + np.abs(odd[0]))
    largest = float(xp.max(size))
    if not 0 < largest < np.inf:
        return None
    unit = 2 * resolution * size
    if not xp.all(size):  # a zero that stays one may be a number lost beside the largest output
        unit[size == 0] = UNIT * largest
    bends = np.maximum.reduce(np.abs(even[-2:] - squares[-2:] * even[-3:-1]))
    own = np.maximum(bends, np.abs(odd[-1] - steps[-1] / steps[-2] * odd[-2]))
    worst = np.minimum(unit * xp.max(own / unit), xp.max(own))
    shared = measured.usual(own, unit) if many else worst
    spread = np.maximum(1.5 * np.maximum(own, shared), unit / 2)
    noise = FACTOR * spread
    slopes, heard = odd / h, noise / h
    apart, bent = np.abs(slopes[:-1] - slopes[1:]), np.abs(even)
    falls = apart[1:] <= DECAYS * squares[:-1] * apart[:-1] + 2 * heard[2:]
    decays = bent[1:] <= DECAYS * squares * bent[:-1] + 2 * noise
    calm = spread <= np.maximum(ROUNDINGS * unit, LARGE * size)
    if not (xp.all(calm) and xp.all(decays) and xp.all(falls)):
        return None
    bars = apart[:2] + heard[1:3] + 1.1 * heard[:2]
    better = bars[1] < bars[0]
    value, error = np.where(better, slopes[1], slopes[0]), np.where(better, bars[1], bars[0])
    error = np.maximum(error, np.maximum.reduce(np.abs(value - slopes[2:]) - heard[2:]))
    if many:  # a bar that is wide leaves something to be asked
        size = np.abs(value)
        if not xp.all(error <= FINE * (size + median_of_positive(size))):
            return None
    used = np.where(better, steps[1], steps[0])
    return Estimate(value, error, np.zeros(value.shape), used, error, spread)


@functools.lru_cache(maxsize=64)
def _columns_of(steps: tuple[float, ...]) -> tuple[Array, Array]:
    """The steps, and the squares of what each is of the one before, as columns."""
    h = np.asarray(steps)[:, None]
    return h, (h[1:] / h[:-1]) ** 2


def doubted(h: Sequence[float], odd: Array, even: Array) -> tuple[Array, Array] | None:
    """By how much the slope and the bend over the longest step differ from what others tell.

    0 where curvature explains it, of which the next two steps show the trace, and where it is no
    more than F may bend by, or than those two disagree by: what they see too is no news, as of a
    phase that wraps within each. None where that holds everywhere. Of at least three steps.
    """
    xp = namespace(odd)
    slopes = [finite(odd[k, :] / h[k]) for k in range(3)]
    gap, bends = slopes[0] - slopes[1], finite(even[0, :] / h[0])
    curved = bends - finite(h[0] / h[1] * even[1, :] / h[1])
    if bool(xp.all(xp.maximum(xp.abs(gap), xp.abs(curved)) <= SMALL * xp.abs(slopes[1]))):
        return None  # as nearly always: what follows allows no less
    falls = (h[1] / h[0]) ** 2 * xp.abs(gap) <= DECAYS * xp.abs(slopes[1] - slopes[2])
    bends = xp.sign(curved) * xp.minimum(xp.abs(curved), xp.abs(bends))
    least = SMALL * (xp.abs(slopes[1]) + rms(slopes[1]) / 4)
    gap = xp.where(falls | (xp.abs(gap) <= least), 0.0, gap)
    least = xp.maximum(least, xp.abs(slopes[1] - slopes[2]))
    bends = xp.where(xp.abs(bends) <= least, 0.0, bends)
    # What stands still at the finest step stands on a tread for sure.
    seen = (odd[-1, :] != 0) & ((gap != 0) | (bends != 0))
    if not bool(xp.any(seen)):
        return None
    return xp.where(seen, gap, 0.0), xp.where(seen, bends, 0.0)


def estimate(table: Table) -> Estimate:
    """Best candidate of the Richardson table for every output."""
    centre, steps = table.centre, table.steps
    xp = namespace(centre)
    if centre.shape[0] == 0:
        return Estimate(centre, centre, centre, centre, centre, centre)
    h = xp.reshape(xp.asarray(steps), (-1, 1))
    heard = table.noise
    noise, sure = heard.bar / h, heard.sure / h
    kink = _kink_guard(steps, xp.abs(table.even) / h)
    if not table.is_double:
        kink = _passed_up(kink, sure)
    found = _candidates(xp, steps, table.odd / h, (noise, sure, kink), wide=not table.is_double)
    rough = measured.rough(table, heard.spread)
    if rough is not None:
        found = [(value, xp.where(rough, xp.inf, bar), bent) for value, bar, bent in found]
    return best(xp, steps, found, heard.spread)


def best(
    xp: Any, steps: Sequence[float], found: Sequence[tuple[Array, Array, Array]], noise: Array
) -> Estimate:
    """The candidate (value, bar, kink part) with the smallest bar, the first of equals.

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


def _kink_guard(steps: Sequence[float], gap: Array) -> Array:
    """|e_k|/h_k where it does not decay from rung to rung, else 0."""
    xp = namespace(gap)
    decay = [[(fine / coarse) ** 0.5] for coarse, fine in itertools.pairwise(steps)]
    decays = gap[1:, :] <= xp.asarray(decay) * gap[:-1, :]
    stays = xp.where(decays, 0.0, gap[1:, :])
    # The coarsest rung has none above it: it has a kink if the next one has.
    top = xp.where(decays[:1, :], 0.0, gap[:1, :])
    return finite(xp.concat([top, stays]))


def _passed_up(kink: Array, noise: Array) -> Array:
    """Kinks, a rung having also those of every finer one, less what may be noise there.

    Where kinks are closer than the steps, |e_k|/h_k may be small at a coarse rung by chance.
    """
    xp = namespace(kink)
    rows, finer = [kink[-1, :]], kink[-1, :] - noise[-1, :]
    for k in reversed(range(kink.shape[0] - 1)):
        rows.append(xp.maximum(kink[k, :], finer))
        finer = xp.maximum(finer, kink[k, :] - noise[k, :])
    return xp.stack(rows[::-1])


def _candidates(
    xp: Any,
    steps: Sequence[float],
    first: Array,
    doubts: tuple[Array, Array, Array],
    *,
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
            bar = vetoed(xp, table[k], bar, [(first[f, :], sure[f, :]) for f in finer], wide=wide)
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


def vetoed(
    xp: Any, value: Array, bar: Array, finer: Sequence[tuple[Array, Array]], *, wide: bool = False
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
