"""A map around a map: the whole contract, handed on in coordinates of its own.

A wrapper says how vectors cross, what it is of another inner map, and, where it wants to know, what
is asked. It forgets no member of the contract: a test compares every wrapper with its inner map.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

from gradproof._data.options import altered
from gradproof._data.space import Array, Space, namespace
from gradproof._maps.contract import DifferentiableMap, Observed, Trait, Transform

Calls = tuple["Array | None", "Array", "Array"]  # of `reused` and `overtaken`


class Wrapped(DifferentiableMap):
    """Another map in other coordinates.

    Args:
        inner: the map.
        domain: in place of the inner map's.
        codomain: likewise.
    """

    def __init__(
        self, inner: DifferentiableMap, domain: Space | None = None, codomain: Space | None = None
    ) -> None:
        self.inner = inner
        self.domain = inner.domain if domain is None else domain
        self.codomain = inner.codomain if codomain is None else codomain
        self.resolution, self.derived = inner.resolution, inner.derived
        self.counts, self.spent = inner.counts, inner.spent
        self.memo: dict[Any, Any] = {}
        self.point = self.from_point(inner.point)

    # What a wrapper is.

    @abc.abstractmethod
    def again(self, inner: DifferentiableMap) -> DifferentiableMap:
        """The same around another map, made from the inner one."""

    def asked(self, kind: str, times: int = 1) -> None:
        """Told of every call before it is handed on: "value", "vjp" or "jvp"."""

    def into_point(self, x: Array) -> Array:
        """A point, as the inner map takes it."""
        return self.into_domain(x)

    def from_point(self, x: Array) -> Array:
        """A point of the inner map, in coordinates of this one."""
        return self.from_domain(x)

    def into_domain(self, u: Array) -> Array:
        """A direction, as the inner map takes it."""
        return u

    def from_domain(self, gradient: Array) -> Array:
        """A gradient of the inner map, in coordinates of this one."""
        return gradient

    def into_codomain(self, v: Array) -> Array:
        """A cotangent, as the inner map takes it."""
        return v

    def from_codomain(self, y: Array) -> Array:
        """A value or a tangent of the inner map, in coordinates of this one."""
        return y

    # The contract.

    @property
    def notes(self) -> Sequence[str]:
        return self.inner.notes

    @property
    def given(self) -> Array:
        return self.from_point(self.inner.given)

    def close(self) -> None:
        self.inner.close()

    def value(self, x: Array) -> Array:
        self.asked("value")
        return self.from_codomain(self.inner.value(self.into_point(x)))

    def values(self, xs: Array) -> Array:
        self.asked("value", xs.shape[0])
        return _each(self.from_codomain, self.inner.values(_each(self.into_point, xs)))

    def vjp(self, v: Array) -> Array:
        self.asked("vjp")
        return self.from_domain(self.inner.vjp(self.into_codomain(v)))

    def vjps(self, vs: Array, layouts: Sequence[str]) -> Array:
        self.asked("vjp", len(layouts))
        found = self.inner.vjps(_each(self.into_codomain, vs), layouts)
        return _each(self.from_domain, found)

    def kept_value(self) -> Array:
        return self.from_codomain(self.inner.kept_value())

    def jvp(self, u: Array) -> Array:
        self.asked("jvp")
        return self.from_codomain(self.inner.jvp(self.into_domain(u)))

    def jvps(self, us: Array) -> Array:
        self.asked("jvp", us.shape[0])
        return _each(self.from_codomain, self.inner.jvps(_each(self.into_domain, us)))

    def transposed_vjp(self, u: Array, v: Array) -> tuple[Array, Array]:
        self.asked("vjp")
        image, gradient = self.inner.transposed_vjp(self.into_domain(u), self.into_codomain(v))
        return self.from_codomain(image), self.from_domain(gradient)

    def batchings(self) -> tuple[str, ...]:
        return self.inner.batchings()

    def vjp_batch(self, vs: Array, batching: str) -> Array:
        self.asked("vjp")
        found = self.inner.vjp_batch(_each(self.into_codomain, vs), batching)
        return _each(self.from_domain, found)

    def jvp_batch(self, us: Array) -> Array:
        self.asked("jvp")
        return _each(self.from_codomain, self.inner.jvp_batch(_each(self.into_domain, us)))

    def vjp_undefined(self, v: Array, missing: frozenset[int]) -> Array:
        self.asked("vjp")
        return self.from_domain(self.inner.vjp_undefined(self.into_codomain(v), missing))

    def jvp_undefined(self, u: Array, missing: frozenset[int]) -> Array:
        self.asked("jvp")
        return self.from_codomain(self.inner.jvp_undefined(self.into_domain(u), missing))

    def vjp_wrt(self, v: Array, slots: frozenset[int]) -> Array:
        self.asked("vjp")
        return self.from_domain(self.inner.vjp_wrt(self.into_codomain(v), slots))

    def compiles_subsets(self) -> bool:
        return self.inner.compiles_subsets()

    def layouts(self) -> tuple[str, ...]:
        return self.inner.layouts()

    def vjp_layout(self, v: Array, layout: str) -> Array:
        self.asked("vjp")
        return self.from_domain(self.inner.vjp_layout(self.into_codomain(v), layout))

    def input_layouts(self) -> tuple[str, ...]:
        return self.inner.input_layouts()

    def restrided(self, layout: str, x: Array | None = None) -> DifferentiableMap:
        self.asked("value")
        at = None if x is None else self.into_point(x)
        return self.again(self.inner.restrided(layout, at))

    def by_memory(self) -> str:
        self.asked("value")
        return self.inner.by_memory()

    def gradient_traits(self, v: Array) -> Sequence[Trait]:
        return self.inner.gradient_traits(self.into_codomain(v))

    def outside_domain(self, v: Array) -> Sequence[tuple[int, tuple[int, ...], float]]:
        return self.inner.outside_domain(self.into_codomain(v))

    def side_effects(self, v: Array) -> Sequence[tuple[str, str]]:
        self.asked("vjp")
        return self.inner.side_effects(self.into_codomain(v))

    def observed(self, v: Array) -> Observed:
        found = self.inner.observed(self.into_codomain(v))
        self.asked("value")  # after it: where the framework has no such run there was none
        self.asked("vjp")
        value, gradient = self.from_codomain(found.value), self.from_domain(found.gradient)
        return altered(found, value=value, gradient=gradient)

    def unreached(self) -> Sequence[int]:
        return self.inner.unreached()

    def at(self, x: Array) -> DifferentiableMap:
        self.asked("value")
        return self.again(self.inner.at(self.into_point(x)))

    def reused(self, x: Array, v: Array) -> Calls:
        return self._calls(self.inner.reused(self.into_point(x), self.into_codomain(v)))

    def overtaken(self, x: Array, v: Array) -> Calls:
        return self._calls(self.inner.overtaken(self.into_point(x), self.into_codomain(v)))

    def _calls(self, found: Calls) -> Calls:
        self.asked("value")  # after it: where the framework has no such call there was none
        self.asked("vjp")
        here, value, there = found
        kept = None if here is None else self.from_domain(here)
        return kept, self.from_codomain(value), self.from_domain(there)

    def in_double(self, fn: Callable[..., Any] | None = None) -> DifferentiableMap:
        self.asked("value")
        return self.again(self.inner.in_double(fn))

    def rounded(self, unit: float, tiny: float, seed: int | None) -> DifferentiableMap:
        self.asked("value")
        return self.again(self.inner.rounded(unit, tiny, seed))

    def derivative(self, v: Array) -> DifferentiableMap:
        self.asked("vjp")
        return self.again(self.inner.derivative(self.into_codomain(v)))

    def forward_derivative(self, u: Array) -> DifferentiableMap:
        self.asked("jvp")
        return self.again(self.inner.forward_derivative(self.into_domain(u)))

    def transforms(self) -> Sequence[Transform]:
        return self.inner.transforms()

    def vjp_transform(self, v: Array, name: str) -> Array:
        self.asked("vjp")
        return self.from_domain(self.inner.vjp_transform(self.into_codomain(v), name))

    def jvp_transform(self, u: Array, name: str) -> Array:
        self.asked("jvp")
        return self.from_codomain(self.inner.jvp_transform(self.into_domain(u), name))

    def transform_faults(self, v: Array, name: str) -> Sequence[str]:
        self.asked("vjp")
        return self.inner.transform_faults(self.into_codomain(v), name)


def _each(cross: Callable[[Array], Array], rows: Array) -> Array:
    """Every row of a matrix, as it crosses; the matrix itself where they cross as they are."""
    if rows.shape[0] and cross(first := rows[0, :]) is first:
        return rows
    crossed = [cross(rows[k, :]) for k in range(rows.shape[0])]
    return namespace(crossed[0]).stack(crossed) if crossed else rows
