"""A map whose vectors live elsewhere than those of the map it stands beside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradproof._map import DifferentiableMap
from gradproof._space import Array, namespace, on_host


def beside(inner: DifferentiableMap, like: Array) -> DifferentiableMap:
    """The map, its vectors of the library and on the device of `like`."""
    same = type(inner.point) is type(like) and namespace(inner.point) is namespace(like)
    return inner if same else Moved(inner, like)


class Moved(DifferentiableMap):
    """Another map; each vector crosses over the host, whole."""

    def __init__(self, inner: DifferentiableMap, like: Array) -> None:
        self._inner, self._like = inner, like
        self.domain, self.codomain = inner.domain, inner.codomain
        self.point, self.resolution = self._ours(inner.point), inner.resolution
        self.memo: dict[Any, Any] = {}
        self.unpacks = inner.unpacks

    def _ours(self, vector: Array) -> Array:
        return namespace(self._like).asarray(on_host(vector).copy())

    def _theirs(self, vector: Array) -> Array:
        return namespace(self._inner.point).asarray(on_host(vector))

    def value(self, x: Array) -> Array:
        return self._ours(self._inner.value(self._theirs(x)))

    def vjp(self, v: Array) -> Array:
        return self._ours(self._inner.vjp(self._theirs(v)))

    def jvp(self, u: Array) -> Array:
        return self._ours(self._inner.jvp(self._theirs(u)))

    def transposed_vjp(self, u: Array, v: Array) -> tuple[Array, Array]:
        image, gradient = self._inner.transposed_vjp(self._theirs(u), self._theirs(v))
        return self._ours(image), self._ours(gradient)

    def unreached(self) -> Sequence[int]:
        return self._inner.unreached()

    def at(self, x: Array) -> DifferentiableMap:
        return Moved(self._inner.at(self._theirs(x)), self._like)

    def in_double(self, fn: Callable[..., Any] | None = None) -> DifferentiableMap:
        return Moved(self._inner.in_double(fn), self._like)

    def rounded(self, unit: float, tiny: float, seed: int) -> DifferentiableMap:
        return Moved(self._inner.rounded(unit, tiny, seed), self._like)

    def derivative(self, v: Array) -> DifferentiableMap:
        return Moved(self._inner.derivative(self._theirs(v)), self._like)

    def forward_derivative(self, u: Array) -> DifferentiableMap:
        return Moved(self._inner.forward_derivative(self._theirs(u)), self._like)
