"""A map that counts, keeps to a budget, and turns a function that raises into one without value."""

from __future__ import annotations

import math
from time import monotonic

from gradproof._data.frames import raised
from gradproof._data.space import Array, namespace
from gradproof._maps.contract import HEARD, BudgetSpent, DifferentiableMap, Unsupported
from gradproof._maps.wrapped import Proxy
from gradproof.errors import UsageError


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

    def value(self, x: Array) -> Array:
        """F(x); NaN throughout where the function raises, as it may beside the point."""
        self.asked("value")
        try:
            return self.inner.value(x)
        except UsageError:
            raise
        except Exception as error:  # the user's function may raise anything
            return self._without_value(error, (self.codomain.size,))

    def values(self, xs: Array) -> Array:
        """F of every row; NaN throughout where the function raises at one of them."""
        self.asked("value", xs.shape[0])
        try:
            return self.inner.values(xs)
        except UsageError:
            raise
        except Exception as error:  # likewise
            return self._without_value(error, (xs.shape[0], self.codomain.size))

    def _without_value(self, error: Exception, shape: tuple[int, ...]) -> Array:
        self.memo.setdefault(("raised",), f"the function raised {raised(error)}")
        return namespace(self.point).full(shape, float("nan"))

    def vjp(self, v: Array) -> Array:
        self.asked("vjp")
        found = self.inner.vjp(v)
        if HEARD in self.memo:
            self.memo[HEARD](found, v)
        return found

    def vjp_layout(self, v: Array, layout: str) -> Array:
        self.asked("vjp")
        found = self.inner.vjp_layout(v, layout)
        if HEARD in self.memo:
            self.memo[HEARD](found, v, layout)
        return found

    def jvp(self, u: Array) -> Array:
        self._require_forward()
        self.asked("jvp")
        try:
            return self.inner.jvp(u)
        except Unsupported:
            self.memo[("no forward",)] = True
            raise

    def jvp_batch(self, us: Array) -> Array:
        self._require_forward()
        return super().jvp_batch(us)

    def jvp_undefined(self, u: Array, missing: frozenset[int]) -> Array:
        self._require_forward()
        return super().jvp_undefined(u, missing)

    def _require_forward(self) -> None:
        """Forward mode is refused without a call once it has been refused."""
        if ("no forward",) in self.memo:
            raise Unsupported("needs forward mode")
