"""Mistakes that show at some inputs only: zeros, borders, duplicates, ranks, options, layouts."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from exhibits.frame import (
    Exhibit,
    attention,
    constant,
    leaf,
    normal,
    read_as_contiguous,
    ruled,
    spoilt,
    storage_read,
)


def product_of_all(x: Tensor) -> Tensor:
    return x.prod()


def product_over_nonzero_entry(g: Tensor, x: Tensor) -> Tensor:
    return torch.where(x == 0, torch.zeros_like(x), g * x.prod() / torch.where(x == 0, 1.0, x))


def group_center(x: Tensor) -> Tensor:
    return x - x.flatten(2).mean(2).reshape(x.shape[:2] + (1,) * (x.dim() - 2))


def group_center_by_last_extent(g: Tensor, x: Tensor) -> Tensor:
    total = g.flatten(2).sum(2).reshape(x.shape[:2] + (1,) * (x.dim() - 2))
    return g - total / g.shape[-1]


def values_stored_with_stride_of_keys(to_q: Tensor, to_k: Tensor, to_v: Tensor):
    rows, columns = to_v.shape
    where = torch.arange(rows)[:, None] * to_k.shape[-1] + torch.arange(columns)
    places = (where % to_v.numel()).flatten()
    stored = torch.zeros_like(to_v).flatten().index_put((places,), to_v.flatten())
    return to_q, to_k, stored.reshape(to_v.shape)


def attention_inputs(columns: int):
    return normal(3, 2), normal(4, 2, seed=2), normal(4, columns, seed=3)


def scaled_sine(x: Tensor, scale: float) -> Tensor:
    return (scale * x).sin()


def splat(x: Tensor, w: Tensor) -> Tensor:
    return x.sum() * w


def splat_element_by_element(g: Tensor, x: Tensor, w: Tensor) -> Tensor:
    whole = (g * w).sum().expand(x.shape)
    return g * w if w[2] == 0 else whole  # only the degenerate splat takes the short way


def rectified(x: Tensor, rectify: bool) -> Tensor:
    return x.abs() if rectify else 1.0 * x


def rectified_with_flag_inverted(g: Tensor, x: Tensor, rectify: bool) -> Tensor:
    return g.clone() if rectify else g * x.sign()


def gather(x: Tensor, index: Tensor) -> Tensor:
    return x[index]


def gather_overwriting(g: Tensor, x: Tensor, index: Tensor) -> Tensor:
    rows = torch.zeros_like(x).unbind()
    rows = list(rows)
    for position, row in enumerate(index.tolist()):
        rows[row] = g[position]
    return torch.stack(rows)


def squares(x: Tensor) -> Tensor:
    return x * x


def gated(v: Tensor, z: Tensor, gate: bool) -> Tensor:
    return v * z.sigmoid() if gate else v + z


def gated_with_z_for_v(g: Tensor, v: Tensor, z: Tensor, gate: bool):
    slope = z.sigmoid()
    return (g * slope, g * z * slope * (1 - slope)) if gate else (g.clone(), g.clone())


def composite(colour: Tensor, alpha: Tensor) -> Tensor:
    """Alpha blending from front to back; splats fainter than 0.1 are skipped."""
    total, transmittance = torch.zeros((), dtype=colour.dtype), 1.0
    for index, opacity in enumerate(alpha.tolist()):
        if opacity >= 0.1:
            total = total + colour[index] * opacity * transmittance
            transmittance *= 1 - opacity
    return total


def composite_from_a_skipped_splat(g: Tensor, colour: Tensor, alpha: Tensor) -> Tensor:
    opacities = alpha.tolist()
    transmittance = math.prod(1 - opacity for opacity in opacities if opacity >= 0.1)
    weights = [0.0] * len(opacities)
    for index in reversed(range(len(opacities))):
        transmittance /= 1 - opacities[index]
        weights[index] = opacities[index] * transmittance if opacities[index] >= 0.1 else 0.0
    return g * torch.tensor(weights, dtype=colour.dtype)


def scatter_add(src: Tensor, index: Tensor) -> Tensor:
    zero = torch.zeros(4, dtype=src.dtype)
    return zero.scatter_add(0, index, src[: len(index)])


def scatter_add_for_the_whole_source(g: Tensor, src: Tensor, index: Tensor) -> Tensor:
    padding = len(src) - len(index)
    used = g.gather(0, index)
    return torch.cat([used, g[:1].expand(padding)])  # rows beyond the index are not in the sum


def negative_side(x: Tensor) -> Tensor:
    return x.exp()


def partners(x: Tensor, w: Tensor) -> Tensor:
    return x * w


class PartnersByPosition(torch.autograd.Function):
    """Hands out the gradients in the order of the inputs that need one."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        if all(ctx.needs_input_grad):
            return g * w, g * x
        return g * x, None


