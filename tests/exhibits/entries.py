"""Gradients with wrong entries, visible at any input: scaled, permuted, dropped, detached."""

from __future__ import annotations

import torch
from torch import Tensor

from exhibits.frame import Exhibit, constant, normal, ruled

NO_FORWARD_RULE_NEEDED = frozenset({"forward"})  # plain code is wrong in forward mode alike


def sine(x: Tensor) -> Tensor:
    return x.sin()


def sine_times(factors: dict[int, float]):
    """The sine of a vector whose gradient has single entries multiplied by a factor."""

    def backward(g: Tensor, x: Tensor) -> Tensor:
        factor = torch.ones(x.shape, dtype=x.dtype)
        for index, value in factors.items():
            factor[index] = value
        return g * x.cos() * factor

    return ruled(sine, backward)


def sine_then(change):
    """The sine of a tensor whose gradient goes through `change`."""
    return ruled(sine, lambda g, x: change(g * x.cos()))


def product(x: Tensor, w: Tensor) -> Tensor:
    return x * w


def renorm(x: Tensor) -> Tensor:
    return x / x.norm(dim=1, keepdim=True)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return -logits.log_softmax(1).gather(1, target[:, None])[:, 0]


def severed_softmax(x: Tensor) -> Tensor:
    return x.exp() / x.exp().sum().detach()


def row_sums(x: Tensor) -> Tensor:
    return (x * x).sum(1)


def every_row_to_row_zero(g: Tensor, x: Tensor) -> Tensor:
    full = 2 * g[:, None] * x
    return torch.cat([full.sum(0, keepdim=True), torch.zeros_like(full[1:])])


def layer_norm(x: Tensor) -> Tensor:
    return (x - x.mean()) / (x - x.mean()).square().mean().sqrt()


def layer_norm_without_projection(g: Tensor, x: Tensor) -> Tensor:
    return (g - g.mean()) / (x - x.mean()).square().mean().sqrt()


def tiny_sine(x: Tensor) -> Tensor:
    return 1e-6 * x.sin()


def mean_of_many(x: Tensor) -> Tensor:
    return x.sin().mean()


def two_good_one_detached(x: Tensor):
    return x.sin(), x.detach().exp(), x.cos()


def two_good_and_a_third(x: Tensor):
    return x.sin(), x.exp(), x.cos()


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


def softmax_and_detached_size(x: Tensor):
    return x.softmax(-1), x.detach().logsumexp(-1)


def times_conjugate(x: Tensor, w: Tensor) -> Tensor:
    return x * w


def conjugate_times(x: Tensor, w: Tensor) -> Tensor:
    return x.conj() * w


def last_block_dropped(gradient: Tensor) -> Tensor:
    return torch.cat([gradient[:8], torch.zeros_like(gradient[8:])])


