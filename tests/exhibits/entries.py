"""Gradients with wrong entries, visible at any input: scaled, permuted, dropped, detached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from exhibits.frame import Exhibit, normal, ruled, sine, spoilt

NO_FORWARD_RULE_NEEDED = frozenset({"forward"})  # plain code is wrong in forward mode alike


def product(x: Tensor, w: Tensor) -> Tensor:
    return x * w


def severed_softmax(x: Tensor) -> Tensor:
    return x.exp() / x.exp().sum().detach()


def two_good_one_detached(x: Tensor):
    return x.sin(), x.detach().exp(), x.cos()


def two_good_and_a_third(x: Tensor):
    return x.sin(), x.exp(), x.cos()


def interpolated(factor: float) -> Callable[..., Any]:
    """The sum of a table between its entries; the gradient of the table times `factor`.

    Runs with every operation rounded must not read other entries of the table.
    """

    def value(table: Tensor, x: Tensor) -> Tensor:
        at = x.floor().long()
        part = x - x.floor()
        return ((1 - part) * table[at] + part * table[at + 1]).sum()

    def backward(g: Tensor, table: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        at = x.floor().long()
        part, none = x - x.floor(), torch.zeros_like(table)
        found = none.index_add(0, at, 1 - part).index_add(0, at + 1, part)
        return factor * g * found, g * (table[at + 1] - table[at])

    return ruled(value, backward)


def table_and_places() -> tuple[Tensor, Tensor]:
    table = torch.linspace(1, 2, 7, dtype=torch.float64) + 0.01 * normal(7).detach()
    places = torch.linspace(0.13, 5.7, 20, dtype=torch.float64)
    return table.requires_grad_(), places.requires_grad_()


def histogram(x: Tensor) -> Tensor:
    """Counts in 32 linear bins; steps of a thousandth cross the edges of some."""
    at = x.floor().long()
    part = x - x.floor()
    return torch.zeros(33, dtype=x.dtype).index_add(0, at, 1 - part).index_add(0, at + 1, part)


def bins_of(scale: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """The gradient of `histogram`, each entry times a scale."""

    def backward(g: Tensor, x: Tensor) -> Tensor:
        at = x.floor().long()
        return scale * (g[at + 1] - g[at])

    return backward


def many_samples() -> tuple[Tensor]:
    x = 0.05 + 31.9 * (torch.arange(2000, dtype=torch.float64) * 0.6180339887 % 1)
    return (x.requires_grad_(),)


class SoftmaxAndSize(torch.autograd.Function):
    """Softmax, and beside it log-sum-exp, which is said to have no derivative."""

    @staticmethod
    def forward(ctx, x: Tensor):
        size = x.logsumexp(-1)
        y = (x - size).exp()
        ctx.save_for_backward(y)
        ctx.mark_non_differentiable(size)
        return y, size

    @staticmethod
    def backward(ctx, g: Tensor, _: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return y * (g - (g * y).sum(-1))


def square_beside(other: Callable[[Tensor], Tensor], factor: float) -> Callable[..., Any]:
    """The square, and an output that is said to have no derivative; the gradient times `factor`."""

    class SquareAndOther(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor):
            ctx.save_for_backward(x)
            found = other(x)
            ctx.mark_non_differentiable(found)
            return x * x, found

        @staticmethod
        def backward(ctx, g: Tensor, _: Tensor) -> Tensor:
            return 2 * factor * ctx.saved_tensors[0] * g

    return SquareAndOther.apply


def softmax_and_detached_size(x: Tensor):
    return x.softmax(-1), x.detach().logsumexp(-1)


def probabilities(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


EXHIBITS = (
    Exhibit(
        name="last_eight_of_two_hundred_inputs_forgotten",
        cause="zero",
        make_inputs=lambda: (normal(200),),
        wrong=spoilt(probabilities, lambda gradient: torch.cat([gradient[:-8], 0 * gradient[-8:]])),
        right=probabilities,
        words=("claimed 0",),
    ),
    Exhibit(
        name="one_wrong_sign_in_ten_thousand",
        source="W2b",
        make_inputs=lambda: (normal(10_000),),
        wrong=spoilt(sine, lambda gradient: torch.cat([gradient[:-1], -gradient[-1:]])),
        right=sine,
        place=(0, (9_999,), 0, (9_999,)),
        words=("x[9999]",),
    ),
    Exhibit(
        name="normaliser_severed_from_the_graph",
        source="M11",
        make_inputs=lambda: (normal(6),),
        wrong=severed_softmax,
        right=lambda x: x.softmax(0),
        also=NO_FORWARD_RULE_NEEDED,
    ),
    Exhibit(
        name="one_output_detached_among_good_ones",
        cause="zero",
        make_inputs=lambda: (normal(5),),
        wrong=two_good_one_detached,
        right=two_good_and_a_third,
        also=NO_FORWARD_RULE_NEEDED,
        place=(0, None, 1, None),
        words=("output 1",),
    ),
    Exhibit(
        name="a_size_detached_and_not_marked_as_non_differentiable",
        make_inputs=lambda: (normal(5),),
        wrong=softmax_and_detached_size,
        right=SoftmaxAndSize.apply,
        also=NO_FORWARD_RULE_NEEDED,
        place=(0, None, 1, None),
        words=("output 1",),
    ),
    # An output without a derivative is a number of float32 to PyTorch, whatever it is.
    *(
        Exhibit(
            name=f"1e-5_too_much_beside_{what}",
            make_inputs=lambda: (normal(3, 4),),
            wrong=square_beside(other, 1 + 1e-5),
            right=square_beside(other, 1.0),
        )
        for what, other in (("an_index", torch.argsort), ("a_mask", lambda x: (x > 0).double()))
    ),
    Exhibit(
        name="1e-4_too_much_beside_places_that_steer_an_index",
        make_inputs=table_and_places,
        wrong=interpolated(1 + 1e-4),
        right=interpolated(1.0),
    ),
    Exhibit(
        name="one_of_2000_samples_in_bins_a_tenth_too_small",
        make_inputs=many_samples,
        wrong=ruled(histogram, bins_of(torch.ones(2000).index_fill(0, torch.tensor(1000), 0.9))),
        right=ruled(histogram, bins_of(torch.ones(2000))),
        place=(0, (1000,), 0, None),
    ),
    Exhibit(
        name="gradient_none_for_an_input_that_matters",
        make_inputs=lambda: (normal(5), normal(5, seed=2)),
        wrong=ruled(product, lambda g, x, w: (g * w, None)),
        right=product,
        place=(1, None, 0, None),
    ),
)
