"""Differentiable tensors of PyTorch as pieces of a flat real vector, memory layout included.

Vectors are NumPy's, in float64 and on the host; tensors are moved to and from their devices here.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from gradproof._data.held import finite_point
from gradproof._data.space import Array, Grain, Slot, Space
from gradproof.errors import UsageError

PLAIN = (torch.Tensor, torch.nn.Parameter)  # a subclass may do anything when it is copied


def private_vector(vector: Array) -> Array:
    """A copy in float64: tensors may share its memory, and a function may write into them."""
    return np.array(vector, dtype=np.float64, order="C")


SORTED = 1_000_000  # entries up to which their places in memory are sorted, within a second
MKLDNN = torch._mkldnn  # type: ignore[attr-defined]
COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
SPARSE = (torch.sparse_coo, *COMPRESSED)


class OverlapError(UsageError, RuntimeError):
    """An input whose entries share memory: perturbing one would change another."""


def is_differentiable(value: Any) -> bool:
    """Whether a value is a tensor of numbers that can have a derivative."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def unit_roundoff(dtype: torch.dtype) -> float:
    """Half the gap between 1 and the next number, 2**-53 in double precision."""
    return float(torch.finfo(dtype).eps) / 2


def is_floating(dtype: torch.dtype) -> bool:
    """Whether it is one of real or complex numbers."""
    return dtype.is_floating_point or dtype.is_complex


@functools.cache
def grain(dtype: torch.dtype) -> Grain:
    """How finely a dtype's numbers lie."""
    limits = torch.finfo(dtype)
    tiny = float(limits.smallest_normal) * float(limits.eps)
    return Grain(float(limits.eps) / 2, tiny, float(limits.max))


def slot_like(name: str, tensor: torch.Tensor, *, detached: bool = False) -> Slot:
    """The slot of a tensor's entries."""
    return _slot(name, tensor.shape, tensor.dtype, tensor.layout, detached=detached)


@functools.lru_cache(maxsize=1024)
def _slot(
    name: str, shape: torch.Size, dtype: torch.dtype, layout: torch.layout, *, detached: bool
) -> Slot:
    """A slot of these, of which a suite has few: to make one takes as long as a small function."""
    text = f"{str(dtype).removeprefix('torch.')}{list(shape)}"
    if layout is not torch.strided:
        text += f" {str(layout).removeprefix('torch.').removeprefix('_')}"
    parts = ("real", "imag") if dtype.is_complex else ("",)
    return Slot(name, tuple(shape), parts, None, detached, text, grain(dtype))


def to_vector(tensor: torch.Tensor, dtype: torch.dtype) -> Array:
    """Flat float64 coordinates of a tensor on the host, as those of a tensor of `dtype`.

    They may share the memory of the tensor: every caller copies.
    """
    # force resolves conjugations, negations and PyTorch's symbolic zeros, and leaves the graph.
    plain = type(tensor) is torch.Tensor and tensor.dtype is dtype is torch.float64
    if plain and tensor.is_cpu and tensor.layout is torch.strided:
        return tensor.numpy(force=True).ravel()
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if dtype.is_complex:
        flat = tensor.to("cpu", torch.complex128).numpy(force=True).ravel()
        return flat.view(np.float64)
    if tensor.is_complex():
        tensor = tensor.real
    if tensor.dtype is not torch.float64 or not tensor.is_cpu:
        tensor = tensor.to("cpu", torch.float64)
    return tensor.numpy(force=True).ravel()


def to_tensor(
    piece: Array, shape: Any, dtype: torch.dtype, device: torch.device | None = None
) -> torch.Tensor:
    """A contiguous tensor from flat float64 coordinates, whose memory it shares where it can."""
    if dtype.is_complex:
        # PyTorch's vectorised complex kernels crash on an address that is no multiple of 16.
        whole = piece.flags.c_contiguous and piece.ctypes.data % 16 == 0
        piece = (piece if whole else piece.copy()).view(np.complex128)
    tensor = torch.from_numpy(piece.reshape(shape))  # NumPy takes less to view than PyTorch
    if tensor.dtype is not dtype or device is not None:
        tensor = tensor.to(device, dtype)
    return tensor


def extent(tensor: torch.Tensor) -> int:
    """Number of elements of storage that a strided tensor reaches, from the storage's start."""
    start = int(tensor.storage_offset())
    if not tensor.numel():
        return start
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return start + 1 + sum((size - 1) * stride for size, stride in steps)


