"""Arrays that are described by their dtype and shape: `float64[8,16]`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradproof._data.options import short_repr
from gradproof.errors import UsageError

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")

_FORM = re.compile(r"(?P<dtype>\w+)\[(?P<shape>.*)\]", re.DOTALL)


@dataclass(frozen=True)
class ArraySpec:
    """The dtype and the shape of an array whose values are drawn."""

    dtype: str  # one of FLOATS, COMPLEX or INTEGERS
    shape: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> ArraySpec:
        """The described array.

        Args:
            text: `DTYPE[SIZE,...]`; blanks are ignored.

        Raises:
            UsageError: another form, an unknown dtype, a size that is no integer >= 0.
        """
        match = _FORM.fullmatch(re.sub(r"\s", "", text))
        if match is None:
            raise UsageError(
                f"array: expected DTYPE[SIZE,...] such as float64[3,4], got {short_repr(text)}"
            )
        known = FLOATS + COMPLEX + INTEGERS
        if match["dtype"] not in known:
            raise UsageError(
                f"array: unknown dtype {short_repr(match['dtype'])} in {short_repr(text)}; "
                f"use {', '.join(known)}"
            )
        sizes = match["shape"].split(",") if match["shape"] else []
        if not all(re.fullmatch(r"\d{1,18}", size, re.ASCII) for size in sizes):
            raise UsageError(
                f"array: sizes are integers >= 0 of at most 18 digits, got {short_repr(text)}"
            )
        return cls(match["dtype"], tuple(int(size) for size in sizes))

    def drawn_values(self, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        """Standard normal numbers; 0 and 1 for the dtypes of whole numbers.

        Returns:
            An array of the shape in float64, complex128 or int64, to be cast to the dtype. Real and
            imaginary parts are independent.
        """
        if self.dtype in INTEGERS:
            return np.asarray(rng.integers(0, 2, self.shape))
        values = rng.standard_normal(self.shape)
        if self.dtype in COMPLEX:
            return np.asarray(values + 1j * rng.standard_normal(self.shape))
        return np.asarray(values)
