"""A map that counts calls and keeps to a budget."""

from __future__ import annotations

import math
from time import monotonic

from gradproof._maps.contract import BudgetSpent, DifferentiableMap
from gradproof._maps.wrapped import Proxy


class Tally(dict[str, int]):
    """Calls by kind, and how many in all."""

    made = 0

    def __missing__(self, kind: str) -> int:
        return 0

    def now(self) -> dict[str, int]:
        """The calls so far, 0 of every kind that there is none of."""
        return Tally(self)

    def since(self, before: dict[str, int]) -> dict[str, int]:
        """The calls after those of `now`."""
        return {kind: self[kind] - before[kind] for kind in self if self[kind] > before[kind]}


class Metered(Proxy):
    """Another map, with its calls counted.

    Args:
        inner: the adapter's map.
        budget: calls of any kind before `BudgetSpent` is raised.
        seconds: wall time from now on, likewise; looked at before each call.
        parent: the map that this one was made from: it counts there, and keeps to its budget.
    """

    def __init__(
        self,
        inner: DifferentiableMap,
        budget: int,
        seconds: float | None = None,
        parent: Metered | None = None,
    ) -> None:
        self.budget, self._seconds = budget, seconds
        super().__init__(inner)
        self.calls: Tally = Tally() if parent is None else parent.calls
        self._until: float
        if parent is not None:
            self._until = parent._until
        else:
            self._until = math.inf if seconds is None else monotonic() + seconds

    def again(self, inner: DifferentiableMap) -> Metered:
        return Metered(inner, self.budget, self._seconds, self)

    def asked(self, kind: str, times: int = 1) -> None:
        if self.calls.made + times > self.budget:
            raise BudgetSpent(f"the budget of {self.budget:,} calls is spent; raise budget=")
        if self._seconds is not None and monotonic() >= self._until:
            raise BudgetSpent(
                f"the budget of {self._seconds:g} seconds is spent; raise budget_seconds="
            )
        self.calls[kind] += times
        self.calls.made += times
