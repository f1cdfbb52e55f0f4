"""What a run is asked to do: validated once, then never changed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradproof.errors import UsageError

CHECK_NAMES = (
    "backward",
    "forward",
    "adjoint",
    "linearity",
    "layout",
    "traits",
    "sparse",
    "undefined",
    "determinism",
    "hygiene",
    "batched",
    "batched_forward",
    "second_order",
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of one run.

    An entry of the Jacobian is wrong when
    ``|claimed - measured| > error bar + atol + rtol * |measured|``.

    Attributes:
        checks: names from `CHECK_NAMES`, in any order; they run in the order of the table.
        order: highest order of derivative checked, 1 or 2.
        rtol: relative tolerance on an entry, no unit.
        atol: absolute tolerance on an entry, in units of output per unit of input. A gap
            below it is excused; it never certifies a pass.
        resolution: error bar above which, relative to the size of the derivative, the answer
            is inconclusive.
        nondeterminism: how far two runs of the backward may lie apart.
        relative_nondeterminism: the same, as a part of the largest entry of the gradient.
        seed: of the probes. None draws a fresh one, which the report records.
        budget: calls of the function, all modes together, after which a check gives up.
        largest_step: largest perturbation of an input, in units of the input; None chooses.
        classic_step: where the error bars leave entries undecided, judge those by a plain
            central difference with this step. None leaves them inconclusive.
        full_jacobian: number of input coordinates up to which a suspicion is settled by
            measuring every column.
        required: checks that fail, instead of being skipped, where the framework raises.
    """

    checks: tuple[str, ...] = CHECK_NAMES
    order: int = 1
    rtol: float = 1e-6
    atol: float = 0.0
    resolution: float = 1e-2
    nondeterminism: float = 0.0
    relative_nondeterminism: float = 1e-6
    seed: int | None = None
    budget: int = 100_000
    largest_step: float | None = None
    classic_step: float | None = None
    full_jacobian: int = 512
    required: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if unknown := [name for name in self.checks if name not in CHECK_NAMES]:
            raise UsageError(
                f"checks: unknown {unknown[0]!r}; choose from {', '.join(CHECK_NAMES)}"
            )
        if self.order not in (1, 2):
            raise UsageError(f"order: expected 1 or 2, got {self.order!r}")
        for name in ("rtol", "atol", "resolution", "nondeterminism"):
            value = getattr(self, name)
            if not (value >= 0 and not math.isnan(value)):
                raise UsageError(f"{name}: expected a number >= 0, got {value!r}")
        if self.budget < 1:
            raise UsageError(f"budget: expected at least 1 call, got {self.budget!r}")
        for name in ("largest_step", "classic_step"):
            step = getattr(self, name)
            if step is not None and not 0 < step < math.inf:
                raise UsageError(f"{name}: expected a positive finite number, got {step!r}")
