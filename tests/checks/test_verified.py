"""The number that a passed report states is a bound: what passed is no more wrong than that."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import gradproof

SLACK = 1.05  # of the roundings of what was planted


def planted(part: float, where: int, mix: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function with one entry of its Jacobian off by a part of itself."""

    class Planted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return mix(x)

        @staticmethod
        def backward(ctx, g: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                y = x.detach().requires_grad_()
                (right,) = torch.autograd.grad(mix(y), y, g, create_graph=True)
            weights = torch.ones(x.numel(), dtype=x.dtype)
            weights[where] += part
            return right * weights

    return Planted.apply


def point(size: int) -> Tensor:
    generator = torch.Generator().manual_seed(size)
    return torch.randn(size, generator=generator, dtype=torch.float64).requires_grad_()


FUNCTIONS = {
    "sine": torch.sin,
    "softmax": lambda x: torch.softmax(x, 0),
    "sum of squares": lambda x: x.square().sum(),
    "columns of two sizes": lambda x: x[:2].sum() * 1e-3 + x[2:].sin(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("part", [9e-7, 1e-7, 1e-9, 1e-11])
def test_what_passes_is_off_by_no_more_than_is_stated(name: str, part: float) -> None:
    """The bound is in parts of the largest entry of a row."""
    x = point(12)
    rows = torch.autograd.functional.jacobian(FUNCTIONS[name], x).reshape(-1, 12).abs()
    part_of_row = part * float((rows[:, 1] / rows.max(dim=1).values).max())
    fn = planted(part, 1, FUNCTIONS[name])
    row = gradproof.check(fn, (x,), checks=["backward"], seed=0)["backward"]
    assert row.verdict is gradproof.Verdict.FAILED or row.resolution >= part_of_row / SLACK


@pytest.mark.parametrize("size", [12, 3000])
def test_a_tolerance_that_lets_a_gap_pass_is_stated(size: int) -> None:
    fn = planted(0.02, 3, torch.sin)
    row = gradproof.check(fn, (point(size),), checks=["backward"], rtol=0.05, seed=0)["backward"]
    assert row.verdict is gradproof.Verdict.PASSED
    assert row.resolution >= 0.02 / SLACK
    bound = f"to {row.resolution:.0e}" if row.resolution < 1 else "along random directions"
    assert f"verified {bound}" in row.summary


@pytest.mark.parametrize(("size", "finely"), [(12, True), (100_000, True)])
def test_a_bound_that_says_nothing_of_single_entries_is_reported_in_words(
    size: int, finely: bool
) -> None:
    x, weights = point(size), point(size).detach().roll(1)
    report = gradproof.check(
        lambda x: (x * weights).relu().sum(), (x,), checks=["backward"], seed=3
    )
    row = report["backward"]
    assert row.verdict is gradproof.Verdict.PASSED
    assert (row.resolution < 1) is finely
    words = "verified along random directions, not entry by entry"
    bound = f"verified to {row.resolution:.0e}" if finely else words
    assert bound in row.summary
    assert "e+" not in str(report)
