"""Outputs that are declared to have no derivative, by a custom Function or by an operator.

Detached ones, which have none either, are mistakes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import FunctionCtx
from torch.overrides import TorchFunctionMode

from gradproof._adapters.torch_overlap import share_memory
from gradproof._adapters.torch_tree import floating_in
from gradproof._guard import restored

if TYPE_CHECKING:
    from gradproof._adapters.torch import TorchMap


def declared(target: TorchMap, result: Any) -> frozenset[int]:
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
    with _marks() as marked, _Operators(marked):
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

    with restored(partial(setattr, FunctionCtx, "mark_non_differentiable", original)):
        FunctionCtx.mark_non_differentiable = mark  # type: ignore[method-assign,assignment]  # put back
        yield marked


class _Operators(TorchFunctionMode):
    """Adds what PyTorch's operators return without grad beside what they return with it."""

    def __init__(self, marked: list[torch.Tensor]) -> None:
        super().__init__()
        self._marked = marked

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        del types
        result = func(*args, **(kwargs or {}))
        parts = result if isinstance(result, (tuple, list)) and _is_pytorchs(func) else ()
        needs = [isinstance(part, torch.Tensor) and part.requires_grad for part in parts]
        if any(needs):
            self._marked += floating_in(
                [p for p, need in zip(parts, needs, strict=True) if not need]
            )
        return result


def _is_pytorchs(func: Any) -> bool:
    """Whether nobody else wrote an operator, who may have detached by mistake."""
    if isinstance(func, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(func).startswith("aten.")
    module = getattr(func, "__module__", None) or "torch"  # builtin ones name none
    return str(module).partition(".")[0] == "torch"
