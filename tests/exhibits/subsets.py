"""Gradients that are right while all inputs need one, and wrong where only some do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from exhibits.frame import Exhibit, leaf, normal

Needs = tuple[bool, ...]


def gated(*inputs: Tensor) -> Tensor:
    """Two gates and a sum: six inputs, as recurrent cells and attention have them."""
    a, b, c, d, e, f = inputs
    return a.sigmoid() * b + c.tanh() * d + e.sin() * f


def _gradients(g: Tensor, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    a, b, c, d, e, f = inputs
    s, t = a.sigmoid(), c.tanh()
    return [g * b * s * (1 - s), g * s, g * d * (1 - t * t), g * t, g * f * e.cos(), g * e.sin()]


def when(forgets: Callable[[Needs], int | None]) -> Callable[..., Any]:
    """`gated` with a backward that forgets one gradient, told by who needs one."""

    class Gated(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*inputs: Tensor) -> Tensor:
            return gated(*inputs)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
            gradients = _gradients(g, ctx.saved_tensors)
            forgotten = forgets(ctx.needs_input_grad)
            if forgotten is not None:
                gradients[forgotten] = torch.zeros_like(gradients[forgotten])
            return tuple(gradients)

    return lambda a, b, c, d, e, f: Gated.apply(a, b, c, d, e, f)


def _six() -> tuple[Tensor, ...]:
    return tuple(normal(3, seed=k + 1) for k in range(6))


def _fifth_alone(needs: Needs) -> int | None:
    return 4 if needs == (False, False, False, False, True, False) else None


def _fifth_left_out(needs: Needs) -> int | None:
    return 5 if needs == (True, True, True, True, False, True) else None


def _a_without_b(needs: Needs) -> int | None:
    return 0 if needs[0] and needs[4] and not needs[1] else None


class Affine(torch.autograd.Function):
    """x @ w + b, whose bias gets half of its gradient where x needs none, if that is `halved`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor, halved: bool) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.halved = halved
        return x @ w + b

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        part = 0.5 if ctx.halved and not ctx.needs_input_grad[0] else 1.0
        return g @ w.T, x.T @ g, part * g.sum(0), None


def _with_a_small_bias() -> tuple[Tensor, ...]:
    narrow = torch.bfloat16
    return (
        normal(4, 3, dtype=narrow),
        normal(3, 2, seed=2, dtype=narrow),
        leaf(0.1, -0.1, dtype=narrow),
    )


_OF_SIX = tuple(
    Exhibit(
        name=name,
        source="extra",
        make_inputs=_six,
        wrong=when(forgets),
        right=when(lambda needs: None),
        check="grad_metadata",
        words=(words,),
    )
    for name, forgets, words in (
        ("wrong_where_the_fifth_of_six_alone_needs_a_gradient", _fifth_alone, "where only e needs"),
        ("wrong_where_all_but_the_fifth_need_a_gradient", _fifth_left_out, "where e needs none"),
        ("wrong_where_a_pair_needs_a_gradient_and_a_third_does_not", _a_without_b, "gradient of a"),
    )
)

EXHIBITS = (
    *_OF_SIX,
    Exhibit(
        name="half_of_a_small_bias_in_16_bits_where_only_weights_and_it_need_a_gradient",
        source="extra",
        make_inputs=_with_a_small_bias,
        wrong=lambda x, w, b: Affine.apply(x, w, b, True),
        right=lambda x, w, b: Affine.apply(x, w, b, False),
        check="grad_metadata",
        words=("gradient of b",),
        step=None,  # of 16 bits
    ),
)
