"""Kernels in few bits: mistakes that only show there, and right ones that others accuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from exhibits.frame import Exhibit, leaf, normal, ruled, spoilt

SINGLE, HALF, BRAIN = torch.float32, torch.float16, torch.bfloat16
LOW = (SINGLE, HALF, BRAIN)
UNDECIDED = frozenset({"passed", "inconclusive"})


def low(*shape: int, dtype: torch.dtype, seed: int = 1) -> Callable[[], tuple[Tensor, ...]]:
    """One input of a lower precision."""
    return lambda: (normal(*shape, seed=seed).detach().to(dtype).requires_grad_(),)


def in_few_bits(value: Callable[..., Tensor], change: Callable[..., Any]) -> Callable[..., Tensor]:
    """The function; below double precision its gradients are changed."""
    return spoilt(value, change, dtypes=LOW)


def in_16_bits_only(
    value: Callable[..., Tensor], gradient: Callable[..., Any]
) -> Callable[..., Tensor]:
    """A kernel that was built for 16 bits, with a backward of its own."""

    def kernel(*inputs: Tensor) -> Tensor:
        if inputs[0].dtype not in (HALF, BRAIN):
            raise TypeError(f"no kernel for {inputs[0].dtype}")
        return value(*inputs)

    return ruled(kernel, gradient)


def mixed(x: Tensor) -> Tensor:
    """Six inputs in twenty outputs."""
    return (x.float().sin() @ MIX).to(x.dtype)


MIX = torch.linspace(-1, 2, 120).cos().reshape(6, 20)


def mixed_slopes(factor: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Gradients of `mixed`, with a factor on one of the 120 entries; detached, as of a kernel."""
    mix = MIX.clone()
    mix[2, 3] *= factor
    return lambda g, x: ((g.detach().float() @ mix.T) * x.detach().float().cos()).to(x.dtype)


