"""Derivatives written by hand for functions of PyTorch tensors: as they lie in a user's program."""

from __future__ import annotations

import pytest
import torch

import flat_options
from faces.torch_cases import without_numbers
from gradproof.errors import UsageError

pytestmark = pytest.mark.needs("torch")


def check(fn, inputs, **options):
    return flat_options.check(fn, inputs, seed=0, **options)


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

    report = check(fn, x, **CLAIMS[claim](factor))
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

    assert check(layer, drawn(3).requires_grad_(), vjp=vjp).verdict == "passed"
    assert check(layer, drawn(3), jac=layer.weight).verdict == "passed"
    assert check(layer, drawn(3), jac=2 * layer.weight).verdict == "failed"
    assert layer.weight.grad is None


def test_several_inputs_and_further_arguments():
    A, x = drawn(2, 3).requires_grad_(), drawn(3).requires_grad_()
    both = check(lambda A, x: A @ x, (A, x), vjp=lambda A, x, v: (torch.outer(v, x), A.T @ v))
    assert both.verdict == "passed"
    assert both.inputs == ("A: float64[2, 3]", "x: float64[3]")
    one = check(lambda x, A: A @ x, x, args=(A,), vjp=lambda x, v, A: A.T @ v)
    assert one.verdict == "passed"


@pytest.mark.parametrize("kind", ["meta", "fake", "uninitialised"])
def test_tensors_without_numbers(kind):
    with pytest.raises(UsageError, match=r"^x: its numbers cannot be read: "):
        check(lambda x: x.sin(), without_numbers(kind), vjp=lambda x, v: v)
