"""One differentiable input of PyTorch as a piece of a flat real vector, by its memory layout.

Strided tensors, those whose entries share memory, and those in MKLDNN's layout; sparse ones are in
`_sparse`.
"""

from __future__ import annotations

import abc
import functools
from dataclasses import replace

import numpy as np
import torch

from gradproof._data.space import Array, Slot
from gradproof.torch._memory import (
    extent,
    offsets_in,
    placed_like,
    private_copy,
    require_no_overlap,
)
from gradproof.torch._tensors import PLAIN, private_vector, slot_like, to_tensor, to_vector


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
