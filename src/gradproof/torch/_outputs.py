"""The outputs of a PyTorch function: those that are differentiated, as the slots of a codomain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gradproof._data.inputs import output_name
from gradproof._data.space import Array, Slot, Space
from gradproof._maps.contract import OutputChangedError
from gradproof.errors import UsageError
from gradproof.torch._compat import pytree
from gradproof.torch._tensors import (
    SPARSE,
    is_differentiable,
    is_floating,
    private_vector,
    slot_like,
    to_tensor,
    to_vector,
    unsupported_kind,
)
from gradproof.torch._tree import Tree, hidden_tensors, tensors_in


class NothingReturnedError(UsageError):
    """A function returned an empty tuple or list."""


class ChangingOutputError(OutputChangedError, AssertionError):
    """The outputs change shape or dtype with the input. PyTorch raises AssertionError."""


def floating_in(result: Any) -> list[torch.Tensor]:
    """Every floating or complex tensor of a result, in order."""
    return [tensor for tensor in tensors_in(result) if is_floating(tensor.dtype)]


def named_outputs(result: Any, function: str) -> list[tuple[str, torch.Tensor]]:
    """Name and tensor of every floating or complex output.

    UsageError where there is no tensor at all, one whose layout cannot be compared, or one in a
    container that PyTorch does not know.
    """
    tree = Tree(result)
    names = [output_name(path, pytree.keystr) for path in tree.paths]
    for name, leaf in zip(names, tree.leaves, strict=True):
        if any(map(is_differentiable, hidden_tensors(leaf))):
            kind = type(leaf).__name__
            raise UsageError(
                f"{name} of {function} is a {kind} with tensors, and PyTorch does not take such "
                f"containers apart: register it, torch.export.register_dataclass({kind}), or "
                "return its tensors"
            )
    pairs = zip(names, tree.leaves, strict=True)
    outputs = [(name, leaf) for name, leaf in pairs if isinstance(leaf, torch.Tensor)]
    if not outputs:
        nothing = isinstance(result, (tuple, list)) and not result
        if isinstance(result, torch.autograd.Function):
            raise UsageError(
                f"{function} is a torch.autograd.Function, and was called like a function: hand "
                f"over {function}.apply"
            )
        raise (NothingReturnedError if nothing else UsageError)(
            f"{function} returned {type(result).__name__} without any tensor; return a tensor or "
            "a container of tensors"
        )
    for name, tensor in outputs:
        kind = "Sparse" if tensor.layout in SPARSE else "MKLDNN" if tensor.is_mkldnn else ""
        if kind:
            raise UsageError(
                f"{kind} output is not supported at gradcheck yet. Please call "
                f"to_dense(masked_grad=...) on the output of {function}."
            )
        if reason := unsupported_kind(tensor):
            raise UsageError(f"{name} of {function} is {reason}")
    return [(name, tensor) for name, tensor in outputs if is_differentiable(tensor)]


@dataclass(frozen=True)
class Output:
    """One slot of the codomain: where it stands among the floating outputs, and what it is."""

    position: int
    slot: Slot
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    part: slice


class Outputs:
    """What one call returned, and that later calls must return the same.

    Attributes:
        space: the codomain.
        kept: one per slot of the space.
        attached: those of `kept` that have a derivative.
        left_out: names of the floating outputs that are not in the space.
    """

    def __init__(
        self, named: Sequence[tuple[str, torch.Tensor]], function: str, without: frozenset[int]
    ) -> None:
        self._function = function
        self._count = len(named)
        self.left_out: list[str] = []
        self.kept: list[Output] = []
        start = 0
        for place, (name, y) in enumerate(named):
            if place in without:
                self.left_out.append(name)
                continue
            slot = slot_like(name, y, detached=not y.requires_grad)
            part = slice(start, start := start + slot.size)
            self.kept.append(Output(place, slot, y.shape, y.dtype, y.device, part))
        self.space = Space(tuple([output.slot for output in self.kept]))
        self.attached = [output for output in self.kept if not output.slot.detached]

    def cotangents(self, v: Array) -> list[torch.Tensor]:
        """Private tensors from a codomain vector, one per attached output; of rows, stacks."""
        private, found = private_vector(v), []
        for one in self.attached:
            shape = (*private.shape[:-1], *one.shape)
            found.append(to_tensor(private[..., one.part], shape, one.dtype, one.device))
        return found

    def vector(self, outputs: Sequence[Output], tensors: Sequence[torch.Tensor | None]) -> Array:
        """A codomain vector of one tensor for each of some outputs; None is zero."""
        vector = np.zeros(self.space.size)
        for output, tensor in zip(outputs, tensors, strict=True):
            if tensor is not None:
                vector[output.part] = to_vector(tensor, output.dtype)
        return vector

    def flatten(self, result: Any) -> Array:
        """A codomain vector of what a call returned; it shares no memory with that.

        ChangingOutputError where outputs differ in number, shape or dtype from the first call's.
        """
        if len(floating := floating_in(result)) != self._count:
            raise ChangingOutputError(
                f"{self._function} returned {self._count} floating outputs at the point and "
                f"{len(floating)} at a perturbed input. Expected `func` to return outputs with "
                "the same shape; make the number of outputs independent of the values"
            )
        vector = np.empty(self.space.size)
        for output in self.kept:
            tensor = floating[output.position]
            if tensor.shape != output.shape:
                self._refuse(output, "shape", tuple(output.shape), tuple(tensor.shape))
            if tensor.dtype is not output.dtype:
                self._refuse(output, "dtype", output.dtype, tensor.dtype)
            vector[output.part] = to_vector(tensor, output.dtype)
        return vector

    def _refuse(self, output: Output, what: str, first: object, now: object) -> None:
        raise ChangingOutputError(
            f"{self._function} returned {output.slot.name} of {what} {first} at the point and "
            f"{now} at a perturbed input. Expected `func` to return outputs with the same {what} "
            f"when inputs are perturbed; make the {what} independent of the values"
        )
