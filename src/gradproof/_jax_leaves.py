"""Leaves of JAX's trees for `gradproof.jax`: which count, and what stands for the others."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util

from gradproof._adapters.jax_tree import counts


def array(leaf: Any) -> Any:
    """A number of Python as the array that JAX makes of it."""
    return jnp.asarray(leaf) if isinstance(leaf, (float, complex)) else leaf


def still(leaf: Any) -> np.ndarray[Any, Any]:
    """The tangent, or cotangent, of what has none."""
    return np.zeros(np.shape(leaf), jax.dtypes.float0)


def floating(tree: Any) -> list[Any]:
    return [leaf for leaf in tree_util.tree_leaves(tree) if counts(leaf)]


def close(one: Any, other: Any) -> bool:
    """Whether two arrays are the same up to how a compiler orders sums."""
    unit = float(jnp.finfo(jnp.result_type(other)).eps)
    one, other = (np.asarray(x).astype(complex) for x in (one, other))
    size = np.abs(other) + (np.sqrt(np.mean(np.abs(other) ** 2)) if other.size else 0.0)
    return bool(np.all(np.abs(one - other) <= 64 * unit * size))
