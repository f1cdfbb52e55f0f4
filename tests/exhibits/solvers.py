"""Solvers and approximations that stop at a tolerance, and their twins that go on to the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from exhibits.frame import Exhibit, normal, ruled

A = 2 * torch.eye(9, dtype=torch.float64) + normal(9, 9, seed=8).detach() / 8


def solved(b: Tensor) -> Tensor:
    return torch.linalg.solve(A, b.exp())


def iterated(g: Tensor, steps: int) -> Tensor:
    """The solution of A^T y = g, nearly: Richardson's iteration."""
    y = torch.zeros_like(g)
    for _ in range(steps):
        y = y + 0.5 * (g - A.T @ y)
    return y


def stopped_after(steps: int) -> Callable[..., Any]:
    """The adjoint of the solver by so many steps."""
    return ruled(solved, lambda g, b: b.exp() * iterated(g, steps))


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit(
        name="an-adjoint-solver-stops-early",
        make_inputs=lambda: (normal(9),),
        wrong=stopped_after(8),
        right=stopped_after(200),
    ),
)
