"""Ties that single inputs do not show, curved ones, and derivatives that cancel to nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from exhibits.frame import Exhibit, leaf, ruled

UNDECIDED = frozenset({"passed", "inconclusive"})


def middle(x: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(x[0], x[1]), x[2])


def shares_of_the_middle(g: Tensor, x: Tensor) -> Tensor:
    high = torch.maximum(x[0], x[1])
    third = torch.where(x[2] < high, 1.0, torch.where(x[2] == high, 0.5, 0.0))
    first = torch.where(x[0] > x[1], 1.0, torch.where(x[0] == x[1], 0.5, 0.0))
    shares = torch.stack([(1 - third) * first, (1 - third) * (1 - first), third])
    return g * shares.to(g.dtype)


def all_of_the_middle(g: Tensor, x: Tensor) -> Tensor:
    shares = shares_of_the_middle(g, x)
    return torch.where((shares != 0) & (shares != g), g.expand(3), shares)


def in_order(x: Tensor) -> Tensor:
    return x.sort(-1).values


def put_back(double: slice) -> Callable[[Tensor, Tensor], Tensor]:
    """The gradient of `in_order`; some rows of the result are taken twice."""

    def backward(g: Tensor, x: Tensor) -> Tensor:
        found = torch.zeros_like(x).scatter(-1, x.sort(-1).indices, g)
        found[double] *= 2
        return found

    return backward


def whole_numbers() -> tuple[Tensor, ...]:
    """Of 40 sorts: each is tied with a few others of its row, of which the middle ones stand."""
    drawn = torch.randint(0, 40, (16, 128), generator=torch.Generator().manual_seed(0))
    return (drawn.to(torch.bfloat16).requires_grad_(),)


def clamped_sum(x: Tensor) -> Tensor:
    return x.clamp(-1, 1).sum()


def on_a_grid() -> tuple[Tensor, ...]:
    """So many numbers in bfloat16 that a few dozen lie at the bounds of the clamp."""
    drawn = torch.randn(100, 200, generator=torch.Generator().manual_seed(0))
    return (drawn.to(torch.bfloat16).requires_grad_(),)


def three_gates(x: Tensor) -> Tensor:
    """A small network with a zero input: along x[0] its slopes are 1 and 1.5, beside it also 0."""
    a, b, c = x[0] + x[1], x[0] - x[1], x[0] + 2 * x[1]
    return a.relu() - (-b).relu() + 0.5 * c.relu()


# A rectifier whose slope at zero is 2.
STEEP = ruled(
    torch.relu, lambda g, x: g * torch.heaviside(x, torch.tensor(2.0, dtype=x.dtype)), vmap=False
)


def layers(relu: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A layer without a bias, a rectifier and a sum, of rows of which one is empty."""
    return lambda x: relu(x @ DRAWN[0]) @ DRAWN[1]


