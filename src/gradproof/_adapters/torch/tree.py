"""Containers of PyTorch tensors, taken apart and put together, and the names of what is in them.

`torch.utils._pytree` knows tuples, lists, dicts, namedtuples and what was registered with it;
dataclasses and mappings that were not are taken apart here.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from gradproof._adapters.arrays import output_name
from gradproof._adapters.torch.leaves import (
    MKLDNN,
    PLAIN,
    SPARSE,
    full,
    is_differentiable,
    joined,
    lendable,
    slot_like,
    to_tensor,
    to_vector,
)
from gradproof._data.space import Array, Slot, Space
from gradproof.errors import UsageError

Path = tuple[Any, ...]


class Tree:
    """A container taken apart.

    Attributes:
        leaves: what is in it, in order.
    """

    def __init__(self, tree: Any) -> None:
        self._whole = tree
        self.leaves: list[Any] = []
        plain = _plainly(tree)
        if plain is not None:
            self.paths, self.leaves = [path for path, _ in plain], [leaf for _, leaf in plain]
            return
        for leaf, part in zip(self._taken[0], self._parts, strict=True):
            self.leaves += [leaf] if part is None else part[1].leaves

    @cached_property
    def _taken(self) -> tuple[list[Any], pytree.TreeSpec]:
        return pytree.tree_flatten(self._whole)

    @cached_property
    def _parts(self) -> list[tuple[Any, Tree] | None]:
        """Of each leaf that pytree finds, what is in it."""
        inside = [(leaf, _inside(leaf)) for leaf in self._taken[0]]
        return [None if part is None else (leaf, Tree(part)) for leaf, part in inside]

    @cached_property
    def paths(self) -> list[Path]:
        """Of the leaves, each a tuple of keys: made when asked for, since most are not."""
        if len(self.leaves) == 1 and self.leaves[0] is self._whole:
            return [()]
        found: list[Path] = []
        outer = [path for path, _ in pytree.tree_flatten_with_path(self._whole)[0]]
        for path, part in zip(outer, self._parts, strict=True):
            inner = [()] if part is None else [_named(part[0], p) for p in part[1].paths]
            found += [(*path, *rest) for rest in inner]
        return found

    def rebuilt(self, leaves: Sequence[Any]) -> Any:
        """The container with other leaves; the given one stays as it is."""
        values, start = [], 0
        for part in self._parts:
            if part is None:
                values.append(leaves[start])
                start += 1
            else:
                whole, tree = part
                end = start + len(tree.leaves)
                values.append(_with(whole, tree.rebuilt(leaves[start:end])))
                start = end
        return pytree.tree_unflatten(values, self._taken[1])


_ALONE = (torch.Tensor, torch.nn.Parameter, int, float, complex, bool, str, type(None))


def _plainly(tree: Any, path: Path = ()) -> list[tuple[Path, Any]] | None:
    """Path and leaf of what is in a container, as nearly always; None where pytree is to be asked.

    Tuples, lists, dicts and dataclasses are taken apart as it would, an order of magnitude faster.
    """
    kind = type(tree)
    inside: list[tuple[Any, Any]]
    if kind in _ALONE:
        return [(path, tree)]
    if kind is dict:
        inside = [(pytree.MappingKey(key), tree[key]) for key in tree]
    elif kind in (tuple, list):
        inside = [(pytree.SequenceKey(k), part) for k, part in enumerate(tree)]
    elif kind in pytree.SUPPORTED_NODES or isinstance(tree, (tuple, list, Mapping)):
        return None
    elif hasattr(tree, "__dataclass_fields__") and not isinstance(tree, type):
        names = [field.name for field in dataclasses.fields(tree)]
        inside = [(pytree.GetAttrKey(name), getattr(tree, name)) for name in names]
    else:
        return [(path, tree)]
    found: list[tuple[Path, Any]] = []
    for key, part in inside:
        further = _plainly(part, (*path, key))
        if further is None:
            return None
        found += further
    return found


def _inside(leaf: Any) -> dict[Any, Any] | None:
    """The contents of a container that pytree takes for a leaf; None where it is none."""
    if isinstance(leaf, (torch.Tensor, type)):
        return None
    if dataclasses.is_dataclass(leaf):
        return {field.name: getattr(leaf, field.name) for field in dataclasses.fields(leaf)}
    return dict(leaf) if isinstance(leaf, Mapping) else None


def _named(leaf: Any, path: Path) -> Path:
    """The path inside a dataclass, whose fields are attributes."""
    if not dataclasses.is_dataclass(leaf):
        return path
    return (pytree.GetAttrKey(path[0].key), *path[1:])


def _with(whole: Any, contents: Mapping[Any, Any]) -> Any:
    """A shallow copy of a dataclass or mapping with other contents; no __init__ is run."""
    made = copy.copy(whole)
    for key, value in contents.items():
        if dataclasses.is_dataclass(whole):
            object.__setattr__(made, key, value)  # frozen ones too
        else:
            made[key] = value
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
    tree = Tree(result)
    outputs = [
        (path, leaf)
        for path, leaf in zip(tree.paths, tree.leaves, strict=True)
        if isinstance(leaf, torch.Tensor)
    ]
    if not outputs:
        raise UsageError(
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
    return name + pytree.keystr(tuple(rest))


def argument_of(path: Path) -> int | None:
    """Which positional argument a path of `(args, kwargs, captured)` leads into, if any."""
    return path[1].idx if path[0].idx == 0 else None


def is_flat(inputs: Sequence[Any], leaves: Sequence[Any]) -> bool:
    """Whether no argument is a container: the leaves are the arguments themselves."""
    return len(leaves) == len(inputs) and all(
        leaf is given for leaf, given in zip(leaves, inputs, strict=True)
    )


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
    home: torch.device | None

    def zeros(self) -> torch.Tensor:
        """A tensor of zeros in this slot."""
        return torch.zeros(self.shape, dtype=self.dtype, device=self.device or "cpu")

    def vector(self, tensor: torch.Tensor) -> Array:
        """Flat coordinates of a tensor in this slot, whose memory they may share."""
        return to_vector(tensor, self.dtype, self.home)


class Outputs:
    """What one call returned, and that later calls must return the same.

    Attributes:
        space: the codomain.
        kept: one per slot of the space.
        attached: those of `kept` that have a derivative.
        left_out: names of the floating outputs that are not in the space.
        home: the device on which vectors live; None for NumPy's.

    Args:
        named: name and tensor of every floating output at the point.
        function: name of the function.
        without: places, among the floating outputs, of those to leave out.
        home: as the attribute.
    """

    def __init__(
        self,
        named: Sequence[tuple[str, torch.Tensor]],
        function: str,
        without: frozenset[int],
        home: torch.device | None = None,
    ) -> None:
        self._function = function
        self._count, self.home = len(named), home
        kept = [
            (position, name, tensor)
            for position, (name, tensor) in enumerate(named)
            if position not in without
        ]
        self.left_out = [name for place, (name, _) in enumerate(named) if place in without]
        self.space = Space(
            tuple(slot_like(name, y, detached=not y.requires_grad) for _, name, y in kept)
        )
        self.kept = [
            Output(
                position,
                self.space.slots[index],
                tensor.shape,
                tensor.dtype,
                None if tensor.is_cpu else tensor.device,
                self.space.span(index),
                home,
            )
            for index, (position, _, tensor) in enumerate(kept)
        ]
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

    def cotangents(self, v: Array, *, long: int | None = None) -> list[torch.Tensor]:
        """Private tensors from a codomain vector, one per attached output.

        They share the memory of one of more than `long` entries: who asks hands on copies.
        """
        private, found = lendable(v, long=long), []
        for one in self.attached:
            found.append(to_tensor(private[one.part], one.shape, one.dtype, one.device))
        return found

    def roots(self, result: Any) -> list[torch.Tensor]:
        """The attached ones among what a call returned."""
        floating = floating_in(result)
        return [floating[output.position] for output in self.attached]

    def vector(
        self, tensors: Iterable[tuple[Output, torch.Tensor | None]], into: Array | None = None
    ) -> Array:
        """A codomain vector, new or `into` of zeros, of tensors in some slots; None is zero."""
        vector = full(self.space.size, 0.0, self.home) if into is None else into
        for output, tensor in tensors:
            if tensor is not None:
                vector[output.part] = output.vector(tensor)
        return vector

    def flatten(self, result: Any, into: Array | None = None) -> Array:
        """A codomain vector from what a call returned; shares no memory with it.

        Args:
            result: what it returned.
            into: a vector of NumPy's to write it to; a new one where None.

        Raises:
            UsageError: the outputs differ in number, shape or dtype from those of the first call.
        """
        alone = type(result) is torch.Tensor and result.dtype.is_floating_point
        floating = (result,) if alone else floating_in(result)
        if len(floating) != self._count:
            raise UsageError(
                f"{self._function} returned {self._count} floating outputs at the point and "
                f"{len(floating)} at a perturbed input. Expected `func` to return outputs with "
                "the same shape; make their number independent of the values"
            )
        pieces = []
        for output in self.kept:
            tensor = floating[output.position]
            if tensor.shape != output.shape:
                self._refuse(output, "shape", tuple(output.shape), tuple(tensor.shape))
            if tensor.dtype is not output.dtype:
                self._refuse(output, "dtype", output.dtype, tensor.dtype)
            piece = to_vector(tensor, output.dtype, self.home)
            if into is None:
                pieces.append(piece)
            else:
                into[output.part] = piece
        return joined(pieces, self.home) if into is None else into

    def _refuse(self, output: Output, what: str, first: object, now: object) -> None:
        raise UsageError(
            f"{self._function} returned {output.slot.name} of {what} {first} at the point and "
            f"{now} at a perturbed input. Expected `func` to return outputs with the same {what} "
            f"when inputs are perturbed; make the {what} independent of the values"
        )
