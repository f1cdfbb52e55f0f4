"""Memory layouts of cotangents that are arrays of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

LAYOUTS = ("transposed", "gaps", "offset", "expanded")


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
