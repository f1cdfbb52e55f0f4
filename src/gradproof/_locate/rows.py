"""Which rows are followed, and the map of these where it is too large for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gradproof._data.records import Place
from gradproof._data.settings import Settings
from gradproof._data.space import Array, Space, dot, namespace, norm, on_host
from gradproof._judge.claims import Claim
from gradproof._judge.decide import BARS, dot_and_rounding, of_sum, signs_count
from gradproof._judge.screen import Screen
from gradproof._locate.decode import MANY
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._maps.wrapped import Wrapped
from gradproof._measure import directional, evaluate

_BESIDE = 2  # outputs kept before and after each of the first ones, for pictures
_PROOF = 256  # parts of the outputs, of which a projection shows hundredths of rows surely


@dataclass(frozen=True)
class SomeOf(Space):
    """Some coordinates of a space, counted from 0; its slots are those of the whole."""

    whole: Space
    rows: Array

    def __post_init__(self) -> None:
        vars(self).update(offsets=self.whole.offsets, size=int(self.rows.shape[0]))

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


def picked(
    map_: DifferentiableMap, claim: Claim, suspects: Sequence[int]
) -> tuple[DifferentiableMap, Claim, list[int]]:
    """The map and the claim at these rows and the ones beside the first; and where they are then.

    A map that is not large stays as it is.
    """
    if not directional.large(map_):
        return map_, claim, list(suspects)
    xp = namespace(map_.point)
    beside = {i + k for i in suspects[:MANY] for k in range(-_BESIDE, _BESIDE + 1)}
    kept = beside.intersection(range(map_.codomain.size)).union(suspects)
    rows = xp.asarray(sorted(kept))
    here = xp.searchsorted(rows, xp.asarray(list(suspects)))
    chosen = Picked(map_, rows)
    return chosen, claim.on(chosen), on_host(here).tolist()


# Wrong rows from projections on ranges of outputs, halved until one output is left.


def suspect_rows(
    map_: DifferentiableMap, settings: Settings, claim: Claim, screen: Screen
) -> tuple[tuple[int, ...], bool]:
    """Wrong rows in order, and whether all: by projections on ranges of outputs, one VJP each."""
    assert screen.projected is not None  # no row is under suspicion, so a projection is
    number, v = screen.projected
    ladder = directional.ladder(map_, settings, number)
    along = directional.along(map_, settings, number)
    xp = namespace(map_.point)
    hinted_above = map_.codomain.size // _PROOF

    def residual(low: int, high: int) -> tuple[float, float]:
        span = slice(low, high)
        rows = along.estimate.span(span)
        usable = xp.isfinite(rows.error)
        part = xp.where(usable, v[span], 0.0)
        gradient = claim.project(_only(map_.codomain.size, span, part))
        assert gradient is not None  # only a mode that projects is searched this way
        claimed, rounding = dot_and_rounding(map_, gradient, along.direction)
        sums = ladder.of_functionals(part[None, :], span, signs=signs_count(map_))
        measured, error = float(sums.value[0]), float(sums.error[0])
        size = norm(part * xp.where(usable, rows.value, 0.0))
        # Of a long range a gap is a hint, if that is what led here, and no more.
        bars = 1.0 if screen.hints and span.stop - span.start > hinted_above else BARS
        return claimed - measured, bars * error + of_sum(size) + rounding

    start = [(span.start, span.stop) for span in screen.hints[1]] if screen.hints else []
    return rows_by_splitting(residual, map_.codomain.size, start)


def _only(size: int, span: slice, values: Array) -> Array:
    """A vector that is zero outside a span."""
    vector = namespace(values).zeros(size)
    vector[span] = values
    return vector


def rows_by_splitting(
    residual: Callable[[int, int], tuple[float, float]],
    size: int,
    start: Sequence[tuple[int, int]] = (),
) -> tuple[tuple[int, ...], bool]:
    """Wrong rows where only projections can be claimed, in order, and whether all.

    Where there are many only the first, the last and two strong ones between them are followed:
    the first and the last of all wrong rows.

    Args:
        residual: (low, high) -> residual and threshold of a cotangent supported on [low, high).
        size: m.
        start: ranges that all wrong rows lie in; of all rows where empty.
    """
    live = list(start) or [(0, size)]
    complete = True
    while any(high - low > 1 for low, high in live):
        weighed: list[tuple[float, tuple[int, int]]] = []
        for low, high in live:
            if high - low == 1:
                weighed.append((float("inf"), (low, high)))
                continue
            middle = (low + high) // 2
            for half in ((low, middle), (middle, high)):
                value, threshold = residual(*half)
                if not abs(value) <= threshold:
                    weighed.append((abs(value) / threshold if threshold else 1.0, half))
        complete = complete and len(weighed) <= MANY
        if not complete and len(weighed) > 2:
            weighed.sort(key=lambda item: item[1])
            weighed = [weighed[0], *sorted(weighed[1:-1])[-2:], weighed[-1]]
        live = [half for _, half in weighed]
    return tuple(sorted(low for low, _ in live)), complete
