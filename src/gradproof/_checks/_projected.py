"""The screen where a mode claims no whole tangent, only projections."""

from __future__ import annotations

from gradproof._checks import _parts
from gradproof._checks._claims import Claim, gradient
from gradproof._checks._found import BARS
from gradproof._checks._projections import cotangents, disagreeing, pulled, signs_count
from gradproof._checks._screen import UNRESOLVED, Screen, allowance, empty, rows_of
from gradproof._explain.localise import MANY
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure
from gradproof._numerics.compare import rms, within
from gradproof._settings import Settings
from gradproof._space import Array, dot, namespace, positions

_TANGENTS = 3  # along which an output is asked for, at most, where it is small by chance
_FEWER = 0.5  # part of the outputs in doubt that a tangent has to leave, at most, for a further one


def projected(map_: DifferentiableMap, settings: Settings, claim: Claim) -> Screen:
    """The screen where only v.(J u) and (J^T v).u can be compared."""
    first = measure.along(map_, settings, 0)
    found = first.estimate
    back = gradient(map_, settings, 0) * first.direction
    # v.(J u) of m outputs of one size is sqrt(m) of it, and so is (J^T v).u.
    size = max(rms(found.value), rms(back) * (back.shape[0] / found.value.shape[0]) ** 0.5)
    nothing = empty(back, first)
    del back
    rows = rows_of(map_, settings, found, None)
    signs = signs_count(map_)
    seen = (_by_signs if signs else _by_two)(map_, settings, claim, rows.blurred)
    blurred = tuple(positions(seen.unseen))
    wanted = min(UNRESOLVED, BARS * settings.resolution) if signs else UNRESOLVED
    return Screen(
        suspects=_blurred_suspects(map_, settings, claim, blurred, size),
        blurred=blurred,
        projected=seen.gap,
        resolution=max(rows.resolution, seen.bar),
        bar=rows.bar,
        empty=seen.gap is None and nothing,
        unresolved=_hidden(map_, seen.bar, wanted),
        hints=seen.hints,
    )


def _hidden(map_: DifferentiableMap, part: float, wanted: float) -> str:
    """Why a part in doubt of an output's derivative is too large a one; "" where it is not."""
    told = (
        f"projections of the {map_.codomain.size:,} outputs resolve one of them to {part:.0%} only"
    )
    return f"{told}: give a reference or fewer outputs at once" if part > wanted else ""


def _blurred_suspects(
    map_: DifferentiableMap,
    settings: Settings,
    claim: Claim,
    blurred: tuple[int, ...],
    size: float,
) -> tuple[int, ...]:
    """Of the rows left out of the projections, the first few whose claim is beyond the bar."""
    some = blurred[:MANY]
    if not some:
        return ()
    first = measure.along(map_, settings, 0)
    found = first.estimate.of(namespace(map_.point).asarray(list(some)))
    allowed = allowance(map_, found, size, rms(first.estimate.value))
    suspects = []
    for k, i in enumerate(some):
        row = claim.row(i)
        assert row is not None  # only a mode that has rows is screened by projections
        gap = abs(dot(row, first.direction) - float(found.value[k]))
        if float(found.error[k]) < float("inf") and not within(gap, float(allowed[k])):
            suspects.append(i)
    return tuple(suspects)


def _by_two(
    map_: DifferentiableMap, settings: Settings, claim: Claim, blurred: Array
) -> _parts.Seen:
    """Two v and two u: a wrong entry shows in each of the four, and the sharpest bar counts."""
    vs = cotangents(map_, settings, blurred)
    shared = not bool(namespace(blurred).any(blurred))
    gradients, bars = pulled(map_, settings, claim, vs, shared=shared), []
    for number in (0, 1):
        if number and measure.large(map_):
            measure.drop_ladder(map_, 0)
        v, bar = disagreeing(map_, settings, claim, (vs, gradients, blurred), number)
        bars.append(bar)
        if v is not None:
            return _parts.Seen((number, v), min(bars), blurred)
    return _parts.Seen(None, min(bars), blurred)


def _by_signs(
    map_: DifferentiableMap, settings: Settings, claim: Claim, blurred: Array
) -> _parts.Seen:
    """Two v and two u, or three where that shows more of the outputs, and parts of the outputs.

    Along one u the derivatives of a few of many outputs are small by chance. They have their place
    in the sums, which have room for bars like those of the others; what they are is seen along
    another.
    """
    xp, found = namespace(blurred), measure.along(map_, settings, 0).estimate
    usual = xp.full_like(found.error, settings.resolution * rms(found.value))
    left = blurred & ~within(found.error, usual)
    vs = cotangents(map_, settings, left)
    shared = not bool(xp.any(left))
    gradients = pulled(map_, settings, claim, vs, shared=shared)
    bars: list[float] = []
    masks: list[Array] = []
    unseen = xp.ones_like(blurred)
    while True:
        number, before = len(masks), _count(unseen)
        v, bar = disagreeing(map_, settings, claim, (vs, gradients, left), number)
        if v is not None:
            return _parts.Seen((number, v), bar, blurred)
        estimate = measure.along(map_, settings, number).estimate
        masks.append(rows_of(map_, settings, estimate, None).blurred if number else blurred)
        bars.append(bar)
        unseen = unseen & masks[-1]
        now = _count(unseen)
        if number and (not now or number + 1 == _TANGENTS or now > _FEWER * before):
            break
    return _parts.looked_at(map_, settings, claim, (vs[1, :], left), (masks, bars))


def _count(mask: Array) -> int:
    return len(positions(mask))
