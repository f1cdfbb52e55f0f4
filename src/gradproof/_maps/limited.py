"""A map whose inputs have limits: it moves none of them outside, and those on the border not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gradproof._data.options import shown
from gradproof._data.space import Array, Slot, Space, namespace
from gradproof._maps.contract import DifferentiableMap
from gradproof._maps.wrapped import Wrapped
from gradproof.errors import UsageError

Limits = tuple[float, float]

OPEN: Limits = (-math.inf, math.inf)

# How many units in the last place an entry must be away from its border. The coarsest step of a
# ladder moves it by a sixteenth of that at least in 16 bits, by less in finer arithmetic, where
# there is more room: `(unit round-off above which it holds, units)`.
_ROOM = ((2.0**-12, 2.0**5), (2.0**-50, 2.0**8), (0.0, 2.0**14))


def limited(map_: DifferentiableMap, domain: Any) -> DifferentiableMap:
    """The map, its inputs kept inside `domain`, as of `gradproof.check`.

    UsageError where it is none, or an entry of the point lies outside.
    """
    limits = _limits(map_.domain, domain)
    slots = [replace(s, limits=pair) for s, pair in zip(map_.domain.slots, limits, strict=True)]
    space, free, notes = Space(tuple(slots)), [], []
    for position, slot in enumerate(slots):
        span = space.span(position)
        values = map_.point[span]
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


class _Limited(Wrapped):
    """Another map in its free coordinates, which are moved; the others, with notes, stay."""

    def __init__(
        self, inner: DifferentiableMap, space: Space, free: Any, notes: tuple[str, ...] = ()
    ) -> None:
        self._space, self._free, self._notes = space, free, notes
        self._whole = len(free) == space.size
        xp = namespace(inner.point)
        # Where each coordinate of the whole stands among the free ones; anywhere if it does not.
        place = np.zeros(space.size, dtype=np.int64)
        moves = np.zeros(space.size, dtype=bool)
        place[free], moves[free] = np.arange(len(free)), True
        self._at, self._place, self._moves = (xp.asarray(each) for each in (free, place, moves))
        super().__init__(inner, domain=space if self._whole else _part(space, free))
        self.spent = space.size > 0 and not len(free)

    @property
    def notes(self) -> Sequence[str]:
        return (*self._notes, *self.inner.notes)

    def from_domain(self, gradient: Array) -> Array:
        return gradient if self._whole else namespace(gradient).take(gradient, self._at)

    def into_point(self, x: Array) -> Array:
        return self._fill(x, self.inner.point)

    def into_domain(self, u: Array) -> Array:
        return self._fill(u, 0.0)

    def _fill(self, part: Array, rest: Array | float) -> Array:
        """All coordinates: the free ones from `part`, the others from `rest`."""
        if self._whole:
            return part
        xp = namespace(part)
        if not part.shape[0]:
            return xp.zeros(self._space.size) + rest
        return xp.where(self._moves, xp.take(part, self._place), rest)

    def again(self, inner: DifferentiableMap) -> DifferentiableMap:
        """The same limits on a map that takes the same inputs, and perhaps others after them."""
        more = inner.domain.slots[len(self._space.slots) :]
        extra = np.arange(self._space.size, inner.domain.size)
        mine = zip(inner.domain.slots, self._space.slots, strict=False)
        slots = tuple(replace(theirs, limits=own.limits) for theirs, own in mine)
        return _Limited(inner, Space(slots + more), np.concatenate([self._free, extra]))


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