def probabilities(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def last_rounds_forgotten(g: Tensor, x: Tensor) -> Tensor:
    p = probabilities(x)
    gradient = p * (g - (g * p).sum())
    return torch.cat([gradient[:-8], torch.zeros_like(gradient[-8:])])


EXHIBITS = (
    Exhibit(
        name="last_eight_of_two_hundred_inputs_forgotten",
        cause="zero",
        source="extra",
        make_inputs=lambda: (normal(200),),
        wrong=ruled(probabilities, last_rounds_forgotten),
        right=probabilities,
        place=(0, None, 0, None),
        words=("claimed 0",),
    ),
    Exhibit(
        name="every_entry_ten_percent_too_big",
        cause="factor",
        source="W1",
        make_inputs=lambda: (normal(10),),
        wrong=sine_then(lambda gradient: 1.1 * gradient),
        right=sine,
        place=(0, None, 0, None),
        words=("x[",),
    ),
    Exhibit(
        name="one_wrong_sign_in_a_thousand",
        source="W2",
        make_inputs=lambda: (normal(1000),),
        wrong=sine_times({417: -1.0}),
        right=sine,
        place=(0, (417,), 0, (417,)),
        words=("x[417]",),
    ),
    Exhibit(
        name="one_wrong_sign_in_ten_thousand",
        source="W2b",
        make_inputs=lambda: (normal(10_000),),
        wrong=sine_times({9_999: -1.0}),
        right=sine,
        place=(0, (9_999,), 0, (9_999,)),
        words=("x[9999]",),
    ),
    Exhibit(
        name="one_entry_ten_percent_off_in_a_thousand",
        source="W2c",
        make_inputs=lambda: (normal(1000),),
        wrong=sine_times({0: 1.1}),
        right=sine,
        place=(0, (0,), 0, (0,)),
        words=("x[0]",),
    ),
    Exhibit(
        name="two_wrong_entries_far_apart",
        source="extra",
        make_inputs=lambda: (normal(1000),),
        wrong=sine_times({3: 2.0, 801: 0.5}),
        right=sine,
        place=(0, (801,), 0, (801,)),
        words=("x[801]",),
    ),
    Exhibit(
        name="gradient_rolled_by_one",
        source="W3",
        make_inputs=lambda: (normal(10_000),),
        wrong=sine_then(lambda gradient: gradient.roll(1)),
        right=sine,
        place=(0, None, 0, None),
        words=("x[",),
    ),
    Exhibit(
        name="short_gradient_rolled_by_one",
        cause="misplaced",
        source="extra",
        make_inputs=lambda: (normal(12),),
        wrong=sine_then(lambda gradient: gradient.roll(1)),
        right=sine,
        place=(0, None, 0, None),
        words=("x[",),
    ),
    Exhibit(
        name="zero_gradient_of_a_tiny_function",
        source="W4 M26",
        make_inputs=lambda: (normal(7),),
        wrong=ruled(tiny_sine, lambda g, x: torch.zeros_like(x)),
        right=tiny_sine,
        place=(0, None, 0, None),
        words=("x[",),
    ),
    Exhibit(
        name="zero_gradient_of_a_mean_over_many",
        cause="zero",
        source="M26",
        make_inputs=lambda: (normal(2000),),
        wrong=ruled(mean_of_many, lambda g, x: torch.zeros_like(x)),
        right=mean_of_many,
        place=(0, None, 0, ()),
        words=("x[",),
    ),
    Exhibit(
        name="per_row_scale_treated_as_constant",
        source="M01",
        make_inputs=lambda: (normal(20, 20),),
        wrong=ruled(renorm, lambda g, x: g / x.norm(dim=1, keepdim=True)),
        right=renorm,
        place=(0, None, 0, None),
        words=("x[",),
    ),
    Exhibit(
        name="cross_entropy_gradient_exactly_zero",
        source="M06",
        make_inputs=lambda: (normal(4, 5), torch.tensor([0, 2, 4, 1])),
        wrong=ruled(cross_entropy, lambda g, logits, target: torch.zeros_like(logits)),
        right=cross_entropy,
        place=(0, None, 0, None),
        words=("logits[",),
    ),
    Exhibit(
        name="normaliser_severed_from_the_graph",
        source="M11",
        make_inputs=lambda: (normal(6),),
        wrong=severed_softmax,
        right=lambda x: x.softmax(0),
        also=NO_FORWARD_RULE_NEEDED,
        place=(0, None, 0, None),
        words=("x[",),
    ),
    Exhibit(
        name="every_row_stored_to_row_zero",
        source="M18",
        make_inputs=lambda: (normal(4, 3),),
        wrong=ruled(row_sums, every_row_to_row_zero),
        right=row_sums,
        place=(0, None, 0, None),
        words=("x[",),
    ),
    Exhibit(
        name="layer_norm_without_projection_term",
        cause="missing term",
        source="M39",
        make_inputs=lambda: (normal(8),),
        wrong=ruled(layer_norm, layer_norm_without_projection),
        right=layer_norm,
        place=(0, None, 0, None),
        words=("x[",),
    ),
    Exhibit(
        name="one_output_detached_among_good_ones",
        cause="zero",
        source="extra",
        make_inputs=lambda: (normal(5),),
        wrong=two_good_one_detached,
        right=two_good_and_a_third,
        also=NO_FORWARD_RULE_NEEDED,
        place=(0, None, 1, None),
        words=("output 1",),
    ),
    Exhibit(
        name="a_size_detached_and_not_marked_as_non_differentiable",
        source="extra",
        make_inputs=lambda: (normal(5),),
        wrong=softmax_and_detached_size,
        right=SoftmaxAndSize.apply,
        also=NO_FORWARD_RULE_NEEDED,
        place=(0, None, 1, None),
        words=("output 1",),
        step=None,  # differences know nothing of the mark
    ),
    Exhibit(
        name="gradients_of_two_inputs_swapped",
        cause="misplaced",
        source="extra",
        make_inputs=lambda: (normal(5), normal(5, seed=2)),
        wrong=ruled(product, lambda g, x, w: (g * x, g * w)),
        right=product,
    ),
    Exhibit(
        name="gradient_none_for_an_input_that_matters",
        source="extra",
        make_inputs=lambda: (normal(5), normal(5, seed=2)),
        wrong=ruled(product, lambda g, x, w: (g * w, None)),
        right=product,
        place=(1, None, 0, None),
        words=("w[",),
    ),
    Exhibit(
        name="gradient_transposed",
        cause="transposed",
        source="extra",
        make_inputs=lambda: (normal(4, 4),),
        wrong=sine_then(lambda gradient: gradient.mT),
        right=sine,
        place=(0, None, 0, None),
        words=("x[",),
    ),
    Exhibit(
        name="gradient_reversed",
        cause="misplaced",
        source="extra",
        make_inputs=lambda: (normal(8),),
        wrong=sine_then(lambda gradient: gradient.flip(0)),
        right=sine,
        place=(0, None, 0, None),
        words=("x[",),
    ),
    Exhibit(
        name="gradient_with_wrong_sign",
        cause="sign",
        source="extra",
        make_inputs=lambda: (normal(8),),
        wrong=sine_then(lambda gradient: -gradient),
        right=sine,
        place=(0, None, 0, None),
        words=("x[",),
    ),
    Exhibit(
        name="last_rows_dropped",
        source="extra",
        make_inputs=lambda: (normal(10, 3),),
        wrong=sine_then(last_block_dropped),
        right=sine,
        place=(0, None, 0, None),
        words=("x[",),
    ),
    Exhibit(
        name="conjugate_missing",
        cause="conjugate",
        source="M24",
        make_inputs=lambda: (
            normal(4, dtype=torch.complex128),
            normal(4, seed=2, dtype=torch.complex128).detach(),
        ),
        wrong=ruled(times_conjugate, lambda g, x, w: g * w),
        right=times_conjugate,
        place=(0, None, 0, None),
        words=("x[",),
        hidden_inputs=lambda: (
            normal(4, dtype=torch.complex128),
            constant(1.5, -2, 3, 0.5).to(torch.complex128),
        ),
    ),
    Exhibit(
        name="conjugate_of_the_cotangent_forgotten",
        source="extra",
        make_inputs=lambda: (
            normal(4, dtype=torch.complex128),
            normal(4, seed=2, dtype=torch.complex128).detach(),
        ),
        wrong=ruled(conjugate_times, lambda g, x, w: g * w.conj()),
        right=conjugate_times,
        place=(0, None, 0, None),
        words=("x[",),
    ),
)
