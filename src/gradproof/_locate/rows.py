"""Some outputs of a map that is too large for more than a few vectors of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradproof._data.records import Place
from gradproof._data.space import Array, Space, dot, namespace, on_host
from gradproof._judge.claims import Claim
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._maps.wrapped import Wrapped
from gradproof._measure import directional, evaluate

_BESIDE = 2  # outputs kept before and after each of the first ones, for pictures
_FIRST = 8  # outputs that are followed


@dataclass(frozen=True)
class SomeOf(Space):
    """Some coordinates of a space, counted from 0; its slots are those of the whole."""

    whole: Space
    rows: Array

    @property
    def size(self) -> int:
        return int(self.rows.shape[0])

    def locate(self, coordinate: int) -> Place:
        return self.whole.locate(int(self.rows[coordinate]))


class Picked(Wrapped):
    """A map of which only some outputs are looked at; every call is one of the whole.

    What was measured along the first tangent is taken over, and the whole forgets it.
    """

    def __init__(self, whole: DifferentiableMap, rows: Array) -> None:
        self.rows = rows
        super().__init__(whole, codomain=SomeOf(whole.codomain.slots, whole.codomain, rows))
        self.memo[("resolution",)] = directional.resolution(whole)
        self._take_over(whole, rows)

    def again(self, inner: DifferentiableMap) -> DifferentiableMap:  # noqa: ARG002  # none
        raise Unsupported("some outputs only")

    def _take_over(self, whole: DifferentiableMap, rows: Array) -> None:
        start, take = evaluate.centre(whole), namespace(rows).take
        first = whole.memo.get(("along", 0))
        noise = start.noise if isinstance(start.noise, float) else take(start.noise, rows)
        self.memo[("centre",)] = replace(start, value=take(start.value, rows), noise=noise)
        if first is not None:
            found = first.estimate.of(rows)
            self.memo["along", 0] = replace(first, ladder=None, estimate=found)
        directional.forget(whole)

    def from_codomain(self, y: Array) -> Array:
        return namespace(y).take(y, self.rows)

    def into_codomain(self, v: Array) -> Array:
        spread = namespace(v).zeros(self.inner.codomain.size)
        spread[self.rows] = v
        return spread


class Row:
    """One row of a Jacobian; of a long one that is mostly zero, only what is not.

    Args:
        row: all of it.

    Attributes:
        values: all of it where it is short, what is not zero where it is long.
    """

    def __init__(self, row: Array) -> None:
        xp, self._at, self.values = namespace(row), None, row
        if row.shape[0] > directional.KEPT:
            at = xp.nonzero(row)[0]
            if 4 * at.shape[0] < row.shape[0]:
                self._at, self.values = at, xp.take(row, at)

    def __getitem__(self, j: int) -> float:
        if self._at is None:
            return float(self.values[j])
        k = int(namespace(self._at).searchsorted(self._at, namespace(self._at).asarray(j)))
        here = k < self._at.shape[0] and int(self._at[k]) == j
        return float(self.values[k]) if here else 0.0

    def dot(self, u: Array) -> float:
        """The row times a vector."""
        return dot(self.values, u if self._at is None else namespace(u).take(u, self._at))

    def strongest(self, u: Array) -> list[int]:
        """The two columns that add most to the row times a vector; fewer where there are fewer."""
        xp = namespace(u)
        order = xp.argsort(xp.abs(self.values * (u if self._at is None else xp.take(u, self._at))))
        last = [order[k] for k in (-1, -2) if -k <= order.shape[0]]
        return [int(k if self._at is None else self._at[k]) for k in last]


class PickedClaim(Claim):
    """What a mode claims of some rows."""

    def __init__(self, whole: Claim, rows: Array) -> None:
        self.check, self._whole, self._rows = whole.check, whole, rows

    def along(self, u: Array) -> Array | None:
        found = self._whole.along(u)
        return None if found is None else namespace(found).take(found, self._rows)

    def row(self, i: int) -> Array | None:
        return self._whole.row(int(self._rows[i]))


def picked(
    map_: DifferentiableMap, claim: Claim, suspects: Sequence[int]
) -> tuple[DifferentiableMap, Claim, list[int]]:
    """The map and the claim at these rows and the ones beside the first; and where they are then.

    A map that is not large stays as it is.
    """
    if not directional.large(map_):
        return map_, claim, list(suspects)
    xp = namespace(map_.point)
    beside = {i + k for i in suspects[:_FIRST] for k in range(-_BESIDE, _BESIDE + 1)}
    kept = beside.intersection(range(map_.codomain.size)).union(suspects)
    rows = xp.asarray(sorted(kept))
    here = xp.searchsorted(rows, xp.asarray(list(suspects)))
    return Picked(map_, rows), PickedClaim(claim, rows), on_host(here).tolist()
