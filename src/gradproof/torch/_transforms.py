"""AD transforms: other ways in which PyTorch computes the derivative of one function.

Each computes J^T v from a run of its own on private leaves. The check compares the result with the
backward; `Forward.functional_jvp` is compared with forward mode.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from gradproof._adapters.raised import unsupported
from gradproof._data.space import Array
from gradproof._maps.contract import Transform, Unsupported
from gradproof.torch._compat import compiler_error
from gradproof.torch._forward import functional_result
from gradproof.torch._graph import Graph

Tensors = Sequence[torch.Tensor]


def transformed_vjp(graph: Graph, v: Array, name: str) -> Array:
    """J^T v by the transform of that name. Unsupported where PyTorch has none for this function."""
    if not graph.roots:
        raise Unsupported("no output has a derivative")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return graph.inputs.vector(_VJPS[name][1](graph, graph.outputs.cotangents(v)))


def _gradients_of_run(graph: Graph, run: Callable[..., Tensors], cotangents: Tensors) -> Any:
    """Gradients of fresh leaves by one run and one backward, in the dtypes of its outputs."""
    leaves = graph.call.inputs.copy_inputs()
    outputs = run(*leaves)
    fitting = [v.to(output.dtype) for output, v in zip(outputs, cotangents, strict=True)]
    return graph.call.grad(outputs, leaves, fitting)


def _functional_vjp(graph: Graph, cotangents: Tensors) -> Any:
    primals = [leaf.detach() for leaf in graph.call.inputs.copy_inputs()]
    return functional_result(lambda: torch.func.vjp(graph.roots_at, *primals)[1](tuple(cotangents)))


def _compiled_vjp(graph: Graph, cotangents: Tensors) -> Any:
    if not graph.inputs.are_dense:
        raise Unsupported("torch.compile takes dense inputs only")
    compiled = torch.compile(graph.call.fn, backend="aot_eager", dynamic=False)
    with unsupported(compiler_error()):
        return _gradients_of_run(graph, partial(graph.roots_at, fn=compiled), cotangents)


def _checkpointed_vjp(graph: Graph, cotangents: Tensors) -> Any:
    run = partial(checkpoint, graph.roots_at, use_reentrant=False)
    return _gradients_of_run(graph, run, cotangents)


def _hooked_vjp(graph: Graph, cotangents: Tensors) -> Any:
    def copied(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone()

    with torch.autograd.graph.saved_tensors_hooks(copied, copied):
        return _gradients_of_run(graph, graph.roots_at, cotangents)


_VJPS: dict[str, tuple[str, Callable[[Graph, Tensors], Any]]] = {
    "functional_vjp": ("torch.func.vjp", _functional_vjp),
    "compiled": ("torch.compile with aot_eager", _compiled_vjp),
    "checkpointed": ("activation checkpointing", _checkpointed_vjp),
    "hooks": ("saved-tensor hooks that hand back copies", _hooked_vjp),
}

TRANSFORMS = (
    *[Transform(name, what) for name, (what, _) in _VJPS.items()],
    Transform("functional_jvp", "torch.func.jvp", forward=True),
)
