"""Functions that ignore their arguments and read the very tensors that were given as arguments."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from gradproof._adapters.torch_leaves import DenseLeaf
from gradproof._adapters.torch_reverse import unreachable
from gradproof._adapters.torch_tree import floating_in
from gradproof._guard import restored
from gradproof._space import Array

if TYPE_CHECKING:
    from gradproof._adapters.torch import TorchMap


def settle(target: TorchMap, tensors: list[torch.Tensor], result: Any) -> tuple[Any, Any]:
    """The inputs and the result of the call to keep; the map then knows whether it is in place.

    Where the result ignores private copies and depends on the user's own tensors, these are it.
    """
    attached = [tensor for tensor in floating_in(result) if tensor.requires_grad]
    if not attached or not all(isinstance(leaf, DenseLeaf) for leaf in target.leaves):
        return tensors, result
    unused = target.arguments_among(unreachable(attached, tensors))
    if not unused:
        return tensors, result
    originals = [leaf.original for leaf in target.leaves]
    target.in_place = True
    target.saved = [tensor.detach().clone() for tensor in originals]
    again = target.call(originals)
    attached = [tensor for tensor in floating_in(again) if tensor.requires_grad]
    ones = [torch.ones_like(tensor) for tensor in attached]
    gradients = target.grad(attached, originals, ones) if attached else []
    target.in_place = any(gradients and gradients[position] is not None for position in unused)
    return (originals, again) if target.in_place else (tensors, result)


def value(target: TorchMap, tensors: list[torch.Tensor]) -> Array:
    """F at these values, written into the user's tensors for the time of one call."""
    originals = [leaf.original for leaf in target.leaves]
    with restored(partial(restore, target)):
        for original, tensor in zip(originals, tensors, strict=True):
            original.data.copy_(tensor)
        # Flat copies before the originals get their values back: outputs may alias them.
        return target.produced.flatten(target.run(originals))


def restore(target: TorchMap) -> None:
    """Give the user's tensors their values back."""
    for leaf, saved in zip(target.leaves, target.saved, strict=True):
        leaf.original.data.copy_(saved)
