"""Gradients by decree, held against their definition, which no difference of values could show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from exhibits.frame import Exhibit, normal, ruled


def rounded(x: Tensor) -> Tensor:
    return torch.round(2 * x) / 2


def straight_through(x: Tensor) -> Tensor:
    return x + (rounded(x) - x).detach()


def within(limit: float, gradient: Callable[[Tensor], Tensor] = lambda g: g):
    """A rounding whose gradient goes through where the input is small."""
    return ruled(rounded, lambda g, x: gradient(g) * (x.abs() < limit))


def within_one(x: Tensor) -> Tensor:
    passed = x.clamp(-1, 1)
    return passed + (rounded(x) - passed).detach()


def reversed_by(factor: float) -> Callable[..., Any]:
    """A gradient reversal layer."""
    return ruled(torch.clone, lambda g, _: factor * g)


def reversal(x: Tensor) -> Tensor:
    return (x + 0.5 * x).detach() - 0.5 * x


def few_and_many() -> tuple[Tensor]:
    return (normal(5, 4),)


def _defined(name: str, wrong: Any, right: Any, reference: Any, **more: Any) -> Exhibit:
    return Exhibit(
        name=name,
        make_inputs=few_and_many,
        wrong=wrong,
        right=right,
        options={"reference": reference, "trusted": True},
        **more,
    )


EXHIBITS: tuple[Exhibit, ...] = (
    _defined(
        "a-straight-through-gradient-is-masked-at-another-limit",
        within(1.5),
        within(1.0),
        within_one,
    ),
    Exhibit(
        name="a-straight-through-gradient-without-its-definition",
        make_inputs=few_and_many,
        wrong=ruled(rounded, lambda g, _: g),
        right=rounded,
        cause="missing mask",
        verdict_of_right=frozenset({"passed", "inconclusive"}),
    ),
)
