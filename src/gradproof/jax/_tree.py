"""Arguments of a JAX function: one pytree of function, inputs and keywords."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util

from gradproof._adapters.arrays import Piece, chosen_names, name_at, read_pieces
from gradproof._adapters.double import convert_partial
from gradproof._data.exceptions import first_line
from gradproof._data.inputs import output_name, parameter_names, selected_positions
from gradproof._data.space import Array
from gradproof.errors import UsageError
from gradproof.jax._constants import double_dtype, double_precision


def is_floating(value: Any) -> bool:
    """Whether a value is an array of real or complex floating numbers."""
    arrays = (jax.Array, np.ndarray, np.generic)
    return isinstance(value, arrays) and jnp.issubdtype(value.dtype, jnp.inexact)


def _as_jax_takes(leaf: Any) -> Any:
    """A floating array of NumPy as JAX takes it: of 32 bits, unless 64 are enabled."""
    return leaf if isinstance(leaf, jax.Array) or not is_floating(leaf) else jnp.asarray(leaf)


class JaxArguments:
    """A function with its arguments, of which some arrays are exchangeable.

    The function is a part of the tree: a layer, or that of which it is a method, is a pytree of
    parameters.

    Attributes:
        values: the exchangeable arrays.
        names: of these.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        inputs: Sequence[Any],
        kwargs: Mapping[str, Any],
        names: Sequence[str] | None = None,
        wrt: Any = None,
    ) -> None:
        self.fn, self._method = fn, ""
        owner = getattr(fn, "__self__", None)
        if owner is not None and any(map(is_floating, tree_util.tree_leaves(owner))):
            fn, self._method = owner, fn.__name__
        tree = (fn, tuple(inputs), dict(kwargs))
        paths, self._tree = _paths_and_structure(tree)
        self.leaves = [_as_jax_takes(leaf) for _, leaf in paths]
        if any(isinstance(leaf, jax.core.Tracer) for leaf in self.leaves):
            raise UsageError("inputs: a check runs outside jit, grad and vmap; got a tracer")
        still = _buffer_paths(tree)
        places = [
            k
            for k, (path, leaf) in enumerate(paths)
            if is_floating(leaf) and not any(path[: len(start)] == start for start in still)
        ]
        if not places:
            raise UsageError(
                "inputs: expected at least one array of floating numbers; JAX arrays of integers "
                "have no derivative"
            )
        parameters = parameter_names(self.fn)
        found = chosen_names([name_of_path(paths[k][0], parameters) for k in places], names)
        argument = [paths[k][0][1].idx if paths[k][0][0].idx == 1 else None for k in places]
        self._floating = list(zip(places, found, strict=True))
        self._pick_arrays(selected_positions(found, argument, wrt))

    def _pick_arrays(self, picked: Sequence[int]) -> None:
        """Make these of the floating arrays the exchangeable ones."""
        self._picked, rows = picked, [self._floating[k] for k in picked]
        self.places = [place for place, _ in rows]
        self.names = [name for _, name in rows]
        self.values = [self.leaves[place] for place in self.places]
        kinds = [value.dtype for value in self.values]
        self._wide = any(kind.itemsize == 8 * (1 + (kind.kind == "c")) for kind in kinds)
        for name, value in zip(self.names, self.values, strict=True):
            if isinstance(value, jax.Array) and value.is_deleted():
                raise UsageError(f"{name}: its numbers cannot be read: it has been deleted")

    def precision_context(self) -> AbstractContextManager[Any]:
        """Where arrays have 64 bits, a context that keeps them; the user's configuration stays."""
        return double_precision() if self._wide else nullcontext()

    def _filled_leaves(self, arrays: Sequence[Any], leaves: Sequence[Any] | None) -> list[Any]:
        flat = list(self.leaves if leaves is None else leaves)
        for place, array in zip(self.places, arrays, strict=True):
            flat[place] = array
        return flat

    def tree_with(self, arrays: Sequence[Any], leaves: Sequence[Any] | None = None) -> Any:
        """The tree of function, inputs and keywords with other exchangeable arrays."""
        return tree_util.tree_unflatten(self._tree, self._filled_leaves(arrays, leaves))

    def call(self, arrays: Sequence[Any]) -> Any:
        """What the function returns for these arrays."""
        fn, inputs, kwargs = self.tree_with(arrays)
        return (getattr(fn, self._method) if self._method else fn)(*inputs, **kwargs)

    def with_changes(
        self, arrays: Sequence[Any], change: Callable[[Any], Any], fn: Any
    ) -> JaxArguments:
        """A copy with other arrays, all else changed by `change`; of `fn`, unless that is None."""
        leaves = self._filled_leaves(arrays, [change(leaf) for leaf in self.leaves])
        if fn is None:
            made = copy.copy(self)
            made.leaves = leaves
        else:
            made = JaxArguments(fn, *tree_util.tree_unflatten(self._tree, leaves)[1:])
            if len(made._floating) != len(self._floating):
                raise UsageError("reference: it takes other differentiable inputs")
        made._pick_arrays(self._picked)
        made.names = self.names
        return made

    def pieces_and_point(self) -> tuple[list[Piece], Array]:
        """What the exchangeable arrays are, on devices where the user put them, and the point."""
        values = [jnp.asarray(value) for value in self.values]
        return read_pieces(self.names, values)


