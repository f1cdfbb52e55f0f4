"""The graph behind some outputs: the leaves that it reaches, nodes that only raise, its dtypes.

A walk by `next_functions` makes each node an object of Python, and such nodes release their
successors by recursion: 100,000 in a row end the process. So a walk ends after some nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gradproof.torch._compat import LIBRARY_BACKWARD
from gradproof.torch._tensors import grain, is_floating

_MOST_NODES = 1_000  # that are looked at; far from what overflows a stack


def leaves_near(outputs: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], bool]:
    """The leaf tensors in the graph of the outputs, and whether these are all.

    Of a large graph they are those among its first nodes.
    """
    nodes = _nodes_near(outputs)
    ends = [node for node in nodes if node.name() == "torch::autograd::AccumulateGrad"]
    returned = [output for output in outputs if output.is_leaf]  # an input, which has no node
    return [*returned, *(node.variable for node in ends)], len(nodes) < _MOST_NODES


def may_have_raising_node(output: torch.Tensor) -> bool:
    """Whether a node in the graph of an output only raises, as once_differentiable marks it.

    True also where the graph is too large to look for such a node.
    """
    nodes = _nodes_near([output])
    names = [node.name() for node in nodes]
    marked = any("Error" in name or "NotImplemented" in name for name in names)
    return marked or len(nodes) == _MOST_NODES


def has_library_operator(outputs: Sequence[torch.Tensor]) -> bool:
    """Whether a graph, near its outputs, has the backward of an operator of torch.library."""
    return any(node.name().startswith(LIBRARY_BACKWARD) for node in _nodes_near(outputs))


def coarsest_unit(outputs: Sequence[torch.Tensor]) -> float:
    """Largest unit round-off of what is handed on in a graph, near its outputs.

    It is that of autocast, whatever the dtypes of inputs and outputs. What nothing follows from is
    not handed on: for an output without a derivative a Function's node has a number of float32.
    """
    edges = {(output.grad_fn, output.output_nr) for output in outputs if output.grad_fn is not None}
    for node in _nodes_near(outputs):
        edges.update(edge for edge in node.next_functions if edge[0] is not None)
    dtypes = {node._input_metadata[place].dtype for node, place in edges}
    return max((grain(dtype).unit for dtype in dtypes if is_floating(dtype)), default=0.0)


def _nodes_near(outputs: Sequence[torch.Tensor]) -> list[Any]:
    """The first nodes of a graph, each once, those next to its outputs first."""
    found = list(dict.fromkeys(output.grad_fn for output in outputs if output.grad_fn is not None))
    seen = set(found)
    for node in found:
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                found.append(following)
        if len(found) >= _MOST_NODES:
            break
    return found[:_MOST_NODES]
