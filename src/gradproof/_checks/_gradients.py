"""Two gradients that must be the same up to rounding."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence

from gradproof._checks import _honest
from gradproof._checks._outcome import gradient_entry
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure, probes
from gradproof._numerics.compare import within
from gradproof._records import Finding
from gradproof._space import Array, namespace

_HONEST = 16.0  # honest errors of one gradient: two of up to thrice the size, heavy tails
_ULPS = 64.0  # of |F| per scale of x
_COARSE, _COARSE_ULPS = 1e-6, 4.0  # likewise, where 64 would be a part of F that matters
_FLOOR = 1e-10  # beside the largest entry of the same input's gradient


def relative(map_: DifferentiableMap) -> float:
    """Half the digits: sums in another order lose a few, never that many."""
    return math.sqrt(measure.resolution(map_))


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
        most: findings at most.
    """
    xp = namespace(expected)
    if not got.shape[0] or float(xp.max(xp.abs(got - expected))) <= _least_rounding(map_):
        return ()
    size = functools.reduce(operator.add, map(xp.abs, terms or (expected,)))
    finite = xp.isfinite(expected) & xp.isfinite(size)
    allowed = relative(map_) * size + _FLOOR * _largest(map_, xp.where(finite, size, 0.0))
    allowed = allowed + atol + _rounding(map_) + _HONEST * _honest.remembered(map_)
    gap = xp.abs(got - expected)
    wrong = finite & ~within(gap, allowed)
    where = [int(j) for j in xp.nonzero(wrong)[0]]
    where.sort(key=lambda j: -float(gap[j]) if float(gap[j]) == float(gap[j]) else float("-inf"))
    return tuple(
        gradient_entry(
            check, map_, j, (float(got[j]), float(expected[j]), float(allowed[j])), kind, what
        )
        for j in where[:most]
    )


def _rounding(map_: DifferentiableMap) -> Array:
    """Rounding of a gradient that is zero by cancellation: a few ulp of |F| per scale of x."""
    return _size_of_rounding(map_) / probes.scales_of(map_)


def _least_rounding(map_: DifferentiableMap) -> float:
    """The smallest gap that any entry is allowed."""
    return _size_of_rounding(map_) / probes.largest_scale(map_)


def _size_of_rounding(map_: DifferentiableMap) -> float:
    key = ("rounding",)
    if key not in map_.memo:
        value = abs(measure.centre(map_).value)
        xp = namespace(value)
        value = xp.where(xp.isfinite(value), value, 0.0)
        map_.memo[key] = float(xp.max(value)) if value.shape[0] else 0.0
    unit = measure.resolution(map_)
    return (_ULPS if unit < _COARSE else _COARSE_ULPS) * unit * float(map_.memo[key])


def _largest(map_: DifferentiableMap, size: Array) -> Array:
    """The largest entry of each slot, repeated over the slot."""
    xp = namespace(size)
    pieces = []
    for position in range(len(map_.domain.slots)):
        piece = size[map_.domain.span(position)]
        pieces.append(xp.full_like(piece, float(xp.max(piece)) if piece.shape[0] else 0.0))
    return xp.concat(pieces)
