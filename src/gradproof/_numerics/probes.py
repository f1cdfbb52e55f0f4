"""Random tangents and cotangents: the only source of randomness.

An entry of a probe is ``random sign * U[0.5, 1.5]``: never near zero, so that every entry of the
Jacobian is seen; of both signs, because softmax and its kind map positive constant vectors to
zero; and not of one size, because two equal errors would cancel in half of all draws.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np

from gradproof._map import DifferentiableMap
from gradproof._numerics.formats import two_to
from gradproof._numerics.packing import packed, unpacked
from gradproof._numerics.robust import median_of_positive
from gradproof._space import Array, Space, namespace

# A multiple of 2^-10 keeps x +- h*u exact for power-of-two scales and steps down to 2^-40 in
# double precision; of 2^-6 in single, down to 2^-17. In 16 bits there is room for four sizes.
_GRAIN = 2.0**-10
_SINGLE_GRAIN = 2.0**-6
_COARSE = 2.0**-12  # unit round-off of 16 bits and fewer is above
_REMEMBERED = 1 << 17  # entries


def fresh_seed() -> int:
    """A new seed, from the operating system and not from anybody's generator."""
    return secrets.randbelow(2**31)


def _generator(seed: int, kind: int, number: int) -> np.random.Philox:
    """A counter-based generator: its streams are independent, and cheap to start."""
    return np.random.Philox(key=np.asarray([seed, (kind << 32) + number], dtype=np.uint64))


