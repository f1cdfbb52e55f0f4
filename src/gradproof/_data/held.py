"""Infinite entries of the inputs, as masks of scores have them: every call gets them unmoved.

In the flat vectors such a coordinate is zero, and moving it moves nothing. So the measured
derivative in it is zero, which is what the limit of a function with a finite value has there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradproof._data.space import Array, Space
from gradproof.errors import UsageError


@dataclass(frozen=True)
class HeldEntries:
    """Infinite entries of a point, which no call moves."""

    values: Array  # the point as the user gave it
    mask: Array  # where it is infinite
    note: str  # a sentence for the report

    def put_back(self, x: Array) -> Array:
        """A point with the infinite entries put back, in new memory."""
        return np.where(self.mask, self.values, x)


def finite_point(space: Space, values: Array) -> tuple[Array, HeldEntries | None]:
    """The point in coordinates that can be moved, and what is held; None where all is finite.

    UsageError where an entry is NaN.
    """
    if np.isfinite(values).all():
        return values, None
    if (bad := np.isnan(values)).any():
        place = space.locate(int(bad.argmax()))
        raise UsageError(f"{place} is nan: a derivative is checked at numbers; replace the value")
    mask = np.isinf(values)
    return np.where(mask, 0.0, values), HeldEntries(values, mask, _held_note(space, mask))


def _held_note(space: Space, mask: Array) -> str:
    parts = []
    for position, slot in enumerate(space.slots):
        if count := int(mask[space.span(position)].sum()):
            parts.append(f"{count} of the {slot.size} entries of {slot.name}")
    return f"{' and '.join(parts)} are infinite: they were held, and the others moved"
