"""Maps made of a given one: at another point, in double precision, rounded, differentiated."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.autograd import forward_ad

from gradproof._adapters.arrays import first_line
from gradproof._adapters.foreign import inside_partial, twin_in_double
from gradproof._adapters.torch import forward, reverse, transforms
from gradproof._adapters.torch.call import Arguments
from gradproof._adapters.torch.leaves import own, placed_like
from gradproof._adapters.torch.rounding import Rounding
from gradproof._adapters.torch.tree import floating_in
from gradproof._data.space import Array
from gradproof._guard import restored
from gradproof._maps.contract import DifferentiableMap, Raised, Transform, Unsupported

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
    function, inputs, names = reverse.derivative(target, v)
    arguments = Arguments(function, inputs, {}, masked=target.arguments.masked, names=names)
    try:
        result = type(target)(function, arguments, in_place=target.in_place)
    except RuntimeError as error:
        raise Unsupported(first_line(error)) from error
    result.duals_need_grad = True
    # No gradient need depend on an input: a linear function's depends on none.
    result.arguments.beside = list(range(len(result.leaves)))
    try:
        reverse.require_second_order(result)
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


# Forward mode of a PyTorch function as a map of its own: (x, u) -> J(x) u.


class Tangent(forward.Nestable):
    """The function (x, u) -> J(x) u of tensors, in two forms that compute the same.

    Called, it uses dual numbers, which every function with forward mode accepts, and which
    reverse mode differentiates. `nested` uses torch.func.jvp, the only forward mode that can be
    put inside another; it refuses some custom functions that dual numbers accept.
    """

    def __init__(self, target: TorchMap) -> None:
        self.target = target
        self.__name__ = f"tangent of {target.name}"
        self._places = [output.position for output in target.attached]

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        for tensor in tensors:
            if not tensor.requires_grad:
                tensor.requires_grad_()
        inputs, tangents = self._split(tensors)
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(x, u) for x, u in zip(inputs, tangents, strict=True)]
            floating = floating_in(self.target.run(duals))
            pairs = [forward_ad.unpack_dual(floating[place]) for place in self._places]
            if all(pair.tangent is None for pair in pairs):
                raise Unsupported("no output has a tangent")
            return tuple(
                torch.zeros_like(pair.primal) if pair.tangent is None else pair.tangent
                for pair in pairs
            )

    def nested(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The same by torch.func.jvp."""
        inputs, tangents = self._split(tensors)
        return tuple(torch.func.jvp(self._outputs, tuple(inputs), tuple(tangents))[1])

    def _outputs(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        floating = floating_in(self.target.run(inputs))
        return tuple(floating[place] for place in self._places)

    def _split(
        self, tensors: Sequence[torch.Tensor]
    ) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]:
        count = len(self.target.leaves)
        return tensors[:count], tensors[count:]


def forward_derivative(target: TorchMap, u: Array) -> TorchMap:
    """The map (x, u) -> J(x) u."""
    forward.require_forward(target)
    if not target.attached:
        raise Unsupported("no output has a derivative")
    function = Tangent(target)
    directions = [tensor.requires_grad_() for tensor in target.directions(own(u))]
    names = [slot.name for slot in target.domain.slots]
    names += [f"tangent of {name}" for name in names]
    inputs = [*target.fresh(), *directions]
    arguments = Arguments(function, inputs, {}, masked=target.arguments.masked, names=names)
    try:
        # Every tangent is one of an output that has a derivative: none is left out here.
        made = type(target)(function, arguments, without=frozenset())
    except RuntimeError as error:  # NotImplementedError is one
        raise Unsupported(first_line(error)) from error
    made.arguments.beside = list(range(len(made.leaves)))  # as of a gradient
    try:
        reverse.require_second_order(made)
    except Unsupported as missing:
        # A pair of modes that PyTorch lacks; forward mode over forward mode may yet exist.
        made.no_reverse = Unsupported(missing.reason)
    return made


# What a PyTorch map has beside its own derivatives: maps made of it, and other roads to them.


class Kin(DifferentiableMap):
    """The part of `TorchMap` that other modules do."""

    @property
    def _own(self) -> TorchMap:
        return cast("TorchMap", self)

    def at(self, x: Array) -> TorchMap:
        return at(self._own, x)

    def in_double(self, fn: Callable[..., Any] | None = None) -> DifferentiableMap:
        return in_double(self._own, fn)

    def rounded(self, unit: float, tiny: float, seed: int) -> TorchMap:
        return rounded(self._own, unit, tiny, seed)

    def derivative(self, v: Array) -> TorchMap:
        return derivative(self._own, v)

    def forward_derivative(self, u: Array) -> TorchMap:
        return forward_derivative(self._own, u)

    def transforms(self) -> Sequence[Transform]:
        return transforms.available(self._own)

    def vjp_transform(self, v: Array, name: str) -> Array:
        return transforms.vjp(self._own, v, name)

    def jvp_transform(self, u: Array, name: str) -> Array:  # noqa: ARG002  # there is one
        return transforms.jvp(self._own, u)

    def transform_faults(self, v: Array, name: str) -> Sequence[str]:
        return transforms.faults(self._own, v, name)
