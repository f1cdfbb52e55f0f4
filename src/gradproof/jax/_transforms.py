"""Transforms of JAX, other than those of AD, under which a gradient stays the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from gradproof._adapters.raised import unsupported
from gradproof._data.exceptions import first_line
from gradproof.jax._call import JaxCall

# What JAX raises where a function asks for the value of an array that is traced.
_STEERED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.JAXTypeError,
    jax.errors.JAXIndexError,
)
Arrays = Sequence[Any]


def refusal_of_tracing() -> unsupported:
    """Around a transform: Unsupported where it refuses what steers by values, and the like."""
    return unsupported(*_STEERED, why=lambda error: f"it cannot be traced: {first_line(error)}")


def _compiled_gradients(call: JaxCall, here: Arrays, cotangents: Arrays) -> Any:
    return jax.jit(call.gradient)(*here, *cotangents)


def _checkpointed_gradients(call: JaxCall, here: Arrays, cotangents: Arrays) -> Any:
    return jax.vjp(jax.checkpoint(call.function), *here)[1](tuple(cotangents))


TRANSFORMS: dict[str, tuple[str, Callable[[JaxCall, Arrays, Arrays], Any]]] = {
    "compiled": ("jax.jit", _compiled_gradients),
    "checkpointed": ("jax.checkpoint", _checkpointed_gradients),
}
