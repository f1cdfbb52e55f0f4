"""Two vectors, J^T v or J u, that must be the same up to rounding."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradproof._data.records import Finding
from gradproof._data.space import Array, namespace, on_host
from gradproof._data.vectors import KEPT, blocks, largest_size, rms
from gradproof._judge import claim_error
from gradproof._judge.decide import (
    EXACT,
    Bar,
    Tolerance,
    decide,
    half_the_digits,
    of_sum,
    of_vector,
)
from gradproof._judge.outcome import vector_entry
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional, evaluate, probes, steps
from gradproof._measure.sizes import FEW_ULPS, ROUNDINGS
from gradproof._verdict import stochastic

_PARTS = 8.0  # times the terms, the largest that a part of a probe is asked for: 4 of them, by 2


@dataclass(frozen=True)
class Pair:
    """Two gradients J^T v, or tangents J u, that must be the same up to rounding."""

    got: Array  # the one under test
    expected: Array  # what it should be
    what: str  # how `got` was made, for the message
    # Whose sizes together bound the rounding of `got`; `expected` alone where empty.
    terms: Sequence[Array] = ()
    forward: bool = False  # whether they are tangents
    # What rounding may do to an entry, measured on a gap only.
    excuse: Callable[[], Array | float] = float

    @property
    def sizes(self) -> Sequence[Array]:
        """What together bounds the rounding."""
        return self.terms or (self.expected,)


def differences(
    check: str,
    map_: DifferentiableMap,
    pair: Pair,
    tolerance: Tolerance = EXACT,
    *,
    kind: str = "",
    most: int = 8,
) -> tuple[Finding, ...]:
    """Findings for the entries in which a vector is not what it should be, largest gap first.

    Entries that are not finite in `expected` are not judged: they say nothing to compare with. The
    findings are of the check's kind where none is given.
    """
    where: list[tuple[float, int, float]] = []
    if not same(map_, pair, tolerance):
        measured = claim_error.tangents if pair.forward else claim_error.gradients
        where = _beyond(map_, pair, tolerance, measured(map_) + pair.excuse())
    space = map_.codomain if pair.forward else map_.domain
    return tuple(
        vector_entry(
            (check, kind or check),
            space.locate(j),
            (float(pair.got[j]), float(pair.expected[j]), allowed),
            pair.what,
            forward=pair.forward,
        )
        for _, j, allowed in where[:most]
    )


def same(map_: DifferentiableMap, pair: Pair, tolerance: Tolerance = EXACT) -> bool:
    """Whether `differences` finds nothing, without a measurement to excuse a gap."""
    space = map_.codomain if pair.forward else map_.domain
    if not space.size:
        return True
    for block in blocks(pair.got, KEPT):
        if not _plainly_same(map_, pair, block):
            return not _beyond(map_, pair, tolerance, 0.0)
    return True


def _plainly_same(map_: DifferentiableMap, pair: Pair, block: slice) -> bool:
    """Whether some entries are the same by a part of what `_beyond` allows them."""
    xp = namespace(pair.expected)
    gap = xp.abs(pair.got[block] - pair.expected[block])
    largest = float(xp.max(gap))
    least = _least(map_, pair) if largest else 0.0
    if largest <= least:
        return True
    size = functools.reduce(operator.add, (xp.abs(term[block]) for term in pair.sizes))
    return bool(xp.all(gap <= of_vector(map_, size, least)))


def _beyond(
    map_: DifferentiableMap, pair: Pair, tolerance: Tolerance, excuse: Array | float
) -> list[tuple[float, int, float]]:
    """Entries whose gap is not allowed: minus the gap, the entry, what is allowed; in order."""
    xp, space = namespace(pair.expected), map_.codomain if pair.forward else map_.domain
    if pair.forward:
        own = _least(map_, pair) + claim_error.HONEST * stochastic.remembered(map_, forward=True)
    else:
        own = cancelled(map_)
    own = own + excuse + tolerance.absolute
    where: list[tuple[float, int, float]] = []
    for number, slot in enumerate(space.slots):
        span = space.span(number)
        parts = blocks(pair.expected[span], KEPT)
        pieces = [slice(span.start + part.start, span.start + part.stop) for part in parts]
        known = [_known_sizes(xp, pair, piece) for piece in pieces]
        largest = (
            0.0 if pair.forward else max((float(xp.max(size)) for size, _ in known), default=0)
        )
        for piece, (size, finite) in zip(pieces, known, strict=True):
            expected = pair.expected[piece]
            floor = of_sum(largest) + (own if isinstance(own, float) else own[piece])
            # Beyond the largest number of the format there is nothing right to say, nor where one
            # part of what is added up may be beyond it.
            rounding = of_vector(map_, size, floor)
            judged = finite & (
                xp.abs(expected) + half_the_digits(map_) * size <= slot.grain.largest
            )
            judged &= ~xp.isinf(pair.got[piece]) | (_PARTS * size <= slot.grain.largest)
            bar = Bar(xp.where(judged, 0.0, math.inf))
            found = decide(
                pair.got[piece], expected, bar, rounding, Tolerance(0.0, tolerance.relative)
            )
            at = xp.nonzero(found.wrong)[0]
            gaps = xp.take(xp.where(xp.isnan(found.gap), xp.inf, found.gap), at)
            told = map(on_host, (-gaps, at + piece.start, xp.take(found.allowed, at)))
            where += zip(*(each.tolist() for each in told), strict=True)
    return sorted(where)


def _known_sizes(xp: Any, pair: Pair, piece: slice) -> tuple[Array, Array]:
    """Sizes of the terms added up, 0 where not finite; and where they and `expected` are finite."""
    size = functools.reduce(operator.add, (xp.abs(term[piece]) for term in pair.sizes))
    finite = xp.isfinite(pair.expected[piece]) & xp.isfinite(size)
    return xp.where(finite, size, 0.0), finite


def cancelled(map_: DifferentiableMap) -> Array:
    """Rounding of a gradient that is zero by cancellation: a few ulp of |F| per scale of x."""
    own = _size_of_rounding(map_) / probes.scales_of(map_)
    own += claim_error.HONEST * stochastic.remembered(map_)
    return own


def _least(map_: DifferentiableMap, pair: Pair) -> float:
    """A gap that every entry is allowed: rounding of one that is zero by cancellation."""
    if pair.forward:  # beside the others
        return half_the_digits(map_) * rms(pair.expected)
    return _size_of_rounding(map_) / max(probes.largest_scales(map_))


def _size_of_rounding(map_: DifferentiableMap) -> float:
    key = ("rounding",)
    if key not in map_.memo:
        map_.memo[key] = largest_size(evaluate.centre(map_).value)
    unit = directional.resolution(map_)
    # In 16 bits 64 units would be a part of F that matters.
    return (ROUNDINGS if unit < steps.SINGLE else FEW_ULPS) * unit * float(map_.memo[key])
