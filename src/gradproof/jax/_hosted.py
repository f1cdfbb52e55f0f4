"""Operations of JAX that NumPy runs in its place, one by one in a tenth of the time.

The arithmetic and the moves that most programs are made of; whatever else one holds, JAX runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradproof.jax._constants import double_dtype

PLAIN = frozenset(map(np.dtype, (np.float64, np.bool_, np.int32, np.int64)))
ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "square": np.square, "sqrt": np.sqrt,
    "exp": np.exp, "log": np.log, "expm1": np.expm1, "log1p": np.log1p, "tanh": np.tanh,
    "sin": np.sin, "cos": np.cos, "max": np.maximum, "min": np.minimum, "eq": np.equal,
    "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "copy": np.array, "copy_p": np.array, "stop_gradient": np.array,
}  # fmt: skip
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "reduce_sum": np.sum, "reduce_max": np.max, "reduce_min": np.min,
}  # fmt: skip


def numpy_result(equation: Any, values: Sequence[Any]) -> np.ndarray[Any, Any] | None:
    """What an operation makes of arrays of NumPy; None where JAX itself is to be asked."""
    if any(type(value) is not np.ndarray for value in values) or len(equation.outvars) != 1:
        return None
    name, parameters, kind = equation.primitive.name, equation.params, equation.outvars[0].aval
    dtype = double_dtype(kind.dtype)
    if dtype not in PLAIN:
        return None
    result: Any = None
    if name in ELEMENTWISE:
        result = ELEMENTWISE[name](*values)
    elif name in REDUCTIONS:
        result = REDUCTIONS[name](values[0], parameters["axes"])
    elif name == "squeeze" or (name == "reshape" and parameters["dimensions"] is None):
        result = values[0].reshape(kind.shape)
    elif name == "transpose":
        result = values[0].transpose(parameters["permutation"])
    elif name == "broadcast_in_dim":
        new = set(range(len(kind.shape))).difference(parameters["broadcast_dimensions"])
        result = np.broadcast_to(np.expand_dims(values[0], tuple(new)), kind.shape)
    elif name == "integer_pow":
        result = values[0] ** parameters["y"]
    elif name == "dot_general":
        contracted, batched = parameters["dimension_numbers"]
        result = None if any(batched) else np.tensordot(values[0], values[1], contracted)
    # A quotient of integers is cut towards zero, as JAX divides them.
    return None if result is None else np.asarray(result, dtype)
