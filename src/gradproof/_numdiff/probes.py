"""Random tangents and cotangents: the only source of randomness in a check.

An entry is a random sign times a number of [0.5, 1.5): never near zero, so that every entry of the
Jacobian is seen; of both signs, since softmax and its kind map constant vectors to zero; and not of
one size, since two equal errors would cancel in half of all draws. Entries are multiples of 2^-10,
so that ``x + h * u`` is exact; of up to 1,024 no two have the same size. Streams are independent by
seed, kind and number (Salmon et al. 2011, Philox), and no global random state is used.
"""

from __future__ import annotations

import enum
import functools
import threading
from typing import Any

import numpy as np

from gradproof._data.formats import DOUBLE, SINGLE
from gradproof._data.space import Space, Values
from gradproof._numdiff.steps import NEIGHBOUR


class Kind(enum.IntEnum):
    """What a stream of random numbers is for."""

    TANGENT = 0
    COTANGENT = 1
    NEARBY_POINT = 2
    JOINT_DIRECTION = 3
    TURNED_SIGNS = 4
    SPECIAL = 5


class _Generator(threading.local):
    """One counter-based generator for each thread: making one costs more than its numbers."""

    def __init__(self) -> None:
        self._philox = np.random.Philox(0)
        self._start: Any = np.random.Philox(key=0).state

    def raw_bits(self, seed: int, kind: int, number: int, count: int) -> np.ndarray[Any, Any]:
        self._start["state"]["key"] = np.asarray([seed, (kind << 32) + number], dtype=np.uint64)
        self._philox.state = self._start
        return np.asarray(self._philox.random_raw(count))


_GENERATOR = _Generator()
_SIZES = np.arange(512, 1536) * 2.0**-10
_ENTRIES = np.concatenate([_SIZES, -_SIZES])  # by eleven bits
_FEW_SIZES = np.asarray([4, 5, 6, 7, -4, -5, -6, -7]) / 4  # by three bits, for 16-bit formats
_SHORT = len(_SIZES)  # entries, at most, that are kept for the next call
_BESIDE = 32  # number of the first neighbouring point in its stream
_SHUFFLED = np.argsort(_GENERATOR.raw_bits(0, 0, 0, _SHORT))


def random_entries(seed: int, kind: int, number: int, size: int) -> Values:
    """Random signs times [0.5, 1.5) in multiples of 2^-10, (size,)."""
    # Each check of a run draws the same ones, which takes as long as a small F.
    draw = _draw_short_entries if size <= _SHORT else _draw_entries
    return np.array(draw(seed, kind, number, size), copy=size <= _SHORT)


