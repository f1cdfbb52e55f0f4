"""What is different below double precision, where the finest steps are large themselves.

Curvature and kinks are then still seen at the finest rungs. They must not pass for noise, or no
fine rung could contradict a coarse one; and the spacing of the numbers matters.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradproof._space import Array, namespace

DOUBLE = 1e-12  # unit round-off below which arithmetic counts as double precision
SINGLE = 2.0**-20  # and below which as single; above it, as one of 16 bits or fewer
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


def sure_noise(steps: Sequence[float], even: Array) -> Array:
    """Noise of one evaluation that is surely there, from the even parts of the two finest rungs.

    The even part e_k is noise, of standard deviation 1.22, and a smooth part, or a kink's, which
    only add to it in the mean: the smaller one of e_k and e_k - (h_k/h_{k-1})^2 e_{k-1} has less
    of them. An output counts at least the median of all.
    """
    xp = namespace(even)
    fine = even[-1, :]
    own = xp.minimum(xp.abs(fine), xp.abs(fine - (steps[-1] / steps[-2]) ** 2 * even[-2, :])) / 1.22
    ordered = xp.sort(own[:: max(1, own.shape[0] // _SAMPLE)])
    return xp.maximum(own, xp.zeros_like(own) + ordered[ordered.shape[0] // 2])


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
