"""A map whose inputs have limits: it moves none of them outside, and those on the border not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gradproof._map import DifferentiableMap, Trait, Variant
from gradproof._options import shown
from gradproof._space import Array, Slot, Space, namespace, on_host
from gradproof.errors import UsageError

Limits = tuple[float, float]

OPEN: Limits = (-math.inf, math.inf)

# How many units in the last place an entry must be away from its border. The coarsest step of a
# ladder moves it by a sixteenth of that at least in 16 bits, by less in finer arithmetic, where
# there is more room: `(unit round-off above which it holds, units)`.
_ROOM = ((2.0**-12, 2.0**5), (2.0**-50, 2.0**8), (0.0, 2.0**14))


def limited(map_: DifferentiableMap, domain: Any) -> DifferentiableMap:
    """The map, its inputs kept inside `domain`.

    Args:
        map_: at a point inside.
        domain: a pair (low, high) for all inputs, None being an open end, or a mapping from names
            of inputs to such pairs.

    Raises:
        UsageError: `domain` is none of that, or an entry of the point lies outside.
    """
    limits = _limits(map_.domain, domain)
    slots = [replace(s, limits=pair) for s, pair in zip(map_.domain.slots, limits, strict=True)]
    space, free, notes = Space(tuple(slots)), [], []
    for position, slot in enumerate(slots):
        span = space.span(position)
        values = on_host(map_.point[span])
        still = _still(slot, position, values)
        notes += _notes(slot, position, still, values)
        free.append(np.flatnonzero(~still) + span.start)
    return _Limited(map_, space, np.concatenate(free), tuple(notes))


def _limits(space: Space, domain: Any) -> list[Limits]:
    """Limits of every slot."""
    names = [slot.name for slot in space.slots]
    if not isinstance(domain, Mapping):
        pair = _pair(domain, "domain")
        given = dict.fromkeys(names, pair)
    else:
        if unknown := [name for name in domain if name not in names]:
            raise UsageError(
                f"domain: no differentiable input is called {shown(unknown[0])}; there are "
                + ", ".join(names)
            )
        given = {name: _pair(pair, f"domain[{shown(name)}]") for name, pair in domain.items()}
    for slot in space.slots:
        if len(slot.parts) == 2 and given.get(slot.name, OPEN) != OPEN:
            raise UsageError(f"domain: {slot.name} is complex, and complex numbers have no order")
    return [given.get(name, OPEN) for name in names]


def _pair(value: Any, what: str) -> Limits:
    try:
        low, high = value
        pair = (
            -math.inf if low is None else float(low),
            math.inf if high is None else float(high),
        )
    except (TypeError, ValueError, OverflowError):
        raise UsageError(
            f"{what}: expected a pair (low, high), None for an open end, got {shown(value)}"
        ) from None
    if not pair[0] < pair[1]:
        raise UsageError(f"{what}: expected low < high, got {shown(value)}")
    return pair


def _still(slot: Slot, position: int, values: Any) -> Any:
    """Which entries of a slot cannot be moved both ways. UsageError where one lies outside.

    A limit that the slot's dtype cannot hold is rounded: it may lie a unit inside.
    """
    low, high = slot.limits
    unit = slot.grain.unit
    rounding = [unit * abs(limit) if math.isfinite(limit) else 0.0 for limit in (low, high)]
    outside = ~((values >= low - rounding[0]) & (values <= high + rounding[1]))
    if outside.any() and slot.limits != OPEN:
        at = int(np.flatnonzero(outside)[0])
        raise UsageError(
            f"domain: {slot.place(at, position)} is {values[at]:g}, outside [{low:g}, {high:g}]; "
            "choose a point inside"
        )
    units = next(units for above, units in _ROOM if unit >= above)
    room = np.minimum(values - low, high - values)
    return room <= units * unit * np.abs(values)


def _notes(slot: Slot, position: int, still: Any, values: Any) -> list[str]:
    """What is said of the entries that are not moved."""
    where = np.flatnonzero(still)
    if not where.size:
        return []
    first = slot.place(int(where[0]), position)
    exactly = np.isin(values[where], slot.limits).all()
    how = "on" if exactly else "too near"
    if where.size == 1:
        return [f"{first} lies {how} the border of its domain: not tested"]
    return [
        f"{where.size:,} entries of {slot.name} lie {how} the border of their domain, {first} "
        "first: not tested"
    ]


class _Limited(DifferentiableMap):
    """Another map in its free coordinates.

    Args:
        inner: the map.
        space: its domain, with limits.
        free: the coordinates that are moved; the others keep their value.
        notes: on the others.

    Attributes:
        spent: no coordinate is left to move.
    """

    def __init__(
        self, inner: DifferentiableMap, space: Space, free: Any, notes: tuple[str, ...] = ()
    ) -> None:
        self._inner, self._space, self._free, self.notes = inner, space, free, notes
        self.notes += tuple(getattr(inner, "notes", None) or ())
        self.spent = space.size > 0 and not len(free)
        self._whole = len(free) == space.size
        self.codomain, self.resolution, self.memo = inner.codomain, inner.resolution, {}
        self.counts: Any = getattr(inner, "counts", {})
        self.domain = space if self._whole else _part(space, free)
        xp = namespace(inner.point)
        # Where each coordinate of the whole stands among the free ones; anywhere if it does not.
        place = np.zeros(space.size, dtype=np.int64)
        moves = np.zeros(space.size, dtype=bool)
        place[free], moves[free] = np.arange(len(free)), True
        self._at, self._place, self._moves = (xp.asarray(each) for each in (free, place, moves))
        self.point = self._pick(inner.point)

    @property
    def given(self) -> Array:
        return self._pick(self._inner.given)

    def close(self) -> None:
        """Close the inner map."""
        close = getattr(self._inner, "close", None)
        if close is not None:
            close()

    def _pick(self, whole: Array) -> Array:
        return whole if self._whole else namespace(whole).take(whole, self._at)

    def _fill(self, part: Array, rest: Array | float) -> Array:
        """All coordinates: the free ones from `part`, the others from `rest`."""
        if self._whole:
            return part
        xp = namespace(part)
        if not part.shape[0]:
            return xp.zeros(self._space.size) + rest
        return xp.where(self._moves, xp.take(part, self._place), rest)

    def _rows(self, us: Array) -> Array:
        return namespace(us).stack([self._fill(us[k, :], 0.0) for k in range(us.shape[0])])

    def _alike(self, inner: DifferentiableMap) -> DifferentiableMap:
        """The same limits on a map that takes the same inputs, and perhaps others after them."""
        more = inner.domain.slots[len(self._space.slots) :]
        extra = np.arange(self._space.size, inner.domain.size)
        mine = zip(inner.domain.slots, self._space.slots, strict=False)
        slots = tuple(replace(theirs, limits=own.limits) for theirs, own in mine)
        return _Limited(inner, Space(slots + more), np.concatenate([self._free, extra]))

    def value(self, x: Array) -> Array:
        return self._inner.value(self._fill(x, self._inner.point))

    def vjp(self, v: Array) -> Array:
        return self._pick(self._inner.vjp(v))

    def kept_value(self) -> Array:
        return self._inner.kept_value()

    def jvp(self, u: Array) -> Array:
        return self._inner.jvp(self._fill(u, 0.0))

    def transposed_vjp(self, u: Array, v: Array) -> tuple[Array, Array]:
        image, gradient = self._inner.transposed_vjp(self._fill(u, 0.0), v)
        return image, self._pick(gradient)

    def batchings(self) -> tuple[str, ...]:
        return self._inner.batchings()

    def vjp_batch(self, vs: Array, batching: str) -> Array:
        found = self._inner.vjp_batch(vs, batching)
        return namespace(found).stack([self._pick(found[k, :]) for k in range(found.shape[0])])

    def jvp_batch(self, us: Array) -> Array:
        return self._inner.jvp_batch(self._rows(us))

    def vjp_undefined(self, v: Array, missing: frozenset[int]) -> Array:
        return self._pick(self._inner.vjp_undefined(v, missing))

    def jvp_undefined(self, u: Array, missing: frozenset[int]) -> Array:
        return self._inner.jvp_undefined(self._fill(u, 0.0), missing)

    def vjp_wrt(self, v: Array, slots: frozenset[int]) -> Array:
        return self._pick(self._inner.vjp_wrt(v, slots))

    def compiles_subsets(self) -> bool:
        return self._inner.compiles_subsets()

    def layouts(self) -> tuple[str, ...]:
        return self._inner.layouts()

    def vjp_layout(self, v: Array, layout: str) -> Array:
        return self._pick(self._inner.vjp_layout(v, layout))

    def input_layouts(self) -> tuple[str, ...]:
        return self._inner.input_layouts()

    def relaid(self, layout: str) -> tuple[DifferentiableMap, Array]:
        other, value = self._inner.relaid(layout)
        return self._alike(other), value

    def by_memory(self) -> str:
        return self._inner.by_memory()

    def gradient_traits(self, v: Array) -> Sequence[Trait]:
        return self._inner.gradient_traits(v)

    def outside_domain(self, v: Array) -> Sequence[tuple[int, tuple[int, ...], float]]:
        return self._inner.outside_domain(v)

    def side_effects(self, v: Array) -> Sequence[tuple[str, str]]:
        return self._inner.side_effects(v)

    def at(self, x: Array) -> DifferentiableMap:
        return self._alike(self._inner.at(self._fill(x, self._inner.point)))

    def reused(self, x: Array, v: Array) -> tuple[Array | None, Array, Array]:
        return self._picked(self._inner.reused(self._fill(x, self._inner.point), v))

    def overtaken(self, x: Array, v: Array) -> tuple[Array | None, Array, Array]:
        return self._picked(self._inner.overtaken(self._fill(x, self._inner.point), v))

    def _picked(
        self, found: tuple[Array | None, Array, Array]
    ) -> tuple[Array | None, Array, Array]:
        here, value, there = found
        return None if here is None else self._pick(here), value, self._pick(there)

    def in_double(self, fn: Callable[..., Any] | None = None) -> DifferentiableMap:
        return self._alike(self._inner.in_double(fn))

    def rounded(self, unit: float, tiny: float, seed: int) -> DifferentiableMap:
        return self._alike(self._inner.rounded(unit, tiny, seed))

    def derivative(self, v: Array) -> DifferentiableMap:
        return self._alike(self._inner.derivative(v))

    def forward_derivative(self, u: Array) -> DifferentiableMap:
        return self._alike(self._inner.forward_derivative(self._fill(u, 0.0)))

    def variants(self) -> Sequence[Variant]:
        return self._inner.variants()

    def vjp_variant(self, v: Array, name: str) -> Array:
        return self._pick(self._inner.vjp_variant(v, name))

    def jvp_variant(self, u: Array, name: str) -> Array:
        return self._inner.jvp_variant(self._fill(u, 0.0), name)

    def variant_faults(self, v: Array, name: str) -> Sequence[str]:
        return self._inner.variant_faults(v, name)


def _part(space: Space, free: Any) -> Space:
    """The space of some coordinates only, each under its own name."""
    slots = []
    for position, slot in enumerate(space.slots):
        span = space.span(position)
        kept = free[(free >= span.start) & (free < span.stop)] - span.start
        if len(kept) < slot.size:  # such a slot has real entries: complex ones have no limits
            entries = slot.entries
            if entries is None:
                entries = np.stack(np.unravel_index(np.arange(slot.size), slot.shape), axis=-1)
            slot = replace(slot, shape=(len(kept),), entries=entries[kept])
        slots.append(slot)
    return Space(tuple(slots))
