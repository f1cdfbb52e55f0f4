"""Double precision in JAX, and NumPy arrays of a function kept apart for 32 and for 64 bits.

JAX 0.10 remembers what it made of a NumPy array by the array's identity, as long as any program
holds it, whether or not arrays had 64 bits then. After one run in double precision the function
fails in its own ("got int64, int32"), or hands a compiled program buffers of another size, and so
does every other use of that array (docs/defects/jax.md).
"""

from __future__ import annotations

import functools
import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradproof.jax._compat import constant_handlers, enabled_64_bits


def double_precision() -> AbstractContextManager[Any]:
    """A context in which arrays may have 64 bits."""
    if jax.config.jax_enable_x64:
        return nullcontext()
    _keep_apart()
    return enabled_64_bits()


def double_dtype(dtype: Any) -> Any:
    """The dtype of double precision of the same kind; others, as that of a key, stay."""
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return np.dtype(np.complex128)
    return np.dtype(np.float64) if jnp.issubdtype(dtype, jnp.floating) else dtype


@functools.cache
def _keep_apart() -> None:
    """Once, where JAX mixes the two: constants are remembered by their dtype, too, from here on."""
    handlers = constant_handlers()
    if handlers is None:  # another version, which has nothing to mend, or mends it otherwise
        return
    canonicalize_dtype, canonicalize_value, register, TypedNdArray = handlers
    probe = np.zeros(1)
    with enabled_64_bits():
        held = canonicalize_value(probe)
    if canonicalize_value(probe).dtype != held.dtype:
        return
    made: dict[tuple[int, Any], tuple[Any, Any]] = {}

    def constant(array: Any) -> Any:
        """One array of JAX for an array of NumPy and a dtype, for as long as anybody holds it."""
        key = id(array), canonicalize_dtype(array.dtype)
        known = made.get(key)
        found = known[1]() if known is not None and known[0]() is array else None
        if found is None:
            found = TypedNdArray(np.asarray(array, key[1]))
            made[key] = weakref.ref(array, lambda _: made.pop(key, None)), weakref.ref(found)
        return found

    register(np.ndarray, constant)
