"""Arrays of JAX made of numbers: those of a call with others, and described ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util

from gradproof._adapters.jax.constants import double_precision
from gradproof._adapters.jax.tree import device_of, is_floating, is_plain
from gradproof._adapters.numpy.samples import construct as construct_seeded
from gradproof._data.inputs import parameters_of
from gradproof._data.specs import INTEGERS, ArraySpec, draw


def values_of(given: Any) -> Any:
    """The values of an array that a sweep varies; None for anything else, such as a key."""
    return np.array(given) if is_plain(given) else None


def made_like(given: Any, values: np.ndarray[Any, Any]) -> jax.Array:
    """An array like `given` of other values."""
    with double_precision():
        return jax.device_put(jnp.asarray(values, dtype=given.dtype), device_of(given))


# Described arrays, and the layers that take them.


def array_from_spec(
    spec: ArraySpec, rng: np.random.Generator, device: str | None = None
) -> jax.Array:
    """The described array; `rng` draws its values. It has 64 bits where the spec says so.

    The device is a platform of JAX, such as "cuda", or "cuda:1". ValueError where the spec excludes
    a floating array from differentiation, which is not the array's to say in JAX.
    """
    if spec.dtype not in INTEGERS and not spec.requires_grad:
        raise ValueError("floating arrays of JAX are differentiated; --wrt chooses among them")
    with double_precision():
        return jax.device_put(jnp.asarray(draw(spec, rng), dtype=spec.dtype), _device(device))


def _device(name: str | None) -> jax.Device | None:
    if name is None:
        return None
    platform, _, number = name.partition(":")
    devices = jax.devices(platform)
    if number and not (number.isdecimal() and int(number) < len(devices)):
        raise RuntimeError(f"JAX has {len(devices)} of {platform}")
    return devices[int(number or 0)]


def construct(
    factory: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    seed: int,
    dtype: str | None = None,
    device: str | None = None,
) -> Any:
    """What `factory` makes of its arguments, NumPy's random numbers seeded.

    Where it takes a `key`, as layers of Equinox do, or `rngs`, as those of Flax NNX, and none is
    given, it gets one made from the seed. The floating arrays of a layer are converted to the
    dtype.
    """
    given, wanted = dict(keywords), {parameter.name for parameter in parameters_of(factory)}
    if "key" in wanted:
        given.setdefault("key", jax.random.key(seed))
    if "rngs" in wanted:
        from flax import nnx

        given.setdefault("rngs", nnx.Rngs(seed))
    made = construct_seeded(factory, arguments, given, seed, dtype, device)
    if dtype is None:
        return made
    with double_precision():
        return tree_util.tree_map(lambda x: x.astype(dtype) if is_floating(x) else x, made)
