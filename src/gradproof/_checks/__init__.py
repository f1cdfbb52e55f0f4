"""The checks, in the order in which they run: cheap identities share what the first measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradproof._checks import (
    adjoint,
    backward,
    batched,
    determinism,
    layout,
    linearity,
    pairs,
    state,
    traits,
    transforms,
    undefined,
)
from gradproof._data.records import NOT_ASKED, CheckResult, Verdict
from gradproof._data.settings import CHECK_NAMES, TRANSFORM_NAMES, Settings
from gradproof._judge.outcome import inconclusive, skipped
from gradproof._maps.contract import DifferentiableMap
from gradproof._verdict.judge import unsteady


@dataclass(frozen=True)
class Check:
    """One row of the table.

    Attributes:
        name: the check's.
        run: the check.
        order: of derivative that must be asked for before it runs.
        always: it has a row in a report of all checks also where that order was not asked for.
        compares: claims made in several runs of the function, which a random one makes differ.
    """

    name: str
    run: Callable[[DifferentiableMap, Settings], CheckResult]
    order: int = 1
    always: bool = False
    compares: bool = False

    def result(self, map_: DifferentiableMap, settings: Settings) -> CheckResult:
        """What the check concludes; skipped where its order was not asked for."""
        if settings.order < self.order:
            reason = f"{NOT_ASKED}; order={self.order} asks for it"
            return skipped(self.name, reason)
        map_.memo[state.VERDICT, self.name] = Verdict.SKIPPED  # also where it raises
        found = self.run(map_, settings)
        map_.memo[state.VERDICT, self.name] = found.verdict
        if self.compares and found.verdict is Verdict.FAILED and (reason := unsteady(map_)):
            return inconclusive(self.name, reason)
        return found

    def asked(self, settings: Settings) -> bool:
        """Whether it has a row in the report: also where it was named, to say why it is skipped."""
        if settings.checks != CHECK_NAMES:
            return self.name in settings.checks
        if self.name in TRANSFORM_NAMES:
            return self.name in settings.transforms
        return self.always or self.order <= settings.order


CHECKS = (
    Check("backward", backward.check),
    Check("forward", backward.check_forward),
    Check("adjoint", adjoint.check, compares=True),
    Check("linearity", linearity.check, compares=True),
    Check("layout", layout.check, compares=True),
    Check("traits", traits.check),
    Check("sparse", traits.check_sparse),
    Check("undefined", undefined.check, compares=True),
    Check("state", state.check, compares=True),
    Check("determinism", determinism.check),
    Check("hygiene", traits.check_hygiene),
    Check("batched", batched.check, compares=True),
    Check("batched_forward", batched.check_forward, compares=True),
    Check("second_order", backward.check_second_order, 2, always=True),
    Check("forward_over_reverse", backward.check_forward_over_reverse, 2),
    Check("reverse_over_forward", backward.check_reverse_over_forward, 2),
    Check("forward_over_forward", backward.check_forward_over_forward, 2),
    Check("symmetry", pairs.check_symmetry, 2, compares=True),
    Check("second_linearity", pairs.check_linearity, 2, compares=True),
    Check("pairs", pairs.check_pairs, 2, compares=True),
    Check("third_order", backward.check_third, 3),
    *(Check(name, transforms.row(name), compares=True) for name in TRANSFORM_NAMES),
)
