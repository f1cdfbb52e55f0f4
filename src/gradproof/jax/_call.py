"""A JAX function of its exchangeable arrays, and the derivatives that are claimed for it.

JAX's VJP is the bilinear transpose: Re sum(v * Df[t]) = Re sum(vjp(v) * t). Cotangents and
gradients go by that convention here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from gradproof._guard import restored
from gradproof._guard.random import RandomState
from gradproof.jax._rules import transform_result
from gradproof.jax._tree import JaxArguments, floating_leaves


@dataclass(frozen=True)
class JaxCall:
    """A function and its arguments.

    Attributes:
        pull: (arguments, arrays, cotangents) -> gradients, claimed instead of what `jax.vjp`
            says.
        push: (arguments, arrays, tangents) -> tangents, likewise of `jax.jvp`.
    """

    arguments: JaxArguments
    pull: Callable[..., Any] | None = None
    push: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        fn = self.arguments.fn
        return str(getattr(fn, "__name__", type(fn).__name__))

    def result(self, arrays: Sequence[Any]) -> Any:
        """What the user's function returns."""
        with restored(RandomState().restore):
            return self.arguments.call(arrays)

    def function(self, *arrays: Any) -> tuple[Any, ...]:
        """X -> the floating outputs at x."""
        return tuple(map(jnp.asarray, floating_leaves(self.result(arrays))))

    def gradient(self, *arrays: Any) -> tuple[Any, ...]:
        """(x, v) -> the VJP of v at x."""
        count = len(self.arguments.values)
        if self.pull is not None:
            return tuple(self.pull(self.arguments, arrays[:count], arrays[count:]))
        return jax.vjp(self.function, *arrays[:count])[1](tuple(arrays[count:]))  # type: ignore[no-any-return] # a tuple

    def tangent(self, *arrays: Any) -> tuple[Any, ...]:
        """(x, u) -> the JVP of u at x."""
        count = len(self.arguments.values)
        if self.push is not None:
            return tuple(self.push(self.arguments, arrays[:count], arrays[count:]))
        return transform_result(jax.jvp, self.function, arrays[:count], arrays[count:])[1]  # type: ignore[no-any-return] # a tuple

    def transposed_products(self, *arrays: Any) -> tuple[Any, ...]:
        """(x, u, v) -> J u from the transpose of v -> J^T v, and J^T v."""
        count = len(self.arguments.values)
        here, tangents = arrays[:count], arrays[count : 2 * count]
        gradients, back = jax.vjp(lambda *v: self.gradient(*here, *v), *arrays[2 * count :])
        return (*back(tangents), *gradients)
