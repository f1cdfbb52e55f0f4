"""In how many bits a function computes, whatever its arrays say: by its noise and its values."""

from __future__ import annotations

import math

from gradproof._checks._values import distance
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure, noise, probes
from gradproof._numerics.compare import rms
from gradproof._numerics.robust import sampled
from gradproof._settings import Settings
from gradproof._space import Array, namespace

_FEW, _TABLES = 8, 3  # of so few outputs so many tables are needed
_FINE = 2.0**-20, 2.0**-30  # steps at which a jump is the same, and noise is not
_JUMP = 2.0**-6  # of the size of the value: more than a rounding to eight bits


def unit_shown(candidate: DifferentiableMap, settings: Settings) -> float:
    """Unit round-off that a function in double precision shows at its point.

    What the steps of one derivative tell of noise errs to the coarse side, by much where the
    function jumps or has few outputs: the finest of three estimates is believed, but none that is
    finer than the numbers that are its values.
    """
    measure.along(candidate, settings, 0)
    known = max(candidate.resolution, measure.format_shown(candidate, settings))
    found = max(measure.resolution(candidate), known)
    if found <= measure.DOUBLE:
        return found
    others = _but_for_jumps(candidate, settings), _of_tables(candidate, settings)
    return min(found, *(max(known, other) for other in others))


def _of_tables(candidate: DifferentiableMap, settings: Settings) -> float:
    """The largest that tables of differences tell; infinite where the function stands still.

    Stairs may fit the spacing of one table, and then look smooth in it; not of many outputs.
    """
    count = _TABLES if candidate.codomain.size <= _FEW else 1
    tangents = [probes.tangent(candidate, settings.seed or 0, k) for k in range(count)]
    tables = [noise.along(candidate.value, candidate.point, u) for u in tangents]
    found = max(measure.typical_noise(candidate, sampled(table)) for table in tables)
    return found or math.inf


def _but_for_jumps(candidate: DifferentiableMap, settings: Settings) -> float:
    """The largest that it shows along one input at a time, without those along which it jumps.

    A jump in the point itself, as where a label of exactly 1 is asked for, looks like noise of the
    size of the value. Infinite where there is no other input.
    """
    xp, tangent = namespace(candidate.point), probes.tangent(candidate, settings.seed or 0, 0)
    found, index = [], xp.arange(candidate.domain.size)
    for position, slot in enumerate(candidate.domain.slots):
        span = candidate.domain.span(position)
        u = xp.where((index >= span.start) & (index < span.stop), tangent, 0.0)
        if slot.size and not _jumps(candidate, u):
            noise_of = sampled(measure.direction_of(candidate, settings, u).estimate.noise)
            found.append(measure.typical_noise(candidate, noise_of))
    return max(found, default=math.inf)


def _jumps(candidate: DifferentiableMap, u: Array) -> bool:
    """Whether F is far from F(x) on both sides, and the very same at two steps that are fine."""
    xp, start = namespace(u), measure.centre(candidate).value
    size = rms(start)
    for way in (1.0, -1.0):
        near, nearer = (candidate.value(candidate.point + way * step * u) for step in _FINE)
        if bool(xp.any(near != nearer)) or not distance(nearer, start) > _JUMP * size:
            return False
    return True
