"""Projections v.(J u) and (J^T v).u, and what they may be off by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradproof._data.space import Array, dot, namespace, positions
from gradproof._data.vectors import KEPT, blocks, rms, two_to
from gradproof._judge import claim_error, limiting_slopes
from gradproof._judge.claims import Claim, gradient
from gradproof._judge.decide import (
    BARS,
    Bar,
    Decision,
    decide,
    dot_and_rounding,
    of_largest,
    of_sum,
    resolved,
    signs_count,
)
from gradproof._judge.screen import SHARP, UNRESOLVED, Screen, empty, of_rows, rows_of, summed
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional, probes
from gradproof._measure.richardson import Estimate
from gradproof._measure.sizes import MANY, MOST_FINDINGS, SMALL, TRIES, UNDERFLOW


def usual(v: Array, rows: Estimate) -> float:
    """What one row usually adds to a projection; those that v leaves out add nothing."""
    xp = namespace(v)
    parts = []
    for block in blocks(v, KEPT):
        here = rms(v[block] * xp.where(v[block] == 0, 0.0, rows.value[block]))
        parts.append(here * (v[block].shape[0] / v.shape[0]) ** 0.5)
    return math.hypot(*parts)  # the square of a large double is infinite


def cotangents(claim: Claim, blurred: Array, number: int = 0) -> Array:
    """Two cotangents: one of entries of one size, one that gives every row the same weight.

    Weights are those along the tangent `number`.

    In the second a row counts as much as the largest, however small it is, unless its error bar
    would blind the sum: it is weighed by what it is known to.
    """
    map_, settings, xp = claim.map, claim.settings, namespace(blurred)
    seed = settings.seed
    found = directional.along(map_, settings, number).estimate
    typical = rms(found.value) or 1.0
    # An output without derivative or bar gives nothing to weigh by, nor do few bits much room.
    least = UNDERFLOW if map_.resolution < directional.DOUBLE else SMALL
    vs = xp.stack([probes.cotangent(map_, seed, k) for k in (0, 1)])
    for block in blocks(blurred, KEPT):
        here = found.span(block)
        size = xp.maximum(xp.abs(here.value), here.error / SHARP)
        size = xp.where(size > least * typical, size, SMALL * typical)
        vs[1, block] *= two_to(-xp.round(xp.log2(xp.where(xp.isfinite(size), size, typical))))
        vs[:, block] = xp.where(blurred[None, block], 0.0, vs[:, block])
    return vs


def pulled(claim: Claim, vs: Array, *, shared: bool) -> list[Array]:
    """J^T v of the two cotangents, of which the first may be `shared` with other checks."""
    map_, settings = claim.map, claim.settings
    found = [gradient(map_, settings, 0) if shared else claim.project(vs[0, :])]
    found.append(claim.project(vs[1, :]))
    return [back for back in found if back is not None]  # only a mode that projects comes here


def disagreeing(
    claim: Claim, vs: Array, gradients: Sequence[Array], number: int
) -> tuple[Array | None, float]:
    """The cotangent whose projection disagrees along a tangent, if any; and the smallest bar.

    A wrong entry shows in each, so the sharper one counts; a bar is told in parts of what one row
    adds. `gradients` are what is claimed of the cotangents.
    """
    map_, settings = claim.map, claim.settings
    bars = [math.inf]
    tangent = directional.along(map_, settings, number, keep=True)
    found = directional.ladder(map_, settings, number).of_functionals(vs, signs=signs_count(map_))
    for k, back in enumerate(gradients):
        v, sums = vs[k, :], (float(found.value[k]), float(found.error[k]))
        part = usual(v, tangent.estimate)
        quiet = of_sum(part * v.shape[0] ** 0.5)
        sums = summed(sums, v, tangent.estimate)
        gap = gap_of(claim, tangent, Projection(v, back, *sums, mixed=k > 0), quiet)
        bars.append(gap.further / part if part else 0.0)
        if gap.wrong:
            return v, min(bars)
    return None, min(bars)


@dataclass(frozen=True)
class Projection:
    """One projection, claimed and measured."""

    v: Array  # a cotangent
    back: Array  # what is claimed of it, J^T v
    value: float  # v.(J u) as measured
    error: float  # the error bar of that
    mixed: bool = True  # whether v has entries of very different sizes, which a backward may mix


def gap_of(
    claim: Claim, tangent: directional.Measurement, one: Projection, quiet: float = 0.0
) -> Decision:
    """What a projection along a tangent, of a mode that projects, decides; `quiet` is no gap."""
    map_ = claim.map
    claimed, rounding = dot_and_rounding(map_, one.back, tangent.direction)
    found = decide(claimed, one.value, Bar(one.error), quiet + rounding, small=0.0)
    if found.wrong and one.mixed:
        u = tangent.direction
        found = found.plus(claim_error.of_projection(claim, one.v, u))
    return found


# Projections on parts of the outputs: one VJP each, and no evaluation.
#
# The rounding of a sum grows with the root of its length, and what one output adds does not. With a
# bar of a 64th of a row, as many as there are parts, a projection of all of them needs none.


@dataclass(frozen=True)
class Seen:
    """What projections say.

    Attributes:
        gap: tangent and cotangent whose projection disagrees.
        bar: of every output seen, in parts of what one adds.
        unseen: outputs whose derivative is small along every tangent.
        hints: tangent and parts of the outputs whose gap proves nothing, but is larger than the
            error bar of most.
    """

    gap: tuple[int, Array] | None
    bar: float
    unseen: Array
    hints: tuple[int, tuple[slice, ...]] | None = None


def looked_at(claim: Claim, v: Array, masks: Sequence[Array], bars: Sequence[float]) -> Seen:
    """Parts of all outputs along the sharpest tangent; those not seen there along the others.

    The cotangent v weighs every output alike, or leaves it out; `masks` tell which outputs are
    blurred along each tangent, `bars` are those of its projections.
    """
    map_, settings = claim.map, claim.settings
    xp = namespace(v)
    best = min(range(len(bars)), key=lambda k: bars[k])
    unseen = masks[0]
    for mask in masks[1:]:
        unseen = unseen & mask
    rest, bar = (masks[best] | (v == 0)) & ~unseen, bars[best]
    hints: tuple[slice, ...] = ()
    if 1 / MOST_FINDINGS < bar < math.inf:
        parts = min(MOST_FINDINGS, math.ceil((bar * MOST_FINDINGS) ** 2))
        wrong, bar, hints = _strata(claim, best, v, parts)
        if wrong is not None:
            return Seen((best, wrong), bar, unseen)
    for number, mask in enumerate(masks):
        here = rest & ~mask
        if not bool(xp.any(here)):
            continue
        some = cotangents(claim, ~here, number)[1, :]
        found = gap_on(claim, number, some, slice(0, v.shape[0]))
        one = usual(some, directional.along(map_, settings, number).estimate)
        bar = max(bar, found.further / one * _root(here)) if one else bar
        if found.wrong:  # along the first tangent it may not be told what is wrong there
            return Seen((number, some), bar, unseen | here)
        rest = rest & mask
    return Seen(None, bar, unseen, (best, hints) if hints else None)


def _root(here: Array) -> float:
    """By how much fewer outputs make the usual part of one too small."""
    xp = namespace(here)
    return math.sqrt(float(xp.mean(xp.astype(here, xp.float64))))


def _strata(
    claim: Claim, number: int, v: Array, parts: int
) -> tuple[Array | None, float, tuple[slice, ...]]:
    """The part that disagrees, if any, the largest bar, and hints."""
    map_, settings = claim.map, claim.settings
    one = usual(v, directional.along(map_, settings, number).estimate)
    size, worst, gaps = v.shape[0], 0.0, []
    for k in range(parts):
        span = slice(k * size // parts, (k + 1) * size // parts)
        some = namespace(v).zeros_like(v)
        some[span] = v[span]
        found = gap_on(claim, number, some, span)
        worst = max(worst, found.further / one if one else 0.0)
        if found.wrong:
            return some, worst, ()
        gaps.append((found.gap, found.allowed, span))
    middle = sorted(bar for _, bar, _ in gaps)[parts // 2]
    return None, worst, tuple(span for gap, bar, span in gaps if gap > max(bar, middle))


def gap_on(
    claim: Claim, number: int, v: Array, span: slice, *, quiet: float = 0.0, mixed: bool = True
) -> Decision:
    """What a projection decides of a cotangent that is zero outside a span; as in `gap_of`."""
    map_, settings = claim.map, claim.settings
    tangent = directional.along(map_, settings, number)
    ladder = directional.ladder(map_, settings, number)
    back = claim.project(v)
    assert back is not None  # only a mode that projects lacks whole tangents
    found = ladder.of_functionals(v[None, span], span, signs=signs_count(map_))
    sums = (float(found.value[0]), float(found.error[0]))
    return gap_of(claim, tangent, Projection(v, back, *sums, mixed), quiet)


# The screen where a mode claims no whole tangent, only projections.


def projected(claim: Claim) -> Screen:
    """The screen where only v.(J u) and (J^T v).u can be compared."""
    map_, settings = claim.map, claim.settings
    first = directional.along(map_, settings, 0)
    found = first.estimate
    back = gradient(map_, settings, 0) * first.direction
    # v.(J u) of m outputs of one size is sqrt(m) of it, and so is (J^T v).u.
    size = max(rms(found.value), rms(back) * (back.shape[0] / found.value.shape[0]) ** 0.5)
    nothing = empty(back, first)
    del back
    rows = rows_of(map_, settings, found, None)
    signs = signs_count(map_)
    seen = _seen(claim, rows.blurred)
    blurred = tuple(positions(seen.unseen))
    wanted = min(UNRESOLVED, BARS * settings.resolution) if signs else UNRESOLVED
    return Screen(
        suspects=_blurred_suspects(claim, blurred, size),
        blurred=blurred,
        projected=seen.gap,
        resolution=max(rows.resolution, seen.bar),
        bar=rows.bar,
        bound=of_largest(map_, max(rows.resolution, seen.bar), map_.domain.size, probes=2),
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


def _blurred_suspects(claim: Claim, blurred: tuple[int, ...], size: float) -> tuple[int, ...]:
    """The first few rows left out of the projections whose claim is beyond the bar."""
    map_, settings = claim.map, claim.settings
    some = blurred[:MANY]
    if not some:
        return ()
    first = directional.along(map_, settings, 0)
    at = namespace(map_.point).asarray(list(some))
    found = first.estimate.of(at)
    rows = [claim.row(i) for i in some]
    along = [dot(row, first.direction) for row in rows if row is not None]
    assert len(along) == len(some)  # only a mode that has rows is screened by projections
    claimed = namespace(map_.point).asarray(along)
    decided = of_rows(map_, found, claimed, size, rms(first.estimate.value))
    beyond = limiting_slopes.but_tied(map_, decided.wrong, at)
    return tuple(some[k] for k in positions(beyond))


def _seen(claim: Claim, blurred: Array) -> Seen:
    """Two v and two u: a wrong entry shows in each of the four, and the sharpest bar counts.

    Along one u the derivatives of a few of many outputs are small by chance. They have their place
    in the sums, which have room for bars like those of the others; what they are is seen along
    another. In single precision, where bars are wide, that is a third where it shows more of the
    outputs, and then parts of the outputs are seen.
    """
    map_, settings = claim.map, claim.settings
    xp, found = namespace(blurred), directional.along(map_, settings, 0).estimate
    signs, left = signs_count(map_), blurred
    if bool(xp.any(blurred)):
        others = float(xp.max(xp.where(blurred, 0.0, found.error)))
        room = settings.resolution * rms(found.value) if signs else others
        left = blurred & ~resolved(found.error, room)
    vs = cotangents(claim, left)
    gradients = pulled(claim, vs, shared=not bool(xp.any(left)))
    bars: list[float] = []
    masks, unseen, left_over = [blurred], blurred, _count(blurred)
    for number in range(TRIES if signs else 2):
        if number and directional.large(map_):
            directional.drop_ladder(map_, number - 1)
        v, bar = disagreeing(claim, vs, gradients, number)
        bars.append(bar)
        if v is not None:
            return Seen((number, v), min(bars), blurred)
        if number and (signs or left_over):
            estimate = directional.along(map_, settings, number).estimate
            masks.append(rows_of(map_, settings, estimate, None).blurred)
            unseen, before = unseen & masks[-1], left_over
            left_over = _count(unseen)
            if not left_over or 2 * left_over > before:
                break
    if not signs:
        return Seen(None, min(bars), unseen | left)
    return looked_at(claim, vs[1, :], masks, bars)


def _count(mask: Array) -> int:
    return len(positions(mask))
