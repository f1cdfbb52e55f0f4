"""Arrays of NumPy made of numbers: those of a call with others, and new ones."""

from __future__ import annotations

from typing import Any

import numpy as np


def values_of(given: Any) -> Any:
    """The values of an array that a sweep varies; None for anything else."""
    is_array = isinstance(given, (np.ndarray, np.generic)) and given.dtype.kind in "fciub"
    return np.array(given) if is_array else None


def array_like(given: Any, values: np.ndarray[Any, Any], dtype: str = "") -> Any:
    """An array like `given` of other values; of another dtype where one is named."""
    made = values.astype(dtype or given.dtype)
    return made[()] if isinstance(given, np.generic) else made


def array_from_numpy(
    values: np.ndarray[Any, Any], dtype: str, device: str | None
) -> np.ndarray[Any, Any]:
    """A copy of these values in the dtype of that name.

    Raises:
        ValueError: NumPy has no such dtype or device.
    """
    if device is not None:
        raise ValueError("arrays of NumPy have no device")
    if dtype == "bfloat16":
        raise ValueError("NumPy has no bfloat16")
    return values.astype(dtype)
