"""Backwards that read what some other call left: the last forward's, the first input's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from exhibits.frame import Exhibit, normal, ruled

# What is left over spoils whichever check asks after it.
ALSO = frozenset(
    {
        "memory_layout",
        "grad_metadata",
        "missing_grad_output",
        "determinism",
        "side_effects",
        "batched",
        "forward_vs_backward",
    }
)

Remember = Callable[[dict[Any, Any], Any, Tensor], None]
Slope = Callable[[dict[Any, Any], Any, Tensor], Tensor]


class Remembering:
    """An elementwise function whose rule has a memory that outlives the call.

    Args:
        value: of the input.
        remember: (memory, ctx, x), in the forward.
        slope: (memory, ctx, x) -> the derivative that the backward multiplies by.
        value: x -> F(x).
        dtype: of the input; few bits tell only of many entries.
    """

    def __init__(
        self,
        remember: Remember,
        slope: Slope,
        value: Callable[[Tensor], Tensor] = torch.sin,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.value, self.remember, self.slope, self.dtype = value, remember, slope, dtype
        self.memory: dict[Any, Any] = {}

    def __call__(self, x: Tensor) -> Tensor:
        return _Remembering.apply(x, self)

    def inputs(self) -> tuple[Tensor]:
        """An input for a function that remembers nothing yet."""
        self.memory.clear()
        return (normal(6 if self.dtype == torch.float64 else 320, dtype=self.dtype),)


class _Remembering(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, owner):
        ctx.owner = owner
        ctx.save_for_backward(x)
        with torch.no_grad():
            owner.remember(owner.memory, ctx, x)
            return owner.value(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.owner.slope(ctx.owner.memory, ctx, x), None


def last(memory, ctx, x) -> None:
    memory["x"] = x


def by_version(memory, ctx, x) -> None:
    ctx.key = x._version
    memory.setdefault(ctx.key, x.cos())


def by_the_first_entry(memory, ctx, x) -> None:
    ctx.key = x[0].item()
    memory.setdefault(ctx.key, x.cos())


def size_of(x: Tensor) -> Tensor:
    return x.double().square().mean().sqrt()


def scale_once(memory, ctx, x) -> None:
    memory.setdefault("scale", size_of(x))


def workspace(memory, ctx, x) -> None:
    memory.setdefault("space", torch.empty_like(x)).copy_(x).cos_()


def workspace_of_its_own(memory, ctx, x) -> None:
    ctx.space = x.cos()


def by_the_scale(memory, ctx, x) -> Tensor:
    """Too large by what the first input's size is beside this one's."""
    return x.cos() * memory["scale"] / size_of(x)


def marked(memory, ctx, x) -> None:
    memory["stale"] = True


def made_in_the_first_backward(memory, ctx, x) -> Tensor:
    """One backward after each forward would be enough."""
    if memory["stale"]:
        memory["slope"], memory["stale"] = x.cos(), False
    return memory["slope"]


class Masked(torch.nn.Module):
    """relu with its mask in a buffer."""

    def __init__(self, *, kept: bool = False) -> None:
        super().__init__()
        self.kept = kept
        self.register_buffer("mask", torch.zeros(6, dtype=torch.float64))

    def inputs(self) -> tuple[Tensor]:
        """An input for a layer that remembers nothing yet."""
        self.mask.zero_()
        return (normal(6),)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.mask.copy_(x > 0)
        mask = self.mask.clone() if self.kept else self.mask
        return ruled(lambda x: x.clamp(min=0), lambda g, x: g * mask, vmap=False)(x)


def exhibit(
    name: str,
    wrong: Any,
    right: Callable[..., Tensor] = torch.sin,
    cause: str = "stale",
) -> Exhibit:
    return Exhibit(
        name=name,
        make_inputs=wrong.inputs,
        wrong=wrong,
        right=right,
        check="second_point",
        also=ALSO,
        cause=cause,
    )


def cosine(memory, ctx, x) -> Tensor:
    return x.cos()


def remembered(key: Any = None) -> Slope:
    return lambda memory, ctx, x: memory[ctx.key if key is None else key]


def rightly_by_version(memory, ctx, x) -> None:
    """Keyed by address and version, and of a tensor that is kept: as caches of weights are."""
    ctx.key = (id(x), x._version)
    if ctx.key not in memory or not torch.equal(memory[ctx.key][0], x):
        memory[ctx.key] = (x.clone(), x.cos())
    ctx.slope = memory[ctx.key][1]


class OffOnceElsewhere:
    """The sine, whose first backward at any other point is a tenth off, as one with a race is."""

    def __init__(self) -> None:
        self.apply = ruled(torch.sin, self.gradient, vmap=False)

    def gradient(self, g: Tensor, x: Tensor) -> Tensor:
        off = self.left and not torch.equal(x.detach(), self.point)
        self.left = self.left and not off
        return g * x.cos() * (1.1 if off else 1.0)

    def __call__(self, x: Tensor) -> Tensor:
        return self.apply(x)

    def inputs(self) -> tuple[Tensor]:
        """An input for a function that has not been off yet."""
        self.left, self.point = True, normal(6).detach()
        return (normal(6),)


EXHIBITS: tuple[Exhibit, ...] = (
    exhibit(
        "backward_reads_the_input_of_the_last_forward",
        Remembering(last, lambda memory, ctx, x: memory["x"].cos()),
        Remembering(last, cosine),
        "stale",
    ),
    exhibit(
        "slope_kept_by_the_version_of_the_input_alone",
        Remembering(by_version, remembered()),
        Remembering(rightly_by_version, lambda memory, ctx, x: ctx.slope),
    ),
    exhibit(
        "slope_kept_by_the_first_entry",
        Remembering(by_the_first_entry, remembered()),
        Remembering(by_the_first_entry, cosine),
    ),
    exhibit("statistic_made_once", Remembering(scale_once, by_the_scale), cause="factor"),
    exhibit(
        "statistic_made_once_in_bfloat16",
        Remembering(scale_once, by_the_scale, dtype=torch.bfloat16),
        cause="factor",
    ),
    exhibit(
        "workspace_of_the_last_forward",
        Remembering(workspace, remembered("space")),
        Remembering(workspace_of_its_own, lambda memory, ctx, x: ctx.space),
        "stale",
    ),
    exhibit(
        "workspace_made_in_the_first_backward",
        Remembering(marked, made_in_the_first_backward),
    ),
    exhibit(
        "mask_in_a_buffer_that_the_next_forward_overwrites",
        Masked(),
        Masked(kept=True),
        "stale",
    ),
    exhibit("backward_off_a_single_time_at_another_point", OffOnceElsewhere(), cause=""),
)
