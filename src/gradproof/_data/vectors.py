"""Long vectors in little memory: packed where nothing is lost, and read block by block."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from gradproof._data.space import Array, namespace

KEPT = 1 << 17  # entries up to which vectors, and evaluations of a ladder, stay in memory
BLOCK = 1 << 13  # entries looked at at a time: what is worked out of them fits a cache
_ELSEWHERE = 1 << 24  # likewise on a device, where every look is a transfer
# A number of float32 has 24 bits where it is no smaller than this.
_NORMAL = 2.0**-126


def blocks(array: Array, length: int = BLOCK) -> Iterator[slice]:
    """Consecutive slices of the last dimension, in which an array is read; none if it is empty."""
    size = array.shape[-1]
    length = length if type(array) is np.ndarray else max(length, _ELSEWHERE)
    for start in range(0, size, length):
        yield slice(start, min(start + length, size))


def packed(vector: Array) -> Array:
    """The same numbers in single precision, where that holds all of them; itself if not.

    Probes have eleven bits and exponents near 0.
    """
    xp = namespace(vector)
    short = xp.astype(vector, xp.float32)
    same = all(bool(xp.all(short[block] == vector[block])) for block in blocks(vector))
    return short if same else vector


def unpacked(vector: Array) -> Array:
    """A vector in double precision again; itself if it is."""
    if type(vector) is np.ndarray:
        return vector if vector.dtype == np.float64 else vector.astype(np.float64)
    return namespace(vector).astype(vector, namespace(vector).float64, copy=False)


def halved(vector: Array) -> Array:
    """The vector to 24 bits, in half the memory; itself where its exponents do not fit."""
    short = namespace(vector).empty(vector.shape[0], dtype=namespace(vector).float32)
    for block in blocks(vector):
        if not put(short, block, vector[block]):
            return vector
    return short


def put(short: Array, where: slice, values: Array) -> bool:
    """Write values into a vector of single precision; False where their exponents do not fit."""
    xp = namespace(values)
    short[where] = values
    size = xp.abs(short[where])
    if bool(xp.all(size >= _NORMAL)) and bool(xp.all(size < xp.inf)):  # as nearly always
        return True
    fits = (xp.isfinite(size) & (size >= _NORMAL)) | (values == 0) | ~xp.isfinite(values)
    return bool(xp.all(fits))


# Sizes and medians that a few odd values do not spoil.


SUMMED = 1 << 16  # entries added up at a time
_SAMPLE = 250  # values of which a median is taken


def finite(values: Array) -> Array:
    """The values, 0 where they are not finite."""
    xp = namespace(values)
    known = xp.isfinite(values)
    return values if bool(xp.all(known)) else xp.where(known, values, xp.zeros_like(values))


def rms(values: Array) -> float:
    """Root mean square of the finite values; 0 where there are none."""
    largest = largest_size(values)
    if largest == 0.0:
        return 0.0
    # Scaled first: the square of a small or large double is 0 or infinite.
    if type(values) is np.ndarray and values.size <= SUMMED:
        here = values / largest
        square = float(here @ here)
        if square < math.inf:
            return largest * math.sqrt(square / values.size)
    xp, total, count = namespace(values), 0.0, 0
    for block in blocks(values, SUMMED):
        here = values[block]
        here = here[xp.isfinite(here)]
        here = here / largest
        total += float(xp.vecdot(here, here))
        count += here.shape[0]
    return largest * math.sqrt(total / count)


def largest_size(values: Array) -> float:
    """Size of the largest finite value; 0 where there are none."""
    if type(values) is np.ndarray and 0 < values.size <= SUMMED:
        top = float(np.maximum.reduce(np.abs(values)))
        if top < math.inf:
            return top
    xp, found = namespace(values), 0.0
    for block in blocks(values, SUMMED):
        size = xp.abs(values[block])
        found = max(found, float(xp.max(xp.where(xp.isfinite(size), size, 0.0))))
    return found


def sampled(values: Array) -> Array:
    """A few hundred of the values, evenly spread; all where they are no more."""
    return values[:: max(1, values.shape[0] // _SAMPLE)]


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


# A power function may be off by a few units in the last place; below 2^900 there is room to cut.
_CUT, _ROOM = 2.0**30 + 1, 2.0**900


def two_to(exponent: Array) -> Array:
    """Two to the power of whole numbers, exactly.

    NumPy's power function is exact there. That of a device need not be: what it gives is cut to
    23 bits (Veltkamp 1968), which leaves a power of two as it is.
    """
    power = 2.0**exponent
    if type(power) is np.ndarray:
        return power
    wide = _CUT * power
    return namespace(power).where(power < _ROOM, wide - (wide - power), power)


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
