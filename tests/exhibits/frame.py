"""What an exhibit is, and the few tools with which exhibits are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd.functional import vjp

Index = tuple[int, ...]
# Input slot, entry of it, output slot, entry of it; None where the mistake concerns no single one.
Spot = tuple[int | None, Index | None, int | None, Index | None]


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """A wrong derivative, its right twin, and what must be said of both.

    Attributes:
        name: the mistake, as a slug that reads as a sentence.
        source: the published mistakes (M..) and the trials of other tools (W.., C.., J..) that it
            re-creates, by number, blank-separated; "extra" where it is none of them.
        make_inputs: fresh inputs at which the mistake must be caught, the same at every call.
        wrong: the function whose derivative is wrong; None where the exhibit is a right function
            that other tools accuse.
        right: its right twin.
        check: the check that must fail for `wrong`.
        also: other checks that may fail for `wrong`.
        place: where a finding must be.
        words: what the message of a finding must contain.
        cause: the kind of mistake, as a report names it; "" where that is shown elsewhere.
        order: of derivative, 1 or 2.
        hidden_inputs: inputs at which the mistake does not show.
        options: further keywords of `gradproof.check`.
        verdict_of_right: verdicts that are acceptable for `right`.
    """

    name: str
    make_inputs: Callable[[], tuple[Any, ...]]
    wrong: Callable[..., Any] | None
    right: Callable[..., Any]
    source: str = "extra"
    check: str = "backward"
    also: frozenset[str] = frozenset()
    place: Spot | None = None
    words: tuple[str, ...] = ()
    cause: str = ""
    order: int = 1
    hidden_inputs: Callable[[], tuple[Any, ...]] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    verdict_of_right: frozenset[str] = frozenset({"passed"})

    def __str__(self) -> str:
        return f"{self.source.replace(' ', '-')}-{self.name}"


def normal(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal entries that require a gradient; the global generator is left alone."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()


def leaf(*values: Any, dtype: torch.dtype = torch.float64) -> Tensor:
    """A one-dimensional input that requires a gradient."""
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def constant(*values: Any, dtype: torch.dtype = torch.float64) -> Tensor:
    """A one-dimensional input that requires none."""
    return torch.tensor(values, dtype=dtype)


def ruled(
    value: Callable[..., Any],
    backward: Callable[..., Any],
    jvp: Callable[..., Any] | None = None,
    *,
    vmap: bool = True,
    materialize: bool = True,
) -> Callable[..., Any]:
    """`value` with a derivative of its own: the way most wrong gradients come into the world.

    Args:
        value: of the inputs; its signature is the signature of the result.
        backward: of the cotangents, then the inputs; the gradients of the first inputs.
        jvp: of the tangents, then the inputs.
        vmap: whether `torch.vmap` may look inside.
        materialize: whether undefined cotangents reach `backward` as zeros, instead of None.
    """

    jvp_rule = jvp  # in the class body, `jvp` would be the class's own name

    class Ruled(torch.autograd.Function):
        generate_vmap_rule = vmap

        @staticmethod
        def forward(*inputs: Any) -> Any:
            return value(*inputs)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            tensors = [each for each in inputs if isinstance(each, Tensor)]
            ctx.save_for_backward(*tensors)
            ctx.save_for_forward(*tensors)
            ctx.others = [None if isinstance(each, Tensor) else each for each in inputs]
            ctx.tensors = [isinstance(each, Tensor) for each in inputs]
            ctx.set_materialize_grads(materialize)

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
            gradients = backward(*cotangents, *_inputs(ctx))
            gradients = gradients if isinstance(gradients, tuple) else (gradients,)
            return gradients + (None,) * (len(ctx.others) - len(gradients))

        if jvp_rule is not None:

            @staticmethod
            def jvp(ctx: Any, *tangents: Any) -> Any:
                return jvp_rule(*tangents, *_inputs(ctx))

    @wraps(value)
    def call(*inputs: Any) -> Any:
        return Ruled.apply(*inputs)

    return call


def gradients_of(value: Callable[..., Any], g: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """What autograd finds in a backward, which may be recorded."""
    return vjp(value, inputs, g, create_graph=torch.is_grad_enabled())[1]


def spoilt(
    value: Callable[..., Any],
    change: Callable[..., Any],
    *,
    dtypes: tuple[torch.dtype, ...] | None = None,
) -> Callable[..., Any]:
    """`value`, whose gradients by autograd go through `change`.

    Args:
        value: of the inputs, which are tensors.
        change: of the gradients; what becomes of them.
        dtypes: of the cotangent where that happens; everywhere where None.
    """

    def backward(g: Tensor, *inputs: Tensor) -> Any:
        gradients = gradients_of(value, g, *inputs)
        return change(*gradients) if dtypes is None or g.dtype in dtypes else gradients

    return ruled(value, backward, vmap=False)


def _inputs(ctx: Any) -> list[Any]:
    saved = iter(ctx.saved_tensors)
    return [
        next(saved) if tensor else other
        for tensor, other in zip(ctx.tensors, ctx.others, strict=True)
    ]


def storage_read(tensor: Tensor, offsets: Tensor) -> Tensor:
    """What a kernel reads that computes addresses itself: no strides, no differentiation.

    Addresses count from the first element; past the end of the storage they wrap around, so that
    the kernel is wrong and yet repeatable.
    """
    tensor = tensor.detach()
    raw = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    return raw[(tensor.storage_offset() + offsets) % len(raw)]


def read_as_contiguous(tensor: Tensor) -> Tensor:
    """The tensor as read by a kernel that takes it for contiguous."""
    return storage_read(tensor, torch.arange(tensor.numel())).reshape(tensor.shape)


# Functions of several topics.


def sine(x: Tensor) -> Tensor:
    return x.sin()


def sine_backward(g: Tensor, x: Tensor) -> Tensor:
    return g * x.cos()


def sine_jvp(t: Tensor, x: Tensor) -> Tensor:
    return t * x.cos()


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v
