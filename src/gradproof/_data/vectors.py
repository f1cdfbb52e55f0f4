"""Long vectors in blocks, and numbers that describe them: sizes, medians, the format of values."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np

from gradproof._data.space import Array

KEPT = 1 << 17  # entries up to which vectors, and evaluations of a ladder, stay in memory
BLOCK = 1 << 13  # entries looked at at a time: what is worked out of them fits a cache


def blocks(array: Array, length: int = BLOCK) -> Sequence[slice]:
    """Consecutive slices of the last dimension, in which an array is read; none if it is empty."""
    size = array.shape[-1]
    if 0 < size <= length:
        return (slice(0, size),)
    return [slice(start, min(start + length, size)) for start in range(0, size, length)]


SAMPLE = 256  # values that a median is taken of, or that are enough to average over


def finite(values: Array) -> Array:
    """The values, 0 where they are not finite."""
    if values.ndim == 1 and math.isfinite(values.dot(values)):
        return values  # as nearly always; the sum of their squares tells it in one call
    known = np.isfinite(values)
    return values if known.all() else np.where(known, values, 0.0)


def rms(values: Array) -> float:
    """Root mean square of the finite values; 0 where there are none."""
    largest = largest_size(values)
    if largest == 0.0:
        return 0.0
    # Squares below the smallest number are nothing beside one that has all digits.
    least = sys.float_info.min / sys.float_info.epsilon
    if least < largest * largest * values.size < math.inf:
        square = float(values.dot(values))
        if square < math.inf:
            return math.sqrt(square / values.size)
    # Scaled first: the square of a small or large double is 0 or infinite.
    total, count = 0.0, 0
    for block in blocks(values, KEPT):
        here = values[block]
        here = here[np.isfinite(here)] / largest
        total += float(here.dot(here))
        count += here.size
    return largest * math.sqrt(total / count)


def largest_size(values: Array) -> float:
    """Size of the largest finite value; 0 where there are none."""
    flat, found = values.reshape(-1), 0.0
    for block in blocks(flat, KEPT):
        size = np.abs(flat[block])
        top = float(size.max())
        found = max(found, top if top < math.inf else float(finite(size).max()))
    return found


def sampled(values: Array) -> Array:
    """A few hundred of the values, evenly spread; all where they are no more."""
    return values[:: max(1, values.shape[0] // SAMPLE)]


def median_of_positive(values: Array, *, zero: bool = False) -> float:
    """Median of the positive values, of a sample of them where they are many; 0 without any.

    With `zero` those that are zero count too.
    """
    ordered = np.sort(sampled(values))
    zeros = int(ordered.searchsorted(0.0, "left" if zero else "right"))
    middle = zeros + (ordered.shape[0] - zeros) // 2
    return float(ordered[middle]) if middle < ordered.shape[0] else 0.0


EXPONENT = int(np.asarray(np.inf).view(np.int64))  # bits of a double without sign and digits


def two_to(exponent: Array) -> Array:
    """Two to the power of whole numbers, exactly."""
    return 2.0**exponent


def all_of(values: Array, unit: float) -> bool:
    """Whether every value, and at least one that is not zero, is a number of unit round-off `unit`.

    The range of the format is not looked at.
    """
    used = values[np.isfinite(values) & (values != 0)]
    if not used.size:
        return False
    spacing = 2 * unit * two_to(np.floor(np.log2(np.abs(used))))
    return bool(np.all(used / spacing == np.round(used / spacing)))


def need_more(values: Array, unit: float) -> bool:
    """Whether some value is no number of unit round-off `unit`, and not all of them are zero."""
    return bool(np.any(values != 0)) and not all_of(values, unit)
