"""The arrays of a call of a JAX function, for a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import tree_util

from gradproof._adapters import samples
from gradproof._adapters.arrays import parameter_names
from gradproof._adapters.jax.constants import double_precision
from gradproof._adapters.jax.tree import device_of, is_floating, is_plain, name_of_path
from gradproof._measure.regimes import Values


class Samples(samples.Samples):
    """What of the arguments of a call can be varied: arrays, floats and flags; no keys."""

    def __init__(
        self, fn: Callable[..., Any], inputs: Sequence[Any], kwargs: Mapping[str, Any] | None
    ) -> None:
        paths, tree = tree_util.tree_flatten_with_path((None, tuple(inputs), dict(kwargs or {})))
        parameters = parameter_names(fn)
        leaves = [(name_of_path(path, parameters), leaf) for path, leaf in paths]
        super().__init__(leaves, lambda new: tree_util.tree_unflatten(tree, new)[1:], _WORDS)


def _kind(leaf: Any) -> str:
    if not is_plain(leaf):
        return ""
    return "float" if is_floating(leaf) else "integer"


def _made(leaf: Any, array: Values) -> jax.Array:
    with double_precision():
        return jax.device_put(jnp.asarray(array, dtype=leaf.dtype), device_of(leaf))


_WORDS = samples.Words(
    _kind, samples.on_host, _made, "jnp", "array", lambda leaf: repr(str(leaf.dtype))
)
