"""Outputs that are declared to have no derivative, by a custom Function or by an operator.

Detached ones, which have none either, are mistakes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.autograd.function import FunctionCtx

from gradproof._data.space import Array
from gradproof._data.vectors import KEPT
from gradproof._guard import restored
from gradproof._guard.random import RandomState, draw, effect_on
from gradproof._maps.contract import Observed, Trait
from gradproof.torch._call import Call
from gradproof.torch._captured import Captured
from gradproof.torch._graph import Graph, unreachable
from gradproof.torch._memory import share_memory, sharing
from gradproof.torch._outputs import floating_in
from gradproof.torch._rounding import FunctionMode
from gradproof.torch._state import default_device, put_device_back

_APART = 2039  # words, a prime: no shape of an array is made of it


def declared(call: Call, result: Any) -> frozenset[int]:
    """The places, among the floating outputs, of what is declared to have no derivative.

    By `ctx.mark_non_differentiable`, or by an operator of PyTorch that returns it beside an output
    that does require grad, as a layer norm its means.

    A tensor keeps no trace of either. So where some outputs require grad and others do not, the
    function is run once more and listened to. What it returns of a declared tensor, itself or a
    view, is declared; what it computes from one is not.
    """
    if isinstance(result, torch.Tensor):
        return frozenset()
    needs = [tensor.requires_grad for tensor in floating_in(result)]
    if all(needs) or not any(needs):
        return frozenset()
    with _marks() as marked, FunctionMode(partial(_operated, marked)):
        outputs = floating_in(call(call.fresh()))
    return frozenset(
        place
        for place, output in enumerate(outputs)
        if not output.requires_grad and any(share_memory(output, each) for each in marked)
    )


@contextmanager
def _marks() -> Iterator[list[torch.Tensor]]:
    """What is marked as non-differentiable meanwhile, in this thread or another."""
    marked: list[torch.Tensor] = []
    original = FunctionCtx.mark_non_differentiable

    def mark(ctx: FunctionCtx, *tensors: torch.Tensor) -> None:
        marked.extend(tensors)
        original(ctx, *tensors)

    with restored(partial(setattr, FunctionCtx, "mark_non_differentiable", original)):
        FunctionCtx.mark_non_differentiable = mark  # type: ignore[method-assign,assignment]  # put back
        yield marked


def _operated(
    marked: list[torch.Tensor], func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Mark what PyTorch's operators return without grad beside what they return with it."""
    result = func(*args, **kwargs)
    parts = result if isinstance(result, (tuple, list)) and _is_pytorchs(func) else ()
    needs = [isinstance(part, torch.Tensor) and part.requires_grad for part in parts]
    if any(needs):
        marked += floating_in([p for p, need in zip(parts, needs, strict=True) if not need])
    return result


