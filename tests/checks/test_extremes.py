"""What right functions do with very large and very small cotangents is not held against them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import gradproof  # noqa: E402
from exhibits.frame import normal, ruled  # noqa: E402
from gradproof import Verdict  # noqa: E402

SINGLE, HALF, BRAIN = torch.float32, torch.float16, torch.bfloat16


def clamped(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return g.clamp(-1e4, 1e4) * x.cos()


PRODUCT = ruled(torch.prod, lambda g, x: g * g * x.prod() / x)
SQUARE = ruled(lambda x: x @ x, lambda g, x: (g * g) @ x.T + x.T @ (g * g))


def linearity(fn, *inputs, seed=0):
    return gradproof.check(fn, inputs, seed=seed)["linearity"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dtype", [SINGLE, BRAIN], ids=str)
def test_a_clamp_far_above_the_usual_size_is_found_in_few_bits(dtype, seed):
    x = normal(4, 5, dtype=dtype)
    assert linearity(ruled(torch.sin, clamped), x, seed=seed).verdict is Verdict.FAILED
    assert linearity(torch.sin, x, seed=seed).verdict is Verdict.PASSED


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dtype", [SINGLE, BRAIN], ids=str)
@pytest.mark.parametrize("fn", [PRODUCT, SQUARE], ids=["one output", "many"])
def test_the_square_of_a_cotangent_is_no_rounding_of_a_large_one(fn, dtype, seed):
    """In every entry: what it is off by grows with the cotangent, as lost digits do."""
    x = (2 + normal(3, 3).detach()).to(dtype).requires_grad_()
    assert linearity(fn, x, seed=seed).verdict is Verdict.FAILED


@pytest.mark.parametrize("seed", range(5))
def test_digits_that_a_matrix_exponential_loses_in_a_large_cotangent_accuse_nothing(seed):
    """In single precision its gradient is off by per cents where the cotangent is 2^20."""
    found = linearity(torch.matrix_exp, normal(5, 5, dtype=SINGLE), seed=seed)
    assert found.verdict is Verdict.INCONCLUSIVE, found
    assert "in float64 it is" in found.summary


def test_a_backward_that_refuses_large_cotangents_is_asked_for_usual_ones():
    def refusing(g, x):
        if float(g.abs().max()) > 1e3:
            raise RuntimeError("the cotangent is too large for me")
        return g * x.cos()

    found = linearity(ruled(torch.sin, refusing, vmap=False), normal(6))
    assert found.verdict is Verdict.PASSED
    assert "2^0 to 2^0" in found.summary
    assert any("too large for me" in note for note in found.notes)


def test_a_backward_that_always_raises_fails():
    def raising(g, x):
        raise RuntimeError("never")

    assert linearity(ruled(torch.sin, raising, vmap=False), normal(6)).verdict is Verdict.FAILED


def test_half_precision_is_asked_as_far_as_its_range_goes():
    found = linearity(torch.sin, normal(4, 5, dtype=HALF))
    assert found.verdict is Verdict.PASSED
    assert "2^-20" not in found.summary


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_a_gradient_at_the_end_of_the_range_is_asked_as_far_as_it_goes(scale):
    found = linearity(lambda x: scale * torch.sin(x), normal(6))
    assert found.verdict is Verdict.PASSED, found
