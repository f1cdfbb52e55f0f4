"""The ends of a run of wrong columns, where noise leaves them open.

Of all columns together an evaluation says little of a single one: its gap is a small part of what
the whole is rounded by. Along the few columns that may or may not belong to the run there is
nothing else, and every output is looked at, not a few rows. An end is told where the error bars
of all outputs leave one place only.
"""

from __future__ import annotations

from dataclasses import replace

from gradproof._checks._hunt import Hunt
from gradproof._checks._screen import ROUNDING
from gradproof._explain.fitted import Fit
from gradproof._numerics import jacobian, measure
from gradproof._numerics.compare import within
from gradproof._numerics.richardson import Estimate
from gradproof._space import Array, dot, namespace

_MOST = 32  # columns that are looked at
_BESIDE = 2  # of them on either side of those in doubt
_BARS = 2.0  # error bars that a gap may be off by
_PART = 1 / 4  # of the tangent: what is bent then is no noise at the finest steps
_FACTOR = 1 / 16  # part of itself that the factor of the run, a fit, may be off by


def sharpened(hunt: Hunt, fit: Fit, factor: float) -> Fit | None:
    """The same run with fewer places for its ends, by one ladder along the columns in doubt.

    Where the mode claims no whole tangents the run stays as it is. None where no place for its
    ends agrees: what is wrong there, or beside it, is no part of a run.

    Args:
        hunt: the search.
        fit: a run of columns.
        factor: the gap of its entries, in parts of what is claimed of them.
    """
    size = hunt.map.domain.size
    starts = range(max(0, fit.starts[0] - _BESIDE), fit.starts[1])
    stops = range(fit.stops[0], min(size, fit.stops[1] + _BESIDE))
    columns = [*starts, *stops]
    if not 0 < len(columns) <= _MOST or hunt.map.codomain.size > measure.KEPT:
        return fit
    direction = measure.along(hunt.map, hunt.settings, 0).direction
    xp = namespace(direction)
    claims, u = [], xp.zeros_like(direction)
    for j in columns:
        one = jacobian.unit(direction, j, _PART * float(direction[j]))
        claimed = hunt.claim.along(one)
        if claimed is None:
            return fit
        claims.append(claimed)
        u = u + one
    found = measure.direction_of(hunt.map, hunt.settings, u, short=True).estimate
    places = _places(xp.stack(claims), found, factor, (len(starts), len(stops)), hunt)
    if not places:
        return None
    first = [starts.start + at for at, _ in places]
    last = [stops.start + at for _, at in places]
    ends = (min(first), max(first)), (min(last), max(last))
    run = replace(fit.run, low=min(first), high=max(last))
    return replace(fit, run=run, starts=ends[0], stops=ends[1])


def _places(
    claims: Array, found: Estimate, factor: float, counts: tuple[int, int], hunt: Hunt
) -> list[tuple[int, int]]:
    """Columns in doubt that are right at the beginning, and wrong at the end: what is possible.

    Args:
        claims: of the columns along the direction, (columns, m).
        found: all of them together, measured.
        factor: gap of a wrong one, in parts of its claim.
        counts: of columns in doubt at the beginning, and at the end.
        hunt: the search.
    """
    xp = namespace(claims)
    gap = xp.sum(claims, axis=0) - found.value
    bar = _BARS * found.error
    bar += ROUNDING * hunt.map.resolution * xp.sum(xp.abs(claims), axis=0)
    seen = xp.isfinite(bar)
    gap, bar = xp.where(seen, gap, 0.0), xp.where(seen, bar, 1.0)
    weights = xp.where(seen & (bar > 0), 1 / xp.where(bar > 0, bar, 1.0), 0.0)
    possible = []
    for right in range(counts[0] + 1):
        for wrong in range(counts[1] + 1):
            inside = xp.sum(claims[right : counts[0] + wrong, :], axis=0)
            terms = xp.where(seen, inside, 0.0)
            size = dot(weights * terms, weights * terms)
            own = dot(weights * terms, weights * gap) / size if size else factor
            own = factor * min(max(own / factor, 1 - _FACTOR), 1 + _FACTOR)
            if bool(xp.all(within(xp.abs(gap - own * terms), bar))):
                possible.append((right, wrong))
    return possible
