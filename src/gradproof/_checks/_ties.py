"""Claims at a tie that lie between the slopes one by one, and together are no slope at all.

Where two numbers are the largest, a maximum has the slope of the one or of the other, or claims a
mixture of both. That each entry lies between its one-sided slopes, 0 and 1, a claim of 1 for both
meets as well. So the claimed derivative is held, along random directions through the tie, against
the slopes that the function has beside it: a mixture of slopes lies between the least and the
greatest of them (Clarke, Optimization and Nonsmooth Analysis, 1983).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradproof._checks._found import Entries
from gradproof._checks._kinks import Examined
from gradproof._map import DifferentiableMap
from gradproof._numerics import jacobian, measure, probes
from gradproof._records import Kink
from gradproof._settings import Settings
from gradproof._space import Array, namespace, on_host, positions

_FIRST = 40  # number of the first tangent used here
_DIRECTIONS, _BESIDE = 3, 8
_COLUMNS = 8  # inputs of a tie that are moved one by one
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
    rows = xp.sum(xp.astype(tied, xp.int64), axis=1) >= 2
    if settings.classic_step or map_.resolution > measure.DOUBLE or not bool(xp.any(rows)):
        return found
    moved = xp.any(tied & rows[:, None], axis=0)
    outside: Array = found.outside
    told: dict[tuple[object, ...], tuple[float, float, float]] = {}
    for number in range(_DIRECTIONS):
        u = xp.where(moved, probes.tangent(map_, settings.seed or 0, _FIRST + number), 0.0)
        slopes = _slopes_beside(map_, settings, entries, (u, moved))
        known = xp.isfinite(slopes)
        low = xp.min(xp.where(known, slopes, xp.inf), axis=0)
        high = xp.max(xp.where(known, slopes, -xp.inf), axis=0)
        along, size = claimed @ u, xp.abs(claimed) @ xp.abs(u)
        slack = _SLACK * xp.maximum(size, xp.maximum(xp.abs(low), xp.abs(high)))
        enough = xp.sum(xp.astype(known, xp.int64), axis=0) >= _FEWEST
        apart = (along < low - slack) | (along > high + slack)
        bad = rows & enough & apart & xp.isfinite(along)
        outside = outside | (tied & bad[:, None])
        numbers_of = [on_host(each).tolist() for each in (along, low, high)]
        for i in positions(bad):
            place = map_.codomain.locate(i if entries.rows is None else entries.rows[i])
            numbers = numbers_of[0][i], numbers_of[1][i], numbers_of[2][i]
            told.setdefault((place.slot, place.index, place.part), numbers)
    kinks = tuple(sorted((_worded(k, told) for k in found.records), key=lambda k: k.within))
    return replace(found, outside=outside, records=kinks)


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


def _slopes_beside(
    map_: DifferentiableMap, settings: Settings, entries: Entries, moves: tuple[Array, Array]
) -> Array:
    """Slopes along a direction at points beside the tie, one row per point."""
    xp = namespace(moves[0])
    found = []
    for beside in _beside(map_, settings, *moves):
        x, step = map_.point + _APART * beside, _STEP * moves[0]
        slope = (map_.value(x + step) - map_.value(x - step)) / (2 * _STEP)
        rows = entries.rows
        found.append(slope if rows is None else xp.take(slope, xp.asarray(list(rows))))
    return xp.stack(found)


def _beside(map_: DifferentiableMap, settings: Settings, u: Array, moved: Array) -> Iterator[Array]:
    """Directions that break the tie: the one asked along, single inputs, and random ones."""
    xp = namespace(u)
    yield from (u, -u)
    for j in positions(moved)[:_COLUMNS]:
        single = jacobian.unit(u, j, float(probes.scales_of(map_)[j]))
        yield from (single, -single)
    for number in range(_BESIDE):
        drawn = probes.tangent(map_, settings.seed or 0, _FIRST + _DIRECTIONS + number)
        yield xp.where(moved, drawn, 0.0)
