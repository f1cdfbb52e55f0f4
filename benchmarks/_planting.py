"""Mistakes planted in right operators: the operators, their samples, the wrong functions."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import _common as common
import _opdb
import torch
from _mistakes import Gradients, Mistake, Site
from torch import Tensor
from torch.autograd.function import once_differentiable

# Smooth at their samples, and each with one output.
OPERATORS = (
    "tanh sin exp sigmoid log atan erf cosh nn.functional.gelu nn.functional.softplus "
    "nn.functional.silu add mul div.no_rounding_mode sub atan2 hypot lerp addcmul sum mean var "
    "prod logsumexp linalg.vector_norm matmul bmm addmm outer baddbmm mv nn.functional.linear "
    "nn.functional.bilinear softmax log_softmax nn.functional.layer_norm nn.functional.group_norm "
    "nn.functional.conv1d nn.functional.conv2d nn.functional.conv_transpose1d cumsum cumprod "
    "logcumsumexp linalg.inv linalg.solve linalg.cholesky linalg.det linalg.matrix_power kron "
    "nn.functional.mse_loss nn.functional.cross_entropy nn.functional.kl_div "
    "nn.functional.binary_cross_entropy_with_logits gather index_select roll "
    "nn.functional.interpolate.bilinear nn.functional.avg_pool2d nn.functional.cosine_similarity "
    "nn.functional.scaled_dot_product_attention tensordot cdist"
)
COMPLEX_OPERATORS = "sin exp mul matmul linalg.inv cumprod nn.functional.conv1d tanh outer"
QUICK_EVERY = 12

# Operators all of whose samples are too large or too small: inputs of our own, normal, and the
# arguments that follow them.
OWN_INPUTS: dict[str, tuple[list[tuple[int, ...]], tuple[int, ...]]] = {
    **dict.fromkeys(("tanh", "sin", "atan", "erf"), ([(4, 5)], ())),
    **dict.fromkeys(("cumsum", "cumprod", "logcumsumexp"), ([(4, 5)], (1,))),
    "bmm": ([(2, 3, 4), (2, 4, 3)], ()),
    "baddbmm": ([(2, 3, 3), (2, 3, 4), (2, 4, 3)], ()),
    "kron": ([(2, 3), (3, 2)], ()),
    "nn.functional.conv2d": ([(1, 2, 5, 5), (3, 2, 3, 3), (3,)], ()),
    "nn.functional.scaled_dot_product_attention": ([(2, 3, 4), (2, 3, 4), (2, 3, 4)], ()),
    "roll": ([(4, 5)], (2, 1)),
}

# In low precision with --large: sizes that kernels are tested at. What is told from rounding there
# is finer, for rounding averages out over the entries.
LARGE_INPUTS: dict[str, tuple[list[tuple[int, ...]], tuple[Any, ...]]] = {
    **dict.fromkeys(
        (
            "tanh",
            "sin",
            "exp",
            "sigmoid",
            "atan",
            "erf",
            "nn.functional.gelu",
            "nn.functional.silu",
        ),
        ([(32, 48)], ()),
    ),
    **dict.fromkeys(("mul", "add", "atan2", "hypot"), ([(32, 48), (32, 48)], ())),
    **dict.fromkeys(("softmax", "log_softmax", "logsumexp", "cumsum"), ([(32, 48)], (-1,))),
    "matmul": ([(24, 32), (32, 40)], ()),
    "outer": ([(48,), (40,)], ()),
    "bmm": ([(4, 16, 24), (4, 24, 16)], ()),
    "nn.functional.linear": ([(24, 32), (40, 32), (40,)], ()),
    "nn.functional.conv2d": ([(2, 4, 12, 12), (8, 4, 3, 3), (8,)], ()),
    "nn.functional.scaled_dot_product_attention": ([(2, 24, 16)] * 3, ()),
    "nn.functional.mse_loss": ([(32, 48), (32, 48)], ()),
}

# Entries of a sample's inputs, and of its output.
LARGEST = 100

FALSE_ALARM = "no mistake"

Backward = Callable[[Sequence[Tensor], Tensor], Gradients]

# The wrong functions -----------------------------------------------------------------------------


def pullback(sample: _opdb.Sample, inputs: Sequence[Tensor], v: Tensor) -> tuple[Tensor, ...]:
    """The true gradients, by automatic differentiation of the operator itself."""
    wanted = sample.differentiable
    with torch.enable_grad():
        arguments = [x.detach().requires_grad_() if i in wanted else x
                     for i, x in enumerate(inputs)]  # fmt: skip
        leaves = [arguments[i] for i in wanted]
        output = sample.function(*arguments)
        grads = torch.autograd.grad(output, leaves, v, allow_unused=True)
    return tuple(
        torch.zeros_like(x) if g is None else g for g, x in zip(grads, leaves, strict=True)
    )


def backward_of(sample: _opdb.Sample, mistake: Mistake | None, site: Site | None) -> Backward:
    """The backward with the mistake in it, as a function of the inputs and the cotangent."""

    def backward(inputs: Sequence[Tensor], v: Tensor) -> Gradients:
        pull = partial(pullback, sample, inputs)
        if mistake is None or site is None:
            return pull(v)
        return mistake.plant(site, v, pull)

    return backward


def wrapped(sample: _opdb.Sample, backward: Backward) -> _opdb.Function:
    """The operator with this backward."""
    wanted = sample.differentiable

    class Planted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Tensor:
            ctx.save_for_backward(*(inputs[i] for i in wanted))
            ctx.others = [None if i in wanted else x for i, x in enumerate(inputs)]
            output: Tensor = sample.function(*inputs)
            # A view, or the input itself, may not leave a custom Function.
            return output.clone()

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, v: Tensor) -> Any:
            inputs = list(ctx.others)
            for i, x in zip(wanted, ctx.saved_tensors, strict=True):
                inputs[i] = x
            grads = dict(zip(wanted, backward(inputs, v), strict=True))
            return tuple(grads.get(i) for i in range(len(inputs)))

    return lambda *inputs: Planted.apply(*inputs)


def basis(output: Tensor) -> Iterator[Tensor]:
    """Each coordinate cotangent, the imaginary ones after the real ones."""
    for unit in (1, 1j) if output.is_complex() else (1,):
        for i in range(output.numel()):
            v = torch.zeros_like(output, memory_format=torch.contiguous_format)
            v.view(-1)[i] = unit
            yield v


def dense(output: Tensor) -> Iterator[Tensor]:
    """Random cotangents: contiguous, transposed in memory, one dimension expanded, all expanded."""
    generator = torch.Generator().manual_seed(1)
    random = partial(torch.randn, dtype=output.dtype, generator=generator)
    yield random(output.shape)
    if output.ndim:
        yield random(output.shape[::-1]).permute(*reversed(range(output.ndim)))
        yield random((*output.shape[:-1], 1)).expand(output.shape)
        yield random(()).expand(output.shape)


# The samples -------------------------------------------------------------------------------------


def picked(case: str, count: int, *, large: bool = False) -> list[_opdb.Sample]:
    """The operator's first samples of two shapes that can carry a mistake."""
    name, dtype = case.split()
    (op,) = (op for op in _opdb.differentiable_operators(_opdb.DTYPES[dtype])
             if op.full_name == name)  # fmt: skip
    if large:
        return [own_sample(op, _opdb.DTYPES[dtype], LARGE_INPUTS)] if name in LARGE_INPUTS else []
    if name in OWN_INPUTS:
        return [own_sample(op, _opdb.DTYPES[dtype], OWN_INPUTS)]
    taken: dict[tuple[Any, ...], _opdb.Sample] = {}
    for sample in _opdb.samples(op, _opdb.DTYPES[dtype]):
        shapes = tuple(tuple(sample.inputs[i].shape) for i in sample.differentiable)
        if shapes not in taken and _suitable(sample):
            taken[shapes] = sample
    # Largest first: a matrix shows more kinds of mistake than a scalar.
    by_size = sorted(taken.values(), key=lambda s: -entries(s))
    return by_size[:count]


