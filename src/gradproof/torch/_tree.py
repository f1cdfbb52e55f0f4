"""Containers of PyTorch tensors, taken apart by `torch.utils._pytree`, and names of what is inside.

A container of a class that is not registered there is a single value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch

from gradproof._adapters.arrays import name_at
from gradproof._data.inputs import parameter_names
from gradproof._data.options import contained_values
from gradproof.errors import UsageError
from gradproof.torch._compat import pytree

Path = tuple[Any, ...]
keystr: Callable[[Path], str] = pytree.keystr  # a path as people write it: `['mask'][0]`


class Tree:
    """A container taken apart.

    Attributes:
        leaves: what is in it, in order.
        paths: of the leaves, each a tuple of keys.
    """

    def __init__(self, container: Any) -> None:
        self.leaves: list[Any] = []
        self.paths: list[Path] = []
        self._build = self._take_apart(container, ())

    def rebuilt(self, leaves: Sequence[Any]) -> Any:
        """The container with other leaves; the given one stays as it is."""
        return self._build(iter(leaves))

    def _take_apart(self, container: Any, path: Path) -> Callable[[Iterator[Any]], Any]:
        """Note the leaves of a container, and return what makes one like it of others.

        As pytree.tree_flatten_with_path, also where a class is registered without keys. To rebuild
        it from PyTorch's own record takes longer than an operation on a few numbers.
        """
        node = pytree.SUPPORTED_NODES.get(pytree._get_node_type(container))
        if node is None:
            self.leaves.append(container)
            self.paths.append(path)
            return next
        contents, context = node.flatten_fn(container)
        pairs: Any = ((pytree.SequenceKey(k), content) for k, content in enumerate(contents))
        if node.flatten_with_keys_fn is not None:
            pairs = node.flatten_with_keys_fn(container)[0]
        inner = [self._take_apart(content, (*path, key)) for key, content in pairs]
        if all(build is next for build in inner):  # leaves, as most arguments are
            count = len(inner)
            return lambda leaves: node.unflatten_fn([*islice(leaves, count)], context)
        return lambda leaves: node.unflatten_fn([build(leaves) for build in inner], context)


def tensors_in(container: Any) -> list[torch.Tensor]:
    """Every tensor in a container, in order."""
    if isinstance(container, torch.Tensor):
        return [container]
    if type(container) in (tuple, list) and {*map(type, container)} == {torch.Tensor}:
        return list(container)
    return [leaf for leaf in pytree.tree_leaves(container) if isinstance(leaf, torch.Tensor)]


def hidden_tensors(leaf: Any) -> list[torch.Tensor]:
    """Every tensor in a leaf that is a container, which PyTorch does not know."""
    return tensors_in(list(contained_values(leaf) or ()))


def differentiable_names(tree: Tree, fn: Callable[..., Any]) -> dict[int, str]:
    """Names of the tensors that require grad in `(args, kwargs, captured)`, by their places."""
    parameters = parameter_names(fn)
    return {
        place: input_name(path, parameters)
        for place, (leaf, path) in enumerate(zip(tree.leaves, tree.paths, strict=True))
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    }


def input_name(path: Path, parameters: list[str]) -> str:
    """How a user would write the argument at a path of `(args, kwargs, captured)`."""
    kind, which, *rest = path
    name = str(which.key) if kind.idx else name_at(parameters, which.idx)
    return name + keystr(tuple(rest))


def argument_position(path: Path) -> int | None:
    """Which positional argument a path of `(args, kwargs, captured)` leads into, if any."""
    return path[1].idx if path[0].idx == 0 else None


def refuse_hidden_tensors(tree: Tree, fn: Callable[..., Any]) -> None:
    """UsageError where tensors that require grad are in a container that PyTorch does not know."""
    for path, value in zip(tree.paths, tree.leaves, strict=True):
        if any(tensor.requires_grad for tensor in hidden_tensors(value)):
            kind = type(value).__name__
            raise UsageError(
                f"{input_name(path, parameter_names(fn))} is a {kind} with tensors that require "
                "grad, and PyTorch does not take such containers apart: register it, "
                f"torch.export.register_dataclass({kind}), or pass its tensors"
            )
