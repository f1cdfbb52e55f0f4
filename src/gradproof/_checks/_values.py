"""Whether a second map has the value of the first, up to what honest arithmetic would explain."""

from __future__ import annotations

from gradproof._map import DifferentiableMap, Unsupported
from gradproof._numerics import measure
from gradproof._numerics.compare import rms
from gradproof._settings import Settings
from gradproof._space import Array, namespace, positions

# Values may differ by rounding that the function magnifies, not by a tenth of their size.
_SAME = 0.1
_BARS = 4.0
# Roundings of its size that may lie between two ways to compute one value: special functions of
# two libraries differ by thousands in double precision, whose noise nobody minds, and honest runs
# show what a function magnifies.
_ROUNDINGS, _COARSE_ROUNDINGS = 2.0**14, 2.0**6
_HONEST = 32.0
_COARSE, _TINY = 2.0**-40, 2.0**-1000  # arithmetic in which doubles can be rounded, and its least


def distance(value: Array, exact: Array) -> float:
    """Root mean square of the difference, where both are finite."""
    xp = namespace(exact)
    return rms(xp.where(xp.isfinite(value) & xp.isfinite(exact), value - exact, 0.0))


def require_finite(map_: DifferentiableMap, candidate: DifferentiableMap) -> None:
    """Unsupported where a reference has no value, and the function under test has one."""
    ours, theirs = measure.centre(map_).value, measure.centre(candidate).value
    xp = namespace(ours)
    if missing := positions(xp.isfinite(ours) & ~xp.isfinite(theirs)):
        place, got = map_.codomain.locate(missing[0]), float(theirs[missing[0]])
        raise Unsupported(f"it returns another value: {place} is {got}")


def require_same(map_: DifferentiableMap, settings: Settings, candidate: DifferentiableMap) -> None:
    """Unsupported where the value of a candidate is off by more than a tenth of its size."""
    ours, theirs = measure.centre(map_).value, measure.centre(candidate).value
    xp = namespace(ours)
    usable = xp.isfinite(ours) & xp.isfinite(theirs)
    ours, theirs = xp.where(usable, ours, 0.0), xp.where(usable, theirs, 0.0)
    for position in range(len(map_.codomain.slots)):
        span = map_.codomain.span(position)
        gap, size = rms(ours[span] - theirs[span]), max(rms(ours[span]), rms(theirs[span]))
        if gap <= _SAME * size:
            continue
        if gap > _BARS * _rounded_away(map_, settings, candidate, span):
            raise Unsupported(f"it returns another value: off by {gap / size:.2g} of its size")


def off(name: str, finest: DifferentiableMap, found: DifferentiableMap, settings: Settings) -> str:
    """That a reference returns another value, by more than rounding explains; "" where it does."""
    ours, theirs = measure.centre(finest).value, measure.centre(found).value
    gap, size = distance(ours, theirs), rms(theirs)
    unit = max(finest.resolution, found.resolution)
    usual = _ROUNDINGS if unit <= measure.DOUBLE else _COARSE_ROUNDINGS
    if gap <= usual * unit * size or gap <= _HONEST * _magnified((found, finest), settings, unit):
        return ""
    return f"the value of {name} is another, by {gap / size if size else gap:.2g} of its size"


def _magnified(maps: tuple[DifferentiableMap, ...], settings: Settings, unit: float) -> float:
    """How far honest runs in arithmetic of this unit round-off are from the value.

    What is finer than double precision can be rounded to is taken from a coarser run: rounding
    moves a value in proportion.
    """
    coarse = max(unit, _COARSE)
    for each in maps:
        try:
            run = each.rounded(coarse, _TINY, settings.seed or 0)
            moved = distance(run.value(run.point), measure.centre(each).value)
        except Unsupported:
            continue
        return moved * unit / coarse
    return 0.0


def _rounded_away(
    map_: DifferentiableMap, settings: Settings, candidate: DifferentiableMap, span: slice
) -> float:
    """How far honest rounding moves the value: all of it where sin(300 x) is asked in 8 bits."""
    grains = [slot.grain for slot in (*map_.domain.slots, *map_.codomain.slots) if slot.size]
    grain = max(grains, key=lambda grain: grain.unit)
    exact = measure.centre(candidate).value
    try:
        rounded = candidate.rounded(grain.unit, grain.tiny, settings.seed or 0)
        return rms((rounded.value(candidate.point) - exact)[span])
    except Unsupported:
        return 0.0