def own_sample(op: Any, dtype: torch.dtype, table: dict[str, Any]) -> _opdb.Sample:
    """The operator at the inputs that the table describes."""
    shapes, rest = table[op.full_name]
    generator = torch.Generator().manual_seed(0)
    made = (torch.randn(*shape, dtype=dtype, generator=generator) for shape in shapes)
    inputs = tuple(x.requires_grad_() for x in made)
    return _opdb.Sample(op.full_name, 0, lambda *xs: op.get_op()(*xs, *rest), inputs, 0.0)


def entries(sample: _opdb.Sample) -> int:
    return sum(sample.inputs[i].numel() for i in sample.differentiable)


def _suitable(sample: _opdb.Sample) -> bool:
    """One small floating output, at least 4 small inputs, a Jacobian that is not zero."""
    with torch.no_grad():
        output = sample.function(*sample.inputs)
    if not isinstance(output, Tensor) or not (output.is_floating_point() or output.is_complex()):
        return False
    if not 1 <= output.numel() <= LARGEST:
        return False
    sizes = [sample.inputs[i].numel() for i in sample.differentiable]
    if min(sizes) == 0 or not 4 <= sum(sizes) <= LARGEST:
        return False
    if not bool(torch.isfinite(output).all()):
        return False
    grads = pullback(sample, sample.inputs, torch.ones_like(output))
    finite = all(bool(torch.isfinite(g).all()) for g in grads)
    return finite and any(bool(g.any()) for g in grads)


def run_all(
    cases: Sequence[str],
    options: argparse.Namespace,
    run: Callable[[str, argparse.Namespace], list[Any]],
) -> list[Any]:
    parts = common.in_order(partial(run, options=options), cases, options, common.refused)
    return [trial for part in parts for trial in part]
