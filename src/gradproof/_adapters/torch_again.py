"""Further calls of a PyTorch function that share something with the kept one: memory, buffers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from gradproof._adapters.torch_leaves import DenseLeaf
from gradproof._adapters.torch_tree import floating_in
from gradproof._adapters.torch_vectors import PLAIN, own
from gradproof._map import Unsupported
from gradproof._space import Array

if TYPE_CHECKING:
    from gradproof._adapters.torch import TorchMap


def kept_value(target: TorchMap) -> Array:
    """F at the point, from the outputs of the kept call."""
    return target.produced.flatten(target.results)


def reused(target: TorchMap, x: Array, v: Array) -> tuple[None, Array, Array]:
    """F(x) and J(x)^T v of a call with the tensors of the kept one, which hold x meanwhile.

    Their version is another while they do, as after an optimiser's step, and that of the kept
    graph again afterwards.
    """
    plain = all(isinstance(leaf, DenseLeaf) for leaf in target.leaves)
    tensors = target.graph[1]
    if target.in_place or not plain or any(type(tensor) not in PLAIN for tensor in tensors):
        raise Unsupported("its inputs are not written into")
    held, new = [tensor.detach().clone() for tensor in tensors], target.tensors_at(own(x))
    with ExitStack() as versions, torch.no_grad():
        for tensor in tensors:
            versions.enter_context(_unsafe_preserve_version_counter(tensor))
        try:
            for tensor, values in zip(tensors, new, strict=True):
                tensor.copy_(values)
            with torch.enable_grad():
                result = target.call(tensors)
                value = target.produced.flatten(result)
                return None, value, _pulled(target, result, tensors, v)
        finally:
            for tensor, values in zip(tensors, held, strict=True):
                tensor.copy_(values)


def overtaken(target: TorchMap, x: Array, v: Array) -> tuple[Array, Array, Array]:
    """(J^T v, F(x), J(x)^T v) of a call at the point and one at x, what the first wrote left."""
    if target.in_place or not target.arguments.writes:
        raise Unsupported("the function writes into no tensor of its own")
    first = target.fresh()
    second = [tensor.requires_grad_() for tensor in target.tensors_at(own(x))]
    with target.arguments.left_as_written():
        results = [target.call(tensors) for tensors in (first, second)]
        value = target.produced.flatten(results[1])
        here = _pulled(target, results[0], first, v)
        return here, value, _pulled(target, results[1], second, v)


def _pulled(target: TorchMap, result: Any, tensors: Sequence[torch.Tensor], v: Array) -> Array:
    floating = floating_in(result)
    outputs = [floating[output.position] for output in target.attached]
    return target.collect(target.grad(outputs, tensors, target.cotangents(v)) if outputs else ())