def _dense(
    seed: int, size: int, kind: int, number: int = 0
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Sign times U[0.5, 1.5], in multiples of the grain."""
    # Eleven bits of each draw: the last is the sign, the others the magnitude.
    draws = _generator(seed, kind, number).random_raw((size + 1) // 2).view(np.uint32)[:size]
    draws >>= 21
    sizes = (draws >> 1) + round(0.5 / _GRAIN)
    found = 1.0 - 2.0 * (draws & 1).astype(np.float64)
    found *= sizes
    found *= _GRAIN
    return found


def _fitted(space: Space, draws: Array, *, moves: bool) -> Array:
    """The draws, of slots with fewer bits than double precision in multiples that fit those.

    A cotangent must be a number of its slot's dtype. A direction moves a point that has as many
    bits itself, by small steps: 16 bits leave it the sizes {4, 5, 6, 7}/4.
    """
    fitted = None
    for position, slot in enumerate(space.slots):
        if slot.grain.unit <= 2.0**-50:
            continue
        fitted = draws.copy() if fitted is None else fitted
        part = draws[space.span(position)]
        if not moves:
            grain = max(_GRAIN, 2 * slot.grain.unit)
            part = np.round(part / grain) * grain
        elif slot.grain.unit < _COARSE:
            part = np.round(part / _SINGLE_GRAIN) * _SINGLE_GRAIN
        else:
            part = np.sign(part) * (np.clip(np.floor(np.abs(part) * 4), 2, 5) + 2) / 4
        fitted[space.span(position)] = part
    return draws if fitted is None else fitted


def scales(space: Space, point: Array) -> Array:
    """A power of two near the size of each coordinate.

    Coordinates of one entry share a scale. Zero takes the median of its slot, or 1 where the
    whole slot is zero; a scale is at least a 16th of the median, so that a tiny coordinate among
    larger ones is still moved by more than rounding.
    """
    xp = namespace(point)
    pieces = []
    for position, slot in enumerate(space.slots):
        size = xp.abs(point[space.span(position)])
        if len(slot.parts) == 2:
            pairs = xp.reshape(size, (-1, 2))
            size = xp.reshape(xp.stack([xp.max(pairs, axis=1)] * 2, axis=1), (-1,))
        powers = _powers(xp, size, slot.grain.tiny / (2 * slot.grain.unit))
        pieces.append(_inside(xp, powers, point[space.span(position)], slot.limits))
    return pieces[0] if len(pieces) == 1 else xp.concat(pieces)


def _powers(xp: Any, size: Array, normal: float) -> Array:
    """Below the smallest normal number the spacing shrinks no more: the scale does not either."""
    if size.shape[0] == 0:
        return size
    median = median_of_positive(size) or 1.0
    size = xp.where(size > 0, size, xp.asarray(median))
    size = xp.clip(size, max(median / 16, normal), None)
    if type(size) is np.ndarray:  # a dozen times faster than the logarithm
        return np.ldexp(1.0, np.frexp(size)[1] - 1)
    return two_to(xp.floor(xp.log2(size)))


def _inside(xp: Any, powers: Array, point: Array, limits: tuple[float, float]) -> Array:
    """Scales cut so that a whole step, at most 7/4 of a scale, stays inside the limits."""
    low, high = limits
    if low == -math.inf and high == math.inf:
        return powers
    room = xp.minimum(point - low, high - point)
    return xp.minimum(powers, two_to(xp.floor(xp.log2(room)) - 1))


def scales_of(map_: DifferentiableMap) -> Array:
    """`scales` of a map's point."""
    if map_.domain.size > _REMEMBERED:
        return scales(map_.domain, map_.point)
    return _remembered(map_, ("scales",), lambda: scales(map_.domain, map_.point))


def largest_scale(map_: DifferentiableMap) -> float:
    """The largest of a map's scales, worked out once."""
    key = ("scales", "largest")
    if key not in map_.memo:
        map_.memo[key] = float(namespace(map_.point).max(scales_of(map_)))
    return float(map_.memo[key])


def _remembered(map_: DifferentiableMap, key: tuple[Any, ...], make: Callable[[], Array]) -> Array:
    """A vector kept in the memo, packed if it is long."""
    if key not in map_.memo:
        made = make()
        map_.memo[key] = made if made.shape[0] <= _REMEMBERED else packed(made)
    return map_.memo[key]


def tangent(map_: DifferentiableMap, seed: int, number: int) -> Array:
    """The direction u number `number`, scaled to the point."""
    return unpacked(short_tangent(map_, seed, number))


def short_tangent(map_: DifferentiableMap, seed: int, number: int) -> Array:
    """The same, packed where it is long: to be handed to a map, not to be computed with."""

    def made() -> Array:
        rho = _dense(seed, map_.domain.size, 0, number)
        rho = _fitted(map_.domain, rho, moves=True)
        return scales_of(map_) * _like(map_, rho)

    return _remembered(map_, ("tangent probe", seed, number), made)


def cotangent(map_: DifferentiableMap, seed: int, number: int) -> Array:
    """The cotangent v number `number`; all sizes between 0.5 and 1.5."""
    return unpacked(short_cotangent(map_, seed, number))


def short_cotangent(map_: DifferentiableMap, seed: int, number: int) -> Array:
    """The same, packed where it is long: to be handed to a map, not to be computed with."""

    def made() -> Array:
        rho = _dense(seed, map_.codomain.size, 1, number)
        return _like(map_, _fitted(map_.codomain, rho, moves=False))

    return _remembered(map_, ("cotangent probe", seed, number), made)


def signs(seed: int, count: int) -> list[float]:
    """So many random signs."""
    return [1.0 if draw > 0 else -1.0 for draw in _dense(seed, count, 3)]


def constant_cotangent(map_: DifferentiableMap, seed: int) -> Array:
    """A cotangent with one value per output, as `.sum()` hands one over."""
    return unpacked(short_constant_cotangent(map_, seed))


def short_constant_cotangent(map_: DifferentiableMap, seed: int) -> Array:
    """The same, packed where it is long: to be handed to a map, not to be computed with."""
    key = ("cotangent probe", seed, "constant")

    def made() -> Array:
        sizes = [slot.size for slot in map_.codomain.slots]
        rho = np.repeat(_dense(seed, len(sizes), 2), sizes)
        return _like(map_, _fitted(map_.codomain, rho, moves=False))

    return _remembered(map_, key, made)


def _like(map_: DifferentiableMap, values: np.ndarray[Any, np.dtype[np.float64]]) -> Array:
    """The same values in the array library of the map's vectors."""
    return namespace(map_.point).asarray(values)
