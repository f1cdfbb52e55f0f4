"""A map whose vectors live elsewhere than those of the map it stands beside."""

from __future__ import annotations

from gradproof._data.space import Array, namespace, on_host
from gradproof._maps.contract import DifferentiableMap
from gradproof._maps.wrapped import Wrapped


def beside(inner: DifferentiableMap, like: Array) -> DifferentiableMap:
    """The map, its vectors of the library and on the device of `like`."""
    same = type(inner.point) is type(like) and namespace(inner.point) is namespace(like)
    return inner if same else Moved(inner, like)


class Moved(Wrapped):
    """Another map; each vector crosses over the host, whole."""

    def __init__(self, inner: DifferentiableMap, like: Array) -> None:
        self._like = like
        super().__init__(inner)

    def again(self, inner: DifferentiableMap) -> DifferentiableMap:
        return Moved(inner, self._like)

    def into_domain(self, u: Array) -> Array:
        return namespace(self.inner.point).asarray(on_host(u))

    def into_codomain(self, v: Array) -> Array:
        return self.into_domain(v)

    def from_domain(self, gradient: Array) -> Array:
        return namespace(self._like).asarray(on_host(gradient).copy())

    def from_codomain(self, y: Array) -> Array:
        return self.from_domain(y)
