"""Long vectors: from which length on they are not kept, and their finite values."""

from __future__ import annotations

import math

import numpy as np

from gradproof._data.space import Array

KEPT = 1 << 17  # entries up to which copies of vectors stay in memory


def finite_values(values: Array) -> Array:
    """The values, 0 where they are not finite."""
    if values.ndim == 1 and math.isfinite(values.dot(values)):
        return values  # as nearly always; the sum of their squares tells it in one call
    known = np.isfinite(values)
    return values if known.all() else np.where(known, values, 0.0)
