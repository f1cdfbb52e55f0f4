"""Long vectors in little memory: packed where nothing is lost, and read block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gradproof._space import Array, namespace

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
    """The same numbers in the shortest floating type that holds all of them.

    Probes have eleven bits and exponents near 0: a quarter of the memory.
    """
    xp = namespace(vector)
    for dtype in _short_types(xp):
        short = xp.astype(vector, dtype)
        if _holds(short, vector):
            return short
    return vector


def unpacked(vector: Array) -> Array:
    """A vector in double precision again; itself if it is."""
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
    fits = (xp.isfinite(size) & (size >= _NORMAL)) | (values == 0) | ~xp.isfinite(values)
    return bool(xp.all(fits))


def _short_types(xp: Any) -> list[Any]:
    """Shorter floating types of an array library; half precision is not in the standard."""
    return [getattr(xp, name) for name in ("float16", "float32") if hasattr(xp, name)]


def _holds(short: Array, vector: Array) -> bool:
    xp = namespace(vector)
    return all(
        bool(xp.all(xp.astype(short[block], xp.float64) == vector[block]))
        for block in blocks(vector)
    )