def _draw_entries(seed: int, kind: int, number: int, size: int) -> Values:
    raw = _GENERATOR.raw_bits(seed, kind, number, (size + 1) // 2).view(np.uint32)[:size]
    return np.asarray(_ENTRIES.take(raw >> 21))


@functools.lru_cache(maxsize=32)
def _draw_short_entries(seed: int, kind: int, number: int, size: int) -> Values:
    """The same, no two of one size: exchanged gradients would cancel in one of 2,048 draws.

    A permutation of the sizes, of 2^30: a fixed one between shifts and a flip of random bits.
    """
    raw = _GENERATOR.raw_bits(seed, kind, number, 2 + size // 64)
    first, second, flip = (int(raw[0]) >> shift & (_SHORT - 1) for shift in (0, 10, 20))
    places = _SHUFFLED[np.arange(first, first + size) & (_SHORT - 1)]
    places = _SHUFFLED[(places + second) & (_SHORT - 1)] ^ flip
    is_negative = np.unpackbits(raw[1:].view(np.uint8), count=size)
    return np.asarray(_ENTRIES.take(places + _SHORT * is_negative.astype(np.int64)))


def random_offsets(seed: int, kind: int, number: int, size: int) -> Values:
    """Random signs times [0.5, 1.5) with all digits, (size,): sums of these are never tied."""
    raw = _GENERATOR.raw_bits(seed, kind, number, size)
    sizes = 0.5 + (raw >> np.uint64(12)).astype(float) * 2.0**-52
    return np.asarray(np.where(raw & np.uint64(1), sizes, -sizes))


def neighbouring_point(
    space: Space, point: Values, scales: Values, seed: int, number: int
) -> Values:
    """A random point where ties and kinks at `point` are left behind, (n,), within the limits."""
    moves = random_offsets(seed, Kind.NEARBY_POINT, _BESIDE + number, space.size)
    x = point + NEIGHBOUR * scales * moves
    for position, slot in enumerate(space.slots):
        span = space.span(position)
        x[span] = np.clip(x[span], *slot.limits)
    return round_to_formats(space, x)


def random_bits(seed: int, kind: int, number: int, size: int) -> np.ndarray[Any, Any]:
    """Random booleans, (size,)."""
    raw = _GENERATOR.raw_bits(seed, kind, number, size // 64 + 1)
    return np.unpackbits(raw.view(np.uint8), count=size).astype(bool)


def random_integer(seed: int, kind: int, number: int, below: int) -> int:
    """A random integer in [0, below)."""
    return int(_GENERATOR.raw_bits(seed, kind, number, 1)[0] >> np.uint64(1)) % below


def random_tangent(space: Space, scales: Values, seed: int, number: int) -> Values:
    """Direction `number` of a domain, (n,): random entries times the scale of each coordinate.

    For inputs in 16 bits the entries are {4, 5, 6, 7}/4, which leave bits for the steps.
    """
    return scales * random_moves(space, seed, Kind.TANGENT, number)


def random_moves(space: Space, seed: int, kind: int, number: int) -> Values:
    """Random entries of which coordinates of few bits get few digits, (n,)."""
    found = random_entries(seed, kind, number, space.size)
    for position, slot in enumerate(space.slots):
        if slot.size and slot.grain.unit >= DOUBLE:
            span = space.span(position)
            if slot.grain.unit >= SINGLE:
                raw = _GENERATOR.raw_bits(seed, kind, number, (slot.size + 1) // 2)
                found[span] = _FEW_SIZES.take(raw.view(np.uint32)[: slot.size] >> 29)
            else:
                found[span] = np.round(found[span] * 64) / 64
    return found


def random_cotangent(space: Space, seed: int, number: int) -> Values:
    """Cotangent `number` of a codomain, (m,): random entries, numbers of each output's dtype."""
    return round_to_formats(space, random_entries(seed, Kind.COTANGENT, number, space.size))


def constant_cotangent(space: Space, seed: int) -> Values:
    """One value per output, 1 on the first, (m,): what `.sum()` hands to a backward."""
    if len(space.slots) < 2:
        return np.ones(space.size)
    values = random_entries(seed, Kind.SPECIAL, 0, len(space.slots))
    values[0] = 1.0
    repeated = np.repeat(values, [slot.size for slot in space.slots])
    return round_to_formats(space, repeated)


def unit_vector(size: int, position: int, value: float = 1.0) -> Values:
    """A vector of zeros but for one entry, (size,)."""
    found = np.zeros(size)
    found[position] = value
    return found


def round_to_formats(space: Space, values: Values) -> Values:
    """The values, each rounded to a number of its array's own format."""
    found = values
    for position, slot in enumerate(space.slots):
        if slot.size and slot.grain.unit >= DOUBLE:
            if found is values:
                found = values.copy()
            span = space.span(position)
            found[span] = round_to_format(values[span], slot.grain.unit, slot.grain.tiny)
    return found


def round_to_format(values: Values, unit: float, tiny: float) -> Values:
    """The nearest numbers of a format of unit round-off `unit` and smallest number `tiny`."""
    _, exponent = np.frexp(values)
    spacing = np.maximum(np.ldexp(2 * unit, exponent - 1), tiny)
    return np.asarray(np.round(values / spacing) * spacing)
