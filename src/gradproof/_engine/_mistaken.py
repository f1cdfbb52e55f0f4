"""A map whose backward is wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradproof._map import DifferentiableMap, Unsupported
from gradproof._space import Array, namespace

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


class Mistaken(DifferentiableMap):
    """Another map, its backward wrong in one way; forward mode, where it has one, stays right."""

    def __init__(self, inner: DifferentiableMap, mistake: Mistake) -> None:
        self.inner, self.mistake = inner, mistake
        self.domain, self.codomain = inner.domain, inner.codomain
        self.point, self.resolution = inner.point, inner.resolution
        self.memo: dict[Any, Any] = {}
        self._plain = mistake.elsewhere()

    def value(self, x: Array) -> Array:
        return self.inner.value(x)

    def vjp(self, v: Array) -> Array:
        return self._plain.after(self.inner.vjp(self._plain.before(v)))

    def jvp(self, u: Array) -> Array:
        return self.inner.jvp(u)

    def transposed_vjp(self, u: Array, v: Array) -> tuple[Array, Array]:
        one = self._plain
        image, gradient = self.inner.transposed_vjp(one.after_transposed(u), one.before(v))
        return one.before_transposed(image), one.after(gradient)

    def batchings(self) -> tuple[str, ...]:
        return self.inner.batchings()

    def vjp_batch(self, vs: Array, batching: str) -> Array:
        xp, one = namespace(vs), self._plain
        given = xp.stack([one.before(vs[k, :]) for k in range(vs.shape[0])])
        found = self.inner.vjp_batch(given, batching)
        return xp.stack([one.after(found[k, :]) for k in range(found.shape[0])])

    def layouts(self) -> tuple[str, ...]:
        return self.inner.layouts()

    def vjp_layout(self, v: Array, layout: str) -> Array:
        return self.mistake.after(self.inner.vjp_layout(self.mistake.before(v), layout))

    def at(self, x: Array) -> DifferentiableMap:
        return self._of(self.inner.at(x))

    def in_double(self, fn: Callable[..., Any] | None = None) -> DifferentiableMap:
        made = self.inner.in_double(fn)
        return made if fn is not None else self._of(made)  # a reference is not the function

    def rounded(self, unit: float, tiny: float, seed: int) -> DifferentiableMap:
        return self._of(self.inner.rounded(unit, tiny, seed))

    def unreached(self) -> Sequence[int]:
        return self.inner.unreached()

    def _of(self, made: DifferentiableMap) -> DifferentiableMap:
        if made.domain.size != self.domain.size or made.codomain.size != self.codomain.size:
            raise Unsupported("another number of inputs or outputs")
        return Mistaken(made, self.mistake)
