"""Rounding up or down at random, to one of the two neighbours in a coarser arithmetic.

A number of that arithmetic is left alone: ties stay ties, whole numbers stay whole, and what is
selected or copied is not changed. The mean is that of the exact number, nearly (stochastic
rounding: Croci et al. 2022, Royal Society Open Science 9): a number just beside one of the coarse
arithmetic would be rounded to that in every one of a few runs, while the same number in a kernel,
which sums in another order, may come out on its other side. So neither neighbour has less than a
chance of a quarter. A constant of the function is no result: in each run it is the nearest one, as
in the coarse arithmetic itself, where 0.3 is 0.30078125 in bfloat16 whatever is done with it.

The formulas use only functions that NumPy and PyTorch share; `xp` is the module of the arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_EXPONENT = int(np.asarray(np.inf).view(np.int64))  # bits of a double without sign and digits
_LEAST = 0.25  # chance of either neighbour
_ON_GRID = (
    1e-6  # of a spacing: so near to a coarse number, a double is that number but for rounding
)


def _spacing(values: Any, unit: float, tiny: float, xp: Any) -> Any:
    """The spacing of the coarse numbers around each value."""
    power = (values.view(xp.int64) & _EXPONENT).view(xp.float64) * (2 * unit)
    return power.clip(tiny, None)  # `xp.clip` takes twice as long in NumPy


@np.errstate(all="ignore")  # what is not finite has no neighbour
def round_at_random(values: Any, draws: Any, unit: float, tiny: float, xp: Any = np) -> Any:
    """The values, each at one of its neighbours among the coarse numbers.

    Args:
        values: doubles; those that are not finite are left as they are.
        draws: uniform in [0, 1), one for each.
        unit: unit round-off of the arithmetic.
        tiny: its smallest positive number. Where the spacing is that, the mean is exact: sums of
            numbers that are all far smaller would else be off by a quarter of it.
            With 0 it has no grid: every number but 0 moves by up to a spacing, those too that a
            coarse number would hold, as what 1 - 1e-13 was rounded from is not seen on a grid.
        xp: module of the arrays: `numpy` or `torch`.
    """
    if not tiny:
        moved = values + (2 * draws - 1) * _spacing(values, unit, tiny, xp)
        return xp.where(xp.isfinite(moved) & (values != 0), moved, values)
    # A part of a spacing is added, and what is then beyond a coarse number is cut off: of a rest r
    # a part of at least 1 - r reaches the next one. As whole numbers, the bits of doubles of one
    # sign are in order, and a coarse spacing is always as many of them. On a coarse number, but
    # for the rounding of doubles, a value stays there: no part is quite 0 or 1.
    count = int(2.0**53 * unit)
    parts = xp.where(xp.abs(draws - 0.5) < 0.5 - _LEAST, draws, draws > 0.5)
    parts = parts.clip(_ON_GRID, 1 - _ON_GRID)
    parts *= count
    found = xp.asarray(parts, dtype=xp.int64)
    found += values.view(xp.int64)
    found &= -count
    found = found.view(xp.float64)
    found = xp.where(xp.isfinite(found), found, values)
    is_usual = xp.abs(values) >= tiny / (2 * unit)
    if is_usual.all():
        return found
    return xp.where(is_usual, found, xp.floor(values / tiny + draws) * tiny)  # small, or NaN


@np.errstate(all="ignore")
def round_to_nearest(values: Any, unit: float, tiny: float, xp: Any = np) -> Any:
    """The values, each at the nearest coarse number, as constants of the function are.

    Args:
        values: doubles; left as they are where the nearest number is no finite one, or 0: who adds
            1e-8 in float16 adds it in more bits.
        unit: unit round-off of the arithmetic.
        tiny: its smallest positive number. With 0 it has no grid: all are left.
        xp: module of the arrays: `numpy` or `torch`.
    """
    if not tiny:
        return values
    spacing = _spacing(values, unit, tiny, xp)
    found = xp.round(values / spacing) * spacing
    return xp.where(xp.isfinite(found) & (found != 0), found, values)
