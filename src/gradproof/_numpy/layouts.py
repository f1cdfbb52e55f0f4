"""Memory layouts of cotangents that are arrays of NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def layouts_for(shapes: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
    """The layouts that change how a cotangent of one of these shapes lies in memory."""
    sizes = [np.prod(shape, dtype=int) for shape in shapes]
    if not any(sizes) or not all(shapes):
        return ()
    many = any(size > 1 for size in sizes)
    square = any(sum(extent > 1 for extent in shape) > 1 for shape in shapes)
    fits = {"transposed": square, "gaps": many, "offset": True, "expanded": many}
    return tuple(layout for layout, is_of_use in fits.items() if is_of_use)


def in_layout(array: Any, layout: str) -> Any:
    """The values of a contiguous array in another memory layout.

    "expanded" has stride 0 where entries are equal. What lies between or before them is NaN.
    """
    if not array.size or not array.ndim:
        return array
    if layout == "transposed":
        return np.asfortranarray(array)
    if layout == "expanded":
        fewer = array
        for axis in range(array.ndim):
            first = fewer.take([0], axis)
            fewer = first if (first == fewer).all() else fewer
        return np.broadcast_to(fewer, array.shape)
    step, start = (2, 4) if layout == "gaps" else (1, 3)
    wide = np.full(start + step * array.size, np.nan, dtype=array.dtype)[start:]
    view = wide.reshape(*array.shape[:-1], step * array.shape[-1])[..., ::step]
    view[...] = array
    return view
