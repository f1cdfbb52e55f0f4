"""Functions of PyTorch that draw, or hold arrays, in few bits: their runs in double precision."""

from __future__ import annotations

import pytest
import torch

import gradproof
from exhibits.frame import normal, ruled
from gradproof import Verdict

LOW = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
SAME = "the same function in float64"


def backward_of(fn, *inputs):
    return gradproof.check(fn, inputs, checks=["backward"], seed=0)["backward"]


def larger_below_double(factor):
    """The identity, whose gradient is too large below double precision."""
    return ruled(
        lambda x: x.clone(), lambda g, x: g * (1.0 if x.dtype is torch.float64 else factor)
    )


DISTRIBUTIONS = {
    "rand": lambda x: torch.rand(x.shape, dtype=x.dtype),
    "randn_like": torch.randn_like,
    "of a mean": lambda x: torch.normal(torch.zeros_like(x), 1.0),
    "of probabilities": lambda x: torch.bernoulli(x.detach().sigmoid()),
    "written": lambda x: torch.empty_like(x).exponential_(),
    "of a distribution": lambda x: torch.distributions.Normal(x, x.exp()).rsample() - x,
    "a mask": lambda x: torch.nn.functional.dropout(x, 0.4),
}


@LOW
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_function_that_draws_is_held_against_the_same_draws(name, dtype):
    """The right one was accused: in float64 the function drew other numbers."""

    def fn(x, factor=1.0):
        x = larger_below_double(factor)(x)
        return (x.tanh() + 0.5 * DISTRIBUTIONS[name](x)).square().mean()

    x = normal(32, 16, dtype=dtype)
    right = backward_of(fn, x)
    assert right.verdict is Verdict.PASSED, right
    assert right.reference == SAME
    assert backward_of(lambda x: fn(x, 1.1), x).verdict is Verdict.FAILED


def test_what_a_backward_draws_is_the_same_too():
    from torch.utils.checkpoint import checkpoint

    def noisy(x):
        return (x + torch.randn_like(x)).tanh() * torch.rand_like(x)

    result = backward_of(
        lambda x: checkpoint(noisy, x, use_reentrant=False), normal(40, dtype=torch.float32)
    )
    assert result.verdict is Verdict.PASSED, result
    assert result.reference == SAME


HELD = normal(5, 5, seed=3).detach().to(torch.bfloat16)


def written(x):
    buffer = torch.zeros(5, 5, dtype=x.dtype)
    buffer[:, :2] = x[:, :2] * HELD[:, :2]
    return buffer.copy_(buffer + x)


HOLDING = {
    "a product": lambda x: x @ HELD,
    "a linear layer": lambda x: torch.nn.functional.linear(x, weight=HELD),
    "several": lambda x: torch.einsum("ij,jk,kl->il", x, HELD, HELD),
    "a list": lambda x: torch.linalg.multi_dot([x, HELD, x]),
    "a buffer that is written": lambda x: written(x) @ HELD,
}


@pytest.mark.parametrize("name", HOLDING)
def test_arrays_in_few_bits_that_a_function_holds_are_widened_where_they_meet_doubles(name):
    x, kept = normal(5, 5, dtype=torch.bfloat16), HELD.clone()
    result = backward_of(HOLDING[name], x)
    assert result.verdict is Verdict.PASSED, result
    assert result.reference == SAME
    wrong = backward_of(lambda x: HOLDING[name](larger_below_double(1.1)(x)), x)
    assert wrong.verdict is Verdict.FAILED, wrong
    assert torch.equal(HELD, kept)


@pytest.mark.parametrize("wrap", [lambda layer: layer, lambda layer: layer.forward])
def test_a_layer_runs_in_double_precision_and_stays_in_its_own(wrap):
    layer = torch.nn.Linear(3, 2)
    result = backward_of(wrap(layer), normal(4, 3, dtype=torch.float32))
    assert result.verdict is Verdict.PASSED, result
    assert result.reference == SAME
    assert {parameter.dtype for parameter in layer.parameters()} == {torch.float32}


def test_the_mean_of_many_numbers_is_asked_no_oftener_than_that_of_few():
    few, many = (
        gradproof.check(torch.mean, (normal(size, dtype=torch.float32),), seed=0)
        for size in (1000, 100_000)
    )
    assert few.verdict is many.verdict is Verdict.PASSED
    assert many.calls["function"] <= few.calls["function"]
    assert many.calls["vjp"] <= few.calls["vjp"]
