"""Right functions that other tools accuse, or of which nobody can say."""

from __future__ import annotations

import torch
from torch import Tensor

from exhibits.frame import Exhibit, leaf, normal, ruled

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
)
