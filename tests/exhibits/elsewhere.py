"""Mistakes of compilers, of one GPU, or of enormous arrays: what they do, done on a CPU.

The code behind these rows cannot be run here. What it got wrong can be: a product that was dropped,
scores beyond a bound, an index in too few bits, a rule that is lost when the function is compiled
or transformed. The bits are fewer and the bounds lower than those of the originals.
"""

from __future__ import annotations

import torch
from torch import Tensor

from exhibits.frame import Exhibit, gradients_of, leaf, normal, ruled, spoilt


def gated(x: Tensor, up: Tensor, gate: Tensor) -> Tensor:
    return (x @ up) * torch.sigmoid(x @ gate)


def one_of_two_products(g: Tensor, x: Tensor, up: Tensor, gate: Tensor) -> tuple[Tensor, ...]:
    _, to_up, to_gate = gradients_of(gated, g, x, up, gate)
    return (g * torch.sigmoid(x @ gate)) @ up.mT, to_up, to_gate


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT).softmax(-1) @ v


def queries_wrong_beyond_four(g: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """With five times the gradient of the queries in a batch whose scores exceed 4."""
    to_q, to_k, to_v = gradients_of(attention, g, q, k, v)
    large = ((q @ k.mT).amax((-2, -1), keepdim=True) > 4) & (len(q) > 1)
    return torch.where(large, 5.0, 1.0) * to_q, to_k, to_v


def reversed_product(x: Tensor, w: Tensor) -> Tensor:
    return x * w.flip(0)


def in_seven_bits(gradient: Tensor) -> Tensor:
    """As a backward leaves it that holds indices in a signed byte."""
    count = len(gradient)
    return gradient[torch.arange(count).to(torch.int8).to(torch.int64) % count]


def compiled_without_a_term(x: Tensor) -> Tensor:
    """The compiler's version has the same value, and no gradient of the maximum."""
    largest = x.amax()
    return x.sin() * (largest.detach() if torch.compiler.is_compiling() else largest)


def product_with_the_largest(x: Tensor) -> Tensor:
    return x.sin() * x.amax()


SINE = ruled(torch.sin, lambda g, x: g * x.cos())


def rule_lost_under_transforms(x: Tensor) -> Tensor:
    """A custom backward that transforms of functions do not see: they get the plain body."""
    inside = torch._C._functorch.is_functorch_wrapped_tensor(x)
    return x.sin().detach() + 0 * x if inside else SINE(x)


EXHIBITS = (
    Exhibit(
        name="one_of_two_products_dropped",
        source="M19",
        make_inputs=lambda: (normal(3, 4), normal(4, 2, seed=2), normal(4, 2, seed=3)),
        wrong=ruled(gated, one_of_two_products, vmap=False),
        right=gated,
        place=(0, None, 0, None),
    ),
    Exhibit(
        name="queries_wrong_where_scores_are_large",
        source="M20",
        make_inputs=lambda: (
            (8 * normal(2, 3, 4).detach()).requires_grad_(),
            normal(2, 3, 4, seed=2),
            normal(2, 3, 4, seed=3),
        ),
        hidden_inputs=lambda: (
            (0.25 * normal(2, 3, 4).detach()).requires_grad_(),
            normal(2, 3, 4, seed=2),
            normal(2, 3, 4, seed=3),
        ),
        wrong=ruled(attention, queries_wrong_beyond_four, vmap=False),
        right=attention,
        place=(0, None, 0, None),
    ),
    Exhibit(
        name="index_in_too_few_bits",
        source="M37",
        make_inputs=lambda: (normal(140), normal(140, seed=2)),
        hidden_inputs=lambda: (normal(100), normal(100, seed=2)),
        wrong=spoilt(reversed_product, lambda x, w: (in_seven_bits(x), w)),
        right=reversed_product,
        place=(0, None, 0, None),
    ),
    Exhibit(
        name="compiled_code_that_drops_a_term",
        source="M35",
        make_inputs=lambda: (leaf(0.5, 1.5, 1.0),),
        wrong=compiled_without_a_term,
        right=product_with_the_largest,
        check="compiled",
        options={"checks": ["compiled"]},
        place=(0, (1,), None, None),
        words=("aot_eager",),
    ),
    Exhibit(
        name="rule_lost_under_transforms",
        source="M36",
        make_inputs=lambda: (normal(3),),
        wrong=rule_lost_under_transforms,
        right=SINE,
        check="functional_vjp",
        also=frozenset({"functional_jvp"}),
        options={"transforms": ["functional_vjp", "functional_jvp"]},
    ),
)
