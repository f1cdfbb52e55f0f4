"""Claims at a tie that lie between the slopes one by one, and together are no slope at all.

Where two numbers are the largest, a maximum has the slope of the one or of the other, or claims a
mixture of both. That each entry lies between its one-sided slopes, 0 and 1, a claim of 1 for both
meets as well. So the claimed derivative is held, along random directions through the tie, against
the slopes that the function has beside it: a mixture of slopes lies between the least and the
greatest of them (Clarke, Optimization and Nonsmooth Analysis, 1983).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from gradproof._checks._found import Entries
from gradproof._checks._kinks import Examined
from gradproof._map import DifferentiableMap
from gradproof._numerics import jacobian, measure, probes
from gradproof._records import Kink
from gradproof._settings import Settings
from gradproof._space import Array, namespace, on_host, positions

_FIRST = 40  # number of the first tangent used here
_DIRECTIONS, _BESIDE = 3, 8
_MORE = 48  # random neighbours of claims that none of the first explains
_COLUMNS = 8  # inputs of a tie that are moved one by one
_CLIMBED = 12  # rows of which neighbours are looked for input by input, of _TURNED inputs at most
_TURNED = 24
_APART, _STEP = 2.0**-14, 2.0**-26  # distance of a neighbour, and the step taken there
_SLACK = 1e-5  # of the claims' sizes
_FEWEST = 4  # slopes from which the least and the greatest are known


def together(
    map_: DifferentiableMap, settings: Settings, entries: Entries, found: Examined
) -> Examined:
    """What became of the entries, those outside whose row is no mixture of slopes."""
    claimed = entries.comparison.claimed
    xp = namespace(claimed)
    tied = found.named & ~found.outside
    uneven = xp.any(found.uneven, axis=1)
    rows = (xp.sum(xp.astype(tied, xp.int64), axis=1) >= 2) | uneven
    if settings.classic_step or map_.resolution > measure.DOUBLE or not bool(xp.any(rows)):
        return found
    # Who takes part in a tie is not seen where the slopes along single inputs say nothing.
    everywhere = bool(xp.any(uneven))
    moved = xp.any(tied & rows[:, None], axis=0) | everywhere
    outside: Array = found.outside
    told: dict[tuple[object, ...], tuple[float, float, float]] = {}
    for number in range(_DIRECTIONS):
        u = xp.where(moved, probes.tangent(map_, settings.seed or 0, _FIRST + number), 0.0)
        tie = _Tie(map_, settings, entries, rows, u, moved)
        bad, low, high = tie.judged()
        outside = outside | (tied & bad[:, None])
        numbers_of = [on_host(each).tolist() for each in (tie.claims, low, high)]
        for i in positions(bad):
            place = map_.codomain.locate(i if entries.rows is None else entries.rows[i])
            numbers = numbers_of[0][i], numbers_of[1][i], numbers_of[2][i]
            told.setdefault((place.slot, place.index, place.part), numbers)
    kinks = tuple(sorted((_worded(k, told) for k in found.records), key=lambda k: k.within))
    return replace(found, outside=outside, records=kinks)


@dataclass(frozen=True)
class _Tie:
    """A tie, and a direction through it.

    Attributes:
        map_: whose point is a tie.
        settings: of the run.
        entries: claimed and measured.
        rows: mask of the rows that are asked about.
        u: the direction.
        moved: mask of the inputs that take part.
    """

    map_: DifferentiableMap
    settings: Settings
    entries: Entries
    rows: Array
    u: Array
    moved: Array

    @property
    def claims(self) -> Array:
        """What is claimed along the direction."""
        return self.entries.comparison.claimed @ self.u

    def judged(self) -> tuple[Array, Array, Array]:
        """Rows whose claim is no mixture of slopes, and the least and the greatest of these.

        A neighbour that is not tried can only widen them: where a claim lies outside, more are.
        """
        slopes = [s for beside in self._first() for s in self._slopes(beside)]
        bad, low, high = self._outside(slopes)
        xp = namespace(low)
        if bool(xp.any(bad)):
            slopes += [s for beside in self._random() for s in self._slopes(beside)]
            bad, low, high = self._outside(slopes)
        for look in (self._between, self._climb):
            for i in positions(bad)[:_CLIMBED]:
                if bool(bad[i]):
                    slopes += look(i, float(high[i]) < float(self.claims[i]))
                    bad, low, high = self._outside(slopes)
        return bad, low, high

    def _outside(self, found: list[Array]) -> tuple[Array, Array, Array]:
        xp, claims = namespace(self.u), self.claims
        slopes = xp.stack(found)
        known = xp.isfinite(slopes)
        low = xp.min(xp.where(known, slopes, xp.inf), axis=0)
        high = xp.max(xp.where(known, slopes, -xp.inf), axis=0)
        size = xp.abs(self.entries.comparison.claimed) @ xp.abs(self.u)
        slack = _SLACK * xp.maximum(size, xp.maximum(xp.abs(low), xp.abs(high)))
        enough = xp.sum(xp.astype(known, xp.int64), axis=0) >= _FEWEST
        apart = (claims < low - slack) | (claims > high + slack)
        return self.rows & enough & apart & xp.isfinite(claims), low, high

    def _slopes(self, beside: Array) -> list[Array]:
        """Slopes along the direction near a neighbour, and what they tend to at the tie.

        Beside the tie a curved function has other slopes than at it, by a part of the distance:
        twice the slope at half the distance, less that at the whole, is free of that.
        """
        far, near = self._slope(_APART * beside), self._slope(_APART / 2 * beside)
        return [near, 2 * near - far]

    def _slope(self, move: Array) -> Array:
        x, step = self.map_.point + move, _STEP * self.u
        slope = (self.map_.value(x + step) - self.map_.value(x - step)) / (2 * _STEP)
        rows = self.entries.rows
        return slope if rows is None else namespace(slope).take(slope, _index(slope, rows))

    def _first(self) -> Iterator[Array]:
        """Directions that break the tie: the one asked along, single inputs, and random ones."""
        u = self.u
        yield from (u, -u)
        for j in positions(self.moved)[:_COLUMNS]:
            single = jacobian.unit(u, j, float(probes.scales_of(self.map_)[j]))
            yield from (single, -single)
        for number in range(_BESIDE):
            yield self._drawn(number)

    def _random(self) -> Iterator[Array]:
        for number in range(_BESIDE, _BESIDE + _MORE):
            yield self._drawn(number)

    def _drawn(self, number: int) -> Array:
        first = _FIRST + _DIRECTIONS + number
        drawn = probes.tangent(self.map_, self.settings.seed or 0, first)
        return namespace(drawn).where(self.moved, drawn, 0.0)

    def _between(self, i: int, upwards: bool) -> list[Array]:
        """Slopes of neighbours with the input that row i claims most of at every place in order.

        Of numbers that are equal the one of a given rank is each of them somewhere beside the tie;
        a random neighbour has the claimed one at that rank as seldom as there are many.
        """
        del upwards
        xp, point = namespace(self.u), self.map_.point
        weight = xp.where(self.moved, xp.abs(self.entries.comparison.claimed[i, :]), -1.0)
        most = int(xp.argmax(weight))
        others = self.moved & (point == point[most]) & (xp.arange(point.shape[0]) != most)
        beside = self._drawn(0)
        places = sorted(on_host(beside)[on_host(others)].tolist())[:_TURNED]
        if not places:
            return []
        levels = [places[0] - 1.0, *((a + b) / 2 for a, b in pairwise(places)), places[-1] + 1.0]
        here = xp.arange(point.shape[0]) == most
        return [s for level in levels for s in self._slopes(xp.where(here, level, beside))]

    def _climb(self, i: int, upwards: bool) -> list[Array]:
        """Slopes of a neighbour at which row i has a greater slope, or a smaller one.

        From one region to the next, by turning the neighbour's inputs round one after the other:
        there are more regions around a tie of many numbers than random neighbours.
        """
        xp, way = namespace(self.u), 1.0 if upwards else -1.0
        beside = self._drawn(0)
        best = self._slopes(beside)
        for j in positions(self.moved)[:_TURNED]:
            turned = xp.where(xp.arange(beside.shape[0]) == j, -beside, beside)
            slopes = self._slopes(turned)
            if way * float(slopes[1][i]) > way * float(best[1][i]):
                beside, best = turned, slopes
        return best


def _index(like: Array, rows: object) -> Array:
    return namespace(like).asarray(rows)


def _worded(kink: Kink, told: dict[tuple[object, ...], tuple[float, float, float]]) -> Kink:
    """The record, of a row whose claims are no mixture of slopes, as one of a wrong claim."""
    numbers = told.get((kink.output.slot, kink.output.index, kink.output.part))
    if numbers is None:
        return kink
    along, low, high = numbers
    message = (
        f"{kink.message}; but not together with the others of its output: along a random "
        f"direction the claims add up to {along:.6g}, and beside the tie the slopes lie between "
        f"{low:.6g} and {high:.6g}"
    )
    return replace(kink, within=False, message=message)
