"""One differentiable input of PyTorch as a piece of a flat real vector; sparse ones: `_sparse`."""

from __future__ import annotations

import abc
import functools

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
