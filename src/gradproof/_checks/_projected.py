"""The screen where a mode claims no whole tangent, only projections."""

from __future__ import annotations

import math

from gradproof._checks._claims import Claim, gradient
from gradproof._checks._found import BARS
from gradproof._checks._screen import (
    ROUNDING,
    UNRESOLVED,
    Screen,
    allowance,
    empty,
    rows_of,
    summed,
)
from gradproof._explain.localise import MANY
from gradproof._map import DifferentiableMap
from gradproof._numerics import coarse, measure, probes
from gradproof._numerics.compare import rms, within
from gradproof._numerics.formats import two_to
from gradproof._numerics.packing import blocks, packed, unpacked
from gradproof._numerics.richardson import Estimate
from gradproof._settings import Settings
from gradproof._space import Array, dot, namespace, norm, positions

_SEEN = 1e-5  # bar of a row, in parts of its derivative, above which it is given less weight
_LEAST = 1e-250  # derivative of a row, in parts of the typical one, that is weighed by itself
_LEAST_OF_FEW_BITS = 1e-3
_STRATA = 64  # parts of the outputs, at most, whose projections are looked at one by one
_ROUNDED = 512.0  # roundings of an entry of a gradient, of which those of a sum are no more
_LONG = 1 << 16  # entries added up at a time


