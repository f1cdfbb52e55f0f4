"""Memory layouts of cotangents that are arrays of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

# Code that errs where a cotangent begins inside a larger array errs with gaps too, and so does code
# that takes no account of strides where they are 0: two layouts are enough.
LAYOUTS = ("transposed", "gaps")


def in_layout(array: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
    """The values of a contiguous array in another memory layout; NaN lies in the gaps.

    A single number has no other layout.
    """
    if not array.ndim:
        return array
    if layout == "transposed":
        return np.asfortranarray(array)
    wide = np.full((*array.shape[:-1], 2 * array.shape[-1]), np.nan, array.dtype)
    view = wide[..., 1::2]
    view[...] = array
    return view
