"""Reverse mode of PyTorch beyond one VJP: batched, undefined, transposed, second order."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from gradproof._adapters.arrays import first_line
from gradproof._adapters.torch.leaves import PLAIN, DenseLeaf, full, own
from gradproof._adapters.torch.transforms import leading, reached, refuses
from gradproof._adapters.torch.tree import floating_in
from gradproof._data.space import Array
from gradproof._guard import restored
from gradproof._maps.contract import Raised, Refused, Unsupported

if TYPE_CHECKING:
    from gradproof._adapters.torch import TorchMap

OLDER_BATCHING = "is_grads_batched"


def unreachable(outputs: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> list[int]:
    """Positions of the leaf tensors that the graph of the outputs does not contain."""
    there = {id(output) for output in outputs}
    asked = [k for k, tensor in enumerate(tensors) if tensor.is_leaf and tensor.requires_grad]
    found = reached(outputs, [tensors[k] for k in asked])
    there |= {id(tensors[k]) for k, here in zip(asked, found, strict=True) if here}
    return [position for position, tensor in enumerate(tensors) if id(tensor) not in there]


def vjp_batch(target: TorchMap, vs: Array, batching: str) -> Array:
    """J^T v for every row of `vs` in one vectorised backward.

    `torch.vmap` runs the `vmap` rule of a custom Function; the older batching of
    `is_grads_batched` does not, and has rules of its own for PyTorch's operators.
    """
    count = len(vs)
    batch = full((count, target.domain.size), 0.0, target.home)
    if not target.attached or not count:
        return batch
    rows = [target.cotangents(v) for v in vs]
    stacked = [torch.stack(column) for column in zip(*rows, strict=True)]
    gradients = _BATCHED[batching](target, stacked)
    for leaf, part, gradient in zip(target.leaves, target.parts, gradients, strict=True):
        if gradient is not None:
            for row, single in enumerate(gradient.detach().unbind(0)):
                batch[row, part] = leaf.gradient(single)
    return batch


def _asked(run: Callable[[], Any]) -> Any:
    """What a batched backward returns, or Unsupported where PyTorch refuses."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There is a performance drop")
            warnings.filterwarnings("ignore", message="Please use `torch.vmap`")
            return run()
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        raise Unsupported(first_line(error)) from error


def _by_vmap(target: TorchMap, stacked: list[torch.Tensor]) -> list[torch.Tensor | None]:
    present: list[bool] = []

    def pull(*cotangents: torch.Tensor) -> tuple[torch.Tensor, ...]:
        gradients = target.grad(*target.graph, list(cotangents))
        present[:] = [gradient is not None for gradient in gradients]
        return tuple(gradient for gradient in gradients if gradient is not None)

    try:
        found = iter(_asked(lambda: torch.vmap(pull)(*stacked)))
    except Unsupported as refused:
        target.memo[_REFUSED] = refused
        raise
    target.memo[_REFUSED] = None
    return [next(found) if here else None for here in present]


def _by_the_older(target: TorchMap, stacked: list[torch.Tensor]) -> Any:
    # It has no guard against a write into `.data`, and ends the process: torch.vmap says so first.
    if _REFUSED not in target.memo:
        with contextlib.suppress(Unsupported):
            _by_vmap(target, stacked)
    refused = target.memo.get(_REFUSED)
    if refused is not None and "data" in refused.reason:
        raise refused
    return _asked(lambda: target.grad(*target.graph, stacked, is_grads_batched=True))


_REFUSED = ("torch.vmap refused",)
_BATCHED = {"torch.vmap": _by_vmap, OLDER_BATCHING: _by_the_older}
BATCHINGS = tuple(_BATCHED)


def vjp_undefined(target: TorchMap, v: Array, missing: frozenset[int]) -> Array:
    """J^T v where the cotangents of the output slots `missing` reach the backward undefined."""
    if not target.attached:
        return full(target.domain.size, 0.0, target.home)
    tensors, leaves = target.graph
    undefine: Any = torch._C._functions.UndefinedGrad
    outputs: list[torch.Tensor] = []
    cotangents: list[torch.Tensor] = []
    slots = [k for k, slot in enumerate(target.codomain.slots) if not slot.detached]
    for slot, tensor, cotangent in zip(slots, tensors, target.cotangents(v), strict=True):
        gone = slot in missing
        outputs.append(undefine()(tensor) if gone else tensor)
        cotangents.append(torch.zeros_like(cotangent) if gone else cotangent)
    return target.collect(target.grad(outputs, leaves, cotangents))


def vjp_wrt(target: TorchMap, v: Array, slots: frozenset[int]) -> Array:
    """J^T v of a run of its own, in which only the inputs `slots` require grad."""
    if target.in_place:
        raise Unsupported("the function reads its inputs from outside its arguments")
    tensors = [tensor.requires_grad_(k in slots) for k, tensor in enumerate(target.fresh())]
    try:
        floating = floating_in(target.call(tensors))
    except Exception as error:  # whatever the user's function raises
        raise Refused(f"{type(error).__name__}: {first_line(error)}") from error
    pairs = [
        (floating[output.position], cotangent)
        for output, cotangent in zip(target.attached, target.cotangents(v), strict=True)
        if floating[output.position].requires_grad
    ]
    wanted = [tensors[place] for place in sorted(slots)]
    outputs, cotangents = [one for one, _ in pairs], [other for _, other in pairs]
    found = iter(target.grad(outputs, wanted, cotangents) if pairs else [None] * len(wanted))
    return target.collect(next(found) if k in slots else None for k in range(len(tensors)))


