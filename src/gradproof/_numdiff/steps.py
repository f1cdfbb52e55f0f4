"""Every step by which F is moved: step tables for each precision, and the scale of a coordinate.

A step h is a pure number. Along a direction u the point moves by ``h * u``, and u is as large as
the scale of each coordinate, a power of two near its size. So ``x + h * u`` and ``x - h * u`` are
exact in floating point, and a step means the same part of every input.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np

from gradproof._data.formats import DOUBLE, SINGLE
from gradproof._data.space import Slot, Space, Values

NEARBY = 2.0**-20  # of a scale: so near that only a kink makes slopes differ
SHORT_STEP = NEARBY / 64  # of a plain difference at such a point
NEIGHBOUR = 2.0**-6  # of a scale: ties and kinks at the point are left behind


@dataclass(frozen=True)
class StepTable:
    """A geometric sequence of steps: ``largest * ratio**k`` for k < count."""

    largest: float
    ratio: float
    count: int

    @functools.cached_property
    def steps(self) -> Values:
        """The steps, (count,), decreasing."""
        return np.asarray(self.largest * self.ratio ** np.arange(self.count), float)

    def with_limit(self, limit: float | None) -> StepTable:
        """The same number of steps, the largest at most `limit` (None: no limit)."""
        if limit is None or limit >= self.largest:
            return self
        return replace(self, largest=2.0 ** math.floor(math.log2(limit)))


@dataclass(frozen=True)
class StepTables:
    """The step tables of one precision.

    Attributes:
        quick: two steps, which tell the slope of an output that is plainly smooth; None where the
            precision leaves no room for them.
        usual: for the other outputs.
        fine: for what the usual table leaves unresolved.
    """

    quick: StepTable | None
    usual: StepTable
    fine: StepTable


# A central difference is off by h^2 F''' / 6 + eps F / h, which is least near h = eps^(1/3), 2^-17
# in float64. Of two steps the finer one is a little below that, where h^2 no longer matters, and
# the coarser one shows what stands still near the point. The usual table brackets the best step
# widely, so that two levels of Richardson extrapolation remove h^2 and h^4, and its finest step
# shows the noise of F. The fine table has steps that are closer together, and starts further out.
_TABLES = (
    (
        DOUBLE,
        StepTable(2.0**-6, 2.0**-14, 2),
        StepTable(2.0**-6, 2.0**-8, 4),
        StepTable(2.0**-2, 2.0**-4, 11),
    ),
    (SINGLE, None, StepTable(2.0**-2, 2.0**-2, 6), StepTable(2.0, 0.5, 13)),
    (math.inf, None, StepTable(0.5, 0.5, 6), StepTable(2.0, 0.5, 8)),
)


@functools.lru_cache(maxsize=64)
def step_tables(unit: float, limit: float | None = None) -> StepTables:
    """The step tables for arithmetic of unit round-off `unit`.

    Args:
        unit: unit round-off in which F is computed.
        limit: largest step, in parts of a scale; None for no limit.
    """
    _, quick, usual, fine = next(row for row in _TABLES if unit < row[0])
    quick = None if quick is None else quick.with_limit(limit)
    return StepTables(quick, usual.with_limit(limit), fine.with_limit(limit))


def coordinate_scales(space: Space, point: Values, least: float = 1 / 16) -> Values:
    """A power of two near the size of each coordinate, (n,).

    Both coordinates of a complex entry share a scale. Zero gets the median of its array, or 1 where
    the whole array is zero. No scale is below the part `least` of the median: a tiny coordinate
    among larger ones is moved by more than rounding. A largest step (7/4 of a scale) stays inside
    the limits of an input. An entry at a limit has scale 0: it is not moved.
    """
    found = np.empty(space.size)
    for position, slot in enumerate(space.slots):
        if slot.size:
            span = space.span(position)
            found[span] = _scales_of_slot(slot, point[span], least)
            if slot.still is not None:
                found[span][slot.still] = 0.0
    return found


def _scales_of_slot(slot: Slot, values: Values, least: float) -> Values:
    size = np.abs(values)
    if len(slot.parts) == 2:
        size = np.repeat(size.reshape(-1, 2).max(axis=1), 2)
    sample = size[:: max(1, size.size // 1024)]  # the median of a sample is near enough
    positive = sample[sample > 0]
    if positive.size:
        middle = positive.size // 2  # `np.median` takes as long as the rest
        typical = float(np.partition(positive, middle)[middle])
    else:
        typical = float(size.max()) or 1.0
    floor = max(typical * least, slot.grain.normal)
    size = np.maximum(np.where(size > 0, size, max(typical, floor)), floor)
    # Room above for sums and multiples of a direction, and for a few steps to either side.
    size = np.minimum(size, slot.grain.largest / 1024)
    size = np.asarray(np.ldexp(1.0, np.frexp(size)[1] - 1))  # the power of two below, or equal
    low, high = slot.limits
    if low > -math.inf or high < math.inf:
        room = np.maximum(np.minimum(values - low, high - values), 0.0)
        with np.errstate(divide="ignore"):
            size = np.minimum(size, 2.0 ** (np.floor(np.log2(room)) - 1))
    return size
