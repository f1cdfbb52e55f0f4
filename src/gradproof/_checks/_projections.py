"""Projections v.(J u) and (J^T v).u, and what they may be off by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradproof._checks._claims import Claim, gradient
from gradproof._checks._found import BARS
from gradproof._checks._screen import ROUNDING, summed
from gradproof._map import DifferentiableMap
from gradproof._numerics import coarse, measure, probes
from gradproof._numerics.compare import rms, within
from gradproof._numerics.formats import two_to
from gradproof._numerics.packing import blocks, packed, unpacked
from gradproof._numerics.richardson import Estimate
from gradproof._settings import Settings
from gradproof._space import Array, dot, namespace, norm

_SEEN = 1e-5  # bar of a row, in parts of its derivative, above which it is given less weight
_LEAST = 1e-250  # derivative of a row, in parts of the typical one, that is weighed by itself
_LEAST_OF_FEW_BITS = 1e-3
_ROUNDED = 512.0  # roundings of an entry of a gradient, of which those of a sum are no more
_LONG = 1 << 16  # entries added up at a time


@dataclass(frozen=True)
class Gap:
    """How far a projection lies from what is measured.

    Attributes:
        gap: its size.
        error: error bar of what is measured.
        quiet: what the claim may be off by.
        wrong: whether that does not explain it.
    """

    gap: float
    error: float
    quiet: float
    wrong: bool = False

    @property
    def allowed(self) -> float:
        return BARS * self.error + self.quiet


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


def usual(v: Array, rows: Estimate, blurred: Array) -> float:
    """What one row usually adds to a projection."""
    xp = namespace(v)
    parts = []
    for block in blocks(v, _LONG):
        here = rms(v[block] * xp.where(blurred[block], 0.0, rows.value[block]))
        parts.append(here * (v[block].shape[0] / v.shape[0]) ** 0.5)
    return math.hypot(*parts)  # the square of a large double is infinite


def split(claim: Claim, v: Array, back: Array, tangent: measure.Measurement) -> float:
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


def cotangents(
    map_: DifferentiableMap, settings: Settings, blurred: Array, number: int = 0
) -> Array:
    """Two cotangents: one of entries of one size, one that gives every row the same weight.

    Weights are those along the tangent `number`.

    In the second a row counts as much as the largest, however small it is, unless its error bar
    would blind the sum: it is weighed by what it is known to.
    """
    xp = namespace(blurred)
    seed = settings.seed or 0
    found = measure.along(map_, settings, number).estimate
    typical = rms(found.value) or 1.0
    # An output without derivative or bar gives nothing to weigh by, nor do few bits much room.
    least = _LEAST if map_.resolution < measure.DOUBLE else _LEAST_OF_FEW_BITS
    vs = xp.stack([probes.cotangent(map_, seed, k) for k in (0, 1)])
    for block in blocks(blurred, _LONG):
        here = found.span(block)
        size = xp.maximum(xp.abs(here.value), here.error / _SEEN)
        size = xp.where(size > least * typical, size, _LEAST_OF_FEW_BITS * typical)
        vs[1, block] *= two_to(-xp.round(xp.log2(xp.where(xp.isfinite(size), size, typical))))
        vs[:, block] = xp.where(blurred[None, block], 0.0, vs[:, block])
    return packed(vs) if measure.large(map_) else vs


def pulled(
    map_: DifferentiableMap, settings: Settings, claim: Claim, vs: Array, *, shared: bool
) -> list[Array]:
    """J^T v of the two cotangents, of which the first may be `shared` with other checks."""
    found = [gradient(map_, settings, 0) if shared else claim.project(vs[0, :])]
    found.append(claim.project(vs[1, :]))
    return [back for back in found if back is not None]  # only a mode that projects comes here


def disagreeing(
    map_: DifferentiableMap,
    settings: Settings,
    claim: Claim,
    probes_: tuple[Array, Sequence[Array], Array],
    number: int,
) -> tuple[Array | None, float]:
    """The cotangent whose projection disagrees along a tangent, if any; and the smallest bar.

    A wrong entry shows in each, so the sharper one counts; a bar is told in parts of what one row
    adds.

    Args:
        map_: the map.
        settings: of the run.
        claim: of a mode that projects.
        probes_: cotangents, what is claimed of them, and the rows that are left out.
        number: of the tangent.
    """
    vs, gradients, blurred = probes_
    bars = [math.inf]
    tangent = measure.along(map_, settings, number, keep=True)
    found = measure.ladder(map_, settings, number).of_functionals(vs, signs=signs_count(map_))
    for k, back in enumerate(gradients):
        v, sums = vs[k, :], (float(found.value[k]), float(found.error[k]))
        part = usual(v, tangent.estimate, blurred)
        quiet = 1e-10 * part * blurred.shape[0] ** 0.5
        sums = summed(sums, v, tangent.estimate)
        gap = gap_of(map_, claim, tangent, (v, back), sums, quiet=quiet, mixed=k > 0)
        bars.append(gap.allowed / part if part else 0.0)
        if gap.wrong:
            return packed(v), min(bars)
    return None, min(bars)


def gap_of(
    map_: DifferentiableMap,
    claim: Claim,
    tangent: measure.Measurement,
    pair: tuple[Array, Array],
    sums: tuple[float, float],
    *,
    quiet: float = 0.0,
    mixed: bool = True,
) -> Gap:
    """One projection, claimed against measured.

    Args:
        map_: the map.
        claim: of a mode that projects.
        tangent: u.
        pair: v, and what is claimed of it, J^T v.
        sums: v.(J u) as measured, and its error bar.
        quiet: a gap that is not looked at.
        mixed: whether v has entries of very different sizes, which a backward may mix.
    """
    (v, back), (measured, error) = pair, sums
    claimed, rounding = dot_and_rounding(map_, back, tangent.probe)
    found = Gap(abs(claimed - measured), error, quiet + rounding)
    wrong = not within(found.gap, found.allowed)
    if wrong and mixed:
        wrong = not within(found.gap, found.allowed + ROUNDING * split(claim, v, back, tangent))
    return replace(found, wrong=wrong)
