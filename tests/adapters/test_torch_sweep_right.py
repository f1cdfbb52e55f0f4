"""A sweep accuses no right function: operators and layers of PyTorch, every input to the end.

Those that are wrong somewhere are in docs/defects/pytorch.md and not here: atan2, hypot, xlogy at
zeros, det of singular matrices, logcumsumexp of wide rows, GroupNorm of nothing.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import gradproof
from exhibits.frame import leaf, normal

pytestmark = pytest.mark.slow


def positive(*shape: int) -> torch.Tensor:
    return (normal(*shape).detach().abs() + 0.5).requires_grad_()


UNARY = [
    "sin",
    "cos",
    "exp",
    "tanh",
    "sigmoid",
    "erf",
    "atan",
    "floor",
    "sign",
    "abs",
    "relu",
    "sinc",
    "expm1",
    "square",
    "frac",
    "log1p",
    "log",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "lgamma",
    "digamma",
]
ACTIVATIONS = [
    "gelu",
    "silu",
    "softplus",
    "elu",
    "selu",
    "celu",
    "mish",
    "hardswish",
    "leaky_relu",
    "relu6",
    "softsign",
    "logsigmoid",
    "hardtanh",
    "softshrink",
    "hardshrink",
    "tanhshrink",
]
NEEDS_POSITIVE = {"log", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma", "log1p"}

OF_ONE = {
    "softmax": (lambda x: x.softmax(-1), (3, 4)),
    "log_softmax": (lambda x: x.log_softmax(-1), (3, 4)),
    "logsumexp": (lambda x: x.logsumexp(-1), (3, 4)),
    "mean": (torch.mean, (3, 4)),
    "prod": (torch.prod, (4,)),
    "cumsum": (lambda x: x.cumsum(0), (4,)),
    "cumprod": (lambda x: x.cumprod(0), (4,)),
    "std": (torch.std, (4,)),
    "norm": (torch.linalg.norm, (4,)),
    "amax": (torch.amax, (3,)),
    "sort": (lambda x: torch.sort(x).values, (4,)),
    "topk": (lambda x: x.topk(2).values, (5,)),
    "median": (lambda x: x.median(), (5,)),
    "where": (lambda x: torch.where(x > 0, x, 2 * x), (4,)),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), (4,)),
    "layer_norm": (lambda x: functional.layer_norm(x, x.shape[-1:]), (3, 4)),
    "normalize": (functional.normalize, (3, 4)),
    "max_pool1d": (lambda x: functional.max_pool1d(x, 2), (1, 2, 6)),
    "unfold": (lambda x: x.unfold(0, 2, 1), (5,)),
    "inverse": (torch.linalg.inv, (3, 3)),
}
OF_TWO = {
    "mul": (torch.mul, (3,), (3,)),
    "maximum": (torch.maximum, (3,), (3,)),
    "logaddexp": (torch.logaddexp, (3,), (3,)),
    "matmul": (torch.matmul, (2, 3), (3, 4)),
    "mse_loss": (functional.mse_loss, (4,), (4,)),
    "l1_loss": (functional.l1_loss, (4,), (4,)),
    "huber_loss": (functional.huber_loss, (4,), (4,)),
    "cosine_similarity": (functional.cosine_similarity, (3, 4), (3, 4)),
    "cross": (torch.linalg.cross, (2, 3), (2, 3)),
    "conv2d": (functional.conv2d, (1, 2, 5, 5), (3, 2, 3, 3)),
    "divergence": (
        lambda x, y: functional.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="sum"),
        (3, 4),
        (3, 4),
    ),
    "grid_sample": (
        lambda x, y: functional.grid_sample(x, y.tanh(), align_corners=False),
        (1, 1, 3, 3),
        (1, 2, 2, 2),
    ),
}
LAYERS = {
    "Linear": (lambda: torch.nn.Linear(3, 2), (4, 3)),
    "LayerNorm": (lambda: torch.nn.LayerNorm(4), (3, 4)),
    "Conv1d": (lambda: torch.nn.Conv1d(2, 3, 3), (1, 2, 6)),
    "PReLU": (torch.nn.PReLU, (4,)),
    "GRU": (lambda: torch.nn.GRU(2, 3), (3, 1, 2)),
}


def calls():
    for name in UNARY:
        make = positive if name in NEEDS_POSITIVE else normal
        yield pytest.param(getattr(torch, name), (make(3),), id=name)
    for name in ACTIVATIONS:
        yield pytest.param(getattr(functional, name), (normal(4),), id=name)
    for name, (fn, shape) in OF_ONE.items():
        yield pytest.param(fn, (normal(*shape),), id=name)
    for name, (fn, one, other) in OF_TWO.items():
        yield pytest.param(fn, (normal(*one), normal(*other, seed=2)), id=name)


def assert_right(fn, inputs) -> None:
    report = gradproof.check(fn, inputs, seed=0, sweep=True)
    assert report["sweep"].verdict == "passed", [f.message for f in report["sweep"].findings]
    assert not any("the budget was spent" in note for note in report["sweep"].notes)


@pytest.mark.parametrize(("fn", "inputs"), list(calls()))
def test_a_right_function_is_not_accused_by_a_sweep(fn, inputs):
    assert_right(fn, inputs)


@pytest.mark.parametrize("name", LAYERS)
def test_a_right_layer_is_not_accused_by_a_sweep(name):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    assert_right(make().double(), (normal(*shape),))


@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        pytest.param(torch.floor, (leaf(38656.0),), id="floor"),
        pytest.param(
            lambda x: (x.sin(), x.exp(), x.cos()), (leaf(677.0, 1.0, 0.3),), id="three outputs"
        ),
    ],
)
def test_large_values_that_a_sweep_came_upon_are_not_accused(fn, inputs):
    assert gradproof.check(fn, inputs, seed=0).verdict != "failed"
