"""The differentiable inputs of a function together: the domain, and private tensors at a point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from gradproof._data.held import finite_point
from gradproof._data.space import Array, Space
from gradproof.torch._leaves import DenseLeaf, Leaf
from gradproof.torch._tensors import private_vector


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
        found = [leaf.copy() for leaf in self.leaves]
        for leaf, tensor in zip(self.leaves, found, strict=True):
            tensor.requires_grad_()
            for hook in (leaf.original._backward_hooks or {}).values():  # `backward()` runs them
                tensor.register_hook(hook)
        return found
