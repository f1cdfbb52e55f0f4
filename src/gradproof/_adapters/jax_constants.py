"""NumPy arrays that a function of JAX closes over, kept apart for 32 and for 64 bits.

JAX 0.10 remembers what it made of a NumPy array by the array's identity, as long as any program
holds it, whether or not arrays had 64 bits then. After one run in double precision the function
fails in its own ("got int64, int32"), or hands a compiled program buffers of another size, and so
does every other use of that array (docs/defects-found.md).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

Made = dict[tuple[int, np.dtype[Any]], tuple[Any, Any]]


def keep_apart(double_precision: Callable[[], AbstractContextManager[Any]]) -> None:
    """Once, where JAX mixes the two: constants are remembered by their dtype, too, from here on."""
    if not jax.config.jax_enable_x64:
        _keep_apart(double_precision)


@functools.cache
def _keep_apart(double_precision: Callable[[], AbstractContextManager[Any]]) -> None:
    try:
        from jax._src.dtypes import canonicalize_dtype, canonicalize_value
        from jax._src.dtypes import register_canonicalize_value_handler as register
        from jax._src.literals import TypedNdArray
    except ImportError:  # of another version, which has nothing to mend, or mends it otherwise
        return
    probe = np.zeros(1)
    with double_precision():
        held = canonicalize_value(probe)
    if canonicalize_value(probe).dtype != held.dtype:
        return
    made: Made = {}

    def constant(array: Any) -> Any:
        """The same array of JAX for the same array of NumPy and dtype, as long as it is held."""
        key = id(array), canonicalize_dtype(array.dtype)
        known = made.get(key, (_nothing, _nothing))
        found = known[1]()
        if found is None or known[0]() is not array:
            found = TypedNdArray(np.asarray(array, key[1]))
            made[key] = weakref.ref(array, lambda _: made.pop(key, None)), weakref.ref(found)
        return found

    register(np.ndarray, constant)


def _nothing() -> None:
    return None
