"""Side effects of one more run of a function and its backward: what they write and leave behind."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch

from gradproof._data.space import Array
from gradproof._guard import restored
from gradproof._guard.random import RandomState, draw_numbers, effect_on
from gradproof.torch._graph import Graph
from gradproof.torch._memory import share_memory
from gradproof.torch._sparse import values_of
from gradproof.torch._tensors import SPARSE, comparable_tensor

Watched = Sequence[tuple[torch.Tensor, torch.Tensor]]  # tensors, each with a copy of its values


def _watch(tensors: Sequence[torch.Tensor]) -> Watched:
    """Copies of what tensors hold, beside the tensors."""
    return [(tensor.detach(), tensor.detach().clone()) for tensor in tensors]


def _changed_positions(watched: Watched) -> list[int]:
    """Positions of the tensors that no longer have their value."""
    return [place for place, pair in enumerate(watched) if not _has_same_values(*pair)]


def _has_same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors store the same values, NaN being equal to NaN."""
    if one.shape != other.shape or one.layout is not other.layout:
        return False
    if one.is_nested or one.layout in SPARSE:  # a dense copy may not fit into memory
        one, other = values_of(one), values_of(other)
    one, other = comparable_tensor(one.to_dense()), comparable_tensor(other.to_dense())
    if one.shape != other.shape or torch.equal(one, other):
        return one.shape == other.shape
    return bool(((one == other) | ((one != one) & (other != other))).all())


def side_effects(graph: Graph, v: Array) -> list[tuple[str, str]]:
    """What one more run of the function and its backward changes, as `DifferentiableMap` says."""
    found = graph.overwritten_gradients()  # before the run here overwrites it with its own values
    leaves = graph.inputs.leaves
    gradients = [grad_mark(leaf.original) for leaf in leaves]
    graph.call.arguments.renew_copies()  # an earlier run may have left what this one would write
    tensors = graph.call.inputs.copy_inputs()
    inputs = _watch(tensors)
    saved: list[torch.Tensor] = []
    with restored(graph.call.random.restore):
        run = _watched_run(graph, tensors, saved)
        after_forward = _changed_positions(inputs)
        for i in after_forward:
            found.append(("input", f"the function changed its input {leaves[i].slot.name}"))
        found += _backward_effects(run, v, saved)
        for i in _changed_positions(inputs):
            if i not in after_forward:
                found.append(("input", f"the backward changed the input {leaves[i].slot.name}"))
    for leaf, before, one, other in zip(leaves, gradients, tensors, graph.tensors, strict=True):
        name = leaf.slot.name
        if grad_mark(leaf.original) != before:
            found.append(("grad", f"a run changed {name}.grad"))
        # The backward of the run here gets copies by hooks; that of the kept run has the leaves.
        if grad_mark(one) or grad_mark(other):
            sentence = f"a run wrote to the .grad of its argument {name}, where autograd adds up"
            found.append(("grad", sentence))
    return [*found, *graph.overwritten_gradients()]


def saved_tensor_hooks(saved: list[torch.Tensor]) -> AbstractContextManager[None]:
    """For a run meanwhile, which puts what it saves for its backward into `saved`."""

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.detach())
        return saved[-1]

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)


def _watched_run(graph: Graph, tensors: Sequence[torch.Tensor], saved: list[torch.Tensor]) -> Graph:
    """A run of the function, and into `saved` what it saves for its backward."""
    try:
        with saved_tensor_hooks(saved):
            return graph.graph_of_other_run(tensors)
    except RuntimeError as error:
        # torch.func inside the function forbids these hooks: then saved tensors go unobserved.
        if "hooks" not in str(error):
            raise
        saved.clear()
        return graph.graph_of_other_run(tensors)


def _backward_effects(run: Graph, v: Array, saved: Sequence[torch.Tensor]) -> list[tuple[str, str]]:
    """What the backward of a run changes."""
    cotangents = run.outputs.cotangents(v)
    watched, count = _watch([*cotangents, *saved]), len(cotangents)
    draw_numbers()  # earlier runs may have set a state
    random = RandomState()
    run.grad(cotangents)
    found = []
    for position in _changed_positions(watched):
        if position < count:
            name = run.outputs.attached[position].slot.name
            sentence = f"the backward changed the cotangent of {name}, which others may use"
            found.append(("cotangent", sentence))
        else:
            kept, _ = watched[position]
            sentence = f"the backward changed a tensor saved for it (shape {tuple(kept.shape)})"
            pairs = zip(run.outputs.attached, run.roots, strict=True)
            sentence += "".join(
                [f", which is {o.slot.name}" for o, y in pairs if share_memory(y, kept)]
            )
            found.append(("saved", sentence))
    found += effect_on("the backward", random, lambda: run.grad(cotangents))
    return found


def grad_mark(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Which gradient a leaf has, and how often it was written into; None where it has none."""
    if not (tensor.is_leaf or tensor.retains_grad) or tensor.grad is None:
        return None
    return id(tensor.grad), tensor.grad._version