def projected(map_: DifferentiableMap, settings: Settings, claim: Claim) -> Screen:
    """The screen where only v.(J u) and (J^T v).u can be compared: two v and two u."""
    first = measure.along(map_, settings, 0)
    found = first.estimate
    pulled = gradient(map_, settings, 0) * first.direction
    # v.(J u) of m outputs of one size is sqrt(m) of it, and so is (J^T v).u.
    size = max(rms(found.value), rms(pulled) * (pulled.shape[0] / found.value.shape[0]) ** 0.5)
    nothing = empty(pulled, first)
    del pulled
    rows = rows_of(map_, settings, found, None)
    gap, bar = _projections(map_, settings, claim, rows.blurred)
    signs = signs_count(map_)
    wanted = min(UNRESOLVED, BARS * settings.resolution) if signs else UNRESOLVED
    if signs and gap is None and wanted < bar < float("inf"):
        parts = min(_STRATA, math.ceil(2 * (bar / wanted) ** 2))
        gap, bar = _strata(map_, settings, claim, rows.blurred, parts)
    blurred = tuple(positions(rows.blurred))
    return Screen(
        suspects=_blurred_suspects(map_, settings, claim, blurred, size),
        blurred=blurred,
        projected=gap,
        resolution=max(rows.resolution, bar),
        bar=rows.bar,
        empty=gap is None and nothing,
        unresolved=_hidden(map_, bar, wanted),
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


def _projections(
    map_: DifferentiableMap, settings: Settings, claim: Claim, blurred: Array
) -> tuple[tuple[int, Array] | None, float]:
    """The tangent and cotangent whose projection disagrees, if any; and the smallest bar.

    A wrong entry shows in each of the four, so the sharpest one counts; a bar is told in parts of
    what one row adds.

    One cotangent weighs every output by one over its derivative, so that small rows count.
    """
    vs = _cotangents(map_, settings, blurred)
    shared = not bool(namespace(blurred).any(blurred))
    pulled = [gradient(map_, settings, 0) if shared else claim.project(vs[0, :])]
    pulled.append(claim.project(vs[1, :]))
    bars = []
    for number in (0, 1):
        if number and measure.large(map_):
            measure.drop_ladder(map_, 0)
        tangent = measure.along(map_, settings, number, keep=True)
        signs = signs_count(map_)
        found = measure.ladder(map_, settings, number).of_functionals(vs, signs=signs)
        for k, back in enumerate(pulled):
            assert back is not None  # only a mode that projects lacks whole tangents
            sums = (float(found.value[k]), float(found.error[k]))
            measured, error = summed(sums, vs[k, :], tangent.estimate)
            part = _usual(vs[k, :], tangent.estimate, blurred)
            claimed, rounding = dot_and_rounding(map_, back, tangent.probe)
            quiet = 1e-10 * part * blurred.shape[0] ** 0.5 + rounding
            allowed = BARS * error + quiet
            bars.append(allowed / part if part else 0.0)
            gap = abs(claimed - measured)
            if not within(gap, allowed) and not (
                k and within(gap, allowed + ROUNDING * _split(claim, vs[k, :], back, tangent))
            ):
                return (number, packed(vs[k, :])), min(bars)
    return None, min(bars)


def _usual(v: Array, rows: Estimate, blurred: Array) -> float:
    """What one row usually adds to a projection."""
    xp = namespace(v)
    parts = []
    for block in blocks(v, _LONG):
        here = rms(v[block] * xp.where(blurred[block], 0.0, rows.value[block]))
        parts.append(here * (v[block].shape[0] / v.shape[0]) ** 0.5)
    return math.hypot(*parts)  # the square of a large double is infinite


def _strata(
    map_: DifferentiableMap, settings: Settings, claim: Claim, blurred: Array, parts: int
) -> tuple[tuple[int, Array] | None, float]:
    """The same of one tangent and parts of the second cotangent: one VJP each, no evaluation.

    The rounding of a sum grows with the root of its length, and what one output adds does not.
    """
    v = unpacked(_cotangents(map_, settings, blurred)[1, :])
    tangent, ladder = measure.along(map_, settings, 0), measure.ladder(map_, settings, 0)
    part, size, worst = _usual(v, tangent.estimate, blurred), v.shape[0], 0.0
    for k in range(parts):
        span = slice(k * size // parts, (k + 1) * size // parts)
        some = namespace(v).zeros_like(v)
        some[span] = v[span]
        back = claim.project(some)
        assert back is not None  # only a mode that projects lacks whole tangents
        found = ladder.of_functionals(v[None, span], span, signs=True)
        sums = (float(found.value[0]), float(found.error[0]))
        measured, error = summed(sums, v[span], tangent.estimate.span(span))
        claimed, rounding = dot_and_rounding(map_, back, tangent.probe)
        allowed = BARS * error + rounding
        gap = abs(claimed - measured)
        if not within(gap, allowed) and not within(
            gap, allowed + ROUNDING * _split(claim, some, back, tangent)
        ):
            return (0, packed(some)), allowed / part if part else 0.0
        worst = max(worst, allowed / part if part else 0.0)
    return None, worst


def signs_count(map_: DifferentiableMap) -> bool:
    """Whether roundings are taken to add up as the signs of probes, which are drawn, let them.

    Nothing that F or its backward rounds knows them: of m roundings the root of m counts, not m.
    In double precision there is room for all of them, and 16 bits follow rules of their own.
    """
    return measure.DOUBLE < map_.resolution < coarse.SINGLE


def dot_and_rounding(map_: DifferentiableMap, one: Array, other: Array) -> tuple[float, float]:
    """The inner product of a claimed gradient and a tangent, and what it may be off by."""
    total = size = squares = 0.0
    for block in blocks(one, _LONG):
        left, right = one[block], unpacked(other[block])
        total += dot(left, right)
        size += dot(abs(left), abs(right))
        squares = math.hypot(squares, norm(left * right))
    least = min(64 * size, _ROUNDED * squares) if signs_count(map_) else 64 * size
    return total, map_.resolution * least


def _split(claim: Claim, v: Array, back: Array, tangent: measure.Measurement) -> float:
    """Rounding of a projection: (J^T v - J^T v' - J^T v'').u, with v = v' + v'' split in two.

    The entries of v may be of very different sizes, and a backward that mixes rows rounds all of
    them by the largest.
    """
    xp, v = namespace(v), unpacked(v)
    index = xp.arange(v.shape[0])
    found = 0.0
    for mask in (index % 2 == 0, 2 * index < v.shape[0]):
        left = back
        for half in (mask, ~mask):
            part = claim.project(xp.where(half, v, 0.0))
            assert part is not None
            left = left - part
        found = max(found, abs(dot(left, tangent.direction)))
    return found


def _cotangents(map_: DifferentiableMap, settings: Settings, blurred: Array) -> Array:
    """Two cotangents: one of entries of one size, one that gives every row the same weight.

    In the second a row counts as much as the largest, however small it is, unless its error bar
    would blind the sum: it is weighed by what it is known to.
    """
    xp = namespace(blurred)
    seed = settings.seed or 0
    found = measure.along(map_, settings, 0).estimate
    typical = rms(found.value) or 1.0
    # An output without derivative or bar gives nothing to weigh by, nor do few bits much room.
    least = _LEAST if map_.resolution < measure.DOUBLE else _LEAST_OF_FEW_BITS
    vs = xp.stack([probes.cotangent(map_, seed, number) for number in (0, 1)])
    for block in blocks(blurred, _LONG):
        here = found.span(block)
        size = xp.maximum(xp.abs(here.value), here.error / _SEEN)
        size = xp.where(size > least * typical, size, _LEAST_OF_FEW_BITS * typical)
        vs[1, block] *= two_to(-xp.round(xp.log2(xp.where(xp.isfinite(size), size, typical))))
        vs[:, block] = xp.where(blurred[None, block], 0.0, vs[:, block])
    return packed(vs) if measure.large(map_) else vs
