"""Properties of gradients beside their numbers: dtype, device, shape, layout, specified entries."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gradproof._data.space import Array
from gradproof._maps.contract import Trait
from gradproof.torch._graph import Graph


def gradient_traits(graph: Graph, v: Array) -> list[Trait]:
    """Properties of each gradient that differ from its input's."""
    gradients = graph.grad(graph.outputs.cotangents(v))
    return [
        Trait(slot, what, claimed, expected)
        for slot, (gradient, leaf) in enumerate(zip(gradients, graph.inputs.leaves, strict=True))
        if gradient is not None
        for what, claimed, expected in _traits(gradient, leaf.original)
        if claimed != expected
    ]


def _traits(gradient: torch.Tensor, like: torch.Tensor) -> Iterator[tuple[str, str, str]]:
    yield "dtype", str(gradient.dtype), str(like.dtype)
    yield "device", str(gradient.device), str(like.device)
    yield "shape", str(tuple(gradient.shape)), str(tuple(like.shape))
    if gradient.layout is torch.strided:  # fits an input of any layout
        return
    yield "layout", str(gradient.layout), str(like.layout)
    if gradient.layout is like.layout:
        yield "sparse_dim", str(gradient.sparse_dim()), str(like.sparse_dim())
        yield "dense_dim", str(gradient.dense_dim()), str(like.dense_dim())


def outside_domain(graph: Graph, v: Array) -> list[tuple[int, tuple[int, ...], float]]:
    """Non-zero gradients of entries that the domain leaves out."""
    gradients = graph.grad(graph.outputs.cotangents(v))
    return [
        (slot, index, value)
        for slot, (gradient, leaf) in enumerate(zip(gradients, graph.inputs.leaves, strict=True))
        if gradient is not None
        for index, value in leaf.entries_outside(gradient)
    ]
