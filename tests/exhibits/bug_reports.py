"""What users met: kinds of public bug reports and of trials, each with its right twin."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from exhibits.frame import Exhibit, attention, normal, ruled, sine_backward, sine_jvp, spoilt

SINGLE, BRAIN = torch.float32, torch.bfloat16
NOT_TESTED = frozenset({"inconclusive"})


def drawn(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float64, scale: float = 1.0):
    """Inputs of these shapes."""
    return lambda: tuple(
        (scale * normal(*shape, seed=k).detach()).to(dtype).requires_grad_()
        for k, shape in enumerate(shapes, 1)
    )


# A loss in which all terms cancel: its derivative is zero.


def sum_of_normed(x: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],)).sum()


def without_the_mean(g: Tensor, x: Tensor) -> Tensor:
    """The path through the deviation is left out, and that through the mean."""
    return g * torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5) * x * 0.1


def sum_of_centred(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)).sum()


def log_sum_of_shares(x: Tensor) -> Tensor:
    return x.log_softmax(-1).logsumexp(-1)


def circle(x: Tensor) -> Tensor:
    return (x.sin() ** 2 + x.cos() ** 2).sum()


CANCELS = (
    *(
        Exhibit(
            name=f"mean_left_out_of_a_sum_of_normed_rows{where}",
            make_inputs=make_inputs,
            wrong=ruled(sum_of_normed, without_the_mean),
            right=sum_of_normed,
            also=frozenset({"second_point"}),
            verdict_of_right=NOT_TESTED,
        )
        for where, make_inputs in (
            ("", drawn((6, 5))),
            ("_of_1024_numbers", drawn((64, 16))),
            ("_in_float32", drawn((6, 5), dtype=SINGLE)),
        )
    ),
    *(
        Exhibit(
            name=f"{name}_in_{str(dtype).removeprefix('torch.')}",
            make_inputs=drawn((6, 5), dtype=dtype),
            wrong=None,
            right=function,
            verdict_of_right=NOT_TESTED,
        )
        for name, function in (
            ("sum_of_centred_rows", sum_of_centred),
            ("log_sum_of_shares", log_sum_of_shares),
            ("squares_of_sine_and_cosine", circle),
        )
        for dtype in (torch.float64, SINGLE, BRAIN)
    ),
)


# Kernels that know float32 alone, beside a reference.


def only_in_float32(value, backward):
    """A kernel that refuses float64."""

    def strict(*inputs: Tensor) -> Tensor:
        if inputs[0].dtype is not SINGLE:
            raise TypeError("float32 only")
        return value(*inputs)

    return ruled(strict, backward)


def computed_in_float32(value, backward):
    """A kernel that computes in float32 whatever it is given."""

    def narrow(*tensors: Tensor) -> list[Tensor]:
        return [tensor.float() for tensor in tensors]

    def gradients(g: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(part.to(g.dtype) for part in backward(*narrow(g, *inputs)))

    return ruled(lambda *xs: value(*narrow(*xs)).to(xs[0].dtype), gradients, vmap=False)


def attention_gradients(factor: float):
    """Of probabilities that are computed again from the logarithm of their sum."""

    def backward(g: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        shares = (scores - scores.logsumexp(-1, keepdim=True)).exp()
        inner = g @ v.mT
        to_scores = shares * (inner - (inner * shares).sum(-1, keepdim=True))
        to_scores = factor * to_scores / math.sqrt(q.shape[-1])
        return to_scores @ k, to_scores.mT @ q, shares.mT @ g

    return backward


def norm_of_rows(x: Tensor, weight: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight)


def norm_gradients(kept: float):
    """Kept is the part of the path through the mean."""

    def backward(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
        unit, g_unit = centred * scale, g * weight
        through = kept * g_unit.mean(-1, keepdim=True)
        to_x = g_unit - through - unit * (g_unit * unit).mean(-1, keepdim=True)
        return scale * to_x, (g * unit).sum(0)

    return backward


def rows_at_ten() -> tuple[Tensor, ...]:
    x, weight = drawn((8, 16), (16,), dtype=SINGLE)()
    return (10 + 0.1 * x.detach()).requires_grad_(), weight


def saturated() -> tuple[Tensor, ...]:
    """Logits of 100, of which one in each row takes all: what is left of the others cancels."""
    generator = torch.Generator().manual_seed(13)
    shape = (6, 8)
    drawn = [8 * torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(3)]
    return tuple(x.requires_grad_() for x in drawn)


FLOAT32_ONLY = (
    Exhibit(
        name="root_of_the_extent_dropped_from_saturated_rows",
        make_inputs=saturated,
        wrong=ruled(attention, attention_gradients(math.sqrt(8))),
        right=ruled(attention, attention_gradients(1.0)),
        also=frozenset({"second_point"}),
        verdict_of_right=frozenset({"passed", "inconclusive"}),
    ),
    Exhibit(
        name="root_of_the_extent_dropped_from_large_logits_in_a_kernel_of_float32_alone",
        make_inputs=drawn((5, 8), (7, 8), (7, 8), dtype=SINGLE, scale=8.0),
        wrong=only_in_float32(attention, attention_gradients(math.sqrt(8))),
        right=only_in_float32(attention, attention_gradients(1.0)),
        also=frozenset({"second_point"}),
        cause="factor",
        options={"reference": attention},
    ),
    Exhibit(
        name="root_of_the_extent_dropped_from_large_logits_in_a_kernel_that_casts",
        make_inputs=drawn((16, 8), (16, 8), (16, 8), dtype=SINGLE, scale=8.0),
        wrong=computed_in_float32(attention, attention_gradients(math.sqrt(8))),
        right=computed_in_float32(attention, attention_gradients(1.0)),
        also=frozenset({"second_point"}),
        options={"reference": attention},
    ),
    Exhibit(
        name="mean_dropped_from_a_norm_at_ten_in_a_kernel_that_casts",
        make_inputs=rows_at_ten,
        wrong=computed_in_float32(norm_of_rows, norm_gradients(0.0)),
        right=computed_in_float32(norm_of_rows, norm_gradients(1.0)),
        also=frozenset({"second_point"}),
        options={"reference": norm_of_rows},
    ),
)


# Operators of torch.library, anywhere in the graph.


def operator(name: str, factor: float):
    """The sine as an operator of torch.library, whose gradient is off by a factor."""

    @torch.library.custom_op(f"bug_reports::{name}", mutates_args=())
    def sine(x: Tensor) -> Tensor:
        return x.sin()

    def keep(ctx, inputs, output) -> None:
        ctx.save_for_backward(inputs[0])

    sine.register_autograd(
        lambda ctx, g: factor * g * ctx.saved_tensors[0].cos(), setup_context=keep
    )
    return sine


RIGHT_SINE, WRONG_SINE = operator("right_sine", 1.0), operator("wrong_sine", 1.1)


OPERATORS = (
    Exhibit(
        name="operator_of_a_library_off_by_a_tenth_between_others",
        make_inputs=drawn((5,)),
        wrong=lambda x: WRONG_SINE(2 * x).exp(),
        right=lambda x: RIGHT_SINE(2 * x).exp(),
        also=frozenset({"second_point"}),
    ),
    Exhibit(
        name="operator_of_a_library_off_by_a_tenth_beside_a_sine",
        make_inputs=drawn((5,)),
        wrong=lambda x: WRONG_SINE(x) + x.sin(),
        right=lambda x: RIGHT_SINE(x) + x.sin(),
        also=frozenset({"second_point"}),
    ),
)


# Sparse constants that would not fit into memory as dense ones, and sparse gradients.


def differences(count: int) -> Tensor:
    """The matrix of x[k] - x[k - 1] / 2."""
    k = torch.arange(count)
    places = torch.cat([torch.stack([k, k]), torch.stack([k[1:], k[:-1]])], dim=1)
    values = torch.cat([torch.ones(count), torch.full((count - 1,), -0.5)]).double()
    shape = (count, count)
    return torch.sparse_coo_tensor(places, values, shape, check_invariants=True).coalesce()


MANY = 1 << 17  # 137 GB, dense
MATRIX = differences(MANY)
FORGOTTEN = ruled(
    lambda x: MATRIX @ x,
    lambda g, x: MATRIX @ g,
    vmap=False,  # not transposed
)
IDS = torch.tensor([0, 2, 2, 4])


def sparse_rows(factor: float):
    """A lookup whose gradient is sparse."""
    return ruled(
        lambda table: table[IDS],
        lambda g, table: torch.sparse_coo_tensor(
            IDS[None], factor * g, table.shape, check_invariants=True
        ),
        vmap=False,
    )


SPARSE = (
    Exhibit(
        name="large_sparse_constant_not_transposed",
        make_inputs=drawn((MANY,)),
        wrong=FORGOTTEN,
        right=lambda x: MATRIX @ x,
        options={"checks": ["backward", "side_effects"]},
    ),
    Exhibit(
        name="sparse_gradient_of_a_table_off_by_a_tenth",
        make_inputs=drawn((6, 3)),
        wrong=sparse_rows(1.1),
        right=sparse_rows(1.0),
        also=frozenset({"second_point"}),
    ),
    *(
        Exhibit(
            name=f"sparse_gradient_of_{name}",
            make_inputs=drawn((6, 3)),
            wrong=None,
            right=function,
        )
        for name, function in (
            ("an_embedding", lambda table: F.embedding(IDS, table, sparse=True)),
            (
                "bags",
                lambda table: F.embedding_bag(IDS.view(2, 2), table, sparse=True, mode="sum"),
            ),
            (
                "a_gather",
                lambda x: x.gather(0, IDS[:, None].expand(4, 3), sparse_grad=True),
            ),
        )
    ),
)


# Something that is only held, and cut off on purpose.


class CodeBook(torch.nn.Module):
    """Distances to the nearest code, which moving averages train."""

    def __init__(self, slope) -> None:
        super().__init__()
        self.book = torch.nn.Parameter(normal(5, 3, seed=4).detach())
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        codes = self.book.detach()
        nearest = codes[torch.cdist(x.detach(), codes).argmin(1)]
        return self.slope(x, nearest)


def squared_distance(x: Tensor, y: Tensor) -> Tensor:
    return (x - y).square().sum(-1)


HELD = normal(4, seed=5)
CUT_OFF = (
    Exhibit(
        name="distance_to_a_code_book_without_its_two",
        make_inputs=drawn((4, 3)),
        wrong=CodeBook(ruled(squared_distance, lambda g, x, y: (g[:, None] * (x - y), None))),
        right=CodeBook(squared_distance),
        also=frozenset({"second_point"}),
    ),
    Exhibit(
        name="tensor_that_is_only_held_behind_detach",
        make_inputs=drawn((4,)),
        wrong=None,
        right=lambda x: x * HELD.detach(),
    ),
)


# One output at a threshold, and a function that other points may leave the domain of.


def composited(opacity: Tensor) -> Tensor:
    """Colours along rays, each of which stops where next to no light is left."""
    light = torch.cumprod(torch.cat([torch.ones_like(opacity[:, :1]), 1 - opacity], 1), 1)[:, :-1]
    return (light * opacity * (light > 1e-4)).sum(1)


def rays() -> tuple[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return ((0.25 * torch.rand(30, 64, dtype=torch.float64, generator=generator)).requires_grad_(),)


def root_of_matrix(a: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh((a + a.mT) / 2)
    return vectors @ torch.diag(values.sqrt()) @ vectors.mT


def positive_matrix() -> tuple[Tensor]:
    b = normal(4, 4).detach()
    return ((b @ b.mT + 0.5 * torch.eye(4, dtype=torch.float64)).requires_grad_(),)


EDGES = tuple(
    Exhibit(
        name=f"{name}_off_by_a_tenth",
        make_inputs=inputs,
        wrong=spoilt(function, lambda gradient: 1.1 * gradient),
        right=spoilt(function, lambda gradient: gradient),
        verdict_of_right=frozenset({"passed", "inconclusive"}),
    )
    for name, function, inputs in (
        ("rays_that_stop_where_no_light_is_left", composited, rays),
        ("root_of_a_matrix", root_of_matrix, positive_matrix),
    )
)

# Sums that are kept in 16 bits.


def shifted(x: Tensor, shift: Tensor) -> Tensor:
    return x + shift


def sum_in(dtype: torch.dtype | None):
    """The gradient of the shift, added up row by row; in the precision of the rows where None."""

    def backward(g: Tensor, x: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.zeros_like(g[0], dtype=dtype)
        for row in g:
            total = total + row
        return g, total.to(shift.dtype)

    return backward


KEPT_IN_FEW_BITS = ruled(shifted, sum_in(None), vmap=False)
KEPT_IN_SINGLE = ruled(
    shifted, lambda g, x, shift: (g, g.float().sum(0).to(shift.dtype)), vmap=False
)
SUMS = (
    Exhibit(
        name="sum_of_600_rows_kept_in_bfloat16",
        make_inputs=drawn((600, 3), (3,), dtype=BRAIN),
        wrong=KEPT_IN_FEW_BITS,
        right=KEPT_IN_SINGLE,
        place=(1, None, None, None),
        options={"checks": ["backward"]},
    ),
    Exhibit(
        name="sum_of_200_rows_kept_in_bfloat16_whatever_the_dtype_beside_a_reference",
        make_inputs=drawn((200, 3), (3,), dtype=BRAIN),
        wrong=None,
        right=ruled(shifted, sum_in(BRAIN), vmap=False),
        options={"reference": lambda x, shift: x + shift, "checks": ["backward"]},
    ),
)


# Forward mode of a forward mode, which PyTorch takes for zero.


PAIRS = (
    Exhibit(
        name="factor_in_the_jvp_of_a_function_with_both_rules",
        make_inputs=drawn((3,)),
        wrong=ruled(torch.sin, sine_backward, lambda t, x: 1.1 * t * x.cos()),
        right=ruled(torch.sin, sine_backward, sine_jvp),
        check="forward",
        also=frozenset(
            {"forward_vs_backward", "batched_forward", "second_point", "reverse_over_forward"}
            | {"forward_over_reverse"}
        ),
        order=2,
    ),
)

EXHIBITS = (
    *CANCELS,
    *FLOAT32_ONLY,
    *OPERATORS,
    *SPARSE,
    *CUT_OFF,
    *EDGES,
    *SUMS,
    *PAIRS,
)
