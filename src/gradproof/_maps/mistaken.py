"""A map whose backward is wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gradproof._data.space import Array
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._maps.wrapped import Wrapped

Change = Callable[[Array], Array]


def _same(vector: Array) -> Array:
    return vector


@dataclass(frozen=True)
class Mistake:
    """What a wrong backward does instead of v -> J^T v: v -> after(J^T before(v)).

    Attributes:
        name: of the mistake.
        what: it does, in words.
        after, before: linear; and their transposes, for J u from the same wrong backward.
        layouts: it happens only where the cotangent comes in another memory layout.
        why: it cannot show where it does not.
    """

    name: str
    what: str
    after: Change = _same
    before: Change = _same
    after_transposed: Change = _same
    before_transposed: Change = _same
    layouts: bool = False
    why: str = ""

    def elsewhere(self) -> Mistake:
        """What it does to cotangents in the ordinary layout."""
        if not self.layouts:
            return self
        return replace(self, after=_same, before=_same)


class Mistaken(Wrapped):
    """Another map, its backward wrong in one way; forward mode, where it has one, stays right."""

    def __init__(self, inner: DifferentiableMap, mistake: Mistake) -> None:
        self.mistake, self._plain = mistake, mistake.elsewhere()
        super().__init__(inner)

    def again(self, inner: DifferentiableMap) -> DifferentiableMap:
        if inner.domain.size != self.domain.size or inner.codomain.size != self.codomain.size:
            raise Unsupported("another number of inputs or outputs")
        return Mistaken(inner, self.mistake)

    def from_point(self, x: Array) -> Array:
        return x

    def into_codomain(self, v: Array) -> Array:
        return self._plain.before(v)

    def from_domain(self, gradient: Array) -> Array:
        return self._plain.after(gradient)

    def transposed_vjp(self, u: Array, v: Array) -> tuple[Array, Array]:
        one = self._plain
        image, gradient = self.inner.transposed_vjp(one.after_transposed(u), one.before(v))
        return one.before_transposed(image), one.after(gradient)

    def vjp_layout(self, v: Array, layout: str) -> Array:
        return self.mistake.after(self.inner.vjp_layout(self.mistake.before(v), layout))

    def in_double(self, fn: Callable[..., Any] | None = None) -> DifferentiableMap:
        made = self.inner.in_double(fn)
        return made if fn is not None else self.again(made)  # a reference is not the function
