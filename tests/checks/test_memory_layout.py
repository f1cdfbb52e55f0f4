"""Functions of the memory of their inputs: those that mean it pass, those that misread it fail."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.functional import vjp

import gradproof
from exhibits.frame import normal, ruled
from exhibits.innocents import seeded_dropout
from gradproof import Verdict

DOUBLE, BRAIN = torch.float64, torch.bfloat16


def in_order(x):
    """What lies in memory, in the order in which it lies there."""
    return x.T if x.stride(0) < x.stride(1) else x


def slope_in_order(g, x):
    slope = g * in_order(x).cos()
    return slope if in_order(x) is x else slope.T


def twice(x):
    return 2 * x if x.is_contiguous() else x.mT + x


@pytest.mark.parametrize("dtype", [DOUBLE, BRAIN], ids=["float64", "bfloat16"])
@pytest.mark.parametrize(
    ("fn", "verdict", "note"),
    [
        (
            lambda x: x.as_strided((2, 2), (1, 2)) * 2,
            Verdict.PASSED,
            "goes by how its inputs lie in memory",
        ),
        (
            seeded_dropout,
            Verdict.PASSED,
            "draws random numbers in the order of the memory",
        ),
        (ruled(twice, lambda g, x: 2 * g, vmap=False), Verdict.FAILED, ""),
        # Its derivative is right of what it computes; that is not what it is to compute.
        (ruled(lambda x: in_order(x).sin(), slope_in_order, vmap=False), Verdict.FAILED, ""),
    ],
    ids=["by strides", "mask", "misread", "misread both ways"],
)
def test_a_function_that_means_its_memory_is_not_accused_of_it(fn, verdict, note, dtype):
    checks = ["backward", "memory_layout"]
    report = gradproof.check(fn, [normal(5, 5, dtype=dtype)], checks=checks, seed=0)
    assert report["backward"].verdict is Verdict.PASSED, report
    assert report["memory_layout"].verdict is verdict, report
    assert note in " ".join(report["memory_layout"].notes)


def distances(x):
    """Of more than 25 points PyTorch multiplies matrices, and leaves rounding on the diagonal."""
    return torch.cdist(x, x)


def misread_slope(g, x):
    """The gradient for a cotangent that is read as if it were contiguous."""
    read = g if g.is_contiguous() else g.transpose(0, 1).flip(0)
    return vjp(distances, x.detach(), read.contiguous())[1]


def test_terms_that_are_infinite_but_for_rounding_are_no_finding():
    wrong = ruled(distances, misread_slope, vmap=False)
    for seed in (1, 6, 14):
        torch.manual_seed(seed)
        x = torch.randn(50, 3, dtype=DOUBLE).requires_grad_()
        for fn, verdict in ((distances, Verdict.PASSED), (wrong, Verdict.FAILED)):
            report = gradproof.check(fn, [x], checks=["memory_layout"], seed=seed)
            assert report.verdict is verdict, report


def test_a_sum_of_which_nothing_is_left_may_be_rounded_as_its_terms():
    for seed in range(40):
        x = torch.randn(6, 5, generator=torch.Generator().manual_seed(seed)).double()
        x = x.to(torch.bfloat16).double().requires_grad_()
        report = gradproof.check(lambda x: (x - x.mean(0)).sum(), x, seed=seed)
        assert report["memory_layout"].verdict is not gradproof.Verdict.FAILED, str(report)
