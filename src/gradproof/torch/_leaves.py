"""Differentiable inputs of PyTorch as pieces of a flat real vector; sparse ones in `_sparse`."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from gradproof._data.held import finite_point
from gradproof._data.space import Array, Slot, Space
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
        return self._like.clone() if self._is_usual else private_copy(self._like)


class Inputs:
    """The differentiable inputs of a function as the slots of a domain, and their values.

    Attributes:
        space: the domain.
        pairs: the leaves, each with its part of a vector.
        point: the values of the inputs, as one vector.
        held: infinite entries of the point, which stay as they are; None where there are none.
    """

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self.leaves = leaves
        self.space = Space(tuple([leaf.slot for leaf in leaves]))
        self.pairs = [(leaf, self.space.span(place)) for place, leaf in enumerate(leaves)]
        point = np.concatenate([np.zeros(0), *(leaf.point() for leaf in leaves)])
        self.point, self.held = finite_point(self.space, point)

    @property
    def are_dense(self) -> bool:
        """Whether all of them are strided tensors, of which every entry is varied."""
        return {*map(type, self.leaves)} == {DenseLeaf}

    def direction_tensors(self, u: Array) -> list[torch.Tensor]:
        """Private tensors of a domain vector, one per input."""
        private = private_vector(u)
        return [leaf.tensor(private[part]) for leaf, part in self.pairs]

    def tensors_at(self, x: Array) -> list[torch.Tensor]:
        """The same of a point, where what is infinite stays so."""
        return self.direction_tensors(x if self.held is None else self.held.put_back(x))

    def vector(self, gradients: Sequence[torch.Tensor | None]) -> Array:
        """A domain vector of one gradient per input; None is zero."""
        vector = np.zeros(self.space.size)
        for (leaf, part), gradient in zip(self.pairs, gradients, strict=False):
            if gradient is not None:
                vector[part] = leaf.gradient(gradient)
        return self.space.zero_still_entries(vector)

    def copy_inputs(self) -> list[torch.Tensor]:
        """Private tensors at the point that require grad, with the hooks of the user's."""
        return self.with_hooks([leaf.copy() for leaf in self.leaves])

    def with_hooks(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """These tensors, made to require grad, with the hooks that `backward()` runs."""
        for leaf, tensor in zip(self.leaves, tensors, strict=True):
            tensor.requires_grad_()
            for hook in (getattr(leaf.original, "_backward_hooks", None) or {}).values():
                tensor.register_hook(hook)
        return tensors
