"""Derivatives at corners, jumps and infinite slopes: of a wrong rule, and of a right one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from exhibits.frame import Exhibit, leaf, normal, ruled

UNDECIDED = frozenset({"passed", "inconclusive"})


def relu(x: Tensor) -> Tensor:
    return x.clamp(min=0)


def slope_of_relu(x: Tensor, at_zero: float) -> Tensor:
    return torch.where(x == 0, at_zero, (x > 0).to(x.dtype))


def residual_blocks(activation: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Four blocks with 8,192 kinks: a step crosses some of them, and some bend the other way."""

    def fn(x: Tensor, *weights: Tensor) -> Tensor:
        for weight in weights:
            x = torch.nn.functional.layer_norm(x + activation(x @ weight / 8), (64,))
        return x

    return fn


def phase(x: Tensor) -> Tensor:
    """It wraps: far from zero a hundred times within all steps but the finest."""
    return torch.atan2(x.sin(), x.cos())


def far_from_zero() -> tuple[Tensor, ...]:
    return ((1e6 * (1.5 + 0.4 * torch.arange(20.0).double().sin())).requires_grad_(),)


def tenth_less_of_one(g: Tensor, x: Tensor) -> Tensor:
    return g * torch.where(x == x[3], 0.9, 1.0)


def sorted_values(x: Tensor) -> Tensor:
    return x.sort().values


def unsorted(g: Tensor, x: Tensor) -> Tensor:
    return torch.zeros_like(x).index_put((x.argsort(stable=True),), g)


def whole_quotients(x: torch.Tensor) -> torch.Tensor:
    """A staircase that larger inputs throughout do not make any higher."""
    return (x[:3] / x[3:]).trunc()


def masked_scores() -> tuple[Tensor, ...]:
    scores = torch.linspace(-1.3, 1.7, 24, dtype=torch.float64).sin().reshape(4, 6)
    scores[0, 2] = scores[3, 4] = scores[3, 5] = -torch.inf
    return (scores.requires_grad_(),)


def weights(x: Tensor) -> Tensor:
    return x.softmax(-1)


def gradient_of_weights(g: Tensor, x: Tensor) -> Tensor:
    p = weights(x)
    return p * (g - (g * p).sum(-1, keepdim=True))


LAPLACE = torch.tensor([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]], dtype=torch.float64)


def laplacian(x: Tensor) -> Tensor:
    return torch.nn.functional.conv2d(x[None, None], LAPLACE[None, None])[0, 0]


def laplacian_transposed(g: Tensor, centre: float) -> Tensor:
    """The adjoint, with another number in the middle of the stencil."""
    stencil = LAPLACE.clone()
    stencil[1, 1] = centre
    return torch.nn.functional.conv_transpose2d(g[None, None], stencil[None, None])[0, 0]


EXHIBITS = (
    # Whole numbers at the point, and at no other.
    Exhibit(
        name="differences_of_equal_numbers_the_wrong_way_round",
        make_inputs=lambda: (torch.ones(400, dtype=torch.float64, requires_grad=True),),
        wrong=ruled(
            lambda x: torch.diff(x),
            lambda g, x: torch.cat([g, g[:1] * 0]) - torch.cat([g[:1] * 0, g]),
        ),
        right=lambda x: torch.diff(x),
    ),
    Exhibit(
        name="laplacian_of_a_constant_image_with_three_neighbours",
        make_inputs=lambda: (torch.ones(16, 16, dtype=torch.float64, requires_grad=True),),
        wrong=ruled(laplacian, lambda g, x: laplacian_transposed(g, -3.0)),
        right=laplacian,
    ),
    Exhibit(
        name="masked_score_that_gets_a_gradient",
        make_inputs=masked_scores,
        wrong=ruled(weights, lambda g, x: gradient_of_weights(g, x) + g * x.isinf()),
        right=weights,
        place=(0, (0, 2), 0, (0, 2)),
    ),
    Exhibit(
        name="floor_with_the_slope_of_the_whole_flight",
        make_inputs=lambda: (leaf(37.75, 19.875, 1.4609375),),
        wrong=ruled(torch.floor, lambda g, x: g),
        right=torch.floor,
        place=(0, (0,), 0, (0,)),
        words=("claimed 1",),
    ),
    Exhibit(
        name="whole_quotients_with_the_slope_of_the_quotient",
        make_inputs=lambda: (leaf(-8.4784, 5.2, 7.1, -0.061, 0.0391, 3.3, dtype=torch.float32),),
        wrong=ruled(whole_quotients, lambda g, x: torch.cat([g / x[3:], -g * x[:3] / x[3:] ** 2])),
        right=whole_quotients,
        place=(0, (5,), 0, (2,)),
        words=("claimed -0.65", "measured 0 "),
        verdict_of_right=UNDECIDED,  # of stairs no step tells a slope
    ),
    Exhibit(
        name="relu_that_leaks_its_claim_beside_zero",
        make_inputs=lambda: (leaf(0.0),),
        wrong=ruled(relu, lambda g, x: g * 0.99 * (slope_of_relu(x, 0.5) + 0.01)),
        right=ruled(relu, lambda g, x: g * slope_of_relu(x, 0.5)),
        place=(0, (0,), 0, (0,)),
        words=("at a smooth neighbour",),
    ),
    Exhibit(
        name="root_at_zero_with_the_slope_of_the_wrong_side",
        make_inputs=lambda: (leaf(0.0, 1.0),),
        wrong=ruled(torch.sqrt, lambda g, x: g * torch.where(x == 0, -torch.inf, 0.5 / x.sqrt())),
        right=ruled(torch.sqrt, lambda g, x: g * torch.where(x == 0, 0.0, 0.5 / x.sqrt())),
        also=frozenset({"missing_grad_output"}),  # infinite times a cotangent of zero
        place=(0, (0,), 0, (0,)),
        words=("claimed -inf, but the slope is infinite: inf",),
    ),
    Exhibit(
        name="sort_of_three_that_are_equal",
        make_inputs=lambda: (leaf(1.0, 1.0, 1.0),),
        wrong=ruled(sorted_values, lambda g, x: unsorted(g, x).flip(0)),
        right=ruled(sorted_values, unsorted),
        words=("at a smooth neighbour",),
    ),
    Exhibit(
        name="residual_blocks_whose_relu_leaks_below_zero",
        make_inputs=lambda: (normal(32, 64), *(normal(64, 64, seed=k) for k in range(2, 6))),
        wrong=residual_blocks(ruled(relu, lambda g, x: g * (x > -0.01))),
        right=residual_blocks(torch.relu),
        words=("claimed",),
    ),
    Exhibit(
        name="phase_that_wraps_within_a_step",
        make_inputs=far_from_zero,
        wrong=ruled(phase, tenth_less_of_one),
        right=ruled(phase, lambda g, x: g.clone()),
        place=(0, (3,), 0, (3,)),
    ),
)