def _is_pytorchs(func: Any) -> bool:
    """Whether nobody else wrote an operator, who may have detached by mistake."""
    if isinstance(func, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(func).startswith("aten.")
    module = getattr(func, "__module__", None) or "torch"  # builtin ones name none
    return str(module).partition(".")[0] == "torch"


# What the report says of a PyTorch function beside its derivatives.


_NAMED = 3  # names that a sentence lists
_DISTRIBUTED = torch.distributed.is_available()


def notes(graph: Graph) -> list[str]:
    """Sentences on batch statistics, random numbers, and inputs and outputs of a special kind."""
    call, found = graph.call, list[str]()
    if graph.inputs.held is not None:
        found.append(graph.inputs.held.note)
    if call.arguments.captured is not None:
        found += _batch_statistics(call.arguments.captured)
    if call.fixed_random:
        found.append(_DRAWN)
    if call.arguments.beside:
        found += _idle(graph)
    if names := graph.outputs.left_out:
        are = "is" if len(names) == 1 else "are"
        found.append(f"{', '.join(names)} {are} marked as non-differentiable: not checked")
    if len(graph.inputs.leaves) > 1:
        found += [*_dependent(graph), *_sharing(graph)]
    return [*found, ALONE] if among_ranks() else found


def among_ranks() -> bool:
    """Whether this process is one of several that talk to each other."""
    there = _DISTRIBUTED and torch.distributed.is_initialized()
    return there and torch.distributed.get_world_size() > 1


ALONE = (
    "a process group is at hand: judged is the derivative of this rank's outputs in this rank's "
    "inputs; gradproof.torch.distributed.check judges that of all ranks together"
)


_DRAWN = (
    "the function draws random numbers: every run starts from the same random state, so that one "
    "draw (one dropout mask) is what was checked"
)


def _batch_statistics(held: Captured) -> Iterator[str]:
    if any(
        isinstance(module, torch.nn.modules.batchnorm._NormBase)
        and module.training
        and module.running_mean is not None
        for root in held.modules
        for module in root.modules()
    ):
        yield (
            "normalisation in training mode: the derivative is that of the batch's own "
            "statistics; running statistics are put back after every run"
        )


def _idle(graph: Graph) -> Iterator[str]:
    if idle := [place for place in graph.unreached if place in graph.call.arguments.beside]:
        names = ", ".join(graph.inputs.leaves[place].slot.name for place in idle[:_NAMED])
        more = f" and {len(idle) - _NAMED} more" if len(idle) > _NAMED else ""
        yield f"no gradient reaches {names}{more}, which the function holds"


def _sharing(graph: Graph) -> Iterator[str]:
    """Inputs whose numbers lie in the same memory; each is varied by itself all the same."""
    leaves = graph.inputs.leaves
    names = [leaf.slot.name for leaf in leaves]
    for first, second in sharing([leaf.original for leaf in leaves]):
        yield (
            f"{names[first]} and {names[second]} share memory: each is varied by itself, and its "
            "derivative is the partial one"
        )


def _dependent(graph: Graph) -> Iterator[str]:
    """Inputs that were computed from other inputs; each is varied by itself all the same."""
    originals = [leaf.original for leaf in graph.inputs.leaves]
    for place, tensor in enumerate(originals):
        if tensor.grad_fn is None or place in graph.call.arguments.beside:
            continue
        others = [k for k in range(len(originals)) if k != place]
        unused = unreachable([tensor], [originals[k] for k in others])
        used = [graph.inputs.leaves[k].slot.name for j, k in enumerate(others) if j not in unused]
        if used:
            yield (
                f"{graph.inputs.leaves[place].slot.name} was computed from {', '.join(used)}: each "
                "is varied by itself, and its derivative is the partial one"
            )


# What a backward of PyTorch does beside computing numbers: traits and side effects.


def gradient_traits(graph: Graph, v: Array) -> list[Trait]:
    """Properties of each gradient that differ from its input's."""
    if not graph.roots:
        return []
    return _differing(graph, graph.grad(graph.outputs.cotangents(v)))


def _differing(graph: Graph, gradients: Sequence[torch.Tensor | None]) -> list[Trait]:
    return [
        Trait(slot, what, claimed, expected)
        for slot, (gradient, leaf) in enumerate(zip(gradients, graph.inputs.leaves, strict=True))
        if gradient is not None and not _is_like(gradient, leaf.original)
        for what, claimed, expected in _traits(gradient, leaf.original)
        if claimed != expected
    ]


def _is_like(gradient: torch.Tensor, like: torch.Tensor) -> bool:
    """Whether no trait differs, as nearly always: to write them down takes longer."""
    same = gradient.dtype is like.dtype and gradient.device == like.device
    return same and gradient.shape == like.shape and gradient.layout is torch.strided


def _traits(gradient: torch.Tensor, like: torch.Tensor) -> Iterator[tuple[str, str, str]]:
    yield "dtype", str(gradient.dtype), str(like.dtype)
    yield "device", str(gradient.device), str(like.device)
    yield "shape", str(tuple(gradient.shape)), str(tuple(like.shape))
    if gradient.layout is torch.strided:  # fits an input of any layout
        return
    yield "layout", str(gradient.layout), str(like.layout)
    if gradient.layout is like.layout and gradient.layout is not torch._mkldnn:  # type: ignore[attr-defined]
        yield "sparse_dim", str(gradient.sparse_dim()), str(like.sparse_dim())
        yield "dense_dim", str(gradient.dense_dim()), str(like.dense_dim())


def outside_domain(graph: Graph, v: Array) -> list[tuple[int, tuple[int, ...], float]]:
    """Non-zero gradients of entries that the domain leaves out."""
    if not graph.roots:
        return []
    gradients = graph.grad(graph.outputs.cotangents(v))
    return [
        (slot, index, value)
        for slot, (gradient, leaf) in enumerate(zip(gradients, graph.inputs.leaves, strict=True))
        if gradient is not None
        for index, value in leaf.outside(gradient)
    ]


class Watched:
    """Tensors and the values they should keep."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = [tensor.detach() for tensor in tensors]
        self.values = [_kept(tensor) for tensor in self.tensors]

    def changed(self) -> list[int]:
        """Positions of the tensors that no longer have their value."""
        return [
            position
            for position, (tensor, value) in enumerate(zip(self.tensors, self.values, strict=True))
            if not (_kept(tensor) == value if isinstance(value, int) else same(tensor, value))
        ]


def _kept(tensor: torch.Tensor) -> torch.Tensor | int:
    """A copy or, of a long tensor, a checksum: one copy less of everything at once."""
    plain = tensor.is_cpu and tensor.layout is torch.strided and tensor.numel() > KEPT
    if not plain or not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        return tensor.clone()
    return _checksum(tensor.reshape(-1).view(torch.uint8).numpy())


def _checksum(data: np.ndarray[Any, np.dtype[np.uint8]]) -> int:
    """Of sums of words that lie a prime number apart, so that their places count.

    Adding words up takes a fifth of what the checksum of all bytes takes.
    """
    long = data.size // (8 * _APART) * 8 * _APART
    words = data[:long].view(np.uint64).reshape(-1, _APART)
    return zlib.adler32(data[long:].data, zlib.adler32(np.add.reduce(words, axis=0).data))


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same values, NaN being equal to NaN."""
    plain = type(one) is torch.Tensor and one.layout is torch.strided
    if plain and one.dtype is torch.float64 and torch.equal(one, other):
        return True
    if one.shape != other.shape:
        return False
    if one.is_nested:
        rows = zip(one.unbind(), other.unbind(), strict=True)
        return all(same(*pair) for pair in rows)
    if one.layout is not torch.strided:
        one, other = one.to_dense(), other.to_dense()
    equal = one == other
    if one.is_floating_point() or one.is_complex():
        equal |= torch.isnan(one) & torch.isnan(other)
    return bool(equal.all())


def observed(graph: Graph, v: Array) -> Observed:
    """What one more run of the function and its backward gives, is, and changes."""
    found = graph.overwritten()  # before the run here overwrites it with its own values
    leaves = graph.inputs.leaves
    gradients = [_mark(leaf.original) for leaf in leaves]
    tensors = graph.call.fresh()
    inputs = Watched(tensors)
    saved: list[torch.Tensor] = []
    defaults = torch.get_default_dtype(), default_device()
    with restored(partial(_defaults_back, found, *defaults), graph.call.random.restore):
        run = _forward(graph, tensors, saved)
        value = run.value()
        pulled: Sequence[torch.Tensor | None] = [None] * len(tensors)
        after_forward = inputs.changed()
        for i in after_forward:
            found.append(("input", f"the function changed its input {leaves[i].slot.name}"))
        if run.roots:
            pulled, effects = _backward(run, v, saved)
            found += effects
        for i in inputs.changed():
            if i not in after_forward:
                found.append(("input", f"the backward changed the input {leaves[i].slot.name}"))
    for leaf, before in zip(leaves, gradients, strict=True):
        if _mark(leaf.original) != before:
            found.append(("grad", f"a run changed {leaf.slot.name}.grad"))
    gradient, differing = graph.inputs.vector(pulled), _differing(graph, pulled)
    return Observed(value, gradient, differing, found, partial(_left, graph, tensors))


def _left(graph: Graph, tensors: Sequence[torch.Tensor]) -> list[tuple[str, str]]:
    """What later calls and backwards wrote into: the `.grad` of arguments, earlier results.

    The hooks above hand the backward other tensors: that of the kept call had the very leaves.
    """
    told = "a run wrote to the .grad of its argument {}, where autograd adds gradients up"
    written = [
        ("grad", told.format(slot.name))
        for slot, one, other in zip(graph.inputs.space.slots, tensors, graph.tensors, strict=True)
        if not graph.call.in_place and (_mark(one) or _mark(other))
    ]
    return [*written, *graph.overwritten()]


def _forward(graph: Graph, tensors: Sequence[torch.Tensor], saved: list[torch.Tensor]) -> Graph:
    try:
        with torch.autograd.graph.saved_tensors_hooks(_pack(saved), lambda tensor: tensor):
            return graph.again(tensors)
    except RuntimeError as error:
        # torch.func inside the function forbids these hooks: then saved tensors go unobserved.
        if "hooks" not in str(error):
            raise
        saved.clear()
        return graph.again(tensors)


def _backward(
    run: Graph, v: Array, saved: Sequence[torch.Tensor]
) -> tuple[Sequence[torch.Tensor | None], list[tuple[str, str]]]:
    """The gradients, and what the backward that made them changed."""
    cotangents = run.outputs.cotangents(v)
    watched, count = Watched([*cotangents, *saved]), len(cotangents)
    draw()  # earlier runs may have set a state
    random = RandomState()
    pulled = run.grad(cotangents)
    found = []
    for position in watched.changed():
        if position < count:
            name = run.outputs.attached[position].slot.name
            told = f"the backward changed the cotangent of {name}, which others may use"
            found.append(("cotangent", told))
        else:
            kept = watched.tensors[position]
            told = f"the backward changed a tensor saved for it (shape {tuple(kept.shape)})"
            pairs = zip(run.outputs.attached, run.roots, strict=True)
            told += "".join(
                [f", which is {o.slot.name}" for o, y in pairs if share_memory(y, kept)]
            )
            found.append(("saved", told))
    found += effect_on("the backward", random, lambda: run.grad(cotangents))
    return pulled, found


def _pack(saved: list[torch.Tensor]) -> Any:
    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept = tensor.detach()
        saved.append(kept)
        return kept

    return pack


def _mark(tensor: torch.Tensor) -> tuple[int, int] | None:
    if not (tensor.is_leaf or tensor.retains_grad) or tensor.grad is None:
        return None
    return id(tensor.grad), tensor.grad._version


def _defaults_back(found: list[tuple[str, str]], dtype: torch.dtype, device: Any) -> None:
    """Put the default dtype and device back, and add to `found` that they were changed."""
    if torch.get_default_dtype() != dtype:
        found.append(("default", f"the default dtype changed to {torch.get_default_dtype()}"))
        torch.set_default_dtype(dtype)
    if default_device() is not device:
        found.append(("default", f"the default device changed to {torch.get_default_device()}"))
        put_device_back(device)
