"""Arrays described in a few letters: `float64[8,16]:uniform(0,1)`.

Grammar (blanks are ignored)::

    SPEC    = DTYPE "[" [SIZE {"," SIZE}] "]" [":" VALUES] ["!nograd"]
    VALUES  = "normal" | "uniform" | "positive" | "zeros" | "ones" | "arange"
              followed, for the first two, by optional parameters in parentheses:
              normal(mean,deviation), uniform(low,high)

Floating and complex arrays are normal(0,1) unless told otherwise and are differentiated unless
marked `!nograd`; a complex draw has independent real and imaginary parts. Integer arrays are
uniform(0,2), that is 0 or 1, low included and high not, and are never differentiated.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradproof._data.options import cut, shown
from gradproof.errors import UsageError

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")

# Name of the values -> its parameters where none are given.
DEFAULTS: dict[str, tuple[float, ...]] = {
    "normal": (0.0, 1.0),
    "uniform": (0.0, 1.0),
    "positive": (),
    "zeros": (),
    "ones": (),
    "arange": (),
}

_SPEC = re.compile(
    r"(?P<dtype>[a-z]+\d*)\[(?P<shape>[^\]]*)\]"
    r"(:(?P<values>[a-z]+)(\((?P<parameters>[^)]*)\))?)?"
    r"(?P<nograd>!nograd)?"
)


@dataclass(frozen=True)
class ArraySpec:
    """A described array."""

    dtype: str  # one of FLOATS, COMPLEX or INTEGERS
    shape: tuple[int, ...]  # sizes, each >= 0
    values: str  # one of the keys of DEFAULTS
    parameters: tuple[float, ...]  # of the values
    requires_grad: bool  # whether it is differentiated


def parse(text: str) -> ArraySpec:
    """The described array. UsageError, one sentence, where the text is no SPEC."""
    match = _SPEC.fullmatch(re.sub(r"\s", "", text))
    if match is None:
        raise UsageError(
            f"SPEC: {shown(text)} is not of the form DTYPE[SIZE,...][:VALUES][!nograd]: "
            "float64[3,4]"
        )
    dtype = match["dtype"]
    known = FLOATS + COMPLEX + INTEGERS
    if dtype not in known:
        raise UsageError(f"SPEC: unknown dtype {dtype!r} in {shown(text)}; use {', '.join(known)}")
    values, parameters = _values(match, dtype, text)
    differentiable = dtype not in INTEGERS
    return ArraySpec(
        dtype,
        _shape(match["shape"], text),
        values,
        parameters,
        differentiable and not match["nograd"],
    )


def draw(spec: ArraySpec, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """The array's values, as float64, complex128 or int64; casting to the dtype is left."""
    size = math.prod(spec.shape)
    if spec.dtype in INTEGERS and spec.values == "uniform":
        low, high = (int(p) for p in spec.parameters)
        flat: np.ndarray[Any, Any] = rng.integers(low, high, size)
    elif spec.dtype in COMPLEX and spec.values in ("normal", "uniform"):
        flat = _draw_real(spec, rng, size) + 1j * _draw_real(spec, rng, size)
    else:
        flat = _draw_real(spec, rng, size)
    if spec.dtype in INTEGERS:
        return flat.astype(np.int64).reshape(spec.shape)
    return flat.astype(np.complex128 if spec.dtype in COMPLEX else np.float64).reshape(spec.shape)


def _draw_real(spec: ArraySpec, rng: np.random.Generator, size: int) -> np.ndarray[Any, Any]:
    if spec.values in ("normal", "uniform"):  # a method of NumPy's generators each
        drawn: np.ndarray[Any, Any] = getattr(rng, spec.values)(*spec.parameters, size)
        return drawn
    if spec.values == "positive":
        return rng.uniform(0.5, 2.0, size)
    if spec.values == "arange":
        return np.arange(size, dtype=np.float64)
    return np.full(size, 1.0 if spec.values == "ones" else 0.0)


def _shape(text: str, spec: str) -> tuple[int, ...]:
    sizes = text.split(",") if text else []
    if not all(re.fullmatch(r"\d{1,18}", size, re.ASCII) for size in sizes):
        raise UsageError(
            "SPEC: sizes are integers >= 0 of at most 18 digits, got "
            f"[{cut(text)}] in {shown(spec)}"
        )
    return tuple(int(size) for size in sizes)


def _values(match: re.Match[str], dtype: str, spec: str) -> tuple[str, tuple[float, ...]]:
    integer = dtype in INTEGERS
    values = match["values"] or ("uniform" if integer else "normal")
    if values not in DEFAULTS:
        raise UsageError(
            f"SPEC: unknown values {values!r} in {shown(spec)}; use {', '.join(DEFAULTS)}"
        )
    if integer and values in ("normal", "positive"):
        raise UsageError(
            f"SPEC: {dtype} cannot be {values} in {shown(spec)}; use uniform(low,high)"
        )
    default = (0.0, 2.0) if integer and values == "uniform" else DEFAULTS[values]
    if match["parameters"] is None:
        return values, default
    parameters = _parameters(match["parameters"], spec)
    if len(parameters) != len(default):
        raise UsageError(f"SPEC: {values} takes {len(default)} parameters in {shown(spec)}")
    if values == "uniform" and not parameters[0] < parameters[1]:
        raise UsageError(f"SPEC: uniform(low,high) needs low < high in {shown(spec)}")
    if integer and not all(parameter.is_integer() for parameter in parameters):
        raise UsageError(f"SPEC: uniform of {dtype} takes whole numbers in {shown(spec)}")
    if values == "normal" and parameters[1] < 0:
        raise UsageError(f"SPEC: normal(mean,deviation) needs deviation >= 0 in {shown(spec)}")
    return values, parameters


def _parameters(text: str, spec: str) -> tuple[float, ...]:
    try:
        parameters = tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise UsageError(
            f"SPEC: parameters are numbers, got ({cut(text)}) in {shown(spec)}"
        ) from None
    if not all(math.isfinite(parameter) for parameter in parameters):
        raise UsageError(f"SPEC: parameters are finite, got ({cut(text)}) in {shown(spec)}")
    return parameters
