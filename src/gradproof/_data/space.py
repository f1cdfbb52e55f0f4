"""Flattened domains and codomains: the border between arrays with names and real vectors.

Beside them are the types of vectors and the few operations on them that NumPy lacks or is slow at.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gradproof._data.formats import Grain
from gradproof._data.records import Place

Array = Any  # a vector, or a table of vectors: NumPy's, in float64, on the host
Values = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Indices = np.ndarray[Any, np.dtype[np.int64]]

OPEN = (-math.inf, math.inf)  # the limits of an input that has none
KEPT = 1 << 17  # entries up to which copies of vectors stay in memory
_LEAST_SQUARE = 1e-280  # with all digits, though many terms of it may have underflowed


def norm(vector: Array) -> float:
    """The Euclidean norm, also where its square is no number."""
    square = float(vector.dot(vector))  # `@` takes thrice as long, of few numbers
    if 0.0 < square < math.inf or not vector.shape[0]:
        return math.sqrt(square)
    largest = float(np.abs(vector).max())  # whose square is infinite, or zero
    if not 0.0 < largest < math.inf:
        return largest
    part = vector / largest
    return largest * math.sqrt(part.dot(part))


def are_equal(one: Array, other: Array) -> bool:
    """Whether two vectors have the same entries, none of them NaN."""
    if one.shape != other.shape:
        return False
    return bool(np.count_nonzero(one == other) == one.size)  # `.all()` takes much longer


def finite_values(values: Array) -> Array:
    """The values, 0 where they are not finite."""
    if values.ndim == 1 and math.isfinite(values.dot(values)):
        return values  # as nearly always; the sum of their squares tells it in one call
    known = np.isfinite(values)
    return values if known.all() else np.where(known, values, 0.0)


def root_mean_square(values: Values) -> float:
    """Of the finite values; 0.0 without any. Safe against overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        square = float(np.vdot(values, values))
    if _LEAST_SQUARE < square < math.inf:  # as nearly always; one pass over long vectors
        return math.sqrt(square / values.size)
    good = values[np.isfinite(values)]
    largest = float(np.abs(good).max(initial=0.0))
    if not largest:
        return 0.0
    parts = good / largest
    return largest * math.sqrt(float(parts @ parts) / parts.size)


@dataclass(frozen=True)
class Slot:
    """One array of a space."""

    name: str  # as the user would write it, `weight` or `params['a'][0]`
    shape: tuple[int, ...]  # of the array that the space flattens
    # Names of the real coordinates of one entry; ("",) or ("real", "imag").
    parts: tuple[str, ...] = ("",)
    # For a slot that covers only some entries of an array, their multi-indices, one row per entry
    # of the flattened slot; None where the slot is the whole array.
    entries: np.ndarray[Any, np.dtype[np.int64]] | None = field(default=None, compare=False)
    detached: bool = False  # the framework claims that this output has no derivative
    describe: str = ""  # dtype and shape for people, "float64[2, 3]"
    grain: Grain = field(default_factory=Grain, compare=False)  # of the numbers of its dtype
    # Between which the entries stay when they are moved.
    limits: tuple[float, float] = OPEN
    # Coordinates that lie on these limits, (size,): they are not moved. None where none does.
    still: Mask | None = field(default=None, compare=False)

    @functools.cached_property
    def size(self) -> int:
        """Number of real coordinates."""
        return math.prod(self.shape) * len(self.parts)

    def place(self, position: int, slot: int) -> Place:
        """The entry that coordinate `position` of this slot, the `slot`-th of its space, names."""
        entry, part = divmod(position, len(self.parts))
        if self.entries is not None:
            index = tuple(int(i) for i in self.entries[entry])
        else:
            index = tuple(int(i) for i in np.unravel_index(entry, self.shape))
        return Place(self.name, slot, index, self.parts[part])


@dataclass(frozen=True)
class Space:
    """A tuple of arrays seen as one real vector.

    An entry of a slot with two parts becomes two neighbouring coordinates, so that the real inner
    product of flattened arrays is the real part of the complex one.
    """

    slots: tuple[Slot, ...]  # the arrays

    @functools.cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where each slot begins, and the size of the space at the end."""
        return tuple(itertools.accumulate((slot.size for slot in self.slots), initial=0))

    @functools.cached_property
    def size(self) -> int:
        """Number of real coordinates."""
        return self.offsets[-1]

    @functools.cached_property
    def still(self) -> Mask | None:
        """Coordinates that are not moved, (size,); None where all are."""
        if all(slot.still is None for slot in self.slots):
            return None
        parts = [
            np.zeros(slot.size, bool) if slot.still is None else slot.still for slot in self.slots
        ]
        return np.concatenate(parts)

    def zero_still_entries(self, gradient: Array) -> Array:
        """A gradient, or rows of gradients, with zeros for the coordinates that are not moved."""
        return gradient if self.still is None else np.where(self.still, 0.0, gradient)

    def with_limits_of(self, other: Space) -> Space:
        """This space with the limits of another one, whose slots its first ones are."""
        if all(slot.limits == OPEN for slot in other.slots):
            return self
        slots = list(self.slots)
        for k, (mine, theirs) in enumerate(zip(self.slots, other.slots, strict=False)):
            slots[k] = replace(mine, limits=theirs.limits, still=theirs.still)
        return Space(tuple(slots))

    def slot_at(self, coordinate: int) -> int:
        return bisect.bisect_right(self.offsets, coordinate) - 1

    def locate(self, coordinate: int) -> Place:
        """Name and multi-index of a coordinate. IndexError outside the space."""
        if not 0 <= coordinate < self.size:
            raise IndexError(f"coordinate {coordinate} outside a space of size {self.size}")
        slot = self.slot_at(coordinate)
        return self.slots[slot].place(coordinate - self.offsets[slot], slot)

    def span(self, slot: int) -> slice:
        return slice(self.offsets[slot], self.offsets[slot + 1])
