"""Outputs that a custom Function declares to have no derivative, as detached ones do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import FunctionCtx

from gradproof._adapters.torch_overlap import share_memory
from gradproof._adapters.torch_tree import floating_in

if TYPE_CHECKING:
    from gradproof._adapters.torch import TorchMap


def declared(target: TorchMap, result: Any) -> frozenset[int]:
    """The places, among the floating outputs, of what went through `ctx.mark_non_differentiable`.

    A tensor keeps no trace of the mark. So where some outputs require grad and others do not, the
    function is run once more, and its marks are listened to. What it returns of a marked tensor,
    itself or a view, is declared; what it computes from one is not.
    """
    needs = [tensor.requires_grad for tensor in floating_in(result)]
    if all(needs) or not any(needs):
        return frozenset()
    with _marks() as marked:
        outputs = floating_in(target.call(target.fresh()))
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

    FunctionCtx.mark_non_differentiable = mark  # type: ignore[method-assign,assignment]  # put back below
    try:
        yield marked
    finally:
        FunctionCtx.mark_non_differentiable = original  # type: ignore[method-assign]  # as it was
