"""Two runs of a function that share memory: the tensors of the inputs, or the buffers they write.

What a function keeps by the identity of a tensor, or writes into a buffer for its backward, is
wrong for one of the two.
"""

from __future__ import annotations

from contextlib import ExitStack

import torch

from gradproof._data.space import Array
from gradproof._maps.contract import Unsupported
from gradproof.torch._compat import preserved_version_counter
from gradproof.torch._graph import Graph
from gradproof.torch._tensors import PLAIN


def products_in_reused_arrays(graph: Graph, x: Array, v: Array) -> tuple[Array, Array]:
    """F(x) and J(x)^T v of a run with the tensors of the kept one, which hold x meanwhile.

    Their version is another while they do, as after an optimiser's step, and that of the kept
    graph again afterwards.
    """
    inputs, tensors = graph.inputs, graph.tensors
    if not inputs.are_dense or any(type(tensor) not in PLAIN for tensor in tensors):
        raise Unsupported("its inputs are not written into")
    before = [tensor.detach().clone() for tensor in tensors]
    with ExitStack() as versions, torch.no_grad():
        for tensor in tensors:
            versions.enter_context(preserved_version_counter(tensor))
        try:
            for tensor, values in zip(tensors, inputs.tensors_at(x), strict=True):
                tensor.copy_(values)
            with torch.enable_grad():
                there = graph.graph_of_other_run(tensors)
                return there.value(), there.gradient(graph.outputs.cotangents(v), v)
        finally:
            for tensor, values in zip(tensors, before, strict=True):
                tensor.copy_(values)


def products_of_overtaken_call(graph: Graph, x: Array, v: Array) -> tuple[Array, Array, Array]:
    """(J^T v, F(x), J(x)^T v) of two runs, both made before the backward of either.

    What they write into buffers stays there in between.
    """
    arguments = graph.call.arguments
    if not arguments.writes:
        raise Unsupported("the function writes into no tensor of its own")
    tensors = [tensor.requires_grad_() for tensor in graph.inputs.tensors_at(x)]
    with arguments.keep_written():
        here = graph.graph_of_other_run(graph.inputs.copy_inputs())
        here.value()
        there = graph.graph_of_other_run(tensors)
        value, first = there.value(), here.gradient(graph.outputs.cotangents(v), v)
        last = there.gradient(graph.outputs.cotangents(v), v)
        here.returned_gradients.watch(x, (), last, graph.inputs.vector)
        graph.later_effects = here.overwritten_gradients()
        return first, value, last


def carried_arrays(graph: Graph) -> tuple[str, ...]:
    """Names of buffers that a run writes and that the value of the next run depends on."""
    arguments = graph.call.arguments
    if not arguments.writes:
        return ()
    with arguments.keep_written():
        values = [graph.graph_of_other_run(graph.inputs.copy_inputs()).value() for _ in range(2)]
        return () if bool((values[0] == values[1]).all()) else arguments.written_names()
