"""What is different below double precision, where the finest steps are large themselves.

Curvature and kinks are then still seen at the finest rungs. They must not pass for noise, or no
fine rung could contradict a coarse one; and the spacing of the numbers matters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradproof._numerics.formats import two_to
from gradproof._numerics.robust import median_of_positive
from gradproof._space import Array, namespace

DOUBLE = 1e-12  # unit round-off below which arithmetic counts as double precision
SINGLE = 2.0**-20  # and below which as single; above it, as one of 16 bits or fewer
_DUE = 4.0  # ulp of F by which a rung moves it, unless F is piecewise constant
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


def usual_noise(spread: Array, change: Array, shown: float) -> Array:
    """Of an output that stands still at the finest rungs, the noise that is usual; else 0.

    What moves it may have been rounded away, where that came from larger numbers that cancelled:
    it is known no better than the other outputs.
    """
    xp = namespace(spread)
    still = (change[-1, :] == 0) & (change[-2, :] == 0)
    if not bool(xp.any(still)):
        return xp.zeros_like(spread)
    return xp.where(still, xp.full_like(spread, max(median_of_positive(spread), shown)), 0.0)


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
    steps: Sequence[float],
    change: Array,
    sizes: tuple[Array, Array],
    ulp: Array,
    resolution: float,
) -> Array:
    """Height of the plateau of an output that does not move at all at the finest rungs.

    One rung is enough where the next coarser one moved F on both sides by so much that this one,
    too, should have moved it by several ulp.

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
    due = both[-2, :] & (steps[-1] / steps[-2] * odd[-2, :] > _DUE * ulp)
    still = still & ((change[-2, :] == 0) | due)
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
