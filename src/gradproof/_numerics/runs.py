"""Honest runs in few bits, added up one by one: what every statistic of their errors is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradproof._space import Array, namespace

_BLOCKS = 8  # parts of a vector
_MOST_PARTS = 64  # rows or columns looked at one by one; more are taken together


@dataclass(frozen=True)
class Partition:
    """A partition of the entries of an array into parts that lie one after the other.

    Attributes:
        name: of the statistic that is made of it.
        length: entries of a part, or columns.
        width: of a row where the parts are of columns; else 0.
    """

    name: str
    length: int
    width: int = 0

    def sums(self, values: Array) -> Array:
        """The sum of a vector over every part."""
        xp = namespace(values)
        if self.width:
            values = xp.sum(xp.reshape(values, (-1, self.width)), axis=0)
        starts = range(0, values.shape[0], self.length)
        return xp.stack([xp.sum(values[at : at + self.length]) for at in starts])


def partitions(shape: tuple[int, ...], size: int) -> list[Partition]:
    """Rows and columns of an array of this shape, of `size` entries; blocks of a vector."""
    if len(shape) < 2 or size == max(shape):
        return [Partition("block slope", math.ceil(size / _BLOCKS))] if size >= 2 else []
    last = shape[-1] * (size // max(1, math.prod(shape)))
    rows = size // last
    found = []
    if rows > 1:
        found.append(Partition("row slope", last * math.ceil(rows / _MOST_PARTS)))
    if last > 1 and rows > 1:
        found.append(Partition("column slope", math.ceil(last / _MOST_PARTS), last))
    return found


class Honest:
    """What honest runs say of every statistic of one array: mean squares over the runs.

    The runs are added one by one and not kept. A run is honest minus exact, (V, N).

    Args:
        exact: (V, N).
        shape: of the array.
    """

    def __init__(self, exact: Array, shape: tuple[int, ...]) -> None:
        xp = namespace(exact)
        self.runs = 0
        self._exact, self._size = exact, float(xp.sum(exact**2))
        self._groups = partitions(shape, exact.shape[1]) if self._size > 0 else []
        self._slope = self._mean = self._square = 0.0
        self._parts: dict[str, Array] = {}
        self._entries: Array = xp.zeros_like(exact)

    def add(self, error: Array, share: float = 1.0, *, counts: bool = True) -> None:
        """Another run, whose squares count `share` times; or an error beside those of the runs."""
        xp = namespace(error)
        self.runs += counts
        square = error**2
        self._entries += share * square
        self._square += share * float(xp.sum(square))
        self._mean += share * float(xp.mean(error)) ** 2
        if not self._size > 0:
            return
        product = error * self._exact
        self._slope += share * (float(xp.sum(product)) / self._size) ** 2
        for part in self._groups:
            own = share * part.sums(xp.sum(product, axis=0)) ** 2
            self._parts[part.name] = self._parts.get(part.name, 0.0) + own

    @property
    def slope(self) -> float:
        """Of a factor on everything."""
        return self._root(self._slope)

    @property
    def mean(self) -> float:
        """Of the mean error."""
        return self._root(self._mean)

    @property
    def square(self) -> float:
        """Of all errors together: their sum of squares."""
        return self._square / max(1, self.runs)

    @property
    def entries(self) -> Array:
        """Of each entry, (V, N)."""
        return namespace(self._entries).sqrt(self._entries / max(1, self.runs))

    def part(self, part: Partition, like: Array) -> Array:
        """Of the sums <error, exact> over the parts of a partition."""
        xp = namespace(like)
        if part.name not in self._parts:
            return xp.zeros_like(like)
        return xp.sqrt(self._parts[part.name] / max(1, self.runs))

    def _root(self, total: float) -> float:
        return math.sqrt(total / max(1, self.runs))