def placed_like(
    values: torch.Tensor, like: torch.Tensor, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """A private tensor with these values and exactly the strides, offset and bits of `like`.

    It has the dtype of `like`, or `dtype`.
    """
    if like.is_conj() or like.is_neg():
        # `like` and the values without that bit, and the bit again: what is in memory.
        turned = torch.conj if like.is_conj() else torch._neg_view
        return turned(placed_like(turned(values), turned(like.detach()), dtype))
    if type(like) not in PLAIN:
        private = like.detach().clone()
        private = private if dtype is None else private.to(dtype)
        return private.copy_(values)
    buffer = torch.zeros(extent(like), dtype=dtype or like.dtype, device=like.device)
    # set_, unlike as_strided, makes a tensor that is no view: a real leaf, also in forward mode.
    private = buffer.new_empty(0).set_(
        buffer.untyped_storage(), like.storage_offset(), like.size(), like.stride()
    )
    if 0 in like.stride():  # expanded: what is repeated is written once
        once = tuple(slice(None) if step else slice(1) for step in like.stride())
        private[once].copy_(values[once])
        return private
    return private.copy_(values)


def packed(values: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Private tensors with these values, in one memory, where others lie in theirs."""
    size = max(_span(each)[1] for each in like)
    memory = torch.zeros(size, dtype=torch.uint8, device=like[0].device).untyped_storage()
    for one, other in zip(values, like, strict=True):
        private = one.new_empty(0).set_(
            memory, other.storage_offset(), other.size(), other.stride()
        )
        yield private.copy_(one)


def private_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A detached copy that shares no memory and has the same memory layout."""
    tensor = tensor.detach()
    if tensor.layout is torch.strided and not tensor.is_quantized:
        return placed_like(tensor, tensor)
    return tensor.clone()


def in_kind(tensor: torch.Tensor, original: torch.Tensor) -> torch.Tensor:
    """A private tensor, given the class and the attributes of the user's, as `nn.Parameter`.

    In place, so that it stays the leaf that a graph knows, and a dual number keeps its tangent.
    Classes that decide in `__torch_dispatch__` are more than a name, and are copied by themselves.
    """
    kind = type(original)
    if tensor is not original and kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
        if type(tensor) is not kind:
            tensor.__class__ = kind
        vars(tensor).update(vars(original))
    return tensor


def offsets_in(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Where the entries of a strided tensor lie, in entries after the first; in its shape."""
    offsets = np.zeros((), dtype=np.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        offsets = np.add.outer(offsets, stride * np.arange(size))
    return offsets


def require_no_overlap(tensor: torch.Tensor, name: str) -> None:
    """OverlapError where two entries of a strided tensor share memory."""
    if tensor.is_contiguous():
        return
    pairs = [
        (stride, size)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        if size > 1
    ]
    if not tensor.numel():
        return
    if any(stride == 0 for stride, _ in pairs):
        raise OverlapError(
            f"{name} has a dimension with stride 0, so entries share memory and cannot be "
            "perturbed one by one; pass its .contiguous() copy"
        )
    reach = 0
    for stride, size in sorted(pairs):
        if stride <= reach:
            break
        reach += (size - 1) * stride
    else:
        return
    # Interleaved strides may still be disjoint; small tensors are counted exactly.
    if tensor.numel() <= SORTED and np.unique(offsets_in(tensor)).size == tensor.numel():
        return
    raise OverlapError(
        f"{name} has entries that share memory and cannot be perturbed one by one; "
        "pass its .contiguous() copy"
    )


class Leaf(abc.ABC):
    """One differentiable input: a slot of the domain and the tensors made from it.

    Attributes:
        slot: name, shape and entries.
        original: the user's tensor; never written, except while a map works in place.
        no_forward: why forward mode cannot take this input; "" where it can.
    """

    slot: Slot
    no_forward = ""

    def __init__(self, original: torch.Tensor) -> None:
        self.original, self._dtype = original, original.dtype

    @abc.abstractmethod
    def tensor(self, piece: Array) -> torch.Tensor:
        """A tensor at other coordinates, which it may share; no gradient required."""

    def tensors(self, rows: Array) -> Iterator[torch.Tensor]:
        """`tensor` of every row."""
        return map(self.tensor, rows)

    def point(self) -> Array:
        """Flat coordinates of the user's value, whose memory they may share."""
        return to_vector(self.original, self._dtype)

    def copy(self) -> torch.Tensor:
        """A private tensor with the user's value, layout and structure."""
        return self.tensor(private_vector(self.point()))

    def gradient(self, gradient: torch.Tensor) -> Array:
        """Flat coordinates of a gradient of this input; they may share its memory."""
        return to_vector(gradient, self._dtype)

    def outside(
        self,
        gradient: torch.Tensor,  # noqa: ARG002 (a slot that covers every entry has no outside)
    ) -> list[tuple[tuple[int, ...], float]]:
        """Non-zero entries of a gradient that lie outside the slot."""
        return []


@functools.lru_cache(maxsize=256)
def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a tensor of this shape that PyTorch makes; of shapes a suite has few."""
    return torch.empty(shape, device="meta").stride()


class DenseLeaf(Leaf):
    """A strided tensor. Perturbed copies have its strides and its storage offset."""

    def __init__(self, original: torch.Tensor, name: str) -> None:
        super().__init__(original)
        require_no_overlap(original, name)
        self._shape = tuple(original.shape)
        self.slot = slot_like(name, original)
        self._like = original.detach()
        self._device = None if original.device.type == "cpu" else original.device
        self._usual = (
            original.storage_offset() == 0
            and original.stride() == _contiguous(self._shape)
            and type(original) in PLAIN
            and not (original.is_conj() or original.is_neg())
        )
        double = original.dtype is torch.float64
        self._in_place = self._usual and double and self._device is None

    def tensor(self, piece: Array) -> torch.Tensor:
        if self._in_place:
            return torch.from_numpy(piece.reshape(self._shape))
        values = to_tensor(piece, self._shape, self._dtype, self._device)
        return values if self._usual else placed_like(values, self._like)

    def tensors(self, rows: Array) -> Iterator[torch.Tensor]:
        if self._in_place and self._shape:
            return map(torch.from_numpy, rows.reshape(len(rows), *self._shape))
        return super().tensors(rows)

    def copy(self) -> torch.Tensor:
        return self._like.clone() if self._in_place else private_copy(self.original)


class MkldnnLeaf(Leaf):
    """A tensor in MKLDNN's opaque layout, in dense coordinates."""

    no_forward = "MKLDNN inputs are not supported for forward AD"

    def __init__(self, original: torch.Tensor, name: str) -> None:
        super().__init__(original)
        self.slot = slot_like(name, original)

    def tensor(self, piece: Array) -> torch.Tensor:
        return to_tensor(piece, self.slot.shape, self._dtype).to_mkldnn()


# Inputs whose entries share memory: one coordinate for each cell of the memory they lie in.


def share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two strided tensors have a cell of memory in common."""
    where = _memory(a)
    return where is not None and where == _memory(b) and _overlap(a, b)


def sharing(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """Positions of every two tensors that have a cell of memory in common, in order."""
    if len(tensors) < 2:
        return []
    together: dict[tuple[str, int], list[int]] = {}
    for position, tensor in enumerate(tensors):
        if (where := _memory(tensor)) is not None:
            together.setdefault(where, []).append(position)
    pairs = []
    for places in together.values():
        spans = [(*_span(tensors[place]), place) for place in places] if places[1:] else []
        open_: list[tuple[int, int]] = []  # those that reach beyond where the next one begins
        for first, last, position in sorted(spans):
            open_ = [(end, other) for end, other in open_ if end > first]
            near = [other for _, other in open_ if _overlap(tensors[other], tensors[position])]
            pairs += [(min(other, position), max(other, position)) for other in near]
            open_.append((last, position))
    return sorted(pairs)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Where in its memory a tensor begins and ends, in bytes."""
    size = tensor.element_size()
    return int(tensor.storage_offset()) * size, extent(tensor) * size


def _memory(tensor: torch.Tensor) -> tuple[str, int] | None:
    """Which memory a strided tensor lies in; None where that is not known."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return None
    if not tensor.numel():
        return None
    if tensor._is_zerotensor():  # PyTorch's symbolic zeros have no memory
        return "zero", id(tensor)
    return str(tensor.device), tensor.untyped_storage().data_ptr()


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one memory have a cell in common."""
    return a is b or bool(np.isin(_cells(a), _cells(b)).any())


def _cells(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Where the entries begin, in bytes from the start of their memory."""
    return (offsets_in(tensor) + int(tensor.storage_offset())) * tensor.element_size()


class SharedLeaf(Leaf):
    """A strided tensor with fewer cells than entries, as `.expand()` and `.unfold()` make them.

    Moving a cell moves every entry that lies in it, so its derivative is the sum of theirs. A cell
    has the name of its first entry.
    """

    def __init__(self, original: torch.Tensor, name: str) -> None:
        super().__init__(original)
        shape = tuple(original.shape)
        cells, first, self._cell = np.unique(
            offsets_in(original).reshape(-1), return_index=True, return_inverse=True
        )
        self._first = first
        self._places = torch.from_numpy(cells)
        entries = np.stack(np.unravel_index(first, shape), axis=-1).astype(np.int64)
        like = slot_like(name, original)
        text = f"{like.describe}, {len(cells)} cells of memory"
        self.slot = replace(like, shape=(len(cells),), entries=entries, describe=text)

    def _pairs(self, vector: Array) -> Array:
        return vector.reshape(-1, len(self.slot.parts))

    def point(self) -> Array:
        return self._pairs(to_vector(self.original, self._dtype))[self._first].reshape(-1)

    def tensor(self, piece: Array) -> torch.Tensor:
        like = self.original
        values = to_tensor(piece, self.slot.shape, self._dtype, like.device)
        buffer = torch.zeros(extent(like), dtype=like.dtype, device=like.device)
        buffer[self._places.to(like.device) + like.storage_offset()] = values
        return buffer.new_empty(0).set_(
            buffer.untyped_storage(), like.storage_offset(), like.size(), like.stride()
        )

    def gradient(self, gradient: torch.Tensor) -> Array:
        entries = self._pairs(to_vector(gradient, self._dtype))
        total = np.zeros((len(self._first), entries.shape[1]))
        np.add.at(total, self._cell.reshape(-1), entries)
        return total.reshape(-1)


# The differentiable inputs of a function, together.


class Inputs:
    """The differentiable inputs of a function as the slots of a domain, and their values.

    Attributes:
        space: the domain.
        parts: where each of the leaves stands in a vector.
        pairs: the leaves, each with its part.
        point: the values of the inputs, as one vector.
        held: infinite entries of the point, which stay as they are; None where there are none.
    """

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self.leaves = leaves
        self._alone = leaves[0] if len(leaves) == 1 else None
        self.space = Space(tuple([leaf.slot for leaf in leaves]))
        self.parts, points = [], []
        for place, leaf in enumerate(leaves):
            self.parts.append(self.space.span(place))
            points.append(leaf.point())
        self.pairs = list(zip(leaves, self.parts, strict=True))
        point = np.concatenate(points) if points else np.zeros(0)
        self.point, self.held = finite_point(self.space, point)

    @property
    def are_dense(self) -> bool:
        """Whether all of them are strided tensors, of which every entry is varied."""
        return {*map(type, self.leaves)} == {DenseLeaf}

    def directions(self, u: Array) -> list[torch.Tensor]:
        """Tensors of a domain vector, one per input, which may share its memory."""
        return [leaf.tensor(u[part]) for leaf, part in self.pairs]

    def at(self, x: Array) -> list[torch.Tensor]:
        """The same of a point, where what is infinite stays so."""
        return self.directions(x if self.held is None else self.held.into(x))

    def at_rows(self, xs: Array) -> Iterator[tuple[torch.Tensor, ...]]:
        """`at` of every row, made when they are asked for."""
        whole = xs if self.held is None else self.held.into(xs)
        return zip(*[leaf.tensors(whole[:, part]) for leaf, part in self.pairs], strict=True)

    def vector(self, gradients: Sequence[torch.Tensor | None]) -> Array:
        """A domain vector of one gradient per input; None is zero."""
        if self._alone is not None and gradients and gradients[0] is not None:
            return self.space.without_still(self._alone.gradient(gradients[0]).copy())
        vector = np.zeros(self.space.size)
        for (leaf, part), gradient in zip(self.pairs, gradients, strict=False):
            if gradient is not None:
                vector[part] = leaf.gradient(gradient)
        return self.space.without_still(vector)

    def copies(self) -> list[torch.Tensor]:
        """Private tensors at the point that require grad, with the hooks of the user's."""
        found = [leaf.copy() for leaf in self.leaves]
        for places in self._packed if self._alone is None else ():
            together = packed([found[k] for k in places], [self.leaves[k].original for k in places])
            for place, tensor in zip(places, together, strict=True):
                found[place] = tensor
        for leaf, tensor in zip(self.leaves, found, strict=True):
            tensor.requires_grad_()
            for hook in (leaf.original._backward_hooks or {}).values():  # `backward()` runs them
                tensor.register_hook(hook)
        return found

    @functools.cached_property
    def _packed(self) -> list[list[int]]:
        """Places of inputs that lie beside each other in one memory, as parts of one tensor do."""
        if not self.are_dense:
            return []
        originals = [leaf.original for leaf in self.leaves]
        memory: dict[Any, list[int]] = {}
        for place, original in enumerate(originals):
            memory.setdefault(_memory(original) or place, []).append(place)
        groups = [places for places in memory.values() if places[1:]]
        return [g for g in groups if not sharing([originals[place] for place in g])]
