"""The law: whether a claimed derivative is right, wrong or open. Nothing else decides it.

    m = [low, high] +- b   measured: the slope of F, an interval where F has a kink
    c +- s                 claimed by the framework, s being its own rounding
    t = atol + rtol |m|    what the user allows

*Wrong*: the distance of c to m is larger than b + s + t. *Right*: it is not, and b + s is small
beside the scale. *Open*: otherwise. NaN is never right. What is allowed does not depend on the size
of an array. A special case may widen m, b or s; it never changes a verdict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gradproof._data.formats import DOUBLE
from gradproof._data.space import Mask, Values
from gradproof._numdiff.slopes import Slopes

RESOLUTION = 1e-2  # a bar of this part of a slope still tests it
SHARP_RESOLUTION = 1e-3  # likewise along a direction in double precision, where more can be had
SMALL = 1e-4  # slopes below this part of the typical one need not be tested to a part of themselves
_ROUNDINGS = 2.0**8  # of the largest term, that a claim may be off by: a chain of operations
_SHARE_OF_ENTRIES = 3.0  # n terms of random signs are seldom larger than 3 sqrt(n) of the largest


@dataclass(frozen=True)
class Resolution:
    """How small an error bar must be to test a slope, in parts.

    Attributes:
        of_row: of a slope along a direction.
        of_entry: of a single entry.
        small: part of the typical slope below which a slope is as good as zero.
    """

    of_row: float
    of_entry: float
    small: float

    @classmethod
    def from_unit(cls, unit: float, of_entry: float) -> Resolution:
        """For arithmetic of unit round-off `unit`; few bits do not tell small slopes apart."""
        if unit < DOUBLE:
            return cls(min(SHARP_RESOLUTION, of_entry), of_entry, SMALL)
        return cls(of_entry, of_entry, 1.0)


@dataclass(frozen=True)
class Decisions:
    """The decision of every comparison, (k,) masks: what is neither wrong nor open is right.

    Attributes:
        wrong: refuted.
        open: not tested sharply enough, and not refuted.
        bound: how far the right ones may be off, in parts of their own size or the typical one.
        allowed: b + s + t of each.
    """

    wrong: Mask
    open: Mask
    bound: float
    allowed: Values

    @property
    def are_all_right(self) -> bool:
        return not (self.wrong.any() or self.open.any())


def decide(
    measured: Slopes,
    claimed: Values,
    rounding: Values | float,
    tolerance: Values | float,
    typical: Values | float,
    resolution: float,
    small: float = SMALL,
    largest: Values | None = None,
) -> Decisions:
    """Decide every comparison of a claimed with a measured slope, (k,).

    Args:
        measured: m and b.
        claimed: c.
        rounding: s.
        tolerance: t.
        typical: the usual size of slopes beside each.
        resolution: part of its scale that b + s must be below for a slope to be tested.
        small: part of `typical` that counts as zero: such a slope is tested beside `typical`.
        largest: of the same row or column, in parts of which the bound is; None for `typical`.
    """
    with np.errstate(all="ignore"):
        gap, bar = measured.gap(claimed), measured.bar
        known = np.isfinite(bar) & ~np.isnan(measured.middle)
        infinite = np.isinf(claimed)
        size = np.where(infinite, measured.size, np.maximum(measured.size, np.abs(claimed)))
        scale = np.maximum(size, small * np.maximum(typical, measured.steepness))
        tested = known & (bar + rounding <= resolution * scale)
        tested |= measured.still & (claimed == 0)
        allowed = bar + rounding + tolerance
        wrong = known & ~((gap <= allowed) & (gap < np.inf))  # NaN is wrong
        wrong |= np.isnan(claimed) & np.isfinite(measured.noise)
        wrong &= ~(infinite & ~known)  # of an infinite claim a missing bar says nothing
        floor = np.maximum(size, typical if largest is None else largest)
        # What only the tolerance excuses is an error of that entry, in parts of itself.
        excused = gap > bar + rounding
        floor = np.where(excused, np.maximum(size, small * np.asarray(typical)), floor)
        parts = np.where(tested & ~wrong & (floor > 0), (gap + bar + rounding) / floor, 0.0)
        bound = float(np.fmax.reduce(parts, initial=0.0))
        return Decisions(wrong, ~tested & ~wrong, bound, allowed)


def rounding_of_claim(unit: float, *sizes: Values | float) -> Values:
    """What a claim may be off by its own rounding, s: a part of the largest of some sizes."""
    size = np.zeros(1)
    for other in sizes:
        absolute = np.abs(other)
        if not np.isfinite(absolute.sum()):
            absolute = np.nan_to_num(absolute, nan=0.0, posinf=0.0)
        size = np.maximum(size, absolute)
    return np.asarray(rounding_part(unit) * size)


def rounding_part(unit: float) -> float:
    """The part of its largest term that a claim may be off by."""
    unit = max(unit, 2.0**-53)
    return min(unit * _ROUNDINGS, math.sqrt(unit))


def bound_of_entry(part: float, inputs: int) -> float:
    """The largest wrong entry that may hide in a row that is right to `part` of its slope.

    In parts of the largest entry of the row, or of a typical row. A row of n entries has a slope of
    at most 3 sqrt(n) of its largest along a random tangent, and shows a wrong entry by at least
    half of it.
    """
    return 2 * part * min(inputs, _SHARE_OF_ENTRIES * math.sqrt(inputs)) if inputs > 1 else part
