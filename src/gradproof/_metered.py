"""A map that counts, keeps to a budget, and turns a function that raises into one without value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from gradproof._map import DifferentiableMap, Trait, Unsupported
from gradproof._space import Array, namespace
from gradproof.errors import UsageError


class BudgetSpent(BaseException):
    """The calls a run may make are used up.

    No Exception: where a check takes whatever the user's code raises for a finding, this is none.
    """


class Metered(DifferentiableMap):
    """Another map, with its calls counted.

    Args:
        inner: the adapter's map.
        budget: calls of any kind before `BudgetSpent` is raised.
        calls: where to count; a derivative counts where its map does.
    """

    def __init__(
        self, inner: DifferentiableMap, budget: int, calls: Counter[str] | None = None
    ) -> None:
        self.inner, self.budget = inner, budget
        self.domain, self.codomain = inner.domain, inner.codomain
        self.point, self.resolution = inner.point, inner.resolution
        self.memo: dict[Any, Any] = {}
        self.calls: Counter[str] = Counter() if calls is None else calls

    def _count(self, kind: str) -> None:
        if self.calls.total() >= self.budget:
            raise BudgetSpent
        self.calls[kind] += 1

    def value(self, x: Array) -> Array:
        """F(x); NaN throughout where the function raises, as it may beside the point."""
        self._count("value")
        try:
            return self.inner.value(x)
        except UsageError:
            raise
        except Exception as error:  # the user's function may raise anything
            self.memo.setdefault(
                ("raised",), f"the function raised {type(error).__name__}: {error}"
            )
            return namespace(x).full((self.codomain.size,), float("nan"))

    def vjp(self, v: Array) -> Array:
        self._count("vjp")
        return self.inner.vjp(v)

    def jvp(self, u: Array) -> Array:
        try:
            return self._forward(lambda: self.inner.jvp(u))
        except Unsupported:
            self.memo[("no forward",)] = True
            raise

    def _forward(self, run: Callable[[], Array]) -> Array:
        """Forward mode, refused without a call once it has been refused."""
        if ("no forward",) in self.memo:
            raise Unsupported("needs forward mode")
        self._count("jvp")
        return run()

    def transposed_vjp(self, u: Array, v: Array) -> tuple[Array, Array]:
        self._count("vjp")
        return self.inner.transposed_vjp(u, v)

    def vjp_batch(self, vs: Array) -> Array:
        self._count("vjp")
        return self.inner.vjp_batch(vs)

    def jvp_batch(self, us: Array) -> Array:
        return self._forward(lambda: self.inner.jvp_batch(us))

    def vjp_undefined(self, v: Array, missing: frozenset[int]) -> Array:
        self._count("vjp")
        return self.inner.vjp_undefined(v, missing)

    def jvp_undefined(self, u: Array, missing: frozenset[int]) -> Array:
        return self._forward(lambda: self.inner.jvp_undefined(u, missing))

    def layouts(self) -> tuple[str, ...]:
        return self.inner.layouts()

    def vjp_layout(self, v: Array, layout: str) -> Array:
        self._count("vjp")
        return self.inner.vjp_layout(v, layout)

    def gradient_traits(self, v: Array) -> Sequence[Trait]:
        return self.inner.gradient_traits(v)

    def outside_domain(self, v: Array) -> Sequence[tuple[int, tuple[int, ...], float]]:
        return self.inner.outside_domain(v)

    def side_effects(self, v: Array) -> Sequence[tuple[str, str]]:
        self._count("vjp")
        return self.inner.side_effects(v)

    def unreached(self) -> Sequence[int]:
        return self.inner.unreached()

    def at(self, x: Array) -> DifferentiableMap:
        self._count("value")
        return Metered(self.inner.at(x), self.budget, self.calls)

    def in_double(self, fn: Callable[..., Any] | None = None) -> DifferentiableMap:
        self._count("value")
        return Metered(self.inner.in_double(fn), self.budget, self.calls)

    def rounded(self, unit: float, tiny: float, seed: int) -> DifferentiableMap:
        self._count("value")
        return Metered(self.inner.rounded(unit, tiny, seed), self.budget, self.calls)

    def derivative(self, v: Array) -> DifferentiableMap:
        self._count("vjp")
        return Metered(self.inner.derivative(v), self.budget, self.calls)
