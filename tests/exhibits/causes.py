"""One mistake of each kind that a report calls by a name and no other room shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from exhibits.frame import Exhibit, normal, ruled, spoilt

SUMS = torch.eye(12, dtype=torch.float64) + normal(12, 12, seed=5).detach() / 4
MIXED = torch.view_as_complex(normal(4, 3, 2, seed=6).detach())


def sums(x: Tensor) -> Tensor:
    return SUMS @ x.exp().flatten()


def mixed(z: Tensor) -> Tensor:
    return MIXED @ z


def matrix() -> tuple[Tensor]:
    return (normal(3, 4),)


def vector() -> tuple[Tensor]:
    return (normal(12),)


def numbers() -> tuple[Tensor]:
    return (torch.view_as_complex(normal(3, 2, seed=2).detach()).requires_grad_(),)


def positive() -> tuple[Tensor]:
    """A symmetric positive definite matrix."""
    a = normal(4, 4, seed=3).detach()
    return ((a @ a.T + torch.eye(4, dtype=torch.float64)).requires_grad_(),)


def _changed(
    name: str,
    cause: str,
    change: Callable[[Tensor], Tensor],
    make_inputs: Callable[[], tuple[Tensor]] = matrix,
    function: Callable[..., Any] = sums,
    **facts: Any,
) -> Exhibit:
    """One of two functions, and its twin whose gradient goes through `change`."""
    return Exhibit(
        name=name,
        cause=cause,
        make_inputs=make_inputs,
        wrong=spoilt(function, change),
        right=function,
        **facts,
    )


_changed_complex = partial(_changed, make_inputs=numbers, function=mixed)


EXHIBITS = (
    _changed(
        "axes_not_permuted_back",
        "transposed",
        lambda g: g.permute(1, 2, 0).reshape(2, 3, 2),
        make_inputs=lambda: (normal(2, 3, 2),),
    ),
    _changed(
        "absolute_value_of_the_gradient",
        "sign",
        torch.abs,
        also=frozenset({"linearity"}),
    ),
    _changed(
        "epsilon_added",
        "missing term",
        lambda g: g + 0.25,
        also=frozenset({"linearity", "missing_grad_output"}),
    ),
    _changed(
        "gradient_through_float32",
        "",
        lambda g: g.float().double(),
        check="linearity",
    ),
    _changed(
        "gradient_through_bfloat16",
        "lower precision",
        lambda g: g.bfloat16().double(),
        also=frozenset({"linearity"}),
    ),
    _changed_complex("imaginary_part_dropped", "zero", lambda g: g.real + 0j),
    _changed_complex("real_part_dropped", "zero", lambda g: 1j * g.imag),
    Exhibit(
        name="tangent_ignored",
        cause="tangent ignored",
        check="linearity",
        make_inputs=vector,
        wrong=ruled(torch.sin, lambda g, x: g * x.cos(), lambda _, x: x.cos()),
        right=ruled(torch.sin, lambda g, x: g * x.cos(), lambda t, x: t * x.cos()),
        also=frozenset({"forward", "forward_vs_backward"}),
    ),
    Exhibit(
        name="factor_of_a_symmetric_matrix_moved_along_other_directions",
        cause="symmetric input",
        make_inputs=positive,
        wrong=lambda a: torch.linalg.cholesky(a),
        right=lambda a: torch.linalg.cholesky((a + a.T) / 2),
        also=frozenset({"forward", "forward_vs_backward", "second_point"}),
    ),
)
