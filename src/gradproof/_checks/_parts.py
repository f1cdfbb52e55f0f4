"""Projections on parts of the outputs: one VJP each, and no evaluation.

The rounding of a sum grows with the root of its length, and what one output adds does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradproof._checks._claims import Claim
from gradproof._checks._projections import Gap, cotangents, gap_of, usual
from gradproof._checks._screen import summed
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure
from gradproof._numerics.packing import packed, unpacked
from gradproof._settings import Settings
from gradproof._space import Array, namespace

_MOST = 64  # parts of the outputs
_SHARP = 0.016  # bar of a projection, in parts of a row, that shows hundredths of rows


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


def looked_at(
    map_: DifferentiableMap,
    settings: Settings,
    claim: Claim,
    weighed: tuple[Array, Array],
    tangents: tuple[Sequence[Array], Sequence[float]],
) -> Seen:
    """Parts of all outputs along the sharpest tangent; those not seen there along the others.

    Args:
        map_: the map.
        settings: of the run.
        claim: of a mode that projects.
        weighed: a cotangent that weighs every output alike, and the outputs it leaves out.
        tangents: of each, which outputs are blurred along it, and the bar of its projections.
    """
    (whole, left), (masks, bars) = weighed, tangents
    xp, v = namespace(left), unpacked(whole)
    best = min(range(len(bars)), key=lambda k: bars[k])
    unseen = masks[0]
    for mask in masks[1:]:
        unseen = unseen & mask
    rest, bar = (masks[best] | left) & ~unseen, bars[best]
    hints: tuple[slice, ...] = ()
    if _SHARP < bar < math.inf:
        parts = min(_MOST, math.ceil((bar / _SHARP) ** 2))
        one = usual(v, measure.along(map_, settings, best).estimate, left)
        wrong, bar, hints = _strata(map_, settings, claim, (best, v, one), parts)
        if wrong is not None:
            return Seen((best, wrong), bar, unseen)
    for number, mask in enumerate(masks):
        here = rest & ~mask
        if not bool(xp.any(here)):
            continue
        some = unpacked(cotangents(map_, settings, ~here, number)[1, :])
        found = _gap(map_, settings, claim, (number, some, slice(0, v.shape[0])))
        one = usual(some, measure.along(map_, settings, number).estimate, ~here)
        bar = max(bar, found.allowed / one * _root(here)) if one else bar
        if found.wrong:  # along the first tangent it may not be told what is wrong there
            return Seen((number, packed(some)), bar, unseen | here)
        rest = rest & mask
    return Seen(None, bar, unseen, (best, hints) if hints else None)


def _root(here: Array) -> float:
    """By how much fewer outputs make the usual part of one too small."""
    xp = namespace(here)
    return math.sqrt(float(xp.mean(xp.astype(here, xp.float64))))


def _strata(
    map_: DifferentiableMap,
    settings: Settings,
    claim: Claim,
    along: tuple[int, Array, float],
    parts: int,
) -> tuple[Array | None, float, tuple[slice, ...]]:
    """The part that disagrees, if any, the largest bar, and hints."""
    number, v, one = along
    size, worst, gaps = v.shape[0], 0.0, []
    for k in range(parts):
        span = slice(k * size // parts, (k + 1) * size // parts)
        some = namespace(v).zeros_like(v)
        some[span] = v[span]
        found = _gap(map_, settings, claim, (number, some, span))
        worst = max(worst, found.allowed / one if one else 0.0)
        if found.wrong:
            return packed(some), worst, ()
        gaps.append((found.gap, found.error + found.quiet, span))
    middle = sorted(bar for _, bar, _ in gaps)[parts // 2]
    return None, worst, tuple(span for gap, bar, span in gaps if gap > max(bar, middle))


def _gap(
    map_: DifferentiableMap,
    settings: Settings,
    claim: Claim,
    along: tuple[int, Array, slice],
) -> Gap:
    """One projection, of a cotangent that is zero outside a span."""
    number, v, span = along
    tangent = measure.along(map_, settings, number)
    ladder = measure.ladder(map_, settings, number)
    back = claim.project(v)
    assert back is not None  # only a mode that projects lacks whole tangents
    found = ladder.of_functionals(v[None, span], span, signs=True)
    sums = (float(found.value[0]), float(found.error[0]))
    sums = summed(sums, v[span], tangent.estimate.span(span))
    return gap_of(map_, claim, tangent, (v, back), sums)
