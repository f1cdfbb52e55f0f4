"""The graph behind some outputs: the leaves that it reaches, nodes that only raise, its dtypes.

A walk by `next_functions` makes each node an object of Python, and such nodes release their
successors by recursion: 100,000 in a row end the process. So a walk ends after some nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gradproof.torch._compat import LIBRARY_BACKWARD
from gradproof.torch._tensors import is_floating, unit_roundoff

_MOST_NODES = 1_000  # that are looked at; far from what overflows a stack


def unreached_tensors(
    outputs: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]
) -> list[int]:
    """Positions of the leaf tensors that the graph of the outputs does not contain.

    None of them where the graph is too large to tell.
    """
    missing = dict(zip(map(id, tensors), range(len(tensors)), strict=True))
    for output in outputs:
        missing.pop(id(output), None)
    for number, node in enumerate(_nodes(outputs)):
        if not missing or number == _MOST_NODES:
            return []
        if node.name() == "torch::autograd::AccumulateGrad":
            missing.pop(id(node.variable), None)
    return sorted(missing.values())


def leaf_ids_near(outputs: Sequence[torch.Tensor]) -> set[int]:
    """Identities of the leaf tensors in the graph of the outputs, among its first nodes."""
    near = itertools.islice(_nodes(outputs), _MOST_NODES)
    return {id(node.variable) for node in near if node.name() == "torch::autograd::AccumulateGrad"}


def may_have_raising_node(output: torch.Tensor) -> bool:
    """Whether a node in the graph of an output only raises, as once_differentiable marks it.

    True also where the graph is too large to look for such a node.
    """
    for number, node in enumerate(_nodes([output])):
        if number == _MOST_NODES or "Error" in node.name() or "NotImplemented" in node.name():
            return True
    return False


def has_library_operator(outputs: Sequence[torch.Tensor]) -> bool:
    """Whether a graph, near its outputs, has the backward of an operator of torch.library."""
    near = itertools.islice(_nodes(outputs), _MOST_NODES)
    return any(node.name().startswith(LIBRARY_BACKWARD) for node in near)


def has_custom_function(outputs: Sequence[torch.Tensor]) -> bool:
    """Whether a graph, near its outputs, has the node of a custom autograd Function."""
    near = itertools.islice(_nodes(outputs), _MOST_NODES)
    return any(isinstance(node, torch.autograd.function.BackwardCFunction) for node in near)


def coarsest_unit(outputs: Sequence[torch.Tensor]) -> float:
    """Largest unit round-off of what is handed on in a graph, near its outputs.

    It is that of autocast, whatever the dtypes of inputs and outputs.
    """
    near = itertools.islice(_nodes(outputs), _MOST_NODES)
    dtypes = {metadata.dtype for node in near for metadata in node._input_metadata}
    return max((unit_roundoff(dtype) for dtype in dtypes if is_floating(dtype)), default=0.0)


def _nodes(outputs: Sequence[torch.Tensor]) -> Iterator[Any]:
    """Every node of a graph once, those next to its outputs first."""
    left: list[Any] = [output.grad_fn for output in outputs]
    seen: set[Any] = {None}
    for node in left:
        if node not in seen:
            seen.add(node)
            yield node
            left += [following for following, _ in node.next_functions]