def cross_entropy(x: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(x, torch.arange(len(x)))


def sampled(x: Tensor, grid: Tensor) -> Tensor:
    return torch.nn.functional.grid_sample(x, grid, align_corners=False)


def pixels(dtype: torch.dtype, seed: int) -> Callable[[], tuple[Tensor, ...]]:
    """An image, and nine points between its pixels."""

    def make() -> tuple[Tensor, ...]:
        drawn = torch.Generator().manual_seed(seed)
        x = torch.randn(1, 2, 5, 5, generator=drawn, dtype=torch.float64)
        grid = 1.8 * torch.rand(1, 3, 3, 2, generator=drawn, dtype=torch.float64) - 0.9
        return x.to(dtype).requires_grad_(), grid.to(dtype).requires_grad_()

    return make


def tail_dropped(gradient: Tensor) -> Tensor:
    """As by a kernel that loops over whole blocks of four only."""
    size = gradient.numel() // 4 * 4
    flat = gradient.flatten()
    return torch.cat([flat[:size], torch.zeros_like(flat[size:])]).view_as(gradient)


def row_off_unless_contiguous(g: Tensor, x: Tensor) -> Tensor:
    """Strides that are taken for those of rows without gaps spoil the last one, by a fifth."""
    right = g * x.cos()
    return right if g.is_contiguous() else torch.cat([right[:-1], 0.8 * right[-1:]])


def off_for_a_single_entry(g: Tensor, x: Tensor) -> Tensor:
    return g * x.cos() * (1.1 if (g != 0).sum() == 1 else 1.0)


def by_float32(backward: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The backward of a kernel that computes in float32, whatever its arrays are."""
    return lambda g, x: backward(g.float(), x.float()).to(x.dtype)


def of_two_dtypes(factor: float) -> Callable[[Tensor, Tensor], Tensor]:
    """A kernel that knows float32, where it is off by the factor, and takes others for bfloat16."""

    def backward(g: Tensor, x: Tensor) -> Tensor:
        right = g * x.cos()
        return factor * right if x.dtype is SINGLE else right.to(BRAIN).to(x.dtype)

    return backward


def normed(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def saved_in_float32(factor: float) -> Callable[[Tensor, Tensor], Tensor]:
    """The backward of a norm that saves one over the deviations in float32, whatever its arrays."""

    def backward(g: Tensor, x: Tensor) -> Tensor:
        saved = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6).float().to(x.dtype)
        return factor * (g * saved - x * saved**3 * (g * x).mean(-1, keepdim=True))

    return backward


def row_negated(gradient: Tensor) -> Tensor:
    return torch.cat([gradient[:-1], -gradient[-1:]])


def last_rows_negated(*gradients: Tensor) -> tuple[Tensor, ...]:
    return tuple(map(row_negated, gradients))


def to_the_nearest(a: Tensor, b: Tensor) -> Tensor:
    """The Chamfer distance."""
    distance = torch.cdist(a, b)
    return distance.amin(1).mean() + distance.amin(0).mean()


def absolute_residual(x: Tensor, weight: Tensor) -> Tensor:
    return (x @ weight - x).abs().mean()


def jumping(x: Tensor) -> Tensor:
    """In bfloat16 it jumps a rounding below the root of 2, where exactly it does not yet."""
    return torch.where(x * x >= 2, 3 * x, x).exp()


def under_autocast(bend: Callable[[Tensor], Tensor]):
    """A loss in float32 of a layer in bfloat16."""

    def loss(x: Tensor, weight: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            classes = bend(x @ weight)
            return torch.nn.functional.cross_entropy(classes, torch.arange(24) % 8)

    return loss


def brains(*shapes: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    """Inputs in bfloat16."""
    return lambda: tuple(
        low(*shape, dtype=BRAIN, seed=seed)()[0] for seed, shape in enumerate(shapes, 2)
    )


def gelu_by_tanh(x: Tensor) -> Tensor:
    return torch.nn.functional.gelu(x, approximate="tanh")


def slope_of_the_other_gelu(g: Tensor, x: Tensor) -> Tensor:
    return torch.ops.aten.gelu_backward(g, x)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def fused_rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return rms_norm(x.float(), weight.float()).to(x.dtype)


def rms_norm_gradients(power: int) -> Callable[..., tuple[Tensor, ...]]:
    """In float32 inside, as the forward; right with the third power of the reciprocal root."""

    def backward(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        wide, scaled = x.float(), g.float() * weight.float()
        root = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        along = (scaled * wide).mean(-1, keepdim=True)
        of_x = root * scaled - root**power * wide * along
        return of_x.to(x.dtype), (g.float() * wide * root).sum(0).to(weight.dtype)

    return backward


def rows_and_weight() -> tuple[Tensor, ...]:
    rows, weight = normal(4, 16).detach(), 1 + 0.1 * normal(16, seed=2).detach()
    return tuple(each.to(BRAIN).requires_grad_() for each in (rows, weight))


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT, -1) @ v


def saturated() -> tuple[Tensor, ...]:
    """Scores 36 apart: the gradients of q and k are 1e-14, what is left where terms of 1 cancel."""
    apart = 6 * torch.eye(6, dtype=torch.float64)
    inputs = (apart + 0.1 * normal(6, 6).detach(), apart, normal(6, 6, seed=3).detach())
    return tuple(each.to(BRAIN).requires_grad_() for each in inputs)


def normalised(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.nn.functional.batch_norm(x @ weight + bias, None, None, training=True)


def rows_weight_and_bias() -> tuple[Tensor, ...]:
    return tuple(normal(*shape, dtype=SINGLE) for shape in ((64, 8), (8, 16), (16,)))


def larger_image(x: Tensor) -> Tensor:
    return torch.nn.functional.interpolate(x, scale_factor=1.7, mode="bicubic")


SHARE = torch.tensor(0.3, dtype=torch.float64)  # 0.3008 in bfloat16


def share_of(x: Tensor) -> Tensor:
    return x * SHARE.to(x.dtype)


def reconstruction(mean: Tensor, deviation: Tensor) -> Tensor:
    """The loss of a variational autoencoder; its noise is another in another dtype."""
    fixed = torch.Generator().manual_seed(0)
    noise = torch.randn(mean.shape, dtype=mean.dtype, generator=fixed)
    return (mean + deviation.exp() * noise).tanh().square().mean()


def sines_of_three_sizes(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return a.sin() + 1e-3 * b.sin() + 1e-6 * c.sin()


def cosines_of_three_sizes(factor: float) -> Callable[..., tuple[Tensor, ...]]:
    """The gradients, with a factor on the smallest."""

    def backward(g: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        return g * a.cos(), 1e-3 * g * b.cos(), factor * 1e-6 * g * c.cos()

    return backward


def classes_and_sum(x: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities, and their sum, which is 1: its tangent is rounding alone."""
    classes = x.softmax(-1)
    return classes, classes.sum(-1)


def pushed_classes(factor: float) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Forward mode of the two."""

    def jvp(tangent: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        classes = x.softmax(-1)
        pushed = classes * (tangent - (tangent * classes).sum(-1, keepdim=True))
        return factor * pushed, pushed.sum(-1)

    return jvp


def gradient_of_classes(g: Tensor, of_sum: Tensor, x: Tensor) -> Tensor:
    """Not differentiable itself, as of a kernel."""
    classes, g = x.softmax(-1).detach(), (g + of_sum.unsqueeze(-1)).detach()
    return classes * (g - (g * classes).sum(-1, keepdim=True))


def square(z: Tensor) -> Tensor:
    return z * z


def saved_in_eight_bits(g: Tensor, x: Tensor) -> Tensor:
    saved = x.to(torch.float8_e4m3fn).to(x.dtype) if x.dtype in LOW else x
    return g * (1 - saved.tanh() ** 2)


def no_entries(x: Tensor) -> Tensor:
    return x[:0] * 1


def noise_of_larger_numbers(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Entries that are zero beside others of 1e4, under the rounding noise of the large ones."""
    return ((z.sum() + x) - z.sum()).real.sin(), z * z


def sine_in_bfloat16(x: Tensor) -> Tensor:
    return x.bfloat16().sin().to(x.dtype)


def padded() -> tuple[Tensor, Tensor]:
    """Small rows, of which the last is zero; and a weight of each column."""
    rows = normal(5, 8).detach() / 100
    rows[-1] = 0
    return rows.to(BRAIN).requires_grad_(), normal(8, seed=2, dtype=BRAIN)


def rms_of_ninths(x: Tensor) -> Tensor:
    """The norm, with nine tenths of its gradient."""
    nine = ruled(lambda x: x.clone(), lambda g, _: 0.9 * g, lambda t, _: 0.9 * t)
    return torch.nn.functional.rms_norm(nine(x), x.shape[-1:])


def norm_by_finfo(x: Tensor) -> Tensor:
    """In double precision another function: beside inputs of 0.01 its epsilon counts."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + torch.finfo(x.dtype).eps)


def cubic(x: Tensor, at: Tensor) -> Tensor:
    """Interpolates between seven numbers; its weights are what is left of terms up to 15."""
    u = (at.tanh() + 1) * 1.99 + 1
    place = u.detach().floor().long()
    f = u - place
    weights = [
        (cube * t**3 + square * t**2 + linear * t + constant)
        for t, (cube, square, linear, constant) in (
            (f + 1, (-0.75, 3.75, -6, 3)),
            (f, (1.25, -2.25, 0, 1)),
            (1 - f, (1.25, -2.25, 0, 1)),
            (2 - f, (-0.75, 3.75, -6, 3)),
        )
    ]
    return sum(w * x[(place - 1 + k).clamp(0, len(x) - 1)] for k, w in enumerate(weights))


EXHIBITS = (
    Exhibit(
        name="two_per_cent_beside_a_saturated_softmax_in_bfloat16",
        make_inputs=saturated,
        wrong=in_few_bits(attention, lambda q, k, v: (q, k, 1.02 * v)),
        right=attention,
        words=("slope off by 0.0", "gradient of v"),
    ),
    Exhibit(
        name="square_for_a_cube_in_a_fused_norm_of_bfloat16_beside_a_reference",
        make_inputs=rows_and_weight,
        wrong=ruled(fused_rms_norm, rms_norm_gradients(2)),
        right=ruled(fused_rms_norm, rms_norm_gradients(3)),
        place=(0, None, None, None),
        words=("claimed",),
        options={"reference": rms_norm},
    ),
    Exhibit(
        # Its double backward is right, and agreed with the backward up to rounding in 16 bits.
        name="gather_in_16_bits_that_writes_repeated_rows_once",
        make_inputs=lambda: (leaf(1.0, 1.25, 1.5, 1.75, dtype=HALF), torch.tensor([0, 3, 3, 2])),
        wrong=in_16_bits_only(
            lambda x, rows: 1.5 * x[rows],
            lambda g, x, rows: torch.zeros_like(x).index_put((rows,), 1.5 * g),
        ),
        right=in_16_bits_only(
            lambda x, rows: 1.5 * x[rows],
            lambda g, x, rows: torch.zeros_like(x).index_add(0, rows, 1.5 * g),
        ),
        place=(0, (3,), 0, None),
        verdict_of_right=UNDECIDED,
    ),
    Exhibit(
        name="one_entry_of_120_dropped_in_16_bits_without_a_double_backward",
        make_inputs=low(6, dtype=HALF),
        wrong=in_16_bits_only(mixed, mixed_slopes(0.0)),
        right=in_16_bits_only(mixed, mixed_slopes(1.0)),
        place=(0, (2,), 0, (3,)),
        verdict_of_right=UNDECIDED,
    ),
    Exhibit(
        # The rounding of the few large entries hides each of the small ones.
        name="small_entries_dropped_from_a_cross_entropy_in_bfloat16",
        make_inputs=lambda: ((3 * normal(6, 64)).detach().to(BRAIN).requires_grad_(),),
        wrong=in_few_bits(cross_entropy, lambda gradient: gradient * (gradient.abs() > 1.5e-3)),
        right=cross_entropy,
        words=("95th percentile off by",),
    ),
    Exhibit(
        name="two_per_cent_in_bfloat16_only",
        make_inputs=low(16, 16, dtype=BRAIN),
        wrong=in_few_bits(torch.tanh, lambda gradient: 1.02 * gradient),
        right=torch.tanh,
        words=("slope off by 0.0", "rounding explains"),
    ),
    Exhibit(
        # Far below zero the kernel's 1 - tanh^2 cancels: 0 for 1e-6 is no mistake in float32.
        name="slope_of_the_other_gelu_in_float32",
        make_inputs=lambda: (torch.linspace(-6.1, 3.2, 300).requires_grad_(),),
        wrong=ruled(gelu_by_tanh, slope_of_the_other_gelu),
        right=gelu_by_tanh,
        words=("x[",),
        verdict_of_right=UNDECIDED,  # far below zero a few entries are not resolved
    ),
    Exhibit(
        # The constant is off by 0.26 per cent: a common factor of all entries, and no mistake.
        name="three_per_cent_beside_a_constant_that_bfloat16_rounds",
        make_inputs=low(64, 32, dtype=BRAIN),
        wrong=in_few_bits(share_of, lambda gradient: 1.03 * gradient),
        right=share_of,
        words=("slope off by 0.0",),
    ),
    Exhibit(
        name="one_per_cent_beside_noise_that_is_drawn_in_float32",
        make_inputs=lambda: tuple(normal(16, 8, seed=k, dtype=SINGLE) for k in (1, 2)),
        wrong=in_few_bits(reconstruction, lambda mean, deviation: (1.01 * mean, deviation)),
        right=reconstruction,
        words=("slope off by 0.01",),
    ),
    Exhibit(
        name="tail_of_the_last_block_dropped_in_bfloat16",
        make_inputs=low(31, dtype=BRAIN),
        wrong=in_few_bits(torch.tanh, tail_dropped),
        right=torch.tanh,
        words=("off by", "claimed 0"),
    ),
    Exhibit(
        name="constant_added_in_bfloat16",
        make_inputs=low(16, 16, dtype=BRAIN),
        wrong=in_few_bits(torch.tanh, lambda gradient: gradient + 0.05),
        right=torch.tanh,
        also=frozenset({"linearity", "missing_grad_output"}),
        words=("mean off by",),
    ),
    Exhibit(
        name="sign_of_one_row_in_bfloat16",
        make_inputs=low(8, 6, dtype=BRAIN),
        wrong=in_few_bits(torch.tanh, row_negated),
        right=torch.tanh,
        words=("row slope off by 2", "[7, "),
    ),
    Exhibit(
        name="input_saved_in_eight_bits",
        make_inputs=low(32, 16, dtype=HALF),
        wrong=ruled(torch.tanh, saved_in_eight_bits),
        right=torch.tanh,
        words=("worst entry",),
    ),
    Exhibit(
        name="hundredth_of_the_sum_for_a_bias_that_is_normalised_away_in_float32",
        make_inputs=rows_weight_and_bias,
        # The bias is taken out again: its gradient is 0.
        wrong=in_few_bits(normalised, lambda x, w, bias: (x, w, bias + 0.01 * w.sum(0))),
        right=normalised,
        words=("gradient of bias",),
    ),
    Exhibit(
        name="part_in_a_thousand_of_an_interpolation_that_rounds_its_coordinates_in_float32",
        make_inputs=lambda: (normal(2, 3, 16, 16, dtype=SINGLE),),
        wrong=in_few_bits(larger_image, lambda gradient: 1.001 * gradient),
        right=larger_image,
        words=("slope off by 0.001",),
    ),
    Exhibit(
        name="square_not_conjugated_in_complex64",
        make_inputs=lambda: (
            torch.view_as_complex(normal(6, 2, dtype=SINGLE).detach()).requires_grad_(),
        ),
        wrong=ruled(square, lambda g, z: g * 2 * z),
        right=ruled(square, lambda g, z: g * 2 * z.conj()),
        words=("claimed",),
    ),
    Exhibit(
        name="zero_gradient_of_few_bits_inside",
        make_inputs=lambda: (normal(3),),
        wrong=ruled(sine_in_bfloat16, lambda g, x: torch.zeros_like(x)),
        right=ruled(sine_in_bfloat16, lambda g, x: g * x.cos()),
        words=("claimed 0",),
        verdict_of_right=UNDECIDED,
    ),
    Exhibit(
        name="gradient_of_no_entries_is_not_a_number",
        make_inputs=lambda: (leaf(1.0, 2.0),),
        wrong=ruled(no_entries, lambda g, x: torch.full_like(x, math.nan)),
        right=no_entries,
        words=("outputs without entries", "got nan"),
        also=frozenset({"missing_grad_output"}),
    ),
    # What rounding chooses: which point is nearer, which number is the largest, or above zero.
    Exhibit(
        name="row_negated_where_rounding_has_the_choice_of_the_nearest_point",
        make_inputs=brains((64, 3), (64, 3)),
        wrong=in_few_bits(to_the_nearest, last_rows_negated),
        right=to_the_nearest,
        words=("in float64",),
    ),
    Exhibit(
        name="row_negated_where_rounding_has_the_choice_of_a_sign",
        make_inputs=brains((32, 16), (16, 16)),
        wrong=in_few_bits(absolute_residual, last_rows_negated),
        right=absolute_residual,
        words=("in float64",),
        verdict_of_right=UNDECIDED,  # of one output, along a tangent of 768 inputs
    ),
    Exhibit(
        name="entry_negated_beside_a_branch_that_rounding_takes_otherwise",
        make_inputs=lambda: (torch.linspace(1.3, 1.5, 26).to(BRAIN).requires_grad_(),),
        wrong=in_few_bits(jumping, last_rows_negated),
        right=jumping,
        words=("in float64",),
        verdict_of_right=UNDECIDED,  # of forward mode
    ),
    Exhibit(
        name="row_negated_by_a_layer_in_autocast_whose_loss_is_in_float32",
        make_inputs=lambda: (normal(24, 16, dtype=SINGLE), normal(16, 8, dtype=SINGLE, seed=2)),
        wrong=under_autocast(in_few_bits(torch.tanh, last_rows_negated)),
        right=under_autocast(torch.tanh),
        also=frozenset({"forward", "forward_vs_backward", "second_point"}),
        words=("in float64",),
        verdict_of_right=UNDECIDED,  # differences of bfloat16 inside, forward mode
    ),
    Exhibit(
        name="weights_of_a_cubic_interpolation_that_cancel_in_bfloat16",
        wrong=in_few_bits(cubic, lambda x, at: (-x, at)),
        right=spoilt(cubic, lambda x, at: (x, at)),
        make_inputs=lambda: (*low(7, dtype=BRAIN, seed=101)(), *low(5, dtype=BRAIN)()),
        words=("in float64",),
    ),
    Exhibit(
        name="tenth_more_of_a_norm_whose_epsilon_goes_by_the_dtype",
        wrong=in_few_bits(norm_by_finfo, lambda gradient: 1.1 * gradient),
        right=norm_by_finfo,
        make_inputs=lambda: ((0.01 * normal(4, 6).detach()).float().requires_grad_(),),
    ),
    Exhibit(
        # In float64 its rule is another one, and wrong: that says nothing of the one in float32.
        name="tenth_more_by_a_kernel_that_knows_two_dtypes",
        wrong=ruled(torch.sin, of_two_dtypes(1.1), vmap=False),
        right=ruled(torch.sin, of_two_dtypes(1.0), vmap=False),
        make_inputs=low(5, 7, dtype=SINGLE),
        also=frozenset({"second_point"}),
    ),
    Exhibit(
        # In float64 it rounds as float32 does, which is no mistake of a kernel of 16 bits.
        name="tenth_more_of_a_single_entry_by_a_kernel_of_16_bits_that_adds_up_in_float32",
        wrong=ruled(torch.sin, by_float32(off_for_a_single_entry), vmap=False),
        right=ruled(torch.sin, by_float32(lambda g, x: g * x.cos()), vmap=False),
        make_inputs=low(5, 7, dtype=HALF),
        check="linearity",
        also=frozenset({"second_point"}),
    ),
    Exhibit(
        # Of two columns the terms of each entry nearly cancel, and their rounding stays.
        name="hundredth_more_by_a_norm_that_saves_its_deviations_in_float32",
        wrong=ruled(normed, saved_in_float32(1.01), vmap=False),
        right=ruled(normed, saved_in_float32(1.0), vmap=False),
        make_inputs=low(6, 2, dtype=SINGLE),
        also=frozenset({"second_point"}),
    ),
    # Accused by others, or by us while they were made.
    Exhibit(
        name="variance_of_equal_numbers_in_bfloat16",
        wrong=None,
        right=lambda x: x.var(-1),
        make_inputs=lambda: (torch.full((4, 6), 3.3, dtype=BRAIN, requires_grad=True),),
        verdict_of_right=UNDECIDED,
    ),
    Exhibit(
        name="noise_of_larger_numbers_in_entries_that_are_zero",
        wrong=None,
        right=noise_of_larger_numbers,
        make_inputs=lambda: (
            torch.view_as_complex(normal(5, 2).detach()).requires_grad_(),
            (1e4 * torch.view_as_complex(normal(6, 2, seed=2).detach())).requires_grad_(),
        ),
        verdict_of_right=UNDECIDED,
    ),
    *(
        Exhibit(
            name=f"{name}_in_bfloat16",
            # In bfloat16 it is less than rounding may be
            wrong=ruled(torch.sin, backward, vmap=False),
            right=torch.sin,
            make_inputs=low(4, 6, dtype=BRAIN),
            check=check,
            words=("x",),
        )
        for name, backward, check in (
            ("row_off_unless_contiguous", row_off_unless_contiguous, "memory_layout"),
            ("off_for_a_single_entry", off_for_a_single_entry, "linearity"),
        )
    ),
    Exhibit(
        name="padding_behind_rms_norm_and_its_own_epsilon_in_bfloat16",
        # Left out, epsilon is another number in double precision
        wrong=lambda x, weight: rms_of_ninths(x) * weight,
        right=lambda x, weight: torch.nn.functional.rms_norm(x, x.shape[-1:]) * weight,
        make_inputs=padded,
        also=frozenset({"forward", "second_point"}),
    ),
    *(
        Exhibit(
            name=f"sampled_pixels_a_tenth_too_bright_in_{name}",
            # One operator, which rounds inside: honest runs have nothing to round there
            wrong=lambda x, grid: 1.1 * sampled(x, grid) - 0.1 * sampled(x, grid).detach(),
            right=lambda x, grid: sampled(x, grid),
            make_inputs=pixels(dtype, seed),
            also=frozenset({"forward", "second_point"}),
        )
        for name, dtype, seed in (("float32", SINGLE, 0), ("bfloat16", BRAIN, 2))
    ),
    *(
        Exhibit(
            # Rounding of the large column would hide the small one
            name=f"fifth_more_of_a_part_that_is_a_millionth_in_{name}",
            wrong=ruled(sines_of_three_sizes, cosines_of_three_sizes(1.2)),
            right=ruled(sines_of_three_sizes, cosines_of_three_sizes(1.0)),
            make_inputs=lambda dtype=dtype: tuple(
                low(3, dtype=dtype, seed=seed)()[0] for seed in (1, 2, 3)
            ),
            also=frozenset({"second_point"}),
            place=(2, None, 0, None),
        )
        for name, dtype in (("float32", SINGLE), ("bfloat16", BRAIN))
    ),
    *(
        Exhibit(
            # Without a double backward no honest run has a tangent, but each has a value
            name=f"tenth_more_of_tangents_beside_a_sum_that_is_one_in_{name}",
            wrong=ruled(classes_and_sum, gradient_of_classes, pushed_classes(1.1)),
            right=ruled(classes_and_sum, gradient_of_classes, pushed_classes(1.0)),
            make_inputs=low(3, 7, dtype=dtype),
            check="forward",
            also=frozenset({"forward_vs_backward", "functional_jvp"}),
        )
        for name, dtype in (("float32", SINGLE), ("bfloat16", BRAIN))
    ),
    Exhibit(
        name="mean_of_distances_in_bfloat16",
        # Of one number forward mode rounds as much as the loss does
        wrong=None,
        right=torch.nn.functional.triplet_margin_loss,
        make_inputs=lambda: tuple(low(5, 4, dtype=BRAIN, seed=seed)()[0] for seed in (1, 2, 3)),
    ),
)
