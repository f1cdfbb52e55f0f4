"""Columns that are lost beside larger ones along the first tangent are asked along their own.

An input beside a penalty of 1e8, or one of another unit, adds to a row less than its rounding. The
claimed gradient tells how much each input adds along a tangent. Those that add less than what is
allowed there, divided by what must be seen of them, are moved alone: their rows are then as small
as they are, and are compared as tightly. What is smaller still is asked again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradproof._checks._claims import Claim, gradient
from gradproof._checks._screen import allowance, rows_of
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure, probes
from gradproof._numerics.compare import rms, within
from gradproof._numerics.richardson import Estimate
from gradproof._settings import Settings
from gradproof._space import Array, namespace, positions

_LEVELS = 3  # double precision has room for three times nine digits and no more


@dataclass(frozen=True)
class Faint:
    """What the columns that are lost along the first tangent say by themselves.

    Attributes:
        wrong: the tangent along which a gap shows, and what was measured there.
        resolution: largest error bar in parts of a row's derivative; 0 where none was asked.
        notes: on columns that no tangent shows.
    """

    wrong: tuple[Array, measure.Measurement] | None = None
    resolution: float = 0.0
    notes: tuple[str, ...] = ()


def columns(map_: DifferentiableMap, settings: Settings, claim: Claim) -> Faint:
    """Ask the columns that add less to their rows than what is allowed there."""
    worst = 0.0
    if map_.resolution > measure.DOUBLE or measure.large(map_):
        return Faint()
    u, found = probes.tangent(map_, settings.seed or 0, 0), measure.along(map_, settings, 0)
    for _ in range(_LEVELS):
        u = _lost(map_, settings, u, found.estimate)
        claimed = None if u is None else claim.along(u)
        if u is None or claimed is None:
            break
        xp = namespace(u)
        # Of signs that are drawn, one column is as large as its row over the root of their number.
        one = xp.abs(claimed) / float(xp.sum(xp.astype(u != 0, xp.float64))) ** 0.5
        hidden = (claimed != 0) & (settings.resolution * one < _allowed(map_, found.estimate))
        if not bool(xp.any(hidden)):
            break
        found = measure.direction_of(map_, settings, u)
        assert found.ladder is not None  # of a map that is not large it is kept
        found = replace(found, estimate=found.ladder.sharpen(xp.nonzero(hidden)[0]))
        rows = rows_of(map_, settings, found.estimate, claimed)
        if bool(xp.any(rows.suspect)):
            return Faint(wrong=(u, found))
        part = found.estimate.error / xp.where(claimed == 0, xp.inf, xp.abs(claimed))
        if not within(float(xp.max(part)), settings.resolution):
            return Faint(resolution=worst, notes=(_unseen(map_, u),))
        worst = max(worst, rows.resolution)
    return Faint(resolution=worst)


def _lost(map_: DifferentiableMap, settings: Settings, u: Array, found: Estimate) -> Array | None:
    """The tangent without what is seen along it; None where nothing is lost, or everything."""
    xp = namespace(u)
    try:
        added = xp.abs(gradient(map_, settings, 0) * u)
    except Exception:  # a backward that raises is told in its own row; forward mode has no sizes
        return None
    lost = settings.resolution * added < float(xp.max(_allowed(map_, found)))
    if not bool(xp.any(lost & (added > 0))) or bool(xp.all(lost | (u == 0))):
        return None
    return xp.where(lost, u, 0.0)


def _allowed(map_: DifferentiableMap, found: Estimate) -> Array:
    return allowance(map_, found, 0.0, rms(found.value))


def _unseen(map_: DifferentiableMap, u: Array) -> str:
    at = positions(u != 0)
    first = map_.domain.locate(at[0])
    told = f"{first} adds" if len(at) == 1 else f"{len(at):,} inputs, {first} first, add"
    return f"{told} too little beside larger ones: not tested"
