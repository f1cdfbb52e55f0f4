"""Random tangents and cotangents: the only source of randomness.

An entry of a probe is ``random sign * U[0.5, 1.5]``: never near zero, so that every entry of the
Jacobian is seen; of both signs, because softmax and its kind map positive constant vectors to
zero; and not of one size, because two equal errors would cancel in half of all draws.

Such a probe is dense, of the size of 1 and of few digits. What else there is, zeros, full
mantissas, very large and very small entries, is asked in two parts that add up to one (`Split`).
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradproof._data.settings import DOUBLE, SINGLE
from gradproof._data.space import FORMATS, Array, Slot, Space, namespace
from gradproof._data.vectors import EXPONENT, KEPT, blocks, median_of_positive, two_to
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure.sizes import FEW_ULPS, MANY
from gradproof._measure.steps import Plan

# A multiple of 2^-10 keeps x +- h*u exact for power-of-two scales and steps down to 2^-40 in
# double precision. In 16 bits there is room for four sizes.
GRAIN = 2.0**-10
_SCALES, _OWN, _LARGEST = ("scales",), ("scales", "own"), ("scales", "largest")  # keys of the memo
_REACH = 20.0  # binary digits by which the parts of a split probe are larger and smaller
# Number of the first tangent that leads to a nearby point; checks ask along those before.
NEARBY = 16
ALONE = 40  # likewise of those along which F is asked for one purpose alone
# Factors of a part of no few digits: their products need every digit that there is.
FULL = (-math.pi / 3, math.e / 2)
EQUAL = -0.25  # entries of a cotangent of equal ones that are not 1


class _Streams(threading.local):
    """A counter-based generator, whose streams are independent; every thread has its own.

    A new one would draw entropy from the operating system, which takes longer than the numbers.
    """

    def __init__(self) -> None:
        self._philox = np.random.Philox(0)
        self._start: Any = np.random.Philox(key=0).state

    def raw(self, stream: tuple[int, int, int], count: int) -> np.ndarray[Any, Any]:
        """The first 64-bit draws of the stream of a seed, a kind of probe and a number."""
        seed, kind, number = stream
        self._start["state"]["key"] = np.asarray([seed, (kind << 32) + number], dtype=np.uint64)
        self._philox.state = self._start
        return self._philox.random_raw(count)


def _entries() -> np.ndarray[Any, np.dtype[np.float64]]:
    """By eleven bits: the last is the sign, the others the magnitude."""
    sizes = np.arange(0.5, 1.5, GRAIN, dtype=np.float64)
    return np.stack([sizes, -sizes], axis=1).reshape(-1)


_STREAMS, _ENTRIES = _Streams(), _entries()


def _dense(
    seed: int, size: int, kind: int, number: int = 0
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Sign times U[0.5, 1.5], in multiples of the grain."""
    draws = _STREAMS.raw((seed, kind, number), (size + 1) // 2).view(np.uint32)
    found = np.empty(size)
    for block in blocks(found):
        _ENTRIES.take(draws[block] >> 21, out=found[block], mode="clip")
    return found


def _fitted(space: Space, draws: Array, *, moves: bool) -> Array:
    """The draws, of slots with fewer bits than double precision in multiples that fit those.

    A cotangent must be a number of its slot's dtype. A direction moves a point that has as many
    bits itself, by small steps: 16 bits leave it the sizes {4, 5, 6, 7}/4.
    """
    fitted = None
    for position, slot in enumerate(space.slots):
        if slot.grain.unit < DOUBLE:
            continue
        fitted = draws.copy() if fitted is None else fitted
        part = draws[space.span(position)]
        if not moves:
            grain = max(GRAIN, 2 * slot.grain.unit)
            part = np.round(part / grain) * grain
        elif slot.grain.unit < SINGLE:
            # One that keeps x +- h*u exact down to the finest step: 2^-6.
            grain = 2 * slot.grain.unit / Plan.of(slot.grain.unit).smallest
            part = np.round(part / grain) * grain
        else:
            part = np.sign(part) * (np.floor(np.abs(part) * 4) + 2) / 4
        fitted[space.span(position)] = part
    return draws if fitted is None else fitted


def scales(space: Space, point: Array, least: float = 1 / 16) -> Array:
    """A power of two near the size of each coordinate.

    Coordinates of one entry share a scale. Zero takes the median of its slot, or 1 where the
    whole slot is zero; a scale is at least the part `least` of the median, so that a tiny
    coordinate among larger ones is still moved by more than rounding.
    """
    xp = namespace(point)
    pieces = []
    for position, slot in enumerate(space.slots):
        here = point[space.span(position)]
        size = xp.abs(here)
        if len(slot.parts) == 2:
            pairs = xp.reshape(size, (-1, 2))
            size = xp.reshape(xp.stack([xp.max(pairs, axis=1)] * 2, axis=1), (-1,))
        powers = _powers(xp, size, slot.grain.normal, least)
        if slot.grain.unit < DOUBLE:
            # Below the largest double a direction leaves room for the sums and multiples of it that
            # are formed in double precision, at the next finer step, which still has digits; in
            # fewer bits that has none.
            most = Plan.ratio * 2.0 ** (math.frexp(slot.grain.largest)[1] - 1)
            powers = xp.where(powers > most, most, powers)
        low, high = slot.limits
        if low > -math.inf or high < math.inf:  # a whole step, at most 7/4 of a scale, stays inside
            room = xp.minimum(here - low, high - here)
            powers = xp.minimum(powers, two_to(xp.floor(xp.log2(room)) - 1))
        pieces.append(powers)
    return pieces[0] if len(pieces) == 1 else xp.concat(pieces)


def _powers(xp: Any, size: Array, normal: float, least: float) -> Array:
    """Below the smallest normal number the spacing shrinks no more: the scale does not either."""
    if size.shape[0] == 0:
        return size
    median = median_of_positive(size) or 1.0
    least = max(least * median, normal)
    size = xp.where(size > 0, xp.where(size > least, size, least), max(median, least))
    if type(size) is np.ndarray:  # dozens of times faster than the logarithm
        size.view(np.uint64)[...] &= np.uint64(EXPONENT)
        return size
    return two_to(xp.floor(xp.log2(size)))


def scales_of(map_: DifferentiableMap) -> Array:
    """`scales` of a map's point; of long ones only the largest of each array are kept."""
    if _SCALES in map_.memo:
        return map_.memo[_SCALES]
    found = scales(map_.domain, map_.point)
    if map_.domain.size <= KEPT:
        map_.memo[_SCALES] = found
    elif _LARGEST not in map_.memo:
        map_.memo[_LARGEST] = _largest_of(map_.domain, found)
    return found


def _largest_of(space: Space, found: Array) -> list[float]:
    spans = [found[space.span(k)] for k in range(len(space.slots))]
    return [float(namespace(found).max(span)) if span.shape[0] else 0.0 for span in spans]


def own_scales(map_: DifferentiableMap) -> Array:
    """A power of two near the size of each coordinate, however small beside those around it.

    F may have a singularity as near as zero is: log, or a root, of 1e-12 among ones.
    """
    return scales(map_.domain, map_.point, 0.0)


def own_scale(map_: DifferentiableMap, coordinate: int) -> float:
    """`own_scales` at one coordinate."""
    usual = float(scales_of(map_)[coordinate])
    if usual <= abs(float(map_.point[coordinate])):  # not raised to those around it
        return usual
    if map_.domain.size > KEPT:
        return float(own_scales(map_)[coordinate])
    if _OWN not in map_.memo:
        map_.memo[_OWN] = own_scales(map_)
    return float(map_.memo[_OWN][coordinate])


def largest_scales(map_: DifferentiableMap) -> list[float]:
    """The largest scale of each of a map's arrays, worked out once; 0 of one without entries."""
    if _LARGEST not in map_.memo:
        map_.memo[_LARGEST] = _largest_of(map_.domain, scales_of(map_))
    found: list[float] = map_.memo[_LARGEST]
    return found


def tangent(map_: DifferentiableMap, seed: int, number: int) -> Array:
    """The direction u number `number`, scaled to the point."""
    key = ("tangent probe", seed, number)
    if key not in map_.memo:
        rho = _dense(seed, map_.domain.size, 0, number)
        rho = _fitted(map_.domain, rho, moves=True)
        map_.memo[key] = scales_of(map_) * _like(map_, rho)
    return map_.memo[key]


def nearby(
    map_: DifferentiableMap, seed: int, number: int, radius: float, *, of_zero: bool = False
) -> Array:
    """Point number `number` that lies this far from the map's, in parts of its scale, or from zero.

    In numbers of its arrays; half way to the limit of an input where it would leave that.
    """
    move = radius * tangent(map_, seed, NEARBY + number)
    x = move if of_zero else map_.point + move
    return on_grid(map_.domain, _in_limits(map_, x))


def _in_limits(map_: DifferentiableMap, x: Array) -> Array:
    xp, x = namespace(x), 1.0 * x
    for position, slot in enumerate(map_.domain.slots):
        span = map_.domain.span(position)
        for limit in slot.limits:
            beyond = x[span] <= limit if limit == slot.limits[0] else x[span] >= limit
            if math.isfinite(limit):
                x[span] = xp.where(beyond, (map_.point[span] + limit) / 2, x[span])
    return x


def on_grid(space: Space, values: Array) -> Array:
    """The values, rounded to numbers of each array's own precision."""
    xp = namespace(values)
    pieces = []
    for position, slot in enumerate(space.slots):
        piece = values[space.span(position)]
        safe = xp.where(piece == 0, 1.0, piece)
        spacing = 2 * slot.grain.unit * two_to(xp.floor(xp.log2(xp.abs(safe))))
        spacing = xp.where(spacing > slot.grain.tiny, spacing, slot.grain.tiny)
        pieces.append(xp.round(piece / spacing) * spacing)
    return xp.concat(pieces) if pieces else values


def cotangent(map_: DifferentiableMap, seed: int, number: int) -> Array:
    """The cotangent v number `number`; all sizes between 0.5 and 1.5."""
    key = ("cotangent probe", seed, number)
    if key not in map_.memo:
        rho = _dense(seed, map_.codomain.size, 1, number)
        map_.memo[key] = _like(map_, _fitted(map_.codomain, rho, moves=False))
    return map_.memo[key]


def signs(seed: int, count: int) -> list[float]:
    """So many random signs."""
    return [1.0 if draw > 0 else -1.0 for draw in _dense(seed, count, 3)]


def constant_cotangent(map_: DifferentiableMap, seed: int) -> Array:
    """A cotangent with one value per output, 1 on the first, as `.sum()` hands it over."""
    key = ("cotangent probe", seed, "constant")
    if key not in map_.memo:
        sizes = [slot.size for slot in map_.codomain.slots]
        rho = np.ones(map_.codomain.size)
        if sizes[1:]:
            values = _dense(seed, len(sizes), 2)
            values[:1] = 1.0
            rho = np.repeat(values, sizes)
        map_.memo[key] = _like(map_, _fitted(map_.codomain, rho, moves=False))
    return map_.memo[key]


def equal_cotangent(map_: DifferentiableMap, seed: int) -> Array:
    """The same, as the mean of four hands it over, and with a minus.

    It has the digits of the other, so that what a backward makes of it has those as well.
    """
    return EQUAL * constant_cotangent(map_, seed)


def one_hot(map_: DifferentiableMap, seed: int) -> Array:
    """A cotangent of zeros and a single entry, of either sign and full mantissa."""
    size = map_.codomain.size
    draw = int(_STREAMS.raw((seed, 6, 0), 1)[0])  # NumPy 1 shifts no uint64 by an int
    found = np.zeros(size)
    found[(draw >> 1) % size] = FULL[draw & 1]
    return _like(map_, found)


def ones(map_: DifferentiableMap) -> Array:
    """A tangent of ones, as it is given to a function of one variable."""
    return _like(map_, np.ones(map_.domain.size))


def one_hot_tangent(map_: DifferentiableMap, seed: int) -> Array:
    """A tangent of zeros and a single entry of its coordinate's own size, of full mantissa."""
    draw = int(_STREAMS.raw((seed, 8, 0), 1)[0])
    at, found = (draw >> 1) % map_.domain.size, np.zeros(map_.domain.size)
    found[at] = FULL[draw & 1] * own_scale(map_, at)
    return _like(map_, found)


def cancelling(map_: DifferentiableMap, seed: int) -> Array:
    """A cotangent of 1, -1 and zeros, the two side by side: sums over it are exactly zero.

    They are rows, or columns, of the largest output, each of one value throughout, as a sum along
    one dimension hands its cotangent over. At least two entries are needed.
    """
    space, found = map_.codomain, np.zeros(map_.codomain.size)
    position = max(range(len(space.slots)), key=lambda k: space.slots[k].size)
    slot, start = space.slots[position], space.offsets[position]
    shape = slot.shape if math.prod(slot.shape) * len(slot.parts) == slot.size else (slot.size,)
    axes = [axis for axis, extent in enumerate(shape) if extent > 1]
    if not axes:  # of single numbers two have one each
        found[start], found[start + 1 if start + 1 < found.shape[0] else 0] = 1.0, -1.0
        return _like(map_, found)
    draw = int(_STREAMS.raw((seed, 7, 0), 1)[0])
    axis = axes[draw % len(axes)]
    entries = found[space.span(position)].reshape(*shape, -1)[..., 0]
    rows = entries.swapaxes(axis, 0)
    at = (draw >> 8) % (len(rows) - 1)
    rows[at], rows[at + 1] = 1.0, -1.0
    return _like(map_, found)


@dataclass(frozen=True)
class Split:
    """One probe as two parts that add up to it: one much larger than usual, one much smaller.

    In each part about half of the entries are exactly zero, whole blocks of rows and single ones;
    the others have as many digits as their format.
    """

    whole: Callable[[], Array]  # makes the probe
    shares: Array  # halves of each entry that go to the first part: 0, 1 or 2
    factors: tuple[float, float]  # of the two parts
    # What underflow may cost an entry of the derivative of the smaller, over its factor.
    lost: float
    tangents: bool = False  # whether it is a tangent, else a cotangent

    def part(self, number: int) -> Array:
        """Part 0 or 1, times its factor."""
        part = self.whole()
        part *= 0.5 * self.factors[number]
        part *= self.shares if number == 0 else 2 - self.shares
        return part

    @property
    def words(self) -> str:
        """The sizes of the two, for people."""
        large, small = [math.frexp(factor)[1] - 1 for factor in self.factors]
        return f"2^{small} to 2^{large}"


def split(
    map_: DifferentiableMap,
    whole: Callable[[], Array],
    sizes: tuple[float, float] | None,
    *,
    seed: int,
    unit: float,
    tangents: bool = False,
) -> Split:
    """A probe in two parts, as large and small as formats and derivative permit.

    Args:
        map_: the map.
        whole: makes the probe.
        sizes: of the largest entry of the probe, and of its derivative; None where both parts are
            to be of the usual size.
        seed: of the parts.
        unit: unit round-off that the map shows.
        tangents: whether the probe is a tangent, else a cotangent.
    """
    large, small, lost = reach(map_, sizes, unit) if sizes else (1.0, 1.0, 0.0)
    factors = (large * FULL[0], small * FULL[1])
    return Split(
        whole, shares(map_, seed, tangents=tangents), factors, lost / abs(factors[1]), tangents
    )


def reach(
    map_: DifferentiableMap, sizes: tuple[float, float], unit: float
) -> tuple[float, float, float]:
    """Powers of two that a probe and its derivative may be multiplied by, and what underflow costs.

    At most 2^20, and a third of the digits that the formats leave: results in between need some.
    """
    normal, top, finest = 0.0, math.inf, 0.0
    for slot in (*map_.domain.slots, *map_.codomain.slots):
        if slot.size:
            grain = slot.grain
            normal = max(normal, grain.normal)
            top, finest = min(top, grain.largest), max(finest, grain.unit)
    if not normal:
        return 1.0, 1.0, 0.0
    if unit >= SINGLE and unit > 2 * finest:  # 16 bits, one of whose formats has a small range
        half = FORMATS["float16"]
        normal, top = max(normal, half.normal), min(top, half.largest)
    used = [min(size, top) for size in sizes if size > 0] or [1.0]
    above = math.frexp(top)[1] - math.frexp(max(used))[1]
    below = math.frexp(min(used))[1] - math.frexp(normal)[1]
    up = min(_REACH, above / 3) if above > 0 else above
    down = min(_REACH, max(below, 0) / 3)
    return 2.0 ** math.floor(up), 2.0 ** -math.floor(down), FEW_ULPS * normal


def shares(map_: DifferentiableMap, seed: int, *, tangents: bool) -> Array:
    """Halves of each coordinate that go to the first of two parts: 0, 1 or 2."""
    space, kind = (map_.domain, 5) if tangents else (map_.codomain, 4)
    key = ("shares", seed, kind)
    if key not in map_.memo:
        pieces = [_shares_of_slot(slot, seed, kind, k) for k, slot in enumerate(space.slots)]
        found = np.concatenate(pieces) if pieces else np.zeros(0, np.uint8)
        map_.memo[key] = namespace(map_.point).asarray(found)
    drawn: Array = map_.memo[key]
    return drawn


def _shares_of_slot(
    slot: Slot, seed: int, kind: int, number: int
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Blocks of rows go to one part, to the other, or entry by entry to either.

    The first and the last block go to different parts, so that each has zeros at an end. A single
    number goes to both, in halves.
    """
    if slot.size < 2:
        return np.ones(slot.size, np.uint8)
    rows = next(extent for extent in (*slot.shape, len(slot.parts)) if extent > 1)
    inner, count = slot.size // rows, min(rows, MANY)
    raw = _STREAMS.raw((seed, kind, number), 1 + (slot.size + 63) // 64)
    bits = np.unpackbits(raw.view(np.uint8), count=64 + slot.size)
    kinds = bits[:count]
    kinds[-1] = 1 - kinds[0]
    shares = bits[64:].reshape(rows, inner)
    pure, block = _pure(rows, count, inner > 1)
    shares[pure] = kinds[block, None]
    return 2 * shares.reshape(-1)


@functools.lru_cache(maxsize=256)
def _pure(rows: int, count: int, wide: bool) -> tuple[Array, Array]:
    """The rows of blocks that go to one part as a whole, and their blocks; a suite has few."""
    scattered = np.arange(count) % 2 == 1
    scattered[-1] = count == 2 and wide  # of two rows one has some zeros
    block = np.arange(rows) * count // rows
    pure = ~scattered[block]
    return pure, block[pure]


def _like(map_: DifferentiableMap, values: np.ndarray[Any, np.dtype[np.float64]]) -> Array:
    """These values in the array library of the map's vectors."""
    return values if type(map_.point) is np.ndarray else namespace(map_.point).asarray(values)