def transposed_vjp(target: TorchMap, u: Array, v: Array) -> tuple[Array, Array]:
    """(J u, J^T v) from one backward and its own backward.

    J^T v is linear in v, so the derivative of s(v) = <J^T v, u> = <v, J u> is J u. With <a, b> =
    Re sum conj(a) b this is PyTorch's gradient of s for complex v as well.
    """
    if not target.attached:
        sizes = target.codomain.size, target.domain.size
        return full(sizes[0], 0.0, target.home), full(sizes[1], 0.0, target.home)
    cotangents = [tensor.requires_grad_() for tensor in target.cotangents(v)]
    directions = target.directions(u)
    try:
        gradients = target.grad(*target.graph, cotangents, create_graph=True)
        pairings = [
            inner(gradient, direction)
            for gradient, direction in zip(gradients, directions, strict=True)
            if gradient is not None and gradient.requires_grad
        ]
        if not pairings:
            raise Unsupported("the backward is not differentiable in its cotangent")
        total = torch.stack(pairings).sum()
        columns = torch.autograd.grad(total, cotangents, allow_unused=True)
        if all(column is None for column in columns):
            raise Unsupported("the backward is not differentiable in its cotangent")
    except RuntimeError as error:
        raise Unsupported(first_line(error)) from error
    del pairings, total  # their graph holds vectors of the size of the inputs
    image = full(target.codomain.size, 0.0, target.home)
    for output, column in zip(target.attached, columns, strict=True):
        if column is not None:
            image[output.part] = output.vector(column)
    return image, target.collect(gradients)


def image(target: TorchMap, u: Array) -> Array:
    """J u alone."""
    return transposed_vjp(target, u, full(target.codomain.size, 1.0, target.home))[0]


def inner(gradient: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """Re sum conj(gradient) direction, a scalar in double precision."""
    if gradient.layout is not torch.strided:
        # Also through entries that a sparse gradient leaves out because they are zero.
        gradient = gradient.to_dense(masked_grad=False)
    if direction.layout is not torch.strided:
        direction = direction.to_dense()
    product = gradient * direction.conj()
    product = product.real if product.is_complex() else product
    return product.to(torch.float64).sum()


def derivative(
    target: TorchMap, v: Array
) -> tuple[Callable[..., Any], list[torch.Tensor], list[str]]:
    """The function (x, v) -> J(x)^T v, tensors to call it at, and their names."""
    if not target.attached:
        raise Unsupported("no output has a derivative")
    count = len(target.leaves)
    places = [output.position for output in target.attached]

    def gradient(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        for tensor in tensors:
            if not tensor.requires_grad:
                tensor.requires_grad_()
        inputs, cotangents = tensors[:count], tensors[count:]
        floating = floating_in(target.run(inputs))
        outputs = [floating[place] for place in places]
        gradients = target.grad(outputs, inputs, cotangents, create_graph=True)
        if all(gradient is None for gradient in gradients):
            raise Unsupported("no output depends on an input")
        return tuple(
            gradient
            if gradient.layout is torch.strided
            else gradient.to_dense(masked_grad=target.arguments.masked)
            for gradient in gradients
            if gradient is not None
        )

    gradient.__name__ = f"gradient of {target.name}"
    cotangents = [tensor.requires_grad_() for tensor in target.cotangents(v)]
    names = [slot.name for slot in target.domain.slots]
    names += [f"cotangent of {output.slot.name}" for output in target.attached]
    return gradient, [*target.fresh(), *cotangents], names


def require_second_order(second: TorchMap) -> None:
    """Unsupported where the gradient is declared to have no derivative; Raised where it raises.

    A gradient without any graph, or with one that leads to no input, does neither: it claims to be
    constant, and is measured.
    """
    if not second.attached:
        return
    outputs, tensors = second.graph
    # once_differentiable raises only if its node is run, which a graph that ends there never does.
    lead = [True] * len(outputs) if second.in_place else leading(outputs, tensors)
    if any(refuses(output) for output, leads in zip(outputs, lead, strict=True) if not leads):
        raise Unsupported(
            "a backward says that it cannot be differentiated (once_differentiable, or an "
            "operator without such a rule)"
        )
    try:
        second.vjp(full(second.codomain.size, 1.0, second.home))
    except NotImplementedError as error:
        raise Unsupported(first_line(error)) from error
    except RuntimeError as error:
        declared = any(refuses(output) for output in outputs)
        reason = first_line(error)
        kind = type(error).__name__
        raise (Unsupported(reason) if declared else Raised(f"{kind}: {reason}")) from error


# Functions that ignore their arguments and read the very tensors that were given as arguments.


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


# Further calls of a PyTorch function that share something with the kept one: memory, buffers.


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
