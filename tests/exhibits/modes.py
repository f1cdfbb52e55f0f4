"""Derivatives wrong in another mode: forward, second order, batched, or of another kind."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.functional import vjp

from exhibits.frame import Exhibit, leaf, normal, ruled, sine, sine_backward, sine_jvp
from gradproof import Settings

MASKED = Settings(masked=True)
# A wrong double backward is wrong in forward mode of the backward as well.
OTHER_PAIRS = frozenset({"forward_over_reverse"})


def tenth_more_with_a_graph(g: Tensor, x: Tensor) -> Tensor:
    """Operations in the place of a kernel, where a graph is wanted: another formula."""
    return g * x.cos() * (1.1 if torch.is_grad_enabled() else 1.0)


def tenth_more_for_ones(t: Tensor, x: Tensor) -> Tensor:
    """A short cut for what `jvp` is given for a total derivative, and a tenth off."""
    return 1.1 * x.cos() if bool((t == 1).all()) else t * x.cos()


def tenth_more_for_one_entry(t: Tensor, x: Tensor) -> Tensor:
    """The same for the tangents of `jacfwd` without vmap."""
    return t * x.cos() * (1.1 if int(t.count_nonzero()) == 1 else 1.0)


def clamped_where_numbers_are_told(t: Tensor, x: Tensor) -> Tensor:
    """A kernel for large tangents clamps them; in a batch, which tells no number, there is none."""
    try:
        kernel = float(t.abs().max()) > 1e4
    except RuntimeError:
        kernel = False
    return sine_jvp(t.clamp(-1e4, 1e4) if kernel else t, x)


def inverse(a: Tensor) -> Tensor:
    return torch.linalg.inv(a)


def inverse_backward(g: Tensor, a: Tensor) -> Tensor:
    x = torch.linalg.inv(a)
    return -x.mT @ g @ x.mT


def inverse_jvp(t: Tensor, a: Tensor) -> Tensor:
    x = torch.linalg.inv(a)
    return -x @ t @ x


def inverse_jvp_factors_in_wrong_order(t: Tensor, a: Tensor) -> Tensor:
    x = torch.linalg.inv(a)
    return -x @ x @ t


def explicit_product(x: Tensor) -> Tensor:
    return x[0] * x[1] * x[2] * x[3]


def other_factors(x: Tensor) -> Tensor:
    """Products that leave out one entry each; none of them divides."""
    return torch.stack([torch.cat([x[:i], x[i + 1 :]]).prod() for i in range(len(x))])


def product_with_a_short_cut(g: Tensor, x: Tensor) -> Tensor:
    if (x == 0).sum() >= 2:
        return torch.zeros_like(x)  # right, and the end of the graph
    return g * other_factors(x)


def second_rule(of_cotangent: float, of_input: float):
    """The sine whose backward has a backward of its own, scaled by two factors."""
    rule = ruled(
        lambda g, x: g * x.cos(),
        lambda h, g, x: (of_cotangent * h * x.cos(), -of_input * h * g * x.sin()),
    )
    return ruled(sine, rule)


class FirstRowForAll(torch.autograd.Function):
    """a * b, whose rule for a batch of `a` multiplies every row by the first row's factor."""

    @staticmethod
    def forward(a, b):
        return a * b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * b, g * a

    @staticmethod
    def vmap(info, in_dims, a, b):
        a = a.movedim(in_dims[0], 0) if in_dims[0] is not None else a
        b = b.movedim(in_dims[1], 0)[0] if in_dims[1] is not None else b
        return (a[:1] * b).expand(info.batch_size, *b.shape), 0


def sine_batched_wrongly(x: Tensor) -> Tensor:
    return ruled(sine, lambda g, x: FirstRowForAll.apply(g, x.cos()))(x)


def sparse_matrix() -> Tensor:
    places, values = [[0, 1, 2], [1, 0, 2]], [0.5, -1.5, 2.0]
    matrix = torch.sparse_coo_tensor(
        places, values, (3, 3), dtype=torch.float64, check_invariants=True
    )
    return matrix.coalesce().requires_grad_()


