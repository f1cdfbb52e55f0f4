"""Whatever is handed over beside tensors of PyTorch: a verdict, our error, or the user's own."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gradproof
from flat_options import check
from fuzzing import Values, deep, fuzz, nothing, raises, ring, text
from gradproof.torch import gradcheck, gradgradcheck

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("torch"),
    pytest.mark.filterwarnings("ignore"),
]
F64 = torch.float64


def sine(x, *more, **others):
    return x.sin()


def product(x, y=2.0, *more, **others):
    return x * y


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 3


def wrong(x, *more, **others):
    return Wrong.apply(x)


def detached(x, *args, **kwargs):
    return x.detach()


def to_meta(x, *args, **kwargs):
    return x.to("meta")


def in_place(x, *args, **kwargs):
    return x.mul_(2)


def sparse(x, *args, **kwargs):
    return x.to_sparse()


def whole(x, *args, **kwargs):
    return x.long()


def drawn(*shape, dtype=F64, **options):
    tensor = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    return tensor.requires_grad_() if dtype.is_floating_point or dtype.is_complex else tensor


def fake():
    return torch._subclasses.fake_tensor.FakeTensorMode().from_tensor(drawn(2))


POINTS = {
    "tensor": drawn(2),
    "no gradient": drawn(2).detach(),
    "no dimension": drawn(),
    "empty": drawn(0, 2),
    "float32": drawn(2, dtype=torch.float32),
    "bfloat16": drawn(2, dtype=torch.bfloat16),
    "complex": drawn(2, dtype=torch.complex128),
    "integers": torch.arange(2),
    "nan": torch.tensor([float("nan"), 1.0], dtype=F64, requires_grad=True),
    "infinite": torch.tensor([float("inf"), 1.0], dtype=F64, requires_grad=True),
    "part of a graph": drawn(2) * 1,
    "expanded": drawn(1).expand(3),
    "sparse tensor": torch.eye(2, dtype=F64).to_sparse().requires_grad_(),
    "mkldnn": torch.ones(2).to_mkldnn(),
    "meta": torch.ones(2, device="meta", requires_grad=True),
    "fake": fake(),
    "uninitialised": torch.nn.UninitializedParameter(),
    "parameter": torch.nn.Parameter(drawn(2).detach()),
    "array of NumPy": np.ones(2),
    "layer": torch.nn.Linear(2, 2, dtype=F64),
    "lazy layer": torch.nn.LazyLinear(2, dtype=F64),
    "dtype": F64,
    "generator": torch.Generator(),
}
with warnings.catch_warnings():  # both are announced as unfinished
    warnings.simplefilter("ignore")
    POINTS["csr"] = torch.eye(2, dtype=F64).to_sparse_csr().requires_grad_()
    POINTS["quantised"] = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
V = Values(
    POINTS,
    (sine, product, wrong, raises, nothing, text, ring, deep, detached, to_meta, in_place, sparse,
     whole),
    ["sine", "product", "wrong"],
)  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_is_changed():
    states = torch.get_rng_state(), torch.get_default_dtype(), torch.is_grad_enabled()
    before = [(x, x.detach().clone(), x._version) for x in map(POINTS.get, ("tensor", "float32"))]
    yield
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1:] == (torch.get_default_dtype(), torch.is_grad_enabled())
    for x, value, version in before:
        assert torch.equal(x, value)
        assert (x._version, x.grad) == (version, None)


CHECK = {
    "kwargs": [{}, {"y": drawn(2)}],
    "checks": [["backward"], ["forward", "batched"], ["backwrd"]],
    "order": [1, 2],
    "transforms": [["hooks", "checkpointed"]],
    "rtol": [1e-3],
    "atol": [1e-3],
    "budget": [1, 50],
    "budget_seconds": [1e-3, 10],
    "masked": [True],
    "names": [["x"], ["x", "y"]],
    "reference": [torch.sin, gradproof.by_hand(np.sin, vjp=lambda x, v: np.cos(x) * v)],
    "oracles": [["native"], ["double", "reference"]],
    "domain": [(-5, 5), {"x": (-5, None)}],
    "sweep": [True],
    "trusted": [True],
    "accumulate": ["float32", "float64"],
    "wrt": ["x", 0, ["x"]],
    "args": [()],
    "vjp": [lambda x, v: x.cos() * v, raises],
    "jvp": [product],
    "jac": [torch.eye(2, dtype=F64)],
    "grad": [sine, True],
}
GIVEN = {"seed": 0, "budget": 300}


def inputs_of(points):
    return st.one_of(points, points, st.lists(points, max_size=2).map(tuple))


@fuzz(250)
@given(V.calls, inputs_of(V.points), V.options(**CHECK))
def test_check(fn, inputs, chosen):
    with V.lawful():
        report = check(V.made(fn), V.made(inputs), **{**GIVEN, **V.made(chosen)})
        assert str(report)


FLAGS = (
    "raise_exception", "check_undefined_grad", "check_batched_grad", "fast_mode", "masked",
)  # fmt: skip
NUMBERS = {"eps": [1e-6, 1e-3], "atol": [1e-5], "rtol": [1e-3], "nondet_tol": [0.0, 1e-6]}
COMMON = {**NUMBERS, **{flag: [True, False, None] for flag in FLAGS}}
FIRST = {"check_grad_dtypes", "check_batched_forward_grad", "check_forward_ad", "check_backward_ad"}
SECOND = {"gen_non_contig_grad_outputs", "check_fwd_over_rev", "check_rev_over_rev"}


@fuzz(150)
@given(V.calls, inputs_of(V.points), V.options(**COMMON, **{flag: [True, False] for flag in FIRST}))
def test_gradcheck(fn, inputs, chosen):
    # PyTorch's own exceptions for modes that exclude each other, and for overlapping memory.
    with V.lawful(AssertionError):
        assert gradcheck(V.made(fn), V.made(inputs), **V.made(chosen)) in (True, False)


@fuzz(100)
@given(
    V.calls,
    inputs_of(V.points),
    V.mostly(["None", "tensor"]),
    V.options(**COMMON, **{flag: [True, False] for flag in SECOND}),
)
def test_gradgradcheck(fn, inputs, cotangents, chosen):
    with V.lawful(AssertionError):
        made = V.made(cotangents)
        assert gradgradcheck(V.made(fn), V.made(inputs), made, **V.made(chosen)) in (True, False)
