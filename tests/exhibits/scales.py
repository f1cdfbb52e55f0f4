"""Wrong derivatives that hide behind larger ones, and right ones at scales that others accuse."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.autograd.functional import vjp

from exhibits.frame import Exhibit, constant, leaf, normal, ruled, spoilt

UNDECIDED = frozenset({"passed", "inconclusive"})


def spread() -> tuple[Tensor]:
    """Exponents whose exponentials span sixty powers of ten."""
    return (leaf(-90.0, 0.5, 3.0, 50.0),)


def without(place: int, gradient: Tensor) -> Tensor:
    """The gradient with one entry zero."""
    return torch.where(torch.arange(len(gradient)) == place, 0.0, gradient)


def exponential(x: Tensor) -> Tensor:
    return x.exp()


HUGE = 1.7e308  # the largest double is 1.8e308


def as_large_as_can_be(x: Tensor) -> Tensor:
    return HUGE * x.sin()


def power(base: Tensor, exponent: Tensor) -> Tensor:
    return base**exponent


def powers_of_many_sizes() -> tuple[Tensor, ...]:
    """Bases and exponents of eight powers of ten, each."""
    generator = torch.Generator().manual_seed(7)
    draws = (torch.rand(24, dtype=torch.float64, generator=generator) for _ in range(2))
    return tuple((10.0 ** (8 * draw - 6)).requires_grad_() for draw in draws)


def nearly_constant() -> tuple[Tensor]:
    return ((1e-6 * normal(4, 6).detach()).float().requires_grad_(),)


def softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


def far_apart() -> tuple[Tensor]:
    """Logits of which the largest leaves 1 - 5e-43, and between 1e-162 and 1e-42 to the others."""
    return (leaf(154.25, -29.5, -217.75, 56.75),)


def smallest_a_tenth_off(g: Tensor, x: Tensor) -> Tensor:
    """1.1 times the derivative of the smallest output with respect to its own logit."""
    y = x.softmax(-1)
    smallest = (torch.arange(len(x)) == y.argmin()).to(x.dtype)
    return y * (g - (g * y).sum(-1, keepdim=True)) + 0.1 * smallest * g * y * (1 - y)


def nearly_saturated() -> tuple[Tensor]:
    """Probabilities as near to their targets, 0 or 1, as 1e-4."""
    near = 1e-4 * (1 + normal(24).detach().abs())
    return (torch.where(torch.arange(24) % 2 == 0, near, 1 - near).requires_grad_(),)


def binary_cross_entropy(p: Tensor) -> Tensor:
    target = (torch.arange(p.numel()) % 2).to(p)
    return 1e-8 * torch.nn.functional.binary_cross_entropy(p, target, reduction="none")


def powers_of_all_sizes() -> tuple[Tensor, Tensor]:
    """Rows whose best steps differ as much as their sizes, from 1e-3 to 1e40."""
    return leaf(30.0, 1e-3, 0.02, 7.0), leaf(27.0, 1.1, 1e-3, 40.0)


def large_at_its_edge(x: Tensor) -> Tensor:
    """Defined from 1 on, and so large that rounding moves it by more than its finest steps do."""
    return torch.where(x < 1, torch.nan, 1e11 + 3.3 * x)


WIDE = 520  # columns: more than are measured one by one


def mixed(x: Tensor) -> Tensor:
    """Every output depends on every input, on each a little differently."""
    phase = torch.linspace(0.0, 7.0, 12, dtype=torch.float64)[:, None]
    return (x * torch.cos(phase + torch.arange(WIDE))).sum(-1)


def penalised(x: Tensor) -> Tensor:
    """A penalty of 1e8 on one input, beside which the others hardly count."""
    return 1e8 * x[0] ** 2 + x[1:].sin().sum()


def in_two_units(a: Tensor, b: Tensor) -> Tensor:
    return a * b + b.sin()


HEAVY = 3  # column that is 1e8 times as large as the others


def weighed(x: Tensor) -> Tensor:
    columns = torch.arange(WIDE, dtype=torch.float64)
    waves = torch.cos(0.7 * columns + torch.arange(5.0, dtype=torch.float64)[:, None])
    return (waves * torch.where(columns == HEAVY, 1e8, 1.0)) @ x


def doubled(x: Tensor) -> Tensor:
    return (2 * x).sum()


def scaled(place: int, factor: float, gradient: Tensor) -> Tensor:
    """The gradient with one entry too large."""
    return torch.where(torch.arange(len(gradient)) == place, factor, 1.0) * gradient


def pressure(x: Tensor) -> Tensor:
    """Of a gas: amount, temperature, volume."""
    return 1e-9 * x[0] * x[1] / x[2]


def reaction(x: Tensor) -> Tensor:
    """Michaelis and Menten: the largest rate, a background, the constant, the concentration."""
    return x[0] * x[3] / (x[2] + x[3]) + x[1]


def force_and_energy(x: Tensor) -> Tensor:
    return torch.stack([x[0] * x[1], 1e-20 * x[0] * x[1] ** 2])


def row_of_energy(factor: float, g: Tensor, x: Tensor) -> Tensor:
    """The gradient with the second row of the Jacobian times a factor."""
    return vjp(force_and_energy, x, g * constant(1.0, factor))[1]


def loss_of_ones(x: Tensor) -> Tensor:
    return torch.nn.functional.softplus(-x)


def loss_slope(x: Tensor) -> Tensor:
    return -torch.sigmoid(-x)


def rosenbrock(x: Tensor) -> Tensor:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def spread_out(x: Tensor) -> Tensor:
    return x.var(-1)


def shifted(y: Tensor, x: Tensor) -> Tensor:
    """y, whose gradient in x has a millionth more in every entry."""
    shift = ruled(lambda y, _: y.clone(), lambda g, _, x: (g, 1e-6 * g.sum() + 0 * x))
    return shift(y, x)


def at_a_minimum(
    name: str,
    function,
    value: float,
    *shape: int,
    verdict_of_right: frozenset[str] = frozenset({"passed"}),
) -> Exhibit:
    """All derivatives are zero there, and F does not stand still."""
    return Exhibit(
        name=f"a_millionth_at_the_stationary_point_of_{name}",
        make_inputs=lambda: (torch.full(shape, value, dtype=torch.float64, requires_grad=True),),
        wrong=lambda x: shifted(function(x), x),
        right=function,
        verdict_of_right=verdict_of_right,
    )


EXHIBITS = (
    Exhibit(
        name="sine_of_large_numbers_with_half_a_slope",  # points nearby have slopes of either sign
        make_inputs=lambda: (leaf(1906294.08, -992135.99, 606144.57),),
        wrong=ruled(torch.sin, lambda g, x: g * x.cos() * torch.tensor([1.0, 0.5, 1.0])),
        right=torch.sin,
        place=(0, (1,), 0, (1,)),
        words=("claimed",),
    ),
    Exhibit(
        name="slope_of_a_large_number_at_the_edge_of_its_domain",
        make_inputs=lambda: (leaf(1.0),),
        wrong=ruled(large_at_its_edge, lambda g, x: 3.9 * g),
        right=large_at_its_edge,
        place=(0, (0,), 0, (0,)),
    ),
    Exhibit(
        name="input_off_by_a_fifth_beside_a_penalty_of_1e8",
        make_inputs=lambda: (leaf(0.7, 0.3, 0.4),),
        wrong=spoilt(penalised, partial(scaled, 1, 1.2)),
        right=penalised,
        place=(0, (1,), 0, ()),
        words=("x[1]",),
    ),
    Exhibit(
        name="input_off_by_a_hundredth_beside_one_in_another_unit_in_a_kernel",
        make_inputs=lambda: (leaf(-2e-10, 2.8e-8, 2.8e-8, 2.1e-7), leaf(-1.2e5, 6e3, 1.2e5, 1.5e5)),
        wrong=spoilt(in_two_units, lambda a, b: (1.01 * a.detach(), b.detach())),
        right=spoilt(in_two_units, lambda a, b: (a.detach(), b.detach())),
        place=(0, (0,), 0, (0,)),
    ),
    Exhibit(
        name="column_off_by_a_tenth_beside_one_of_1e8",
        make_inputs=lambda: (normal(WIDE),),
        wrong=spoilt(weighed, partial(scaled, 10, 1.1)),
        right=weighed,
        place=(0, (10,), 0, None),
        words=("x[10]",),
    ),
    Exhibit(
        name="input_off_by_a_fifth_in_a_vector_of_mixed_units",
        make_inputs=lambda: (leaf(3e-9, 5e7, 1.0),),
        wrong=spoilt(doubled, partial(scaled, 2, 1.2)),
        right=doubled,
        place=(0, (2,), 0, ()),
        words=("x[2]",),
    ),
    Exhibit(
        name="guarded_logarithm_of_a_tiny_number",
        make_inputs=lambda: (leaf(1e-13, 1.0, 2.0),),
        wrong=ruled(torch.log, lambda g, input: g / (input + 1e-11)),
        right=torch.log,
        place=(0, (0,), 0, (0,)),
        words=("[0]",),
    ),
    Exhibit(
        name="small_row_dropped_beside_large_ones",
        make_inputs=spread,
        wrong=spoilt(exponential, partial(without, 1)),
        right=exponential,
        place=(0, (1,), 0, (1,)),
        words=("x[1]", "claimed 0"),
    ),
    Exhibit(
        name="small_row_wrong_among_rows_that_want_other_steps",
        make_inputs=powers_of_all_sizes,
        wrong=spoilt(power, lambda base, exponent: (base, without(1, exponent))),
        right=spoilt(power, lambda base, exponent: (base, exponent)),
        place=(1, (1,), 0, (1,)),
        words=("exponent[1]", "claimed 0"),
    ),
    Exhibit(
        # One step for the sum of all outputs suits none: each by its own shows the row.
        name="a_row_of_powers_of_many_sizes_dropped",
        make_inputs=powers_of_many_sizes,
        wrong=spoilt(power, lambda base, exponent: (without(12, base), without(12, exponent))),
        right=spoilt(power, lambda base, exponent: (base, exponent)),
    ),
    Exhibit(
        # A constant tangent cancels, and what is left is rounding of its size.
        name="a_softmax_of_nearly_equal_numbers",
        make_inputs=nearly_constant,
        wrong=ruled(softmax, lambda g, x: g * x.softmax(-1)),
        right=softmax,
        verdict_of_right=UNDECIDED,  # by forward mode, along some tangents
    ),
    Exhibit(
        # The largest output is 1 to the last bit, the derivatives of the others are 1e-42 and less.
        name="the_smallest_output_of_a_saturated_softmax",
        make_inputs=far_apart,
        wrong=ruled(softmax, smallest_a_tenth_off),
        right=softmax,
        place=(0, (2,), 0, (2,)),
        verdict_of_right=UNDECIDED,  # the largest stands still
    ),
    Exhibit(
        # Rounded at random, a probability of almost 1 is beyond it, which the function refuses.
        name="a_saturated_loss_that_refuses_what_is_no_probability",
        make_inputs=nearly_saturated,
        wrong=ruled(binary_cross_entropy, lambda g, p: 1e-8 * g / p),
        right=binary_cross_entropy,
    ),
    Exhibit(
        name="one_row_of_many_columns_claimed_zero_by_a_kernel",
        make_inputs=lambda: (normal(WIDE),),
        wrong=ruled(mixed, lambda g, x: vjp(mixed, x, without(7, g))[1], vmap=False),
        right=spoilt(mixed, torch.Tensor.detach),
        place=(0, None, 0, (7,)),
        words=("claimed 0",),
    ),
    # What a claim is rounded by.
    Exhibit(
        name="saturated_loss_times_a_fifth_more",
        make_inputs=lambda: (leaf(30.0, 1.0, -2.0),),
        wrong=ruled(loss_of_ones, lambda g, x: g * loss_slope(x) * torch.where(x > 20, 1.2, 1.0)),
        right=lambda x: torch.nn.functional.binary_cross_entropy_with_logits(
            x, torch.ones_like(x), reduction="none"
        ),
        place=(0, (0,), 0, (0,)),
        words=("x[0]",),
    ),
    Exhibit(
        name="zeros_of_a_row_with_a_millionth_of_its_largest",
        make_inputs=lambda: (leaf(0.4, -0.5, 0.6, 0.45),),
        wrong=ruled(torch.sin, lambda g, x: g * x.cos() + 1e-6 * (g.sum() - g)),
        # As an iterative solver leaves it, of entries that are structurally zero.
        right=ruled(torch.sin, lambda g, x: g * x.cos() + 4e-9 * (g.sum() - g)),
        words=("measured 0",),
    ),
    Exhibit(
        name="a_tenth_less_near_the_largest_number",
        make_inputs=lambda: (leaf(0.3, -0.5, 0.1),),
        wrong=ruled(as_large_as_can_be, lambda g, x: 0.9 * g * (HUGE * x.cos())),
        right=ruled(as_large_as_can_be, lambda g, x: g * (HUGE * x.cos())),
    ),
    # Numbers of several units in one vector.
    Exhibit(
        name="pressure_of_a_gas_without_its_volume",
        make_inputs=lambda: (leaf(2.0, 300.0, 1e-9),),
        wrong=ruled(pressure, lambda g, x: without(2, vjp(pressure, x, g)[1])),
        right=pressure,
        place=(0, (2,), 0, ()),
    ),
    Exhibit(
        name="saturation_of_a_reaction_a_tenth_off_in_its_constant",
        make_inputs=lambda: (leaf(1e3, 300.0, 1e-9, 2e-9),),
        wrong=ruled(reaction, lambda g, x: scaled(2, 1.1, vjp(reaction, x, g)[1])),
        right=reaction,
        place=(0, (2,), 0, ()),
    ),
    # Outputs of several units.
    *(
        Exhibit(
            name=f"a_row_of_the_smallest_unit_{what}",
            make_inputs=lambda: (leaf(1.3, 0.7),),
            wrong=ruled(force_and_energy, partial(row_of_energy, factor)),
            right=force_and_energy,
            place=(0, None, 0, (1,)),
        )
        for what, factor in (("a_hundredth_too_large", 1.01), ("left_out", 0.0))
    ),
    # Accused while their scales were made.
    Exhibit(
        name="sums_of_a_few_gradients_overflow",
        wrong=None,
        right=lambda x: 1e307 * x.sin(),
        make_inputs=lambda: (leaf(0.3, -0.5, 0.1),),
    ),
    Exhibit(
        name="fourier_transform_of_all_sizes",
        wrong=None,
        right=lambda x: torch.fft.irfft(torch.fft.rfft(x), 8),
        verdict_of_right=UNDECIDED,  # small outputs drown in the rounding of large ones
        make_inputs=lambda: (
            (normal(8).detach() * 10.0 ** torch.arange(-6, 2, dtype=torch.float64))
            .detach()
            .requires_grad_(),
        ),
    ),
    at_a_minimum("rosenbrock", rosenbrock, 1.0, 5),
    at_a_minimum("variance", spread_out, 1.0, 4, 5, verdict_of_right=UNDECIDED),
    at_a_minimum("tanhshrink", torch.nn.functional.tanhshrink, 0.0, 4, 5),
)
