"""What a function is at a point, output by output: smooth, or why it has no derivative there.

Each side is read by itself. With g(h) = F(x + h u) - F(x), and F(x) - F(x - h u) on the left, the
rungs of a ladder tell one of four things:

* g is not finite at the finest rungs: F is not defined on that side;
* g stays what it is while h shrinks: F jumps;
* g shrinks like h^q with q < 1, the same q from rung to rung: the slope is infinite;
* g/h settles: that is the one-sided slope, with an error bar made as in `richardson`, of the
  distance to neighbouring rungs, of noise, and of a veto by every finer rung.

Two slopes further apart than their bars are a kink. Where they agree, F is smooth if the
difference (F(x+hu) - F(x-hu))/2h approaches the slope like h^2 and
F(x+hu) + F(x-hu) - 2 F(x) falls like h^2, and else differentiable once only: Huber's loss at its
threshold, |x|^1.5 at zero. A kink beside x, but not in x, is left behind by the finest rungs; one
that is closer than those is as good as in x.

All arrays have one row per rung, coarsest first, and one column per output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradproof._data.space import Array, namespace
from gradproof._data.vectors import finite
from gradproof._measure.noise import FACTOR, Table, of_finest
from gradproof._measure.richardson import PerOutput, best, vetoed
from gradproof._measure.sizes import ALIKE, ROUNDINGS, SMALL

KINDS = (
    "smooth",
    "differentiable once",
    "kink",
    "domain boundary",
    "infinite slope",
    "jump",
    "unresolved",
)
SMOOTH, ONCE, KINK, BOUNDARY, INFINITE, JUMP, UNRESOLVED = range(len(KINDS))

# Calibrated by benchmarks/kinks.py --constants, which knows kind and slopes of 80 points and asks
# them with each of these numbers half and twice as large.
_RUNGS = 5  # finest ones that must agree on a jump or on a slope without end
_FLAT = 0.05  # of an order, between jump, root and line, and by which that of a root may change


@dataclass(frozen=True)
class Kinks(PerOutput):
    """What every output is at the point, and its slopes there along the direction."""

    kind: Array  # position in `KINDS`
    # One-sided derivative from the left, size m; NaN where there is none, infinite where the slope
    # is.
    left: Array
    right: Array  # likewise from the right
    error: Array  # the larger error bar of the two


def classify(table: Table, plus: Array, minus: Array) -> Kinks:
    """What every output is at the point, by F(x + h_k u) and F(x - h_k u) of four steps or more."""
    centre, steps = table.centre, table.steps
    xp = namespace(centre)
    if centre.shape[0] == 0:
        return Kinks(xp.astype(centre, xp.int64), centre, centre, centre)
    h = xp.reshape(xp.asarray(steps), (-1, 1))
    rises = plus - centre, centre - minus
    # A jump looks like noise on both sides: it must not hide behind itself.
    shown = finite(of_finest(table))
    known = xp.maximum(finite(table.ulps), xp.zeros_like(shown) + table.floor)
    noise = xp.maximum(known, xp.minimum(shown, ROUNDINGS * known))
    sides = [_side(xp, steps, rise, noise) for rise in rises]
    right, left = sides
    error = xp.maximum(*(xp.where(side.finite, side.error, 0.0) for side in sides))
    lost = ~xp.isfinite(centre)
    largest = xp.maximum(*(xp.where(side.finite, xp.abs(side.slope), 0.0) for side in sides))
    gap = xp.abs(right.slope - left.slope)
    bent = (gap > right.error + left.error) & (gap > SMALL * largest)
    coarse = xp.maximum(*(finite(xp.abs(rise[0, :])) for rise in rises)) / steps[0]
    size = SMALL * finite(xp.abs(centre))
    # Nothing is seen where nothing moves, and F is 0.
    seen = xp.maximum(ALIKE * xp.maximum(largest, coarse), size)
    even, odd = _exponents(xp, h, rises, xp.maximum(noise, shown))
    # An even part and a truncation of h^2 are smooth; what is slower by a part of an order is not.
    # Noise has the exponents 0 and -1.
    slow = (even > 1 + ALIKE) & (even < 2 - ALIKE)
    once = slow | ((odd > ALIKE) & (odd < 2 - ALIKE))
    kind = xp.where(once, ONCE, SMOOTH)
    kind = xp.where((error > seen) & (seen > 0), UNRESOLVED, kind)
    bent = bent & (xp.abs(even - 1) < ALIKE)  # noise may part two slopes; its even part stays
    kind = xp.where(right.finite & left.finite & bent, KINK, kind)
    # A bar as large as its slope tells nothing: the border may lie beside x, not in it.
    kind = xp.where((right.missing | left.missing) & (error <= seen), BOUNDARY, kind)
    kind = xp.where(right.infinite | left.infinite, INFINITE, kind)
    kind = xp.where(right.jumps | left.jumps, JUMP, kind)
    kind = xp.where(lost | (right.missing & left.missing), UNRESOLVED, kind)
    return Kinks(kind, left.slope, right.slope, error)


@dataclass(frozen=True)
class _Side:
    """One side of every output: exactly one of the four masks holds."""

    missing: Array
    jumps: Array
    infinite: Array
    finite: Array
    slope: Array
    error: Array


def _side(xp: Any, steps: Sequence[float], rise: Array, noise: Array) -> _Side:
    h = xp.reshape(xp.asarray(steps), (-1, 1))
    missing = ~(xp.isfinite(rise[-1, :]) & xp.isfinite(rise[-2, :]))
    size = finite(xp.abs(rise))
    # Five rungs: noise looks like a power of h on three or four of them now and then.
    last = size[-_RUNGS:, :]
    moves, jumps = _moves(rise, noise) & ~missing, jumping(rise, noise) & ~missing
    one, step = xp.where(moves, last, 1.0), h[-_RUNGS:, :]
    exponents = xp.log(one[:-1, :] / one[1:, :]) / xp.log(step[:-1, :] / step[1:, :])
    steep = (exponents > _FLAT) & (exponents < 1 - _FLAT)
    steady = xp.max(exponents, axis=0) - xp.min(exponents, axis=0) <= _FLAT
    infinite = moves & ~jumps & xp.all(steep, axis=0) & steady
    slope, error = _slope(xp, steps, rise / h, noise)
    has = ~(missing | jumps | infinite)
    slope = xp.where(infinite, xp.sign(rise[-1, :]) * xp.inf, xp.where(has, slope, xp.nan))
    return _Side(missing, jumps, infinite, has, slope, error)


def _moves(rise: Array, noise: Array) -> Array:
    """Whether a side is above noise at the finest rungs, and on one side of F(x)."""
    xp, signs = namespace(rise), namespace(rise).sign(rise[-_RUNGS:, :])
    above = xp.all(finite(xp.abs(rise[-_RUNGS:, :])) > ROUNDINGS * noise, axis=0)
    return above & xp.all(signs == signs[-1:, :], axis=0)


def jumping(rise: Array, noise: Array) -> Array:
    """Whether g of a side, (K, m), stays what it is at the finest rungs."""
    xp, last = namespace(rise), finite(namespace(rise).abs(rise[-3:, :]))
    flat = xp.abs(last[:-1, :] - last[1:, :]) <= _FLAT * last[1:, :]
    return _moves(rise, noise) & xp.all(flat, axis=0)


def _slope(xp: Any, steps: Sequence[float], slopes: Array, noise: Array) -> tuple[Array, Array]:
    """The best of g/h and its first extrapolation over all rungs, and its error bar."""
    h, rows = xp.reshape(xp.asarray(steps), (-1, 1)), len(steps) - 1
    bars, ratio = FACTOR * noise / h, h[1:] / h[:-1]
    better = (slopes[1:, :] - ratio * slopes[:-1, :]) / (1 - ratio)
    # Twice: the next rung has a part of the error itself, half of it where F bends like h^1.5.
    apart = 2 * xp.abs(slopes[:-1, :] - slopes[1:, :])
    # The extrapolation has lost what is linear in h; what is left is at most as large as what it
    # was corrected by, times the ratio of the steps, where F is smooth on this side.
    neighbours = 2 * xp.abs(better[:-1, :] - better[1:, :])
    closer = xp.concat([apart[:1, :], neighbours]) + 2 * bars[1:, :]
    candidates = xp.concat([slopes[:-1, :], better])
    errors = xp.concat([apart + bars[1:, :] + bars[:-1, :], closer])
    found = []
    for k in range(2 * rows):
        finer = [(slopes[f, :], bars[f, :]) for f in range(k % rows + 1, rows + 1)]
        bar = vetoed(xp, candidates[k, :], errors[k, :], finer)
        found.append((candidates[k, :], bar, bar))
    known = best(xp, steps, found, noise)
    return known.value, known.error


def _exponents(xp: Any, h: Array, rises: tuple[Array, Array], noise: Array) -> tuple[Array, Array]:
    """Powers of h with which the even part of F falls, and the odd one approaches its slope."""
    right, left = (finite(rise) for rise in rises)
    even = xp.abs(right - left)
    slopes = (right + left) / (2 * h)
    truncation = xp.abs(slopes[:-1, :] - slopes[1:, :])
    seen = ROUNDINGS * noise + xp.zeros_like(even)
    return _exponent(xp, h, even, seen), _exponent(xp, h[:-1], truncation, seen[1:, :] / h[1:])


def _exponent(xp: Any, h: Array, size: Array, seen: Array) -> Array:
    """With which power of h a quantity falls over the three finest rungs at which it is seen.

    Infinite where it is seen at fewer, where the two pairs of rungs do not agree, and where a
    finer rung should still show it and does not: then the cause lies beside the point, not in it.
    """
    found = before = xp.full_like(size[0, :], xp.inf)
    for k in range(1, size.shape[0]):
        usable = (size[k, :] > seen[k, :]) & (size[k - 1, :] > seen[k - 1, :])
        one = xp.where(usable[None, :], size, 1.0)
        exponent = xp.log(one[k - 1, :] / one[k, :]) / xp.log(h[k - 1, 0] / h[k, 0])
        agree = usable & (xp.abs(exponent - before) < ALIKE)
        found = xp.where(agree, exponent, xp.where(usable, xp.inf, found))
        before = xp.where(usable, exponent, xp.inf)
        if k + 1 < size.shape[0]:
            expected = size[k, :] * (h[k + 1, 0] / h[k, 0]) ** found
            gone = agree & (expected > 4 * seen[k + 1, :]) & (size[k + 1, :] < expected / 4)
            found = xp.where(gone, xp.inf, found)
    return found
