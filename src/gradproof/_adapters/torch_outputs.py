"""The floating outputs of a PyTorch function as slots of a codomain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gradproof._adapters.torch_leaves import describe, grain, parts_of, to_tensor, to_vector
from gradproof._adapters.torch_tree import floating_in, named_outputs
from gradproof._adapters.torch_vectors import joined
from gradproof._space import Array, Slot, Space
from gradproof.errors import UsageError


@dataclass(frozen=True)
class Output:
    """One slot of the codomain: where it stands among the floating outputs, and what it is."""

    position: int
    slot: Slot
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device | None
    part: slice
    home: torch.device | None

    def tensor(self, v: Array) -> torch.Tensor:
        """This slot's part of a codomain vector, which it may share."""
        return to_tensor(v[self.part], self.shape, self.dtype, self.device)

    def vector(self, tensor: torch.Tensor) -> Array:
        """Flat coordinates of a tensor in this slot, whose memory they may share."""
        return to_vector(tensor, self.dtype, self.home)


class Outputs:
    """What one call returned, and that later calls must return the same.

    Attributes:
        space: the codomain.
        kept: one per slot of the space.
        attached: those of `kept` that have a derivative.
        left_out: names of the floating outputs that are not in the space.

    Args:
        result: of the function at the point.
        function: its name.
        without: places, among the floating outputs, of those to leave out.
        home: the device on which vectors live; None for NumPy's.
    """

    def __init__(
        self,
        result: Any,
        function: str,
        without: frozenset[int],
        home: torch.device | None = None,
    ) -> None:
        named = named_outputs(result, function)
        self._function = function
        self._count, self._home = len(named), home
        kept = [
            (position, name, tensor)
            for position, (name, tensor) in enumerate(named)
            if position not in without
        ]
        self.left_out = [name for place, (name, _) in enumerate(named) if place in without]
        self.space = Space(tuple(slot_of(name, tensor) for _, name, tensor in kept))
        self.kept = [
            Output(
                position,
                self.space.slots[index],
                tensor.shape,
                tensor.dtype,
                None if tensor.is_cpu else tensor.device,
                self.space.span(index),
                home,
            )
            for index, (position, _, tensor) in enumerate(kept)
        ]
        self.attached = [output for output in self.kept if not output.slot.detached]

    def flatten(self, result: Any) -> Array:
        """A codomain vector from what a call returned; shares no memory with it.

        Raises:
            UsageError: the outputs differ in number, shape or dtype from those of the first call.
        """
        floating = floating_in(result)
        if len(floating) != self._count:
            raise UsageError(
                f"{self._function} returned {self._count} floating outputs at the point and "
                f"{len(floating)} at a perturbed input. Expected `func` to return outputs with "
                "the same shape; make their number independent of the values"
            )
        pieces = []
        for output in self.kept:
            tensor = floating[output.position]
            if tensor.shape != output.shape:
                self._refuse(output, "shape", tuple(output.shape), tuple(tensor.shape))
            if tensor.dtype is not output.dtype:
                self._refuse(output, "dtype", output.dtype, tensor.dtype)
            pieces.append(output.vector(tensor))
        return joined(pieces, self._home)

    def _refuse(self, output: Output, what: str, first: object, now: object) -> None:
        raise UsageError(
            f"{self._function} returned {output.slot.name} of {what} {first} at the point and "
            f"{now} at a perturbed input. Expected `func` to return outputs with the same {what} "
            f"when inputs are perturbed; make the {what} independent of the values"
        )


def slot_of(name: str, tensor: torch.Tensor) -> Slot:
    """The codomain's slot for one output."""
    return Slot(
        name,
        tuple(tensor.shape),
        parts_of(tensor.dtype),
        detached=not tensor.requires_grad,
        describe=describe(tensor),
        grain=grain(tensor.dtype),
    )
