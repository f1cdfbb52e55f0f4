"""The checks, in the order in which they run: cheap identities share what the first measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradproof._checks import (
    adjoint,
    backward,
    batched,
    determinism,
    forward,
    hygiene,
    layout,
    linearity,
    second_order,
    sparse,
    traits,
    undefined,
)
from gradproof._map import DifferentiableMap
from gradproof._records import CheckResult
from gradproof._settings import Settings


@dataclass(frozen=True)
class Check:
    """One row of the table: a name and what runs."""

    name: str
    run: Callable[[DifferentiableMap, Settings], CheckResult]


CHECKS = (
    Check("backward", backward.check),
    Check("forward", forward.check),
    Check("adjoint", adjoint.check),
    Check("linearity", linearity.check),
    Check("layout", layout.check),
    Check("traits", traits.check),
    Check("sparse", sparse.check),
    Check("undefined", undefined.check),
    Check("determinism", determinism.check),
    Check("hygiene", hygiene.check),
    Check("batched", batched.check),
    Check("batched_forward", batched.check_forward),
    Check("second_order", second_order.check),
)
