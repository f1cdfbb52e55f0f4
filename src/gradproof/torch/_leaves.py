"""One differentiable input of PyTorch as a piece of a flat real vector; sparse ones: `_sparse`."""

from __future__ import annotations

import abc

import torch

from gradproof._data.space import Array, Slot
from gradproof.torch._memory import (
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

    def entries_outside(
        self,
        gradient: torch.Tensor,  # noqa: ARG002 (a slot that covers every entry has no outside)
    ) -> list[tuple[tuple[int, ...], float]]:
        """Non-zero entries of a gradient that lie outside the slot."""
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
