"""Every step that F is moved by, for every precision and purpose: one table.

A step h is in parts of the scale of a coordinate (`probes.scales`), a power of two, so that
x +- h u is exact. eps is the unit round-off of F's arithmetic. A central difference is off by
h^2 F''' / 6 and eps F / h, which are equal at h = eps^(1/3); a one-sided one by h F'' / 2 and
eps F / h, equal at eps^(1/2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gradproof._data.settings import DOUBLE
from gradproof._data.settings import SINGLE as SINGLE  # others ask for it here


@dataclass(frozen=True)
class Plan:
    """Steps of a ladder: `top * ratio**k` for k < rungs; added ones lie in smallest to largest."""

    top: float = 2.0**-6
    ratio: float = 2.0**-8
    rungs: int = 4
    largest: float = 1.0
    smallest: float = 2.0**-40

    def steps(self) -> list[float]:
        return [self.top * self.ratio**k for k in range(self.rungs)]

    @classmethod
    def of(cls, resolution: float) -> Plan:
        """For the slope of a function in arithmetic of this unit round-off."""
        if resolution >= 2.0**-10:
            return replace(_SLOPE[2], rungs=5, smallest=2.0**-5)
        return _SLOPE[_row(resolution)]


def _row(resolution: float) -> int:
    """The row of the tables below: double precision, single, 16 bits and fewer."""
    return 0 if resolution < DOUBLE else 1 if resolution < SINGLE else 2


# The slope on both sides. x moves by 1 % at first, where two levels of extrapolation leave 1e-12 of
# a function that is as long as x; the last rung but one is below eps^(1/3), the last hears noise.
# In single precision there is no room for so wide a ratio. Of 16 bits every step is planned and
# none added: larger ones leave the region in which F is smooth, smaller ones move x by less than
# its last bit.
_SLOPE = (
    Plan(),
    Plan(top=0.25, ratio=0.25, rungs=6, smallest=2.0**-17),
    Plan(top=0.5, ratio=0.5, rungs=6, largest=0.5, smallest=2.0**-6),
)
# The same of evaluations that are not kept: of smooth outputs three rungs, or four in single
# precision, leave bars a few times wider, at three quarters of the calls, memory and time.
_LEAN = (
    Plan(top=2.0**-10, ratio=2.0**-4, rungs=3),
    Plan(top=0.25, ratio=0.25, rungs=4, smallest=2.0**-17),
)
# The slope on either side. More rungs, closer together: the finest tell a kink in the point from
# one beside it, and five of them whether F jumps or has an infinite slope (`one_sided`). Those of
# the slope on both sides are among them.
_SIDES = (
    Plan(ratio=2.0**-4, rungs=7),
    Plan(top=0.25, ratio=0.25, rungs=8),
    Plan(top=0.5, ratio=0.5, rungs=6),
)
DOWN, UP = 2.0**-5, 2.0**6  # from the finest, or coarsest, rung to one that is added
_CLOSE = 2.0**-4  # between rungs around a best step that is known
# The longest of the steps; the best of a function that is smooth, where none was measured; and the
# finest, which is the least that the longest may be.
_LONGEST, USUAL, _, _FINEST = Plan().steps()


def slope(resolution: float, limit: float | None, *, lean: bool = False) -> Plan:
    """Both sides of x; `limit` is the largest step that is allowed, None for any."""
    row = _row(resolution)
    plan = _LEAN[row] if lean and row < len(_LEAN) else Plan.of(resolution)
    if limit is None:
        return plan
    top = 2.0 ** math.floor(math.log2(limit))
    if row:
        return replace(plan, top=min(top, 1.0), largest=top)
    top = max(min(top, 1.0), _FINEST)
    # Four rungs no further apart than the usual ones, the last no finer than a step may be.
    ratio = 2.0 ** -min(8, max(2, int(math.log2(top / plan.smallest) / 3)))
    return replace(plan, top=top, ratio=ratio, largest=top)


def sides(resolution: float, limit: float | None, *, fine: bool = False) -> Plan:
    """Each side of x by itself; `fine` down to where double precision still tells a slope."""
    plan = _SIDES[_row(resolution)]
    if fine and resolution < DOUBLE:
        plan = replace(plan, rungs=plan.rungs + 2)
    if limit is None:
        return plan
    return replace(plan, top=min(2.0 ** math.floor(math.log2(limit)), plan.top))


def short(plan: Plan, best: float) -> Plan:
    """A further direction in double precision: three rungs around the best step."""
    top = max(min(best / _CLOSE, _LONGEST), 2.0**-32)
    return replace(plan, top=top, ratio=_CLOSE, rungs=3)


def two(plan: Plan, best: float) -> Plan:
    """The best step and one below it: the least that tells a slope and its bar."""
    return replace(plan, top=best, ratio=_CLOSE, rungs=2)


def one_sided(resolution: float) -> float:
    """The best step of one one-sided difference, eps^(1/2): 2^-26, in single precision 2^-12.

    x + h u has more digits than F has in half as many bits.
    """
    return 2.0 ** round(math.log2(resolution) / 2)


def still(resolution: float) -> float:
    """A step so fine that no tread worth the name ends there, with digits of x to spare.

    In double precision the finest of those of the slope, which was made before; in single 2^-20.
    """
    return _FINEST if resolution < DOUBLE else 2.0**-20


# How far nearby points lie, in the same parts.
# What is tied is no longer, nor is x a number of few bits, and F bends by less than slopes differ.
TIE = USUAL
SMOOTH = _LONGEST  # ties and kinks are left behind, the region of the point is not
FAR = (0.5, 1.0, 2.0, 4.0, 16.0)  # where a function that stands still may move
# A second point: the first move an entry by up to three quarters of its size.
SECOND = (FAR[0], -FAR[0], _CLOSE, -_CLOSE)
SMALL = (1.0, 2.0**-2, 2.0**-5)  # likewise, of points that small