def weighted(masked_grad: bool, factor=None):
    """A dense matrix times a sparse one, its gradient masked or not."""
    change = ruled(lambda x: 1.0 * x, lambda g, x: g * (1.0 if factor is None else factor))

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return change(x.to_dense(masked_grad=masked_grad)) * w

    return fn


def sparse_inputs():
    return sparse_matrix(), normal(3, 3, seed=2).detach()


def number_in_a_sparse_matrix_of_no_dimension():
    return torch.tensor(2.0, dtype=torch.float64).to_sparse().requires_grad_(), normal(3).detach()


def distances(x: Tensor, y: Tensor) -> Tensor:
    return (x[:, None] - y).square().sum(-1).sqrt()


def written_over(g: Tensor, x: Tensor) -> Tensor:
    """Writes over a factor of the gradient that it has computed."""
    factor = x.cos()
    gradient = g * factor
    factor.mul_(2)
    return gradient


def through_a_copy(g: Tensor, x: Tensor) -> Tensor:
    """Differentiates a copy of the input, whose graph leads to no input."""
    copy = x.detach().requires_grad_()
    return vjp(torch.sin, copy, g.detach(), create_graph=True)[1]


def exp_of_square(x: Tensor) -> Tensor:
    return (x * x).exp()


EXHIBITS = (
    Exhibit(
        name="jvp_wrong_in_one_entry",
        make_inputs=lambda: (leaf(0.3, 1.0, -2.0),),
        wrong=ruled(
            sine, sine_backward, lambda t, x: sine_jvp(t, x) * torch.where(x == 1.0, 0.9, 1.0)
        ),
        right=ruled(sine, sine_backward, sine_jvp),
        check="forward",
        also=frozenset({"forward_vs_backward"}),
        place=(0, (1,), 0, (1,)),
        words=("x[1]",),
    ),
    *(
        Exhibit(
            name=f"jvp_of_a_tangent_of_{words}",
            make_inputs=lambda: (normal(3, 4),),
            wrong=ruled(sine, sine_backward, push, vmap=False),
            right=ruled(sine, sine_backward, sine_jvp, vmap=False),
            check="linearity",
            words=("two parts of a tangent",),
        )
        for words, push in (("ones", tenth_more_for_ones), ("one_entry", tenth_more_for_one_entry))
    ),
    Exhibit(
        name="jvp_that_clamps_outside_of_a_batch",
        make_inputs=lambda: (normal(3, 4),),
        wrong=ruled(sine, sine_backward, clamped_where_numbers_are_told),
        right=ruled(sine, sine_backward, sine_jvp),
        check="linearity",
        also=frozenset({"batched_forward"}),
        words=("two parts of a tangent",),
    ),
    Exhibit(
        name="vjp_wrong_beside_a_right_jvp",
        make_inputs=lambda: (normal(5),),
        wrong=ruled(sine, lambda g, x: g * x.sin(), sine_jvp),
        right=ruled(sine, sine_backward, sine_jvp),
        also=frozenset({"forward_vs_backward"}),
    ),
    Exhibit(
        name="jvp_factors_in_the_wrong_order",
        source="M12",
        make_inputs=lambda: (normal(3, 3),),
        wrong=ruled(inverse, inverse_backward, inverse_jvp_factors_in_wrong_order),
        right=ruled(inverse, inverse_backward, inverse_jvp),
        check="forward",
        also=frozenset({"forward_vs_backward"}),
        hidden_inputs=lambda: ((2 * torch.eye(3, dtype=torch.float64)).requires_grad_(),),
    ),
    Exhibit(
        name="double_backward_stops_at_two_zeros",
        source="M09",
        make_inputs=lambda: (leaf(0.0, 2.0, 0.0, 3.0),),
        wrong=ruled(explicit_product, product_with_a_short_cut),
        right=explicit_product,
        check="second_order",
        also=OTHER_PAIRS,
        order=2,
        hidden_inputs=lambda: (leaf(1.0, 2.0, 0.0, 3.0),),
    ),
    Exhibit(
        name="double_backward_misses_a_saved_intermediate",
        cause="zero",
        source="M10",
        make_inputs=lambda: (normal(4),),
        wrong=ruled(exp_of_square, lambda g, x: g * (2 * x * exp_of_square(x)).detach()),
        right=exp_of_square,
        check="second_order",
        also=OTHER_PAIRS,
        order=2,
    ),
    Exhibit(
        name="double_backward_has_the_wrong_sign",
        make_inputs=lambda: (normal(4),),
        wrong=second_rule(1, -1),
        right=second_rule(1, 1),
        check="second_order",
        also=OTHER_PAIRS,
        order=2,
        words=("x",),
    ),
    *(
        Exhibit(
            name=f"gradient_with_a_graph_another_than_without{where}",
            make_inputs=lambda dtype=dtype: (normal(4, dtype=dtype),),
            wrong=ruled(sine, tenth_more_with_a_graph, vmap=False),
            right=ruled(sine, sine_backward),
            check="second_order",
            order=2,
            words=("differentiated again",),
            also=frozenset({"determinism"}),
        )
        for where, dtype in (("", torch.float64), ("_in_float32", torch.float32))
    ),
    Exhibit(
        name="double_backward_wrong_in_the_cotangent",
        make_inputs=lambda: (normal(4),),
        wrong=second_rule(2, 1),
        right=second_rule(1, 1),
        check="second_order",
        also=OTHER_PAIRS,
        order=2,
    ),
    Exhibit(
        name="double_backward_of_what_was_written_over",
        make_inputs=lambda: (normal(4),),
        wrong=ruled(sine, written_over),
        right=ruled(sine, sine_backward),
        check="second_order",
        order=2,
        words=("modified by an inplace operation",),
    ),
    Exhibit(
        name="double_backward_of_a_copy_that_leads_nowhere",
        make_inputs=lambda: (normal(4),),
        wrong=ruled(sine, through_a_copy, vmap=False),
        right=torch.sin,
        check="second_order",
        also=OTHER_PAIRS,
        order=2,
    ),
    Exhibit(
        name="jvp_of_jvp_drops_a_term_of_det",
        source="M13",
        make_inputs=lambda: (normal(2, 2),),
        wrong=torch.linalg.det,
        right=lambda a: a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0],
        check="reverse_over_forward",
        order=2,
    ),
    Exhibit(
        name="batched_rule_uses_the_first_row_for_all",
        make_inputs=lambda: (normal(5),),
        wrong=sine_batched_wrongly,
        right=sine,
        check="batched",
    ),
    Exhibit(
        name="distances_whose_backward_is_wrong_under_vmap",
        make_inputs=lambda: (normal(3, 2), normal(4, 2, seed=2)),
        wrong=torch.cdist,
        right=distances,
        check="batched",
        words=("torch.vmap",),
    ),
    Exhibit(
        name="sparse_number_of_no_dimension",
        make_inputs=number_in_a_sparse_matrix_of_no_dimension,
        wrong=weighted(masked_grad=True, factor=1.1),
        right=weighted(masked_grad=True),
        options={"settings": MASKED},
        place=(0, (), 0, None),
    ),
    Exhibit(
        name="unspecified_entries_get_a_gradient",
        make_inputs=sparse_inputs,
        wrong=weighted(masked_grad=False),
        right=weighted(masked_grad=True),
        check="sparse",
        options={"settings": MASKED},
        words=("x[", "unspecified"),
    ),
    Exhibit(
        name="unspecified_entries_get_no_gradient_although_not_masked",
        make_inputs=sparse_inputs,
        wrong=weighted(masked_grad=True),
        right=weighted(masked_grad=False),
    ),
)
