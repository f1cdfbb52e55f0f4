"""Forward mode of a PyTorch function as a map of its own: (x, u) -> J(x) u."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.autograd import forward_ad

from gradproof._adapters import torch_forward, torch_reverse
from gradproof._adapters._arrays import first_line
from gradproof._adapters.torch_call import Arguments
from gradproof._adapters.torch_tree import floating_in
from gradproof._adapters.torch_vectors import own
from gradproof._map import Unsupported
from gradproof._space import Array

if TYPE_CHECKING:
    from gradproof._adapters.torch import TorchMap


class Tangent(torch_forward.Nestable):
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
    torch_forward.require_forward(target)
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
        torch_reverse.require_second_order(made)
    except Unsupported as missing:
        # A pair of modes that PyTorch lacks; forward mode over forward mode may yet exist.
        made.no_reverse = Unsupported(missing.reason)
    return made
