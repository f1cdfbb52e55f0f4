"""A map that counts, keeps to a budget, and turns a function that raises into one without value."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from gradproof._map import BudgetSpent, DifferentiableMap, Trait, Unsupported, Variant
from gradproof._numerics.packing import unpacked
from gradproof._space import Array, namespace
from gradproof.errors import UsageError


class Metered(DifferentiableMap):
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
        self.inner, self.budget, self._seconds = inner, budget, seconds
        self.domain, self.codomain = inner.domain, inner.codomain
        self.point, self.resolution = inner.point, inner.resolution
        self.derived = inner.derived
        self.memo: dict[Any, Any] = {}
        self.calls: Counter[str] = Counter() if parent is None else parent.calls
        self._until: float
        if parent is not None:
            self._until = parent._until
        else:
            self._until = math.inf if seconds is None else monotonic() + seconds

    @property
    def given(self) -> Array:
        return self.inner.given

    def _from(self, inner: DifferentiableMap) -> Metered:
        return Metered(inner, self.budget, self._seconds, self)

    def _count(self, kind: str) -> None:
        if self.calls.total() >= self.budget:
            raise BudgetSpent(f"the budget of {self.budget:,} calls is spent; raise budget=")
        if monotonic() >= self._until:
            raise BudgetSpent(
                f"the budget of {self._seconds:g} seconds is spent; raise budget_seconds="
            )
        self.calls[kind] += 1

    def _given(self, vector: Array) -> Array:
        """A vector that may be packed, as the map takes it."""
        return vector if self.inner.unpacks else unpacked(vector)

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
        return self.inner.vjp(self._given(v))

    def kept_value(self) -> Array:
        return self.inner.kept_value()

    def jvp(self, u: Array) -> Array:
        try:
            return self._forward(lambda: self.inner.jvp(self._given(u)))
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
        return self.inner.transposed_vjp(self._given(u), self._given(v))

    def batchings(self) -> tuple[str, ...]:
        return self.inner.batchings()

    def vjp_batch(self, vs: Array, batching: str) -> Array:
        self._count("vjp")
        return self.inner.vjp_batch(vs, batching)

    def jvp_batch(self, us: Array) -> Array:
        return self._forward(lambda: self.inner.jvp_batch(us))

    def vjp_undefined(self, v: Array, missing: frozenset[int]) -> Array:
        self._count("vjp")
        return self.inner.vjp_undefined(self._given(v), missing)

    def jvp_undefined(self, u: Array, missing: frozenset[int]) -> Array:
        return self._forward(lambda: self.inner.jvp_undefined(u, missing))

    def vjp_wrt(self, v: Array, slots: frozenset[int]) -> Array:
        self._count("vjp")
        return self.inner.vjp_wrt(v, slots)

    def compiles_subsets(self) -> bool:
        return self.inner.compiles_subsets()

    def layouts(self) -> tuple[str, ...]:
        return self.inner.layouts()

    def vjp_layout(self, v: Array, layout: str) -> Array:
        self._count("vjp")
        return self.inner.vjp_layout(self._given(v), layout)

    def input_layouts(self) -> tuple[str, ...]:
        return self.inner.input_layouts()

    def relaid(self, layout: str) -> tuple[DifferentiableMap, Array]:
        self._count("value")
        other, value = self.inner.relaid(layout)
        return self._from(other), value

    def by_memory(self) -> str:
        self._count("value")
        return self.inner.by_memory()

    def gradient_traits(self, v: Array) -> Sequence[Trait]:
        return self.inner.gradient_traits(self._given(v))

    def outside_domain(self, v: Array) -> Sequence[tuple[int, tuple[int, ...], float]]:
        return self.inner.outside_domain(self._given(v))

    def side_effects(self, v: Array) -> Sequence[tuple[str, str]]:
        self._count("vjp")
        return self.inner.side_effects(self._given(v))

    def unreached(self) -> Sequence[int]:
        return self.inner.unreached()

    def at(self, x: Array) -> DifferentiableMap:
        self._count("value")
        return self._from(self.inner.at(x))

    def reused(self, x: Array, v: Array) -> tuple[Array | None, Array, Array]:
        found = self.inner.reused(x, self._given(v))
        self._count("value")
        self._count("vjp")
        return found

    def overtaken(self, x: Array, v: Array) -> tuple[Array | None, Array, Array]:
        found = self.inner.overtaken(x, self._given(v))
        self._count("value")
        self._count("vjp")
        return found

    def in_double(self, fn: Callable[..., Any] | None = None) -> DifferentiableMap:
        self._count("value")
        return self._from(self.inner.in_double(fn))

    def rounded(self, unit: float, tiny: float, seed: int) -> DifferentiableMap:
        self._count("value")
        return self._from(self.inner.rounded(unit, tiny, seed))

    def derivative(self, v: Array) -> DifferentiableMap:
        self._count("vjp")
        return self._from(self.inner.derivative(v))

    def forward_derivative(self, u: Array) -> DifferentiableMap:
        self._count("jvp")
        return self._from(self.inner.forward_derivative(u))

    def variants(self) -> Sequence[Variant]:
        return self.inner.variants()

    def vjp_variant(self, v: Array, name: str) -> Array:
        self._count("vjp")
        return self.inner.vjp_variant(v, name)

    def jvp_variant(self, u: Array, name: str) -> Array:
        self._count("jvp")
        return self.inner.jvp_variant(u, name)

    def variant_faults(self, v: Array, name: str) -> Sequence[str]:
        self._count("vjp")
        return self.inner.variant_faults(v, name)
