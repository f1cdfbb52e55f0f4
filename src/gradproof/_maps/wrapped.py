"""A map around a map: the whole contract, handed on, in coordinates of its own where it has any.

A proxy says what it is of another inner map and, where it wants to know, what is asked. A wrapper
says beside it how vectors cross. Neither forgets a member of the contract: a test compares each
with its inner map.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gradproof._data.options import altered
from gradproof._data.space import Array, Space, namespace
from gradproof._maps.contract import DifferentiableMap, Observed, Run

Found = TypeVar("Found")
Calls = tuple["Array | None", "Array", "Array"]  # of `reused` and `overtaken`


class Proxy(DifferentiableMap):
    """Another map, the inner one, in its own coordinates."""

    def __init__(
        self, inner: DifferentiableMap, domain: Space | None = None, codomain: Space | None = None
    ) -> None:
        self.inner = inner
        self.domain = inner.domain if domain is None else domain
        self.codomain = inner.codomain if codomain is None else codomain
        self.resolution, self.derived = inner.resolution, inner.derived
        self.counts, self.spent = inner.counts, inner.spent
        self.memo: dict[Any, Any] = {}
        self.point = inner.point

    @abc.abstractmethod
    def again(self, inner: DifferentiableMap) -> DifferentiableMap:
        """The same around another map, made from the inner one."""

    def asked(self, kind: str, times: int = 1) -> None:
        """Told of every call before it is handed on: "value", "vjp" or "jvp"."""

    # The contract: what the table below cannot say.

    @property
    def notes(self) -> Sequence[str]:
        return self.inner.notes

    @property
    def given(self) -> Array:
        return self.inner.given

    def value(self, x: Array) -> Array:
        self.asked("value")
        return self.inner.value(x)

    def values(self, xs: Array) -> Array:
        self.asked("value", xs.shape[0])
        return self.inner.values(xs)

    def vjp(self, v: Array) -> Array:
        self.asked("vjp")
        return self.inner.vjp(v)

    def observed(self, v: Array) -> Observed:
        return self._run(self.inner.observed(v))

    def reused(self, x: Array, v: Array) -> Calls:
        return self._run(self.inner.reused(x, v))

    def overtaken(self, x: Array, v: Array) -> Calls:
        return self._run(self.inner.overtaken(x, v))

    def run_at(self, x: Array, v: Array, layouts: tuple[str, str]) -> Run:
        value, gradient, push = self._run(self.inner.run_at(x, v, layouts))

        def pushed(u: Array) -> Array:
            self.asked("jvp")
            return push(u)

        return value, gradient, pushed

    def _run(self, found: Found) -> Found:
        """What a call with its backward gave; where the framework has none, none was asked."""
        self.asked("value")
        self.asked("vjp")
        return found


# Member of the contract -> what is asked, and what the answer is.
_FORWARDED = {
    "close": ("", ""),
    "value": ("value", "image"),
    "values": ("value", "images"),
    "kept_value": ("", "image"),
    "vjp": ("vjp", "gradient"),
    "jvp": ("jvp", "image"),
    "transposed_vjp": ("vjp", "both"),
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
    "observed": ("vjp", "observed"),
    "unreached": ("", ""),
    "at": ("value", "map"),
    "run_at": ("vjp", "run"),
    "reused": ("vjp", "calls"),
    "overtaken": ("vjp", "calls"),
    "carried": ("", ""),
    "in_double": ("value", "map"),
    "rounded": ("value", "map"),
    "derivative": ("vjp", "map"),
    "forward_derivative": ("jvp", "map"),
    "transforms": ("", ""),
    "vjp_transform": ("vjp", "gradient"),
    "jvp_transform": ("jvp", "image"),
}


def _forwarded(name: str, kind: str, answer: str) -> Callable[..., Any]:
    """A member of the contract that asks the inner map for it."""

    @functools.wraps(getattr(DifferentiableMap, name))
    def member(own: Proxy, *given: Any) -> Any:
        if kind:
            own.asked(kind)
        found = getattr(own.inner, name)(*given)
        return own.again(found) if answer == "map" else found

    return member


for _name, _row in _FORWARDED.items():
    if _name not in vars(Proxy):
        setattr(Proxy, _name, _forwarded(_name, *_row))


class Wrapped(Proxy):
    """Another map, the inner one, in other coordinates."""

    def __init__(
        self, inner: DifferentiableMap, domain: Space | None = None, codomain: Space | None = None
    ) -> None:
        super().__init__(inner, domain, codomain)
        self.point = self.from_domain(inner.point)

    # How vectors cross.

    def into_point(self, x: Array) -> Array:
        """A point, as the inner map takes it."""
        return self.into_domain(x)

    def into_domain(self, u: Array) -> Array:
        """A direction, as the inner map takes it."""
        return u

    def from_domain(self, gradient: Array) -> Array:
        """A point or a gradient of the inner map, in coordinates of this one."""
        return gradient

    def into_codomain(self, v: Array) -> Array:
        """A cotangent, as the inner map takes it."""
        return v

    def from_codomain(self, y: Array) -> Array:
        """A value or a tangent of the inner map, in coordinates of this one."""
        return y

    @property
    def given(self) -> Array:
        return self.from_domain(self.inner.given)


def _observed(own: Wrapped, found: Observed) -> Observed:
    value, gradient = own.from_codomain(found.value), own.from_domain(found.gradient)
    return altered(found, value=value, gradient=gradient)


def _calls(own: Wrapped, found: Calls) -> Calls:
    here, value, there = found
    kept = None if here is None else own.from_domain(here)
    return kept, own.from_codomain(value), own.from_domain(there)


def _run(own: Wrapped, found: Run) -> Run:
    value, gradient, push = found

    def pushed(u: Array) -> Array:
        return own.from_codomain(push(own.into_domain(u)))

    return own.from_codomain(value), own.from_domain(gradient), pushed


# How parameters, which have the same names in every member, and answers cross; others stay.
_CROSSING: dict[str, Callable[[Wrapped, Any], Any]] = {
    "x": lambda own, x: x if x is None else own.into_point(x),
    "xs": lambda own, xs: _each(own.into_point, xs),
    "u": lambda own, u: own.into_domain(u),
    "us": lambda own, us: _each(own.into_domain, us),
    "v": lambda own, v: own.into_codomain(v),
    "vs": lambda own, vs: _each(own.into_codomain, vs),
    "gradient": lambda own, gradient: own.from_domain(gradient),
    "gradients": lambda own, gradients: _each(own.from_domain, gradients),
    "image": lambda own, image: own.from_codomain(image),
    "images": lambda own, images: _each(own.from_codomain, images),
    "both": lambda own, pair: _both(own, *pair),
    "observed": _observed,
    "calls": _calls,
    "run": _run,
}


def _crossing(name: str, answer: str) -> Callable[..., Any]:
    """The same of which vectors cross."""
    plain, said = getattr(Proxy, name), getattr(DifferentiableMap, name)
    parameters = said.__code__.co_varnames[1 : said.__code__.co_argcount]

    @functools.wraps(said)
    def member(own: Wrapped, *given: Any) -> Any:
        pairs = zip(parameters, given, strict=False)
        crossed = [_CROSSING[p](own, each) if p in _CROSSING else each for p, each in pairs]
        found = plain(own, *crossed)
        return _CROSSING[answer](own, found) if answer in _CROSSING else found

    return member


for _name, (_, _answer) in _FORWARDED.items():
    setattr(Wrapped, _name, _crossing(_name, _answer))


def _both(own: Wrapped, image: Array, gradient: Array) -> tuple[Array, Array]:
    return own.from_codomain(image), own.from_domain(gradient)


def _each(cross: Callable[[Array], Array], rows: Array) -> Array:
    """Every row of a matrix, as it crosses; the matrix itself where they cross as they are."""
    if rows.shape[0] and cross(first := rows[0, :]) is first:
        return rows
    crossed = [cross(rows[k, :]) for k in range(rows.shape[0])]
    return namespace(crossed[0]).stack(crossed) if crossed else rows