def _paths_and_structure(tree: Any) -> Any:
    """Paths with leaves, and the structure. UsageError for what is no pytree."""
    try:
        return tree_util.tree_flatten_with_path(tree)
    except (TypeError, ValueError) as error:  # keys of a dict that have no order
        raise UsageError(f"inputs: JAX does not take them apart: {first_line(error)}") from error


def device_of(value: Any) -> Any:
    """Device or sharding to which an array is committed; None where it is free."""
    return value.sharding if getattr(value, "committed", False) else None


def named_outputs(result: Any) -> list[tuple[str, Any]]:
    """Name and array of every floating output."""
    paths = tree_util.tree_flatten_with_path(result)[0]
    return [
        (output_name(path, tree_util.keystr), jnp.asarray(leaf))
        for path, leaf in paths
        if is_differentiated(leaf)
    ]


def is_differentiated(leaf: Any) -> bool:
    return is_floating(leaf) or isinstance(leaf, (float, complex))


def floating_leaves(tree: Any) -> list[Any]:
    """Every floating leaf, numbers of Python included."""
    return [leaf for leaf in tree_util.tree_leaves(tree) if is_differentiated(leaf)]


def name_of_path(path: Sequence[Any], parameters: list[str]) -> str:
    """How a user would write the array at a path of (function, inputs, keywords)."""
    kind, *rest = path
    if kind.idx == 0:
        return _path_text(rest).lstrip(".")
    first, *rest = rest
    return (str(first.key) if kind.idx == 2 else name_at(parameters, first.idx)) + _path_text(rest)


def _path_text(path: Sequence[Any]) -> str:
    return str(tree_util.keystr(tuple(path))).removesuffix(".value")


def _buffer_paths(tree: Any) -> list[tuple[Any, ...]]:
    """Paths of what Flax NNX keeps in a layer beside its parameters: statistics, counts, keys."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return []
    paths, _ = tree_util.tree_flatten_with_path(
        tree, is_leaf=lambda value: isinstance(value, nnx.Variable)
    )
    return [
        path
        for path, leaf in paths
        if isinstance(leaf, nnx.Variable) and not isinstance(leaf, nnx.Param)
    ]


def double_precision_value(value: Any) -> Any:
    """An argument in double precision; what has no precision stays."""
    if is_floating(value):
        wide = np.asarray(value).astype(double_dtype(value.dtype))
        return jnp.asarray(wide, device=device_of(value))
    if isinstance(value, np.dtype) or (isinstance(value, type) and hasattr(value, "dtype")):
        dtype = np.dtype(value)
        if jnp.issubdtype(dtype, jnp.complexfloating):
            return jnp.complex128
        return jnp.float64 if jnp.issubdtype(dtype, jnp.floating) else value
    return convert_partial(value, double_precision_value)
