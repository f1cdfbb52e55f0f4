"""Containers of PyTorch tensors, taken apart and put together, and the names of what is in them.

What is registered with `torch.utils._pytree` is taken apart as it says, and so are dataclasses and
mappings that are not registered.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from gradproof._data.inputs import output_name
from gradproof._data.space import Array, Slot, Space
from gradproof._maps.contract import OutputChangedError
from gradproof.errors import UsageError
from gradproof.torch._leaves import (
    MKLDNN,
    PLAIN,
    SPARSE,
    is_differentiable,
    private_vector,
    slot_like,
    to_tensor,
    to_vector,
)

Path = tuple[Any, ...]


class NothingReturnedError(UsageError):
    """A function returned an empty tuple or list."""


class ChangingOutputError(OutputChangedError, AssertionError):
    """The outputs change shape or dtype with the input. PyTorch raises AssertionError."""


class Tree:
    """A container taken apart.

    Attributes:
        leaves: what is in it, in order.
        paths: of the leaves, each a tuple of keys.
    """

    def __init__(self, tree: Any) -> None:
        self.leaves: list[Any] = []
        self.paths: list[Path] = []
        self._made = self._opened(tree, ())

    def _opened(self, tree: Any, path: Path) -> Callable[[Iterator[Any]], Any]:
        """Take a container apart; what makes one like it of further leaves."""
        inside = _inside(tree)
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
                parts.append(self._opened(content, (*path, key)))
        return lambda leaves: made([part(leaves) for part in parts])

    def rebuilt(self, leaves: Sequence[Any]) -> Any:
        """The container with other leaves; the given one stays as it is."""
        return self._made(iter(leaves))


_ALONE = (torch.Tensor, torch.nn.Parameter, int, float, complex, bool, str, type(None))
_place: Callable[[int], Any] = lru_cache(maxsize=256)(pytree.SequenceKey)
_Inside = tuple[tuple[Iterable[Any], Iterable[Any]], Callable[[list[Any]], Any]]


def _inside(tree: Any) -> _Inside | None:
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
        return (map(pytree.GetAttrKey, names), contents), partial(_copied, tree, names)
    if isinstance(tree, Mapping):
        names = list(tree)
        return (map(pytree.MappingKey, names), tree.values()), partial(_copied, tree, names)
    return None


def _copied(whole: Any, names: Sequence[Any], contents: Sequence[Any]) -> Any:
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


def floating_in(result: Any) -> list[torch.Tensor]:
    """Every floating or complex tensor of a result, in order."""
    parts = result if type(result) in (tuple, list) else (result,)
    for part in parts:
        if type(part) is not torch.Tensor or not part.dtype.is_floating_point:
            break
    else:
        return list(parts)
    return [
        tensor for tensor in tensors_in(result) if tensor.is_floating_point() or tensor.is_complex()
    ]


def named_outputs(result: Any, function: str) -> list[tuple[str, torch.Tensor]]:
    """Name and tensor of every floating or complex output.

    UsageError where there is no tensor at all, or one whose layout cannot be compared.
    """
    outputs: list[tuple[Path, torch.Tensor]] = [((), result)]
    if type(result) is not torch.Tensor:
        tree = Tree(result)
        pairs = zip(tree.paths, tree.leaves, strict=True)
        outputs = [(path, leaf) for path, leaf in pairs if isinstance(leaf, torch.Tensor)]
    if not outputs:
        nothing = isinstance(result, (tuple, list)) and not result
        raise (NothingReturnedError if nothing else UsageError)(
            f"{function} returned {type(result).__name__} without any tensor; return a tensor or "
            "a container of tensors"
        )
    for path, tensor in outputs:
        kind = "Sparse" if tensor.layout in SPARSE else "MKLDNN" if tensor.layout is MKLDNN else ""
        if kind:
            raise UsageError(
                f"{kind} output is not supported at gradcheck yet. Please call "
                f"to_dense(masked_grad=...) on the output of {function}."
            )
        if reason := unsupported_kind(tensor):
            raise UsageError(f"{output_name(path, pytree.keystr)} of {function} is {reason}")
    return [
        (output_name(path, pytree.keystr), tensor)
        for path, tensor in outputs
        if is_differentiable(tensor)
    ]


def unsupported_kind(tensor: torch.Tensor) -> str:
    """What is said of a tensor that has no coordinates here; "" of all others."""
    if type(tensor) in PLAIN and not (tensor.is_meta or tensor.is_nested):
        return ""
    if is_lazy(tensor):
        return "not initialised and has no shape yet: call the layer once, then check it"
    if tensor.is_meta or hasattr(tensor, "fake_mode"):
        return "a meta or fake tensor, which has no numbers; pass one that has"
    if tensor.is_nested:
        return (
            "a nested tensor, whose entries have no common shape; check what is done to the plain "
            "tensor that it is made of, its .values()"
        )
    if type(tensor).__name__ == "MaskedTensor":
        return (
            "a MaskedTensor, which has no value where it is masked; check the same of plain "
            "tensors, torch.where(mask, data, 0)"
        )
    return ""


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


def replaced(tree: Tree, others: Mapping[int, Any]) -> Any:
    """The container with the leaves at some places exchanged."""
    return tree.rebuilt([others.get(place, leaf) for place, leaf in enumerate(tree.leaves)])


# The floating outputs of a PyTorch function as slots of a codomain.


@dataclass(frozen=True)
class Output:
    """One slot of the codomain: where it stands among the floating outputs, and what it is."""

    position: int
    slot: Slot
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device | None
    part: slice

    def zeros(self) -> torch.Tensor:
        """A tensor of zeros in this slot."""
        return torch.zeros(self.shape, dtype=self.dtype, device=self.device or "cpu")


class Outputs:
    """What one call returned, and that later calls must return the same.

    Attributes:
        space: the codomain.
        kept: one per slot of the space.
        attached: those of `kept` that have a derivative.
        left_out: names of the floating outputs that are not in the space.
    """

    def __init__(
        self,
        named: Sequence[tuple[str, torch.Tensor]],
        function: str,
        without: frozenset[int],
    ) -> None:
        self._function = function
        self._count = len(named)
        self.left_out: list[str] = []
        self.kept: list[Output] = []
        start = 0
        for place, (name, y) in enumerate(named):
            if place in without:
                self.left_out.append(name)
                continue
            slot = slot_like(name, y, detached=not y.requires_grad)
            device = None if y.is_cpu else y.device
            part = slice(start, start := start + slot.size)
            self.kept.append(Output(place, slot, y.shape, y.dtype, device, part))
        self.space = Space(tuple([output.slot for output in self.kept]))
        self.attached = [output for output in self.kept if not output.slot.detached]

    def are_those_of(self, result: Any) -> bool:
        """Whether a call of the same function returned outputs of the same kinds."""
        floating = floating_in(result)
        return len(floating) == self._count and all(
            (tensor.shape, tensor.dtype, tensor.requires_grad, tensor.layout)
            == (one.shape, one.dtype, not one.slot.detached, torch.strided)
            and tensor.is_cpu == (one.device is None)
            for one in self.kept
            for tensor in (floating[one.position],)
        )

    def cotangents(self, v: Array) -> list[torch.Tensor]:
        """Private tensors from a codomain vector, one per attached output; of rows, stacks."""
        private, found = private_vector(v), []
        for one in self.attached:
            shape = (*private.shape[:-1], *one.shape)
            found.append(to_tensor(private[..., one.part], shape, one.dtype, one.device))
        return found

    def roots(self, result: Any) -> list[torch.Tensor]:
        """The attached ones among what a call returned."""
        floating = floating_in(result)
        return [floating[output.position] for output in self.attached]

    def vector(self, tensors: Iterable[tuple[Output, torch.Tensor | None]]) -> Array:
        """A codomain vector of tensors in some slots; None is zero."""
        vector = np.zeros(self.space.size)
        for output, tensor in tensors:
            if tensor is not None:
                vector[output.part] = to_vector(tensor, output.dtype)
        return vector

    def flatten(self, result: Any, into: Array | None = None) -> Array:
        """A codomain vector, new or `into`, of what a call returned; it shares no memory with that.

        ChangingOutputError where outputs differ in number, shape or dtype from the first call's.
        """
        if self._count == 1 and type(result) is torch.Tensor and result.dtype.is_floating_point:
            floating: Sequence[torch.Tensor] = (result,)
        elif len(floating := floating_in(result)) != self._count:
            raise ChangingOutputError(
                f"{self._function} returned {self._count} floating outputs at the point and "
                f"{len(floating)} at a perturbed input. Expected `func` to return outputs with "
                "the same shape; make the number of outputs independent of the values"
            )
        vector = np.empty(self.space.size) if into is None else into
        for output in self.kept:
            tensor = floating[output.position]
            if tensor.shape != output.shape:
                self._refuse(output, "shape", tuple(output.shape), tuple(tensor.shape))
            if tensor.dtype is not output.dtype:
                self._refuse(output, "dtype", output.dtype, tensor.dtype)
            vector[output.part] = to_vector(tensor, output.dtype)
        return vector

    def _refuse(self, output: Output, what: str, first: object, now: object) -> None:
        raise ChangingOutputError(
            f"{self._function} returned {output.slot.name} of {what} {first} at the point and "
            f"{now} at a perturbed input. Expected `func` to return outputs with the same {what} "
            f"when inputs are perturbed; make the {what} independent of the values"
        )
