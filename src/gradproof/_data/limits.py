"""Limits between which inputs are moved: `domain=` of a check, as a space with limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gradproof._data.options import short_repr
from gradproof._data.space import OPEN, Mask, Slot, Space, Values
from gradproof.errors import UsageError

# How many units in the last place an entry must be away from its border. The coarsest step moves
# it by a sixteenth of that at least in 16 bits, by less in finer arithmetic, where there is more
# room: `(unit round-off above which it holds, units)`.
_ROOM = ((2.0**-12, 2.0**5), (2.0**-50, 2.0**8), (0.0, 2.0**14))


def space_with_limits(space: Space, point: Values, domain: Any) -> Space:
    """The space with the limits that the user gave; entries at a limit stay where they are.

    Args:
        space: of the inputs.
        point: the inputs, (n,).
        domain: as of `gradproof.check`: a pair for all inputs, or a dict from names to pairs.

    Raises:
        UsageError: it is none of these, or an entry of the point lies outside.
    """
    slots, limits = [], _limits_of_slots(space, domain)
    for position, slot in enumerate(space.slots):
        slot = replace(slot, limits=limits[position])
        still = _still_entries(slot, position, point[space.span(position)])
        slots.append(replace(slot, still=still if still.any() else None))
    return Space(tuple(slots))


def border_notes(space: Space) -> tuple[str, ...]:
    """A sentence for each slot with entries that are not moved, since they lie at a limit."""
    notes = []
    for position, slot in enumerate(space.slots):
        if slot.still is not None:
            where = np.flatnonzero(slot.still)
            first = slot.place(int(where[0]), position)
            others = f" and {where.size - 1:,} more of {slot.name}" if where.size > 1 else ""
            notes.append(f"{first}{others}: on the border of the domain or too near, not tested")
    return tuple(notes)


def _limits_of_slots(space: Space, domain: Any) -> list[tuple[float, float]]:
    """Limits of every slot."""
    names = [slot.name for slot in space.slots]
    if not isinstance(domain, Mapping):
        given = dict.fromkeys(names, _limit_pair(domain, "domain"))
    else:
        if unknown := [name for name in domain if name not in names]:
            raise UsageError(
                f"domain: no differentiable input is called {short_repr(unknown[0])}; there are "
                + ", ".join(names)
            )
        given = {
            name: _limit_pair(pair, f"domain[{short_repr(name)}]") for name, pair in domain.items()
        }
    for slot in space.slots:
        if len(slot.parts) == 2 and given.get(slot.name, OPEN) != OPEN:
            raise UsageError(f"domain: {slot.name} is complex, and complex numbers have no order")
    return [given.get(name, OPEN) for name in names]


def _limit_pair(value: Any, what: str) -> tuple[float, float]:
    try:
        low, high = value
        pair = (-math.inf if low is None else float(low), math.inf if high is None else float(high))
    except (TypeError, ValueError, OverflowError):
        raise UsageError(
            f"{what}: expected a pair (low, high), None for an open end, got {short_repr(value)}"
        ) from None
    if not pair[0] < pair[1]:
        raise UsageError(f"{what}: expected low < high, got {short_repr(value)}")
    return pair


def _still_entries(slot: Slot, position: int, values: Values) -> Mask:
    """Entries that cannot be moved both ways. UsageError where one lies outside.

    A limit that the slot's dtype cannot hold is rounded: it may lie a unit inside.
    """
    if slot.limits == OPEN:
        return np.zeros(slot.size, bool)
    low, high = slot.limits
    unit = slot.grain.unit
    rounding = [unit * abs(limit) if math.isfinite(limit) else 0.0 for limit in (low, high)]
    outside = ~((values >= low - rounding[0]) & (values <= high + rounding[1]))
    if outside.any():
        at = int(np.flatnonzero(outside)[0])
        raise UsageError(
            f"domain: {slot.place(at, position)} is {values[at]:g}, outside [{low:g}, {high:g}]; "
            "choose a point inside"
        )
    units = next(units for above, units in _ROOM if unit >= above)
    room = np.minimum(values - low, high - values)
    return np.asarray(room <= units * unit * np.abs(values))
