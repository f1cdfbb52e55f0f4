"""One differentiable input of PyTorch as a piece of a flat real vector; sparse ones: `_sparse`."""

from __future__ import annotations

import abc
from collections.abc import Iterator

import torch

from gradproof._data.space import Array, Slot
from gradproof.torch._memory import placed_like, private_copy, require_no_overlap
from gradproof.torch._tensors import PLAIN, private_vector, slot_like, to_tensor, to_vector


class Leaf(abc.ABC):
    """One differentiable input: a slot of the domain and the tensors made from it.

    Attributes:
        slot: name, shape and entries.
        original: the user's tensor; never written, except while a map works in place.
    """

    slot: Slot

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

    def traits(self, gradient: torch.Tensor) -> Iterator[tuple[str, str, str]]:
        """Properties beside numbers: name, that of a gradient of this input, and that expected."""
        like = self.original
        yield "dtype", str(gradient.dtype), str(like.dtype)
        yield "device", str(gradient.device), str(like.device)
        yield "shape", str(tuple(gradient.shape)), str(tuple(like.shape))
        if gradient.layout is torch.strided:  # fits an input of any layout
            return
        yield "layout", str(gradient.layout), str(like.layout)
        if gradient.layout is like.layout:
            yield "sparse_dim", str(gradient.sparse_dim()), str(like.sparse_dim())
            yield "dense_dim", str(gradient.dense_dim()), str(like.dense_dim())

    def entries_outside(self, gradient: torch.Tensor) -> list[tuple[tuple[int, ...], float]]:
        """Non-zero entries of a gradient that lie outside the slot, which may cover all."""
        del gradient
        return []


class DenseLeaf(Leaf):
    """A strided tensor. Perturbed copies have its strides and its storage offset."""

    def __init__(self, original: torch.Tensor, name: str) -> None:
        super().__init__(original)
        require_no_overlap(original, name)
        self.slot = slot_like(name, original)
        self._like = original.detach()
        self._is_usual = (  # as PyTorch makes one of these numbers
            original.storage_offset() == 0
            and original.stride() == torch.empty(original.shape, device="meta").stride()
            and type(original) in PLAIN
            and not (original.is_conj() or original.is_neg())
        )

    def tensor(self, piece: Array) -> torch.Tensor:
        values = to_tensor(piece, self._like.shape, self._dtype, self._like.device)
        return values if self._is_usual else placed_like(values, self._like)

    def copy(self) -> torch.Tensor:
        return private_copy(self._like)
