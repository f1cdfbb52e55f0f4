"""Values of F. The only module above the maps that calls the `value` of one.

A call is what a check costs. That every call is made here is enforced by a test, so what is called
twice, what is kept and where F is not asked at all are settled in one place. Moves are made in
memory of their own: whoever evaluates may write there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gradproof._data.options import altered
from gradproof._data.space import Array, namespace
from gradproof._data.vectors import KEPT, blocks
from gradproof._maps.contract import DifferentiableMap


@dataclass(frozen=True)
class Centre:
    """F at the point."""

    value: Array  # F(x)
    # Of one evaluation, per output, beyond the rounding of F(x) itself: by how much a repetition
    # differs, and what `directional.direction_of` finds out; 0.0 without any.
    noise: Array | float
    repeats: bool = True  # whether a repetition is the same bits


def centre(map_: DifferentiableMap) -> Centre:
    """F(x) with its run-to-run noise: evaluated twice, and kept.

    What the kept call returned is one of the two, of outputs so long that a call is dear.
    """
    key = ("centre",)
    if key not in map_.memo:
        value = map_.value(map_.point)
        if map_.codomain.size > KEPT and _repeated(value, map_.kept_value()):
            map_.memo[key] = Centre(value, 0.0)
        else:
            again = map_.value(map_.point)
            same = _repeated(value, again)
            map_.memo[key] = Centre(value, 0.0 if same else _spread(value, again), same)
    found: Centre = map_.memo[key]
    return found


def _repeated(value: Array, again: Array) -> bool:
    return value is again or all(same_values(value[b], again[b]) for b in blocks(value, KEPT))


def share_centre(map_: DifferentiableMap, other: DifferentiableMap) -> Centre:
    """F at the point of another map of the same function, from its kept call; noise is shared."""
    key = ("centre",)
    if key not in other.memo:
        other.memo[key] = altered(centre(map_), value=other.kept_value())
    return centre(other)


def centre_at(map_: DifferentiableMap, x: Array) -> Centre:
    """F(x) at another point, evaluated once; the noise is that of the map's own point."""
    return altered(centre(map_), value=value_at(map_, x))


def call_again(map_: DifferentiableMap) -> Array:
    """F at the point, called once more: what the function keeps is then of the point."""
    return map_.value(map_.point)


def value_at(map_: DifferentiableMap, x: Array) -> Array:
    """F(x) at any point."""
    return map_.value(x)


def values_at(map_: DifferentiableMap, xs: Array) -> Array:
    """F of every row of a matrix of points."""
    return map_.values(xs)


def function_of(map_: DifferentiableMap) -> Callable[[Array], Array]:
    """F as a function of the point."""
    return map_.value


def value_beside(map_: DifferentiableMap, u: Array, step: float, at: Array | None = None) -> Array:
    """F(x + h u), x being the map's point or `at`."""
    moved = step * u
    moved += map_.point if at is None else at
    return map_.value(moved)


def values_beside(
    map_: DifferentiableMap, u: Array, step: float, at: Array | None = None
) -> tuple[Array, Array]:
    """F(x + h u) and F(x - h u)."""
    return value_beside(map_, u, step, at), value_beside(map_, u, -step, at)


def same_values(one: Array, other: Array) -> bool:
    """Whether no difference of two vectors is a number other than zero."""
    xp = namespace(one)
    if bool(xp.all(one == other)):  # as nearly always
        return True
    gap = one - other
    return bool(xp.all((gap == 0) | xp.isnan(gap)))


def _spread(value: Array, again: Array) -> Array:
    """Twice the standard deviation of one evaluation, pooled over the outputs.

    Two runs give one difference per output, of standard deviation sqrt(2) s; their mean square in
    parts of the output is a better estimate than any one of them.
    """
    xp = namespace(value)
    gap = xp.abs(value - again)
    gap = xp.where(xp.isnan(gap), xp.zeros_like(gap), gap)
    size = xp.abs(value)
    parts = xp.where(size > 0, gap / xp.where(size > 0, size, xp.ones_like(size)), 0.0)
    pooled = float(xp.mean(parts**2)) ** 0.5 * size
    return 2 * xp.maximum(pooled, gap) / math.sqrt(2)
