"""Right functions that other tools accuse, or of which nobody can say."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from exhibits.frame import Exhibit, constant, leaf, normal, ruled

UNDECIDED = frozenset({"passed", "inconclusive"})


def noisy_sine():
    """The sine with a relative noise of 1e-9, new at every call, and its honest derivative."""
    generator = torch.Generator().manual_seed(3)

    def fn(x: Tensor) -> Tensor:
        noise = torch.randn(x.shape, generator=generator, dtype=x.dtype)
        return x.sin() * (1 + 1e-9 * noise)

    return fn


def sine_in_bfloat16(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16).sin().to(torch.float64)


def kept(x: Tensor) -> Tensor:
    """A mask under a seed of its own, drawn in the order of the memory."""
    made = torch.Generator().manual_seed(0)
    return torch.empty_like(x, dtype=torch.bool).bernoulli_(0.5, generator=made)


seeded_dropout = ruled(
    lambda x: torch.where(kept(x), 2 * x, 0),
    lambda g, x: torch.where(kept(x), 2 * g, 0),
    vmap=False,
)


class SlopeOfTanh(torch.autograd.Function):
    """(tanh(a) - tanh(b)) / (a - b), of whose digits few are left where a is close to b."""

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        return (a.tanh() - b.tanh()) / (a - b)

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)
        ctx.save_for_forward(*inputs, output)

    @staticmethod
    @once_differentiable
    def backward(ctx, g: Tensor) -> tuple[Tensor, ...]:
        a, b, slope = ctx.saved_tensors
        g = g / (a - b)
        return g * (1 - a.tanh() ** 2 - slope), g * (slope - 1 + b.tanh() ** 2)

    @staticmethod
    def jvp(ctx, da: Tensor, db: Tensor) -> Tensor:
        a, b, slope = ctx.saved_tensors
        of_a, of_b = 1 - a.tanh() ** 2 - slope, slope - 1 + b.tanh() ** 2
        return (da * of_a + db * of_b) / (a - b)


class SlopeOfTanhPushedTwice(SlopeOfTanh):
    """The same with a tangent of twice the size."""

    @staticmethod
    def jvp(ctx, da: Tensor, db: Tensor) -> Tensor:
        return 2 * SlopeOfTanh.jvp(ctx, da, db)


def tanh_of_hermitian_part(a: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh((a + a.mH) / 2)
    return (vectors * values.tanh()) @ vectors.mH


def hermitian_with_eigenvalues_close_together() -> tuple[Tensor, ...]:
    vectors = torch.linalg.qr(normal(5, 5, seed=2, dtype=torch.complex128).detach())[0]
    values = constant(1, 1 + 1e-6, 1 - 1e-6, -0.5, 0.3)
    return (((vectors * values) @ vectors.mH).requires_grad_(),)


class Scale(torch.nn.Module):
    """Registers what it is given, as layers do; what is no parameter becomes one of its own."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        if not isinstance(weight, torch.nn.Parameter):
            weight = torch.nn.Parameter(weight)
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def through_a_layer(x: Tensor, weight: Tensor) -> Tensor:
    return Scale(weight)(x).tanh()


def through_a_layer_of_its_own(x: Tensor, weight: Tensor) -> Tensor:
    """The same, cut off: the layer registers a copy, which no gradient leaves."""
    return Scale(1 * weight)(x).tanh()


EXHIBITS = (
    Exhibit(
        name="layer_that_registers_its_argument",
        wrong=through_a_layer_of_its_own,
        right=through_a_layer,
        make_inputs=lambda: (normal(4), torch.nn.Parameter(normal(4, seed=2).detach())),
        also=frozenset({"forward", "forward_vs_backward"}),
        place=(1, None, 0, None),
    ),
    Exhibit(
        name="dropout_whose_mask_is_drawn_in_the_order_of_the_memory",
        wrong=None,
        right=seeded_dropout,
        make_inputs=lambda: (normal(5, 5),),
    ),
    Exhibit(
        name="function_without_forward_mode_under_vmap",
        wrong=None,
        right=torch.vmap(ruled(torch.sin, lambda g, x: g * x.cos())),
        make_inputs=lambda: (normal(3, 4),),
    ),
    Exhibit(
        name="rounding_to_three_decimals",
        wrong=None,
        right=lambda x: torch.round(x, decimals=3),
        make_inputs=lambda: (normal(5, 5),),
        verdict_of_right=UNDECIDED,  # it may be a staircase, or arithmetic that lost the change
    ),
    Exhibit(
        name="sine_with_noise",
        source="C5",
        wrong=None,
        right=noisy_sine(),
        make_inputs=lambda: (normal(5),),
        verdict_of_right=UNDECIDED,
    ),
    Exhibit(
        name="border_on_one_side_within_the_coarsest_step",
        source="C8",
        wrong=None,
        right=lambda x: torch.logit(x, 0.2),
        make_inputs=lambda: (
            torch.linspace(0.8005, 0.813, 60, dtype=torch.float64).requires_grad_(),
        ),
    ),
    Exhibit(
        name="relu_beside_its_kink",
        source="C8",
        wrong=None,
        right=torch.relu,
        make_inputs=lambda: (leaf(5e-7),),
        verdict_of_right=UNDECIDED,
    ),
    Exhibit(
        name="bfloat16_inside_float64",
        source="C9",
        wrong=None,
        right=sine_in_bfloat16,
        make_inputs=lambda: (normal(5),),
    ),
    *(
        Exhibit(
            name=f"{right.__name__}_beside_the_border_of_its_domain",
            wrong=None,
            right=right,
            make_inputs=lambda: (leaf(1 - 1e-12, 0.3),),
            verdict_of_right=UNDECIDED,  # few steps of so few digits fit in
        )
        for right in (torch.acos, torch.atanh)
    ),
    Exhibit(
        # One output is 1 to the last bit: it does not move with what is claimed to move it.
        name="softmax_of_logits_far_apart",
        wrong=None,
        right=lambda x: x.softmax(-1),
        make_inputs=lambda: ((20 * normal(5, 6, seed=1008).detach()).requires_grad_(),),
    ),
    Exhibit(
        name="numbers_below_the_smallest_normal_one",
        wrong=None,
        right=lambda x: 1e300 * x,
        make_inputs=lambda: (leaf(1e-310, -3e-311, 2e-310),),
    ),
    Exhibit(
        # How far the tangent is rounded is known by rows, where the backward gives no J u.
        name="tangent_of_cancelling_terms_beside_a_backward_differentiable_once",
        wrong=SlopeOfTanhPushedTwice.apply,
        right=SlopeOfTanh.apply,
        check="forward",
        also=frozenset({"forward_vs_backward"}),
        make_inputs=lambda: (leaf(0.3, -0.7, 1.1), leaf(0.3 + 4e-7, -0.7 + 3e-7, 1.1 + 9e-7)),
        verdict_of_right=UNDECIDED,
    ),
    Exhibit(
        # Imaginary parts of the diagonal are zero, rounded beside numbers of size 1.
        name="function_of_a_matrix_with_eigenvalues_close_together",
        wrong=None,
        right=tanh_of_hermitian_part,
        make_inputs=hermitian_with_eigenvalues_close_together,
        verdict_of_right=UNDECIDED,
    ),
)
