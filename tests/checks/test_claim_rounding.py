"""What a claim is rounded by itself is no mistake: 1 - sigmoid(30), at any size."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import gradproof
from gradproof import Verdict

SIZES = [3, 2000]


def loss(x: Tensor) -> Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(
        x, torch.ones_like(x), reduction="none"
    )


class Wrong(torch.autograd.Function):
    """softplus(-x), a fifth too steep where it is saturated."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.nn.functional.softplus(-x)

    @staticmethod
    def backward(ctx, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return -g * torch.sigmoid(-x) * torch.where(x > 29, 1.2, 1.0)


def saturated(size: int) -> Tensor:
    return torch.linspace(-2, 30, size, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(5))
def test_a_right_derivative_that_is_rounded_is_not_accused_and_a_wrong_one_is(size, seed):
    options = {"checks": ["backward", "forward"], "seed": seed}
    right = gradproof.check(loss, (saturated(size),), **options)
    verdicts = {row.verdict for row in right.checks}
    if size == 3:
        assert verdicts == {Verdict.PASSED}
    else:  # of a large Jacobian the rows are not measured entry by entry
        assert Verdict.FAILED not in verdicts, str(right)
    wrong = gradproof.check(Wrong.apply, (saturated(size),), **options)
    assert wrong["backward"].verdict is Verdict.FAILED


@pytest.mark.parametrize("size", SIZES)
def test_what_rounding_drowns_is_open(size):
    x = saturated(size).detach().index_fill(0, torch.tensor([0]), 40.0).requires_grad_()
    report = gradproof.check(loss, (x,), checks=["backward"], seed=0)
    assert report["backward"].verdict is Verdict.INCONCLUSIVE
