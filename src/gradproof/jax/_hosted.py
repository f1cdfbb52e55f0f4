"""Operations of JAX that NumPy runs in its place, one by one in a tenth of the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

PLAIN = frozenset(map(np.dtype, (np.float64, np.bool_, np.int32, np.int64)))
ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative,
    "abs": np.abs, "sign": np.sign, "square": np.square, "sqrt": np.sqrt, "exp": np.exp,
    "log": np.log, "expm1": np.expm1, "log1p": np.log1p, "tanh": np.tanh, "sin": np.sin,
    "cos": np.cos, "max": np.maximum, "min": np.minimum, "eq": np.equal, "ne": np.not_equal,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "copy": np.array, "copy_p": np.array, "stop_gradient": np.array,
}  # fmt: skip
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "reduce_sum": np.sum,
    "reduce_max": np.max,
    "reduce_min": np.min,
}


def numpy_result(equation: Any, values: Sequence[Any]) -> np.ndarray[Any, Any] | None:
    """What an operation makes of arrays of NumPy; None where JAX itself is to be asked."""
    if any(type(value) is not np.ndarray for value in values) or len(equation.outvars) != 1:
        return None
    name, kind = equation.primitive.name, equation.outvars[0].aval
    if kind.dtype not in PLAIN:
        return None
    found = None
    if name in ELEMENTWISE:
        found = ELEMENTWISE[name](*values)
    elif name in REDUCTIONS:
        found = REDUCTIONS[name](values[0], equation.params["axes"])
    elif name in OTHERS:
        found = OTHERS[name](*values, **equation.params)
    return None if found is None else np.asarray(found, kind.dtype)


def _broadcast(value: Any, *, shape: Any, broadcast_dimensions: Any, **_: Any) -> Any:
    sizes = [1] * len(shape)
    for place, size in zip(broadcast_dimensions, value.shape, strict=True):
        sizes[place] = size
    return np.broadcast_to(value.reshape(sizes), shape)


def _contraction(one: Any, other: Any, *, dimension_numbers: Any, **_: Any) -> Any:
    axes, batched = dimension_numbers
    return None if batched[0] else np.tensordot(one, other, axes)


def _quotient(one: Any, other: Any) -> Any:
    return one / other if one.dtype == np.float64 else None  # of whole numbers JAX drops the rest


def _iota(*, dtype: Any, shape: Any, dimension: Any, **_: Any) -> Any:
    sizes = [1] * len(shape)
    sizes[dimension] = shape[dimension]
    return np.broadcast_to(np.arange(shape[dimension], dtype=dtype).reshape(sizes), shape)


def _selection(which: Any, *cases: Any) -> Any:
    return np.where(which, cases[1], cases[0]) if which.dtype == np.bool_ else None


OTHERS: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": _broadcast,
    "div": _quotient,
    "dot_general": _contraction,
    "iota": _iota,
    "select_n": _selection,
    "integer_pow": lambda value, y: value**y,
    "reshape": lambda value, new_sizes, dimensions, **_: (
        value.reshape(new_sizes) if dimensions is None else None
    ),
    "squeeze": lambda value, dimensions: value.squeeze(dimensions),
    "transpose": lambda value, permutation: value.transpose(permutation),
    "convert_element_type": lambda value, new_dtype, **_: value.astype(new_dtype),
    "concatenate": lambda *values, dimension: np.concatenate(values, dimension),
}