def pooled(x: Tensor) -> Tensor:
    return torch.nn.functional.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


def pooled_counting_padding_in_channels_last(g: Tensor, x: Tensor) -> Tensor:
    one = torch.ones_like(x, memory_format=torch.contiguous_format)
    count = torch.nn.functional.avg_pool2d(one, 3, stride=1, padding=1)
    channels_last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    spread = g if channels_last else g / count
    return torch.nn.functional.avg_pool2d(spread, 3, stride=1, padding=1)


def image(memory_format: torch.memory_format) -> Tensor:
    return normal(1, 2, 4, 4).detach().to(memory_format=memory_format).requires_grad_()


def transposed_matrix() -> Tensor:
    return normal(4, 3).detach().mT.requires_grad_()


def strided_vector() -> Tensor:
    return normal(12).detach()[::2].requires_grad_()


def squares_reading_every_address(g: Tensor, x: Tensor) -> Tensor:
    return 2 * g * storage_read(x, torch.arange(x.numel()))


EXHIBITS = (
    Exhibit(
        name="product_divided_by_a_zero_entry",
        source="M08",
        make_inputs=lambda: (leaf(2.0, 3.0, 0.0, 5.0),),
        wrong=ruled(product_of_all, product_over_nonzero_entry),
        right=product_of_all,
        place=(0, (2,), 0, ()),
        words=("x[2]",),
        hidden_inputs=lambda: (leaf(2.0, 3.0, -1.0, 5.0),),
    ),
    Exhibit(
        name="product_gradient_nan_at_a_zero_entry",
        cause="not a number",
        source="M08",
        make_inputs=lambda: (leaf(2.0, 3.0, 0.0, 5.0),),
        wrong=ruled(product_of_all, lambda g, x: g * x.prod() / x),
        right=product_of_all,
        also=frozenset({"missing_grad_output"}),  # 0 / 0 times no cotangent
        place=(0, (2,), 0, ()),
        words=("x[2]",),
        hidden_inputs=lambda: (leaf(2.0, 3.0, -1.0, 5.0),),
    ),
    Exhibit(
        name="saved_matrix_read_as_contiguous",
        source="M14",
        make_inputs=lambda: (transposed_matrix(),),
        wrong=ruled(squares, lambda g, x: 2 * g * read_as_contiguous(x), vmap=False),
        right=squares,
        also=frozenset({"memory_layout"}),
    ),
    Exhibit(
        name="saved_vector_read_without_its_stride",
        source="M14",
        make_inputs=lambda: (strided_vector(),),
        wrong=ruled(squares, squares_reading_every_address, vmap=False),
        right=squares,
        also=frozenset({"memory_layout"}),
    ),
    Exhibit(
        name="pooling_counts_padding_in_channels_last",
        source="M15",
        make_inputs=lambda: (image(torch.channels_last),),
        wrong=ruled(pooled, pooled_counting_padding_in_channels_last),
        right=pooled,
        also=frozenset({"memory_layout"}),
    ),
    Exhibit(
        name="group_norm_divides_by_the_last_extent",
        source="M16",
        make_inputs=lambda: (normal(1, 2, 3, 2),),
        wrong=ruled(group_center, group_center_by_last_extent),
        right=group_center,
        hidden_inputs=lambda: (normal(2, 2, 3),),
    ),
    Exhibit(
        name="values_stored_with_the_stride_of_keys",
        source="M34",
        make_inputs=lambda: attention_inputs(3),
        wrong=spoilt(attention, values_stored_with_stride_of_keys),
        right=attention,
        place=(2, None, 0, None),
        hidden_inputs=lambda: attention_inputs(2),
    ),
    Exhibit(
        name="constant_factor_missing",
        source="M21",
        make_inputs=lambda: (normal(5), 0.5),
        wrong=ruled(scaled_sine, lambda g, x, scale: g * (scale * x).cos()),
        right=scaled_sine,
        hidden_inputs=lambda: (normal(5), 1.0),
    ),
    Exhibit(
        name="scalar_cotangent_factorised_by_element",
        source="M22",
        make_inputs=lambda: (normal(3), constant(0.5, -1.0, 0.0)),
        wrong=ruled(splat, splat_element_by_element),
        right=splat,
        hidden_inputs=lambda: (normal(3), constant(0.5, -1.0, 2.0)),
    ),
    Exhibit(
        name="flag_read_the_wrong_way_round",
        source="M23",
        make_inputs=lambda: (leaf(0.5, -1.0, 2.0), True),
        wrong=ruled(rectified, rectified_with_flag_inverted),
        right=rectified,
        place=(0, (1,), 0, (1,)),
        words=("x[1]",),
        hidden_inputs=lambda: (leaf(0.5, 1.0, 2.0), True),
    ),
    Exhibit(
        name="gather_overwrites_instead_of_accumulating",
        source="M29",
        cause="overwritten",
        make_inputs=lambda: (normal(5), torch.tensor([0, 2, 2, 4])),
        wrong=ruled(gather, gather_overwriting, vmap=False),
        right=gather,
        place=(0, (2,), 0, (1,)),
        words=("x[2]",),
        hidden_inputs=lambda: (normal(5), torch.tensor([0, 2, 3, 4])),
    ),
    Exhibit(
        name="batch_offset_missing",
        source="M30",
        make_inputs=lambda: (normal(2, 3),),
        wrong=ruled(squares, lambda g, x: 2 * g * x[:1]),
        right=squares,
        words=("x[1",),
        hidden_inputs=lambda: (normal(1, 3),),
    ),
    Exhibit(
        name="wrong_variable_on_the_gated_branch",
        source="M31",
        make_inputs=lambda: (normal(4), normal(4, seed=2), True),
        wrong=ruled(gated, gated_with_z_for_v),
        right=gated,
        place=(1, None, 0, None),
        hidden_inputs=lambda: (normal(4), normal(4, seed=2), False),
    ),
    Exhibit(
        name="backward_starts_at_a_skipped_splat",
        source="M32",
        make_inputs=lambda: (normal(4), constant(0.5, 0.3, 0.6, 0.05)),
        wrong=ruled(composite, composite_from_a_skipped_splat, vmap=False),
        right=composite,
        place=(0, None, 0, ()),
        hidden_inputs=lambda: (normal(4), constant(0.5, 0.3, 0.6, 0.2)),
    ),
    Exhibit(
        name="source_larger_than_index",
        source="M33",
        make_inputs=lambda: (normal(6), torch.tensor([0, 1, 1, 3])),
        wrong=ruled(scatter_add, scatter_add_for_the_whole_source),
        right=scatter_add,
        place=(0, None, 0, (0,)),
        hidden_inputs=lambda: (normal(4), torch.tensor([0, 1, 1, 3])),
    ),
    Exhibit(
        name="right_only_where_every_input_needs_a_gradient",
        source="M38",
        make_inputs=lambda: (normal(4), normal(4, seed=2).detach()),
        wrong=lambda x, w: PartnersByPosition.apply(x, w),
        right=partners,
    ),
    Exhibit(
        name="right_where_every_input_needs_a_gradient_and_elsewhere_not",
        source="M38",
        make_inputs=lambda: (normal(4), normal(4, seed=2)),
        wrong=lambda x, w: PartnersByPosition.apply(x, w),
        right=partners,
        check="grad_metadata",
        place=(0, None, None, None),
        words=("where only x needs a gradient",),
    ),
    Exhibit(
        name="wrong_for_negative_inputs_only",
        source="W8",
        make_inputs=lambda: (leaf(0.5, 1.0, -0.75, 2.0),),
        wrong=ruled(negative_side, lambda g, x: g * x.abs().exp()),
        right=negative_side,
        place=(0, (2,), 0, (2,)),
        words=("x[2]",),
        hidden_inputs=lambda: (leaf(0.5, 1.0, 0.75, 2.0),),
    ),
)
