"""Rounding up or down at random, to one of the two neighbours in a coarser arithmetic.

A number of that arithmetic is left alone: ties stay ties, whole numbers stay whole, and what is
selected or copied is not changed. The mean is that of the exact number, nearly (stochastic
rounding: Croci et al. 2022, Royal Society Open Science 9): a number just beside one of the coarse
arithmetic would be rounded to that in every one of a few runs, while the same number in a kernel,
which sums in another order, may come out on its other side. So neither neighbour has less than a
chance of a quarter. A constant of the function is no result: in each run it is the nearest one, as
in the coarse arithmetic itself, where 0.3 is 0.30078125 in bfloat16 whatever is done with it.
"""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np

from gradproof._data.space import Array, namespace
from gradproof._data.vectors import EXPONENT
from gradproof._measure.sizes import FINE

# Arithmetic in which doubles can be rounded. Errors of a finer one are smaller in proportion, but
# for those that cross a tie, which then count for less than any rtol.
ROUNDABLE = 2.0**-40
_LEAST = 0.25


def _library_of(values: Array) -> Any:
    """The library of the arrays whose operations are rounded: PyTorch's are rounded as tensors."""
    if type(values) is np.ndarray:
        return namespace(values)
    return array_api_compat.array_namespace(values)


def _spacing(values: Array, unit: float, tiny: float) -> Array:
    """The spacing of the coarse numbers around each value."""
    xp = _library_of(values)
    power = (values.view(xp.int64) & EXPONENT).view(xp.float64)
    power *= 2 * unit
    return xp.clip(power, tiny, None)


@np.errstate(all="ignore")  # what is not finite has no rest, and the largest no neighbour
def rounded_at_random(values: Array, draws: Array | None, unit: float, tiny: float) -> Array:
    """The values, each at one of its neighbours among the coarse numbers.

    Args:
        values: those that are not finite are left as they are.
        draws: uniform in [0, 1), one for each; None where they are rounded to nearest instead.
        unit: unit round-off of the arithmetic.
        tiny: its smallest positive number. Where the spacing is that, the mean is exact: sums of
            numbers that are all far smaller would else be off by a quarter of it.
            With 0 it has no grid: every number but 0 moves by up to a spacing, those too that a
            coarse number would hold, as what 1 - 1e-13 was rounded from is not seen on a grid.
    """
    xp = _library_of(values)
    spacing = _spacing(values, unit, tiny)
    if draws is None:
        found = xp.round(values / spacing) * spacing
        return xp.where(xp.isfinite(found), found, values)
    if not tiny:
        moved = values + (2 * draws - 1) * spacing
        return xp.where(xp.isfinite(moved) & (values != 0), moved, values)
    rest = values / spacing
    found = xp.floor(rest)
    rest -= found
    chance = xp.where(spacing > tiny, xp.clip(rest, _LEAST, 1 - _LEAST), rest)
    # On a coarse number, but for the rounding of doubles, it stays there.
    chance = xp.where(xp.abs(rest - 0.5) > 0.5 - FINE, xp.round(rest), chance)
    found += xp.astype(draws < chance, found.dtype)
    found *= spacing
    return xp.where(xp.isfinite(found), found, values)


def nearest(values: Array, unit: float, tiny: float) -> Array:
    """The values, each at the nearest coarse number, as constants of the function are.

    Args:
        values: left as they are where the nearest number is no finite one, or 0: who adds 1e-8
            in float16 adds it in more bits.
        unit: unit round-off of the arithmetic.
        tiny: its smallest positive number. With 0 it has no grid: all are left.
    """
    xp = _library_of(values)
    spacing = _spacing(values, unit, tiny)
    found = xp.round(values / spacing) * spacing if tiny else values
    return xp.where(xp.isfinite(found) & (found != 0), found, values)
