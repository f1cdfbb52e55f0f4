"""gradcheck: the caller's tolerances reach the identities, too."""

from __future__ import annotations

import pytest
import torch

from gradproof.torch import gradcheck

F64 = torch.float64


def ruled(backward):
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            return backward(ctx.saved_tensors[0], g)

    return Sine.apply


def solved_to(part):
    return ruled(lambda x, g: g * x.cos() * (1 + part * torch.sin(1e3 * g)))


def answer(fn, **options):
    x = torch.linspace(0.2, 1.0, 4, dtype=F64).requires_grad_()
    return gradcheck(fn, (x,), raise_exception=False, **options)


@pytest.mark.parametrize(("part", "rtol"), [(1e-4, 1e-3), (1e-6, 1e-4)])
def test_a_backward_that_is_linear_to_the_callers_tolerance_passes(part, rtol):
    assert answer(solved_to(part), rtol=rtol, atol=0.0)


@pytest.mark.parametrize(("part", "rtol"), [(1e-2, 1e-3), (1e-4, 1e-6)])
def test_one_that_is_not_fails(part, rtol):
    assert not answer(solved_to(part), rtol=rtol, atol=0.0)


def test_an_offset_fails_below_any_tolerance():
    assert not answer(ruled(lambda x, g: g * x.cos() + 1e-6), rtol=0.1, atol=0.1)
