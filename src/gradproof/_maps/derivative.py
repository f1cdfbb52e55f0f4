"""The derivative of a map as a map, with the derivative of a reference as its reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradproof._maps.contract import DifferentiableMap
from gradproof._maps.wrapped import Proxy


class DerivativeMap(Proxy):
    """The map (x, v) -> J(x)^T v of a function that is held against a reference.

    A reference of the function takes x alone: that of the derivative is its derivative.

    Args:
        inner: the map.
        derivative_of_reference: makes the same map of another function, on float64 arrays.
    """

    def __init__(
        self,
        inner: DifferentiableMap,
        derivative_of_reference: Callable[[Callable[..., Any]], DifferentiableMap],
    ) -> None:
        super().__init__(inner)
        self._derivative_of_reference = derivative_of_reference

    def again(self, inner: DifferentiableMap) -> DifferentiableMap:
        return inner

    def in_double(self, fn: Callable[..., Any] | None = None) -> DifferentiableMap:
        """The same derivative, or that of `fn`, on double precision arrays."""
        return self.inner.in_double() if fn is None else self._derivative_of_reference(fn)
