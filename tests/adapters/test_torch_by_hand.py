"""Derivatives written by hand for functions of PyTorch tensors: as they lie in a user's program."""

from __future__ import annotations

import pytest
import torch

import gradproof
from gradproof.errors import UsageError

pytestmark = pytest.mark.needs("torch")


def drawn(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


TENSORS = {
    "requires grad": lambda: drawn(3).requires_grad_(),
    "parameter": lambda: torch.nn.Parameter(drawn(3)),
    "part of a graph": lambda: drawn(3).requires_grad_() * 1,
    "transposed": lambda: drawn(2, 3).T.requires_grad_(),
    "float32": lambda: drawn(3, dtype=torch.float32).requires_grad_(),
    "bfloat16": lambda: drawn(3, dtype=torch.bfloat16).requires_grad_(),
    "complex": lambda: drawn(3, dtype=torch.complex128).requires_grad_(),
    "conjugate": lambda: drawn(3, dtype=torch.complex128).conj(),
    "negative": lambda: drawn(3, dtype=torch.complex128).conj().imag,
}
CLAIMS = {
    "vjp": lambda factor: {"vjp": lambda x, v: factor * x.cos().conj() * v},
    "jvp": lambda factor: {"jvp": lambda x, u: factor * x.cos() * u},
    "jac": lambda factor: {"jac": lambda x: torch.diag(factor * x.cos().ravel())},
}


@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "passed"), (1.5, "failed")])
def test_tensors_as_they_are(kind, claim, factor, verdict):
    x = TENSORS[kind]()
    before, version = x.detach().clone(), x._version
    seen = []

    def fn(x):
        seen.append(x)
        return torch.sin(x)

    report = gradproof.check(gradproof.by_hand(fn, **CLAIMS[claim](factor)), x, seed=0)
    accepted = {verdict}
    if kind == "bfloat16" and claim != "vjp" and verdict == "passed":
        accepted.add("inconclusive")  # forward mode of three numbers in eight bits
    assert report.verdict in accepted, str(report)
    assert torch.equal(x, before)
    assert x._version == version
    assert all(type(each) is torch.Tensor and not each.requires_grad for each in seen)
    assert {each.dtype for each in seen} <= {x.dtype, torch.float64}


def test_a_layer_and_what_autograd_says_of_it_inside():
    layer = torch.nn.Linear(3, 2, dtype=torch.float64)

    def vjp(x, v):
        return torch.autograd.functional.vjp(layer, x, v)[1]

    assert (
        gradproof.check(
            gradproof.by_hand(layer, vjp=vjp), drawn(3).requires_grad_(), seed=0
        ).verdict
        == "passed"
    )
    assert (
        gradproof.check(gradproof.by_hand(layer, jac=layer.weight), drawn(3), seed=0).verdict
        == "passed"
    )
    assert (
        gradproof.check(gradproof.by_hand(layer, jac=2 * layer.weight), drawn(3), seed=0).verdict
        == "failed"
    )
    assert layer.weight.grad is None


def test_several_inputs_and_further_arguments():
    A, x = drawn(2, 3).requires_grad_(), drawn(3).requires_grad_()
    both = gradproof.check(
        gradproof.by_hand(lambda A, x: A @ x, vjp=lambda A, x, v: (torch.outer(v, x), A.T @ v)),
        (A, x),
        seed=0,
    )
    assert both.verdict == "passed"
    assert both.inputs == ("A: float64[2, 3]", "x: float64[3]")
    one = gradproof.check(
        gradproof.by_hand(lambda x, A: A @ x, args=(A,), vjp=lambda x, v, A: A.T @ v), x, seed=0
    )
    assert one.verdict == "passed"


@pytest.mark.parametrize("kind", ["meta", "fake", "uninitialised"])
def test_tensors_without_numbers(kind):
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    x = {
        "meta": lambda: torch.ones(3, device="meta"),
        "fake": lambda: fake.FakeTensorMode().from_tensor(drawn(3)),
        "uninitialised": torch.nn.UninitializedParameter,
    }[kind]()
    with pytest.raises(UsageError, match=r"^x: its numbers cannot be read: "):
        gradproof.check(gradproof.by_hand(lambda x: x.sin(), vjp=lambda x, v: v), x, seed=0)
