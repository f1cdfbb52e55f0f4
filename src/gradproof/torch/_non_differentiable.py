"""Outputs that a custom Function declares to have no derivative.

Detached ones, which have none either, are mistakes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.autograd.function import FunctionCtx

from gradproof._guard import restored
from gradproof.torch._call import Call
from gradproof.torch._memory import share_memory
from gradproof.torch._outputs import floating_in


def non_differentiable_outputs(call: Call, result: Any) -> frozenset[int]:
    """The places, among the floating outputs, of what is declared to have no derivative.

    A tensor keeps no trace of `ctx.mark_non_differentiable`. So where some outputs require grad and
    others do not, the function is run once more and listened to. What it returns of a declared
    tensor, itself or a view, is declared; what it computes from one is not.
    """
    if isinstance(result, torch.Tensor):
        return frozenset()
    needs = [tensor.requires_grad for tensor in floating_in(result)]
    if all(needs) or not any(needs):
        return frozenset()
    marked: list[torch.Tensor] = []
    original = FunctionCtx.mark_non_differentiable

    def mark(ctx: FunctionCtx, *tensors: torch.Tensor) -> None:  # in this thread or another
        marked.extend(tensors)
        original(ctx, *tensors)

    with restored(partial(setattr, FunctionCtx, "mark_non_differentiable", original)):
        FunctionCtx.mark_non_differentiable = mark  # type: ignore[method-assign,assignment]  # put back
        outputs = floating_in(call(call.inputs.copy_inputs()))
    return frozenset(
        place
        for place, output in enumerate(outputs)
        if not output.requires_grad and any(share_memory(output, each) for each in marked)
    )
