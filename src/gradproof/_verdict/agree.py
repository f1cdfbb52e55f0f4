"""Two gradients that must be the same up to rounding."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from gradproof._data.records import Finding
from gradproof._data.space import Array, namespace, on_host, positions
from gradproof._data.vectors import blocks, largest_size, rms
from gradproof._judge import claim_error
from gradproof._judge.decide import within
from gradproof._judge.outcome import gradient_entry
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional, evaluate, probes
from gradproof._verdict import stochastic

_HONEST = 16.0  # honest errors of one gradient: two of up to thrice the size, heavy tails
_ULPS = 64.0  # of |F| per scale of x
_COARSE, _COARSE_ULPS = 1e-6, 4.0  # likewise, where 64 would be a part of F that matters
_LONG = 1 << 16  # entries compared at a time
_FLOOR = 1e-10  # beside the largest entry of the same input's gradient


def relative(map_: DifferentiableMap) -> float:
    """Half the digits: sums in another order lose a few, never that many."""
    return math.sqrt(directional.resolution(map_))


def differences(
    check: str,
    map_: DifferentiableMap,
    got: Array,
    expected: Array,
    *,
    kind: str,
    what: str,
    terms: Sequence[Array] = (),
    atol: float | Array = 0.0,
    rtol: float = 0.0,
    excuse: Callable[[], Array | float] = float,
    most: int = 8,
) -> tuple[Finding, ...]:
    """Findings for the entries in which `got` is not `expected`, largest gap first.

    Entries that are not finite in `expected` are not judged: they say nothing to compare with.

    Args:
        check: name of the check.
        map_: the map whose domain the gradients live in.
        got: gradient under test.
        expected: what it should be.
        kind: of the findings.
        what: how `got` was made, for the message.
        terms: whose sizes together bound the rounding of `got`; `expected` alone where empty.
        atol: absolute tolerance on an entry; one for all, or one each.
        rtol: relative tolerance on an entry.
        excuse: what rounding may do to an entry, measured on a gap only.
        most: findings at most.
    """
    if not map_.domain.size or _largest_gap(got, expected) <= _least_rounding(map_):
        return ()
    terms = terms or (expected,)
    where = _beyond(map_, (got, expected), terms, atol, rtol)
    if where:
        atol = atol + claim_error.gradients(map_) + excuse()
        where = _beyond(map_, (got, expected), terms, atol, rtol)
    return tuple(
        gradient_entry(
            check, map_, j, (float(got[j]), float(expected[j]), allowed_here), kind, what
        )
        for _, j, allowed_here in where[:most]
    )


def tangent_differences(
    check: str,
    map_: DifferentiableMap,
    got: Array,
    expected: Array,
    *,
    kind: str,
    what: str,
    terms: Sequence[Array] = (),
    atol: float = 0.0,
    rtol: float = 0.0,
    excuse: Callable[[], Array | float] = float,
) -> tuple[Finding, ...]:
    """Likewise of J u: findings for the entries in which `got` is not `expected`, three at most.

    Args:
        check: name of the check.
        map_: the map whose codomain the tangents live in.
        got: tangent under test.
        expected: what it should be.
        kind: of the findings.
        what: how `got` was made, for the message.
        terms: whose sizes together bound the rounding of `got`, beside that of `expected`.
        atol: absolute tolerance on an entry.
        rtol: relative tolerance on an entry.
        excuse: what rounding may do to an entry, measured on a gap only.
    """
    xp = namespace(expected)
    size, finite = _known_sizes(xp, expected, (expected, *terms))
    allowed = relative(map_) * (size + rms(expected)) + rtol * xp.abs(expected) + atol
    gap = xp.abs(got - expected)
    wrong = finite & ~within(gap, allowed)
    if bool(xp.any(wrong)):
        allowed = allowed + claim_error.tangents(map_) + excuse()
        wrong = wrong & ~within(gap, allowed)
    found = []
    for i in positions(wrong)[:3]:
        place = map_.codomain.locate(i)
        numbers = (float(got[i]), float(expected[i]), float(allowed[i]))
        message = (
            f"tangent of {place}: {what}: got {numbers[0]:.6g}, expected {numbers[1]:.6g}; "
            f"the gap is {float(gap[i]):.3g}, allowed {numbers[2]:.2g}"
        )
        found.append(Finding(check, message, kind, None, place, *numbers[:2], 0.0, numbers[2]))
    return tuple(found)


def _beyond(
    map_: DifferentiableMap,
    pair: tuple[Array, Array],
    terms: Sequence[Array],
    atol: float | Array,
    rtol: float,
) -> list[tuple[float, int, float]]:
    """Entries whose gap is not allowed: minus the gap, the entry, what is allowed; in order."""
    got, expected = pair
    xp, rounding = namespace(expected), cancelled(map_)
    where: list[tuple[float, int, float]] = []
    for slot, each in enumerate(map_.domain.slots):
        span, top = map_.domain.span(slot), each.grain.largest
        parts = blocks(expected[span], _LONG)
        pieces = [slice(span.start + part.start, span.start + part.stop) for part in parts]
        known = [_known_sizes(xp, expected[piece], [t[piece] for t in terms]) for piece in pieces]
        largest = max((float(xp.max(size)) for size, _ in known), default=0.0)
        for piece, (size, finite) in zip(pieces, known, strict=True):
            absolute = atol if isinstance(atol, (int, float)) else atol[piece]
            allowed = relative(map_) * size + (_FLOOR * largest + absolute) + rounding[piece]
            allowed += rtol * xp.abs(expected[piece]) if rtol else 0.0
            gap = xp.abs(got[piece] - expected[piece])
            # Beyond the largest number of the format there is nothing right to say.
            judged = finite & (xp.abs(expected[piece]) + relative(map_) * size <= top)
            at = xp.nonzero(judged & ~within(gap, allowed))[0]
            gaps = xp.take(xp.where(xp.isnan(gap), xp.inf, gap), at)
            told = map(on_host, (-gaps, at + piece.start, xp.take(allowed, at)))
            where += zip(*(each.tolist() for each in told), strict=True)
    return sorted(where)


def _largest_gap(one: Array, other: Array) -> float:
    """Of all entries; NaN where one is NaN."""
    xp = namespace(other)
    gaps = [xp.max(xp.abs(one[b] - other[b])) for b in blocks(one, _LONG)]
    return float(xp.max(xp.stack(gaps)))


def _known_sizes(xp: Any, expected: Array, terms: Sequence[Array]) -> tuple[Array, Array]:
    """Sizes of the terms added up, 0 where not finite; and where they and `expected` are finite."""
    size = functools.reduce(operator.add, map(xp.abs, terms))
    finite = xp.isfinite(expected) & xp.isfinite(size)
    return xp.where(finite, size, 0.0), finite


def cancelled(map_: DifferentiableMap) -> Array:
    """Rounding of a gradient that is zero by cancellation: a few ulp of |F| per scale of x."""
    own = _size_of_rounding(map_) / probes.scales_of(map_)
    own += _HONEST * stochastic.remembered(map_)
    return own


def _least_rounding(map_: DifferentiableMap) -> float:
    """The smallest gap that any entry is allowed."""
    return _size_of_rounding(map_) / probes.largest_scale(map_)


def _size_of_rounding(map_: DifferentiableMap) -> float:
    key = ("rounding",)
    if key not in map_.memo:
        map_.memo[key] = largest_size(evaluate.centre(map_).value)
    unit = directional.resolution(map_)
    return (_ULPS if unit < _COARSE else _COARSE_ULPS) * unit * float(map_.memo[key])
