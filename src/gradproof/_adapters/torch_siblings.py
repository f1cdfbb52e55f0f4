"""Maps made of a given one: at another point, in double precision, rounded, differentiated."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from gradproof._adapters import torch_reverse
from gradproof._adapters._arrays import first_line
from gradproof._adapters._foreign import inside_partial, twin_in_double
from gradproof._adapters.torch_call import Arguments
from gradproof._adapters.torch_leaves import placed_like
from gradproof._adapters.torch_rounding import Rounding
from gradproof._adapters.torch_vectors import own
from gradproof._guard import restored
from gradproof._map import DifferentiableMap, Raised, Unsupported
from gradproof._space import Array

if TYPE_CHECKING:
    from gradproof._adapters.torch import TorchMap


def at(target: TorchMap, x: Array) -> TorchMap:
    """The same function at another point."""
    return with_tensors(target, [t.requires_grad_() for t in target.tensors_at(own(x))])


def with_tensors(target: TorchMap, tensors: list[torch.Tensor]) -> TorchMap:
    """The same function at these inputs."""
    _require_arguments(target)
    arguments = target.arguments.changed(target.fn, tensors, lambda value: value)
    return _made(target, target.fn, arguments)


def in_double(target: TorchMap, fn: Callable[..., Any] | None) -> DifferentiableMap:
    """The same function, or `fn`, on the same numbers in double precision."""
    _require_arguments(target)
    given = target.fn if fn is None else fn

    def made() -> TorchMap:
        twin = converted(given)
        tensors = [widened(leaf.copy()).requires_grad_() for leaf in target.leaves]
        return _made(target, twin, target.arguments.changed(twin, tensors, converted, given))

    return twin_in_double(target, fn, target.arguments.told, made)


def rounded(target: TorchMap, unit: float, tiny: float, seed: int) -> TorchMap:
    """The same function with the result of every operation rounded at random."""
    _require_arguments(target)
    mode = Rounding(unit, tiny, seed)
    return _made(target, target.fn, target.arguments, mode)


def derivative(target: TorchMap, v: Array) -> TorchMap:
    """The map (x, v) -> J(x)^T v."""
    function, inputs, names = torch_reverse.derivative(target, v)
    arguments = Arguments(function, inputs, {}, masked=target.arguments.masked, names=names)
    try:
        result = type(target)(function, arguments, in_place=target.in_place)
    except RuntimeError as error:
        raise Unsupported(first_line(error)) from error
    result.duals_need_grad = True
    # No gradient need depend on an input: a linear function's depends on none.
    result.arguments.beside = list(range(len(result.leaves)))
    try:
        torch_reverse.require_second_order(result)
    except Raised as raised:
        result.no_reverse = raised  # forward mode over reverse mode may yet exist
    return result


def _require_arguments(target: TorchMap) -> None:
    if target.in_place:
        raise Unsupported("the function reads its inputs from outside its arguments")


def _made(
    target: TorchMap, fn: Callable[..., Any], arguments: Arguments, mode: Rounding | None = None
) -> TorchMap:
    """A map that leaves out the same outputs."""
    without = target.without
    return _started_alike(target, lambda: type(target)(fn, arguments, without=without, mode=mode))


def _started_alike(target: TorchMap, make: Callable[[], TorchMap]) -> TorchMap:
    """The map, built from the global random state from which the target was; counting with it."""
    with restored(target._random.restore):
        target._random.restore()
        made = make()
    target.counts.update(made.counts)
    made.counts, made.duals_need_grad = target.counts, target.duals_need_grad
    return made


def double(dtype: torch.dtype) -> torch.dtype:
    """The dtype of double precision of the same kind; others stay."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in double precision, at the same strides and offset."""
    dtype = double(tensor.dtype)
    if tensor.layout is not torch.strided or dtype is tensor.dtype:
        return tensor.to(dtype)
    return placed_like(tensor, tensor, dtype)


def converted(value: Any) -> Any:
    """An argument, or the function itself, in double precision; what has no precision stays."""
    if isinstance(value, torch.Tensor):
        return widened(value.detach()).requires_grad_(value.requires_grad)
    if isinstance(value, torch.dtype):
        return double(value)
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).to(torch.float64)
    owner = getattr(value, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        return getattr(converted(owner), value.__name__)
    return inside_partial(value, converted)
