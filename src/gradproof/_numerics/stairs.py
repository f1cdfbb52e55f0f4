"""In double precision: outputs that are staircases whose treads slope, and zeros that are lost.

x (1 + erf(x)) far below zero has treads as wide as 1 + erf(x) keeps its value, and on one of them
the slope of its first factor: the finest rungs see a clean line, without any noise and with a
wrong slope. What tells it from a function that bends there is that all that the finest rungs did
not see is a few roundings of 1, where functions saturate, or of the largest output.

Of x (1 + erf(x)) that slope is wrong by far; of its derivative, (1 + erf(x)) + x p(x), by 2 %, the
first term being the smaller one. Truncation by as much would fall with the square of the step. A
gap between two rungs that is not so much smaller than the one before is none: what the finer rung
did not see of its step is noise.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradproof._numerics.robust import finite
from gradproof._space import Array, namespace

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
