"""Arrays of JAX made of numbers: those of a call with others, and new ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradproof.jax._constants import double_precision
from gradproof.jax._tree import device_of


def values_of(given: Any) -> Any:
    """The values of an array that a sweep varies; None for anything else, such as a key."""
    is_array = isinstance(given, (jax.Array, np.ndarray, np.generic))
    if not is_array or jnp.issubdtype(given.dtype, jax.dtypes.prng_key):
        return None
    return np.array(given)


def array_like(given: Any, values: np.ndarray[Any, Any], dtype: str = "") -> jax.Array:
    """An array like `given` of other values; of another dtype where one is named."""
    with double_precision():  # the rounding is done here, once
        found = jnp.asarray(values.astype(jnp.dtype(dtype or given.dtype)))
        device = device_of(given)
        return found if device is None else jax.device_put(found, device)  # which takes longer


def array_from_numpy(values: np.ndarray[Any, Any], dtype: str, device: str | None) -> jax.Array:
    """An array of these values, of 64 bits where the dtype says so.

    `device` is a platform of JAX, such as "cuda", or "cuda:1"; JAX's default where None.
    """
    with double_precision():
        return jax.device_put(jnp.asarray(values, dtype=dtype), _device(device))


def _device(name: str | None) -> jax.Device | None:
    if name is None:
        return None
    platform, _, number = name.partition(":")
    devices = jax.devices(platform)
    if number and not (number.isdecimal() and int(number) < len(devices)):
        raise RuntimeError(f"JAX has {len(devices)} of {platform}")
    return devices[int(number or 0)]
