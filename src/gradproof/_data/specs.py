"""Arrays that are described by their dtype and shape: `float64[8,16]`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from gradproof._data.options import short_repr
from gradproof.errors import UsageError

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")

_FORM = re.compile(r"(?P<dtype>\w+)\[(?P<shape>([0-9]{1,18}(,[0-9]{1,18})*)?)\]")


def drawn_array(text: str, rng: np.random.Generator) -> tuple[np.ndarray[Any, Any], str]:
    """Values of the array that a text describes, and its dtype.

    Args:
        text: `DTYPE[SIZE,...]`; blanks are ignored.
        rng: draws standard normal numbers; 0 and 1 for the dtypes of whole numbers.

    Returns:
        Values in float64, complex128 or int64, to be cast to the dtype, and the name of that. Real
        and imaginary parts are independent.

    Raises:
        UsageError: another form, an unknown dtype, a size that is no integer >= 0.
    """
    match = _FORM.fullmatch(re.sub(r"\s", "", text))
    if match is None:
        raise UsageError(
            "array: expected DTYPE[SIZE,...] such as float64[3,4], where sizes are integers >= 0 "
            f"of at most 18 digits, got {short_repr(text)}"
        )
    dtype, known = match["dtype"], FLOATS + COMPLEX + INTEGERS
    if dtype not in known:
        raise UsageError(
            f"array: unknown dtype {short_repr(dtype)} in {short_repr(text)}; "
            f"use {', '.join(known)}"
        )
    shape = tuple(map(int, re.findall("[0-9]+", match["shape"])))
    if dtype in INTEGERS:
        return np.asarray(rng.integers(0, 2, shape)), dtype
    values = np.asarray(rng.standard_normal(shape))
    if dtype in COMPLEX:
        values = values + 1j * rng.standard_normal(shape)
    return np.asarray(values), dtype
