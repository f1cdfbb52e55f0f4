"""A map around a map: the whole contract, handed on in coordinates of its own.

A wrapper says how vectors cross, what it is of another inner map, and, where it wants to know, what
is asked. It forgets no member of the contract: a test compares every wrapper with its inner map.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Any

from gradproof._data.options import altered
from gradproof._data.space import Array, Space, namespace
from gradproof._maps.contract import DifferentiableMap, Observed

Calls = tuple["Array | None", "Array", "Array"]  # of `reused` and `overtaken`


class Wrapped(DifferentiableMap):
    """Another map, the inner one, in other coordinates."""

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

    # The contract: what is not in the table below.

    @property
    def notes(self) -> Sequence[str]:
        return self.inner.notes

    @property
    def given(self) -> Array:
        return self.from_point(self.inner.given)

    def value(self, x: Array) -> Array:
        self.asked("value")
        return self.from_codomain(self.inner.value(self.into_point(x)))

    def values(self, xs: Array) -> Array:
        self.asked("value", xs.shape[0])
        return _each(self.from_codomain, self.inner.values(_each(self.into_point, xs)))

    def vjp(self, v: Array) -> Array:
        self.asked("vjp")
        return self.from_domain(self.inner.vjp(self.into_codomain(v)))

    def jvp(self, u: Array) -> Array:
        self.asked("jvp")
        return self.from_codomain(self.inner.jvp(self.into_domain(u)))

    def transposed_vjp(self, u: Array, v: Array) -> tuple[Array, Array]:
        self.asked("vjp")
        image, gradient = self.inner.transposed_vjp(self.into_domain(u), self.into_codomain(v))
        return self.from_codomain(image), self.from_domain(gradient)

    def observed(self, v: Array) -> Observed:
        found = self.inner.observed(self.into_codomain(v))
        self.asked("value")  # after it: where the framework has no such run there was none
        self.asked("vjp")
        value, gradient = self.from_codomain(found.value), self.from_domain(found.gradient)
        return altered(found, value=value, gradient=gradient)

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


# Member of the contract -> what is asked, and what the answer is.
_FORWARDED = {
    "close": ("", ""),
    "kept_value": ("", "image"),
    "batchings": ("", ""),
    "vjp_batch": ("vjp", "gradients"),
    "jvp_batch": ("jvp", "images"),
    "vjp_undefined": ("vjp", "gradient"),
    "jvp_undefined": ("jvp", "image"),
    "vjp_wrt": ("vjp", "gradient"),
    "compiles_subsets": ("", ""),
    "layouts": ("", ""),
    "vjp_layout": ("vjp", "gradient"),
    "input_layouts": ("", ""),
    "restrided": ("value", "map"),
    "by_memory": ("value", ""),
    "gradient_traits": ("", ""),
    "outside_domain": ("", ""),
    "side_effects": ("vjp", ""),
    "unreached": ("", ""),
    "at": ("value", "map"),
    "in_double": ("value", "map"),
    "rounded": ("value", "map"),
    "derivative": ("vjp", "map"),
    "forward_derivative": ("jvp", "map"),
    "transforms": ("", ""),
    "vjp_transform": ("vjp", "gradient"),
    "jvp_transform": ("jvp", "image"),
    "transform_faults": ("vjp", ""),
}
# How parameters, which have the same names in every member, and answers cross; others stay.
_CROSSING: dict[str, Callable[[Wrapped, Any], Any]] = {
    "x": lambda own, x: x if x is None else own.into_point(x),
    "u": lambda own, u: own.into_domain(u),
    "us": lambda own, us: _each(own.into_domain, us),
    "v": lambda own, v: own.into_codomain(v),
    "vs": lambda own, vs: _each(own.into_codomain, vs),
    "gradient": lambda own, gradient: own.from_domain(gradient),
    "gradients": lambda own, gradients: _each(own.from_domain, gradients),
    "image": lambda own, image: own.from_codomain(image),
    "images": lambda own, images: _each(own.from_codomain, images),
    "map": lambda own, inner: own.again(inner),
}


def _forwarded(name: str, kind: str, answer: str) -> Callable[..., Any]:
    """A member of the contract that asks the inner map for it."""
    said = getattr(DifferentiableMap, name)
    parameters = said.__code__.co_varnames[1 : said.__code__.co_argcount]

    @functools.wraps(said)
    def member(own: Wrapped, *given: Any) -> Any:
        if kind:
            own.asked(kind)
        pairs = zip(parameters, given, strict=False)
        crossed = [_CROSSING[p](own, each) if p in _CROSSING else each for p, each in pairs]
        found = getattr(own.inner, name)(*crossed)
        return _CROSSING[answer](own, found) if answer else found

    return member


for _name, _row in _FORWARDED.items():
    setattr(Wrapped, _name, _forwarded(_name, *_row))


def _each(cross: Callable[[Array], Array], rows: Array) -> Array:
    """Every row of a matrix, as it crosses; the matrix itself where they cross as they are."""
    if rows.shape[0] and cross(first := rows[0, :]) is first:
        return rows
    crossed = [cross(rows[k, :]) for k in range(rows.shape[0])]
    return namespace(crossed[0]).stack(crossed) if crossed else rows
