"""Described arrays as arrays of JAX, and the layers that take them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util

from gradproof._adapters.jax_tree import double_precision, is_floating
from gradproof._specs import FLOATS, ArraySpec, draw


def array_from_spec(spec: ArraySpec, rng: np.random.Generator, device: str | None = None) -> Any:
    """The described array; `rng` draws its values. One of 64 bits needs no `jax_enable_x64`."""
    if spec.dtype in FLOATS and not spec.requires_grad:
        raise ValueError("floating arrays of JAX are differentiated; hand others over by keyword")
    values = draw(spec, rng)
    with double_precision():
        where = None if device is None else jax.devices(device)[0]
        return jnp.asarray(values.astype(jnp.dtype(spec.dtype)), device=where)


def construct(
    factory: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    seed: int,
    dtype: str | None = None,
    device: str | None = None,  # noqa: ARG001  # JAX puts a layer where its inputs are
) -> Any:
    """What `factory` makes of its arguments; where it takes `key` or `rngs`, these are seeded."""
    wanted, given = _parameters(factory), dict(keywords)
    if "key" in wanted:
        given.setdefault("key", jax.random.key(seed))
    if "rngs" in wanted:
        from flax import nnx

        given.setdefault("rngs", nnx.Rngs(seed))
    made = factory(*arguments, **given)
    if dtype is None:
        return made
    with double_precision():
        return tree_util.tree_map(lambda x: x.astype(dtype) if is_floating(x) else x, made)


def _parameters(factory: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(factory).parameters)
    except (TypeError, ValueError):
        return set()
