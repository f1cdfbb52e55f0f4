"""The number that a passed report states is a bound: what passed is no more wrong than that."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd.functional import jacobian

import gradproof
from exhibits.frame import normal, ruled

SLACK = 1.05  # of the roundings of what was planted


def planted(part: float, where: int, mix: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function with one entry of its Jacobian off by a part of itself."""

    def off(g: Tensor, x: Tensor) -> Tensor:
        (gradient,) = torch.func.vjp(mix, x)[1](g)
        return gradient * (1 + part * (torch.arange(x.numel()) == where))

    return ruled(mix, off)


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
    x = normal(12)
    rows = jacobian(FUNCTIONS[name], x).reshape(-1, 12).abs()
    part_of_row = part * float((rows[:, 1] / rows.max(dim=1).values).max())
    fn = planted(part, 1, FUNCTIONS[name])
    row = gradproof.check(fn, (x,), checks=["backward"], seed=0)["backward"]
    assert row.verdict is gradproof.Verdict.FAILED or row.resolution >= part_of_row / SLACK


@pytest.mark.parametrize("size", [12, 3000])
def test_a_tolerance_that_lets_a_gap_pass_is_stated(size: int) -> None:
    fn = planted(0.02, 3, torch.sin)
    row = gradproof.check(fn, (normal(size),), checks=["backward"], rtol=0.05, seed=0)["backward"]
    assert row.verdict is gradproof.Verdict.PASSED
    assert row.resolution >= 0.02 / SLACK
    bound = f"to {row.resolution:.0e}" if row.resolution < 1 else "along random directions"
    assert f"verified {bound}" in row.summary


@pytest.mark.parametrize("size", [12, 100_000])
def test_the_bound_on_single_entries_is_in_the_summary(size: int) -> None:
    x, weights = normal(size), normal(size).detach().roll(1)
    report = gradproof.check(
        lambda x: (x * weights).relu().sum(), (x,), checks=["backward"], seed=3
    )
    row = report["backward"]
    assert row.verdict is gradproof.Verdict.PASSED
    assert row.resolution < 1
    assert f"verified to {row.resolution:.0e}" in row.summary
    assert "e+" not in str(report)


def test_a_factor_on_a_row_that_passes_is_no_larger_than_is_stated() -> None:
    """Some rows are small along the random tangent by chance, and show it less than an entry."""
    part = 3e-7
    for seed in range(6):
        weights = normal(50, 8, seed=seed).detach()
        for row in range(0, 50, 2):
            off = torch.ones(50, dtype=torch.float64)
            off[row] += part

            def backward(g: Tensor, x: Tensor, off: Tensor = off, w: Tensor = weights) -> Tensor:
                return x.cos() * (w.T @ (g * off))

            fn = ruled(lambda x, w=weights: w @ x.sin(), backward)
            found = gradproof.check(fn, (normal(8),), checks=["backward"], seed=seed)["backward"]
            assert found.verdict is gradproof.Verdict.PASSED
            assert found.resolution >= part / SLACK