# Many entries of the empty row are claimed outside of the slopes along their own input.
DRAWN = (
    torch.randn(20, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
    torch.randn(20, generator=torch.Generator().manual_seed(2), dtype=torch.float64),
)


# Of twenty outputs some have slopes of either sign at few of their neighbours only.
NARROW_WIDE = tuple(
    torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for seed, shape in ((15, (3, 10)), (1015, (10, 15)), (2015, (15, 20)))
)


def two_layers(relu: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    first, second, last = NARROW_WIDE
    return lambda x: relu(relu(x @ first) @ second) @ last


def flat_at_bounds(x: Tensor) -> Tensor:
    return torch.nn.functional.hardtanh(x).sum()


def an_empty_row() -> tuple[Tensor, ...]:
    x = torch.randn(4, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x[2] = 0
    return (x.requires_grad_(),)


def three_open_gates(g: Tensor, x: Tensor) -> Tensor:
    a, b, c = x[0] + x[1] > 0, x[0] - x[1] < 0, x[0] + 2 * x[1] > 0
    slopes = torch.stack([1.0 * a + 1.0 * b + 0.5 * c, 1.0 * a - 1.0 * b + 1.0 * c])
    return g * torch.where((x == 0).all(), 9.0, slopes.to(x.dtype))


def one_for_each_equal(g: Tensor, x: Tensor) -> Tensor:
    return torch.where(x[:, None] == in_order(x)[None, :], g, 0.0).sum(1)


def largest_sine(x: Tensor) -> Tensor:
    return x.sin().amax()


def where_largest(x: Tensor) -> Tensor:
    return (x.sin() == x.sin().amax()).to(x.dtype) * x.cos()


def shared_by_the_largest(g: Tensor, x: Tensor) -> Tensor:
    return g * where_largest(x) / (x.sin() == x.sin().amax()).sum()


def seven_of_many() -> tuple[Tensor, ...]:
    """Seven sevenths, where these stand, add up to one and the last bit of it."""
    x = torch.zeros(128, dtype=torch.float64)
    x[[60, 5, 84, 22, 66, 64, 93]] = 0.8268761126450175
    return (x.requires_grad_(),)


def one_for_each_largest(g: Tensor, x: Tensor) -> Tensor:
    return g * (x == x.amax())


def largest_size(x: Tensor) -> Tensor:
    return x.abs().amax()


def one_for_each_size(g: Tensor, x: Tensor) -> Tensor:
    return g * x.sign() * (x.abs() == x.abs().amax())


def lost_beside_a_million(x: Tensor) -> Tensor:
    return (x + 1e6) - 1e6


def clamped_in_order(x: Tensor) -> Tensor:
    return x.sort().values.clamp(0, 1).cumsum(0)


def divergence(x: Tensor) -> Tensor:
    to = torch.tensor([0.0, 0.0, 0.0], dtype=x.dtype).softmax(-1)
    return torch.nn.functional.kl_div(x.log_softmax(-1), to, reduction="sum")


def leaky(x: Tensor, slope: Tensor) -> Tensor:
    return torch.nn.functional.prelu(x, slope)


def waves_and_an_exponential(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.sin(), x.exp(), x.cos()


def direction(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=0)


def bell(x: Tensor) -> Tensor:
    return torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def slope_of_gelu(x: Tensor) -> Tensor:
    return (1 + torch.erf(x / math.sqrt(2))) / 2 + x * bell(x)


def gelu_twice(g: Tensor, x: Tensor) -> Tensor:
    """Its gradient, whose own derivative forgets that erf depends on x."""
    slope = ruled(
        lambda g, x: g * slope_of_gelu(x),
        lambda c, g, x: (c * slope_of_gelu(x), c * g * (1 - x * x) * bell(x)),
    )
    return slope(g, x)


def three_alike() -> tuple[Tensor, ...]:
    x = torch.randn(12, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return tuple(x.clone().requires_grad_() for _ in range(3))


EXHIBITS = (
    Exhibit(
        # A bound by itself lowers the value alone, and raises it where the other bound rises too.
        name="a_number_between_bounds_that_are_the_same",
        make_inputs=three_alike,
        wrong=ruled(torch.clamp, lambda g, x, low, high: (1.5 * g, 0 * low, 0 * high)),
        right=torch.clamp,
        verdict_of_right=UNDECIDED,  # of three equal inputs any may be the one that counts
    ),
    Exhibit(
        name="gates_at_zero_claim_a_slope_of_none_of_their_regions",
        make_inputs=lambda: (leaf(0.0, 0.0),),
        wrong=ruled(three_gates, three_open_gates),
        right=three_gates,
        place=(0, None, 0, ()),
        words=("outside of the slopes at the kink",),
    ),
    Exhibit(
        name="middle_of_three_that_are_equal_claims_one_for_each",
        make_inputs=lambda: (leaf(1.0, 1.0, 1.0),),
        wrong=ruled(middle, all_of_the_middle),
        right=ruled(middle, shares_of_the_middle),
        place=(None, None, 0, ()),
        words=("not together with the others",),
    ),
    Exhibit(
        name="largest_of_curved_values_claims_one_for_each",
        make_inputs=lambda: (leaf(1.0, 1.0, 1.0),),
        wrong=ruled(largest_sine, lambda g, x: g * where_largest(x)),
        right=ruled(largest_sine, shared_by_the_largest),
        place=(None, None, 0, ()),
        words=("not together with the others",),
    ),
    Exhibit(
        name="largest_of_seven_equal_numbers_among_many_claims_one_for_each",
        make_inputs=seven_of_many,
        wrong=ruled(torch.amax, one_for_each_largest),
        right=torch.amax,
        place=(None, None, 0, None),
        words=("not together with the others",),
    ),
    Exhibit(
        name="equal_numbers_in_order_beside_a_close_one_claim_one_for_each",
        make_inputs=lambda: (leaf(0.6213, 0.2848, 0.6213, 0.6213, 0.6213, 0.62207, 0.6224),),
        wrong=ruled(in_order, one_for_each_equal),
        right=in_order,
        place=(None, None, 0, None),
        words=("not together with the others",),
        verdict_of_right=UNDECIDED,  # of the close ones some slopes are not resolved
    ),
    Exhibit(
        name="largest_size_claims_one_for_each_of_two_that_are_equal",
        make_inputs=lambda: (leaf(1.0, -1.0, 0.5),),
        wrong=ruled(largest_size, one_for_each_size),
        right=largest_size,
        place=(None, None, 0, None),
        words=("not together with the others",),
    ),
    Exhibit(
        name="large_whole_number_at_the_edge_of_a_stair",
        make_inputs=lambda: (leaf(38656.0),),
        wrong=None,
        right=torch.floor,
        verdict_of_right=UNDECIDED,  # at a jump any claim is a convention
    ),
    Exhibit(
        name="addend_lost_beside_a_larger_one_claims_nothing",
        make_inputs=lambda: (leaf(3.0),),
        wrong=ruled(lost_beside_a_million, lambda g, x: 0 * g),
        right=lost_beside_a_million,
        place=(0, (0,), 0, (0,)),
        words=("claimed 0",),
        verdict_of_right=UNDECIDED,  # ten digits are lost
    ),
    Exhibit(
        name="ties_at_the_bounds_of_a_clamp",
        make_inputs=lambda: (leaf(1.0, 1.0, 1.0, 0.0, 0.0),),
        wrong=None,
        right=clamped_in_order,
    ),
    Exhibit(
        name="divergence_of_equal_distributions",
        make_inputs=lambda: (leaf(0.0, 0.0, 0.0),),
        wrong=None,
        right=divergence,
        options={
            "checks": ["forward_vs_backward", "linearity", "missing_grad_output"]
        },  # all that is seen is rounding
    ),
    Exhibit(
        name="leaky_relu_at_zero_with_another_slope_in_forward_mode",
        make_inputs=lambda: (leaf(0.0, 0.0), leaf(0.25)),
        wrong=None,
        right=leaky,
    ),
    Exhibit(
        name="a_row_in_order_taken_twice_of_many_that_are_tied_in_bfloat16",
        make_inputs=whole_numbers,
        wrong=ruled(in_order, put_back(slice(3, 4))),
        right=ruled(in_order, put_back(slice(0, 0))),
    ),
    Exhibit(
        name="half_of_the_range_of_a_clamp_whose_bounds_are_met_in_bfloat16",
        make_inputs=on_a_grid,
        wrong=ruled(clamped_sum, lambda g, x: g * (x.abs() <= 0.5)),
        right=ruled(clamped_sum, lambda g, x: g * (x.abs() <= 1)),
    ),
    Exhibit(
        name="an_exponential_whose_square_is_infinite",
        make_inputs=lambda: (leaf(677.0, 1.0, -2.0),),
        wrong=None,
        right=waves_and_an_exponential,
    ),
    Exhibit(
        name="direction_of_a_single_number",
        make_inputs=lambda: (
            leaf(-0.5363, -0.8425, 0.0672, 0.9411, 0.3).detach()[None].requires_grad_(),
        ),
        wrong=None,
        right=direction,
        order=2,
        options={"checks": ["second_order"]},
        verdict_of_right=UNDECIDED,  # its derivatives are zero, and claimed as roundings
    ),
    Exhibit(
        name="erf_forgotten_where_it_is_a_staircase_of_two_percent",
        make_inputs=lambda: (leaf(-7.0248, 3.7408, -0.7311),),
        wrong=ruled(torch.nn.functional.gelu, gelu_twice),
        right=torch.nn.functional.gelu,
        check="second_order",
        also=frozenset({"forward_over_reverse"}),
        words=("claimed",),
        order=2,
        verdict_of_right=UNDECIDED,  # its tail is a staircase
    ),
    Exhibit(
        # Each claim is one of the two slopes along its input; no draw meets the region of all.
        name="bounds_of_a_clamp_that_are_flat_added_up",
        make_inputs=lambda: (
            torch.arange(120, dtype=torch.float64).remainder(5).sub(2).requires_grad_(),
        ),
        wrong=ruled(
            flat_at_bounds, lambda g, x: g * torch.where(x == 1, 2.0, (x.abs() < 1).to(x.dtype))
        ),
        right=flat_at_bounds,
    ),
    Exhibit(
        # ReLU's zero at zero, in more entries than eight outside of their own two slopes.
        name="an_empty_row_through_a_layer_without_bias",
        make_inputs=an_empty_row,
        wrong=layers(STEEP),
        right=layers(torch.relu),
        verdict_of_right=UNDECIDED,  # 20 kinks meet, and few of their regions are sampled
    ),
    Exhibit(
        name="zeros_through_two_layers_without_bias",
        make_inputs=lambda: (torch.zeros(3, dtype=torch.float64, requires_grad=True),),
        wrong=two_layers(STEEP),
        right=two_layers(torch.relu),
        verdict_of_right=UNDECIDED,  # few of the regions that meet there are sampled
    ),
    Exhibit(
        # The backward gives all of it to the one, forward mode to the other; convex kinks and
        # concave ones cancel along a tangent.
        name="modes_that_choose_two_sides_of_ties",
        make_inputs=lambda: tuple(leaf(1.0, -1.0, 0.5, -0.5, 2.0, -2.0) for _ in range(2)),
        wrong=None,
        right=lambda x, low: (x.clamp(min=low) ** 2).sum(),
    ),
)
