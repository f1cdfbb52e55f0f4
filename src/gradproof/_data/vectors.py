"""Long vectors, read block by block, and numbers that describe many."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np

from gradproof._data.space import FORMATS, Array, namespace

KEPT = 1 << 17  # entries up to which vectors, and evaluations of a ladder, stay in memory
BLOCK = 1 << 13  # entries looked at at a time: what is worked out of them fits a cache
_ELSEWHERE = 1 << 24  # likewise on a device, where every look is a transfer


def blocks(array: Array, length: int = BLOCK) -> Sequence[slice]:
    """Consecutive slices of the last dimension, in which an array is read; none if it is empty."""
    size = array.shape[-1]
    length = length if type(array) is np.ndarray else max(length, _ELSEWHERE)
    if 0 < size <= length:
        return (slice(0, size),)
    return [slice(start, min(start + length, size)) for start in range(0, size, length)]


# Sizes and medians that a few odd values do not spoil.


SAMPLE = 256  # values that a median is taken of, or that are enough to average over


def finite(values: Array) -> Array:
    """The values, 0 where they are not finite."""
    if type(values) is np.ndarray and values.ndim == 1 and math.isfinite(values.dot(values)):
        return values  # as nearly always; the sum of their squares tells it in one call
    xp = namespace(values)
    known = xp.isfinite(values)
    return values if bool(xp.all(known)) else xp.where(known, values, xp.zeros_like(values))


def rms(values: Array) -> float:
    """Root mean square of the finite values; 0 where there are none."""
    largest = largest_size(values)
    if largest == 0.0:
        return 0.0
    # Squares below the smallest number are nothing beside one that has all digits.
    least = sys.float_info.min / sys.float_info.epsilon
    if type(values) is np.ndarray and least < largest * largest * values.size < math.inf:
        square = float(values.dot(values))
        if square < math.inf:
            return math.sqrt(square / values.size)
    # Scaled first: the square of a small or large double is 0 or infinite.
    xp, total, count = namespace(values), 0.0, 0
    for block in blocks(values, KEPT):
        here = values[block]
        here = here[xp.isfinite(here)]
        here = here / largest
        total += float(xp.vecdot(here, here))
        count += here.shape[0]
    return largest * math.sqrt(total / count)


def largest_size(values: Array) -> float:
    """Size of the largest finite value; 0 where there are none."""
    if type(values) is np.ndarray and 0 < values.size <= KEPT:
        top = float(np.maximum.reduce(np.abs(values), axis=None))
        if top < math.inf:
            return top
    xp, found = namespace(values), 0.0
    for block in blocks(values, KEPT):
        here = values[block]
        top = max(float(xp.max(here)), -float(xp.min(here)))
        if not top < math.inf:
            size = xp.abs(here)
            top = float(xp.max(finite(size)))
        found = max(found, top)
    return found


def sampled(values: Array) -> Array:
    """A few hundred of the values, evenly spread; all where they are no more."""
    return values[:: max(1, values.shape[0] // SAMPLE)]


def median_of_positive(values: Array, *, zero: bool = False) -> float:
    """Median of the positive values, of a sample of them where they are many; 0 without any.

    With `zero` those that are zero count too.
    """
    xp = namespace(values)
    ordered = xp.sort(sampled(values))
    side = "left" if zero else "right"
    zeros = int(xp.searchsorted(ordered, xp.zeros(1, dtype=ordered.dtype), side=side)[0])
    middle = zeros + (ordered.shape[0] - zeros) // 2
    return float(ordered[middle]) if middle < ordered.shape[0] else 0.0


# Floating-point formats, as their numbers show them.


EXPONENT = int(np.asarray(np.inf).view(np.int64))  # bits of a double without sign and digits
_CUT = FORMATS["float32"].unit / FORMATS["float64"].unit


def two_to(exponent: Array) -> Array:
    """Two to the power of whole numbers, exactly.

    NumPy's power function is exact there. That of a device may be off by a few units in the last
    place: what it gives is cut to single precision (Veltkamp 1968), which leaves a power of two.
    """
    power = 2.0**exponent
    if type(power) is np.ndarray:
        return power
    wide = (_CUT + 1) * power
    cut = wide - (wide - power)  # no number where there is no room to cut
    return namespace(power).where(cut < math.inf, cut, power)


def all_of(values: Array, unit: float) -> bool:
    """Whether every value, and at least one that is not zero, is a number of unit round-off `unit`.

    The range of the format is not looked at.
    """
    xp = namespace(values)
    used = values[xp.isfinite(values) & (values != 0)]
    if used.shape[0] == 0:
        return False
    spacing = 2 * unit * two_to(xp.floor(xp.log2(xp.abs(used))))
    return bool(xp.all(used / spacing == xp.round(used / spacing)))


def need_more(values: Array, unit: float) -> bool:
    """Whether some value is no number of unit round-off `unit`, and not all of them are zero."""
    return bool(namespace(values).any(values != 0)) and not all_of(values, unit)
