"""Containers of PyTorch tensors, taken apart and put together, and the names of arguments in them.

What is registered with `torch.utils._pytree` is taken apart as it says, and so are dataclasses and
mappings that are not registered.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import torch

from gradproof.torch._compat import pytree

Path = tuple[Any, ...]


class Tree:
    """A container taken apart.

    Attributes:
        leaves: what is in it, in order.
        paths: of the leaves, each a tuple of keys.
    """

    def __init__(self, tree: Any) -> None:
        self.leaves: list[Any] = []
        self.paths: list[Path] = []
        self._made = self._open_container(tree, ())

    def _open_container(self, tree: Any, path: Path) -> Callable[[Iterator[Any]], Any]:
        """Take a container apart; what makes one like it of further leaves."""
        inside = _contents_of(tree)
        if inside is None:
            self.leaves.append(tree)
            self.paths.append(path)
            return next
        (keys, contents), made = inside
        parts: list[Callable[[Iterator[Any]], Any]] = []
        for key, content in zip(keys, contents, strict=True):
            if type(content) in _ALONE:  # nearly always: without another call
                self.leaves.append(content)
                self.paths.append((*path, key))
                parts.append(next)
            else:
                parts.append(self._open_container(content, (*path, key)))
        return lambda leaves: made([part(leaves) for part in parts])

    def rebuilt(self, leaves: Sequence[Any]) -> Any:
        """The container with other leaves; the given one stays as it is."""
        return self._made(iter(leaves))


_ALONE = (torch.Tensor, torch.nn.Parameter, int, float, complex, bool, str, type(None))
_place: Callable[[int], Any] = lru_cache(maxsize=256)(pytree.SequenceKey)
_Inside = tuple[tuple[Iterable[Any], Iterable[Any]], Callable[[list[Any]], Any]]


def _contents_of(tree: Any) -> _Inside | None:
    """Keys and contents of a container, and what makes one like it; None of what is none."""
    kind = type(tree)
    if kind is tuple or kind is list:
        return (map(_place, range(len(tree))), tree), kind
    if kind is dict:
        return (map(pytree.MappingKey, tree), tree.values()), lambda new: dict(
            zip(tree, new, strict=True)
        )
    if kind in _ALONE or isinstance(tree, (torch.Tensor, type)):
        return None
    node = pytree.SUPPORTED_NODES.get(pytree._get_node_type(tree))
    if node is not None:
        contents, context = node.flatten_fn(tree)
        keys: Iterable[Any] = map(_place, range(len(contents)))
        if node.flatten_with_keys_fn is not None:
            keys = [key for key, _ in node.flatten_with_keys_fn(tree)[0]]
        return (keys, contents), lambda new: node.unflatten_fn(new, context)
    if dataclasses.is_dataclass(tree):
        names = [field.name for field in dataclasses.fields(tree)]
        contents = [getattr(tree, name) for name in names]
        return (map(pytree.GetAttrKey, names), contents), partial(_copy_with, tree, names)
    if isinstance(tree, Mapping):
        names = list(tree)
        return (map(pytree.MappingKey, names), tree.values()), partial(_copy_with, tree, names)
    return None


def _copy_with(whole: Any, names: Sequence[Any], contents: Sequence[Any]) -> Any:
    """A shallow copy of a dataclass or mapping with other contents; no __init__ is run."""
    made = copy.copy(whole)
    for name, value in zip(names, contents, strict=True):
        if dataclasses.is_dataclass(whole):
            object.__setattr__(made, name, value)  # frozen ones too
        else:
            made[name] = value
    return made


def leaves_of(tree: Any) -> list[Any]:
    """Everything in a container, in order."""
    return Tree(tree).leaves


def tensors_of(tree: Tree) -> list[torch.Tensor]:
    """Every tensor of a container taken apart, in order."""
    return [leaf for leaf in tree.leaves if isinstance(leaf, torch.Tensor)]


def tensors_in(result: Any) -> list[torch.Tensor]:
    """Every tensor of a result, in order."""
    if isinstance(result, torch.Tensor):
        return [result]
    leaves = (
        result
        if type(result) is tuple and all(isinstance(part, torch.Tensor) for part in result)
        else leaves_of(result)
    )
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def input_name(path: Path, parameters: list[str]) -> str:
    """How a user would write the argument at a path of `(args, kwargs, captured)`."""
    kind, which, *rest = path
    if kind.idx:
        name = str(which.key)
    elif which.idx < len(parameters):
        name = parameters[which.idx]
    else:
        name = f"input {which.idx}"
    return name + pytree.keystr(tuple(rest)) if rest else name


def argument_of(path: Path) -> int | None:
    """Which positional argument a path of `(args, kwargs, captured)` leads into, if any."""
    return path[1].idx if path[0].idx == 0 else None


def is_flat(inputs: Sequence[Any], leaves: Sequence[Any]) -> bool:
    """Whether no argument is a container: the leaves are the arguments themselves."""
    return list(map(id, leaves)) == list(map(id, inputs))


def keystr(path: Path) -> str:
    """A path as people write it: `['mask'][0]`."""
    return str(pytree.keystr(path))


def tree_with(tree: Tree, others: Mapping[int, Any]) -> Any:
    """The container with the leaves at some places exchanged."""
    return tree.rebuilt([others.get(place, leaf) for place, leaf in enumerate(tree.leaves)])
