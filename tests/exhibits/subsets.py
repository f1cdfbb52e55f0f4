"""Gradients that are right while all inputs need one, and wrong where only some do."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from exhibits.frame import Exhibit, leaf, normal


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


EXHIBITS = (
    Exhibit(
        name="half_of_a_small_bias_in_16_bits_where_only_weights_and_it_need_a_gradient",
        make_inputs=_with_a_small_bias,
        wrong=lambda x, w, b: Affine.apply(x, w, b, True),
        right=lambda x, w, b: Affine.apply(x, w, b, False),
        check="grad_metadata",
        words=("gradient of b",),
    ),
)
