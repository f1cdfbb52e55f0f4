"""Outputs that are declared to have no derivative, by a custom Function or by an operator.

Detached ones, which have none either, are mistakes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.autograd.function import FunctionCtx

from gradproof._guard import restored
from gradproof.torch._call import Call
from gradproof.torch._compat import OpOverload, OpOverloadPacket
from gradproof.torch._memory import share_memory
from gradproof.torch._modes import FunctionMode
from gradproof.torch._outputs import floating_in


def non_differentiable_outputs(call: Call, result: Any) -> frozenset[int]:
    """The places, among the floating outputs, of what is declared to have no derivative.

    By `ctx.mark_non_differentiable`, or by an operator of PyTorch that returns it beside an output
    that does require grad, as a layer norm its means.

    A tensor keeps no trace of either. So where some outputs require grad and others do not, the
    function is run once more and listened to. What it returns of a declared tensor, itself or a
    view, is declared; what it computes from one is not.
    """
    needs = [tensor.requires_grad for tensor in floating_in(result)]
    if all(needs) or not any(needs):
        return frozenset()
    marked: list[torch.Tensor] = []
    original = FunctionCtx.mark_non_differentiable

    def mark(ctx: FunctionCtx, *tensors: torch.Tensor) -> None:  # in this thread or another
        marked.extend(tensors)
        original(ctx, *tensors)

    def operator(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if isinstance(result, (tuple, list)) and _is_pytorch_operator(func):
            parts = floating_in(list(result))
            if any(part.requires_grad for part in parts):
                marked.extend([part for part in parts if not part.requires_grad])
        return result

    with restored(partial(setattr, FunctionCtx, "mark_non_differentiable", original)):
        FunctionCtx.mark_non_differentiable = mark  # type: ignore[method-assign,assignment]  # put back
        with FunctionMode(operator):
            outputs = floating_in(call(call.inputs.copy_inputs()))
    return frozenset(
        place
        for place, output in enumerate(outputs)
        if not output.requires_grad and any(share_memory(output, each) for each in marked)
    )


def _is_pytorch_operator(func: Any) -> bool:
    """Whether nobody else wrote an operator, who may have detached by mistake."""
    if isinstance(func, (OpOverload, OpOverloadPacket)):
        return str(func).startswith("aten.")
    module = getattr(func, "__module__", None) or "torch"  # builtin ones name none
    return str(module).partition(".")[0] == "torch"
