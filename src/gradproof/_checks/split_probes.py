"""A sum of special probes in two parts: one much larger than usual, and one much smaller.

The parts add up to the sum, and each has about half of its entries exactly zero. No part has both
sizes: where rows are mixed, the large ones would hide what becomes of the small ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gradproof._checks.special_probes import (
    FULL_MANTISSA,
    Term,
    special_cotangents,
    special_tangents,
    weighted_sum,
)
from gradproof._data.formats import FORMATS, SINGLE
from gradproof._data.space import Slot, Space, Values
from gradproof._measurements import Measurements
from gradproof._numdiff.probes import Kind, random_bits

_DIGITS = 20.0  # binary ones, by which the parts are larger and smaller than usual
_SHARE_OF_DIGITS = 1 / 3  # of those that the formats leave: results in between need some too
_BLOCKS = 8  # of rows, that have zeros by the block
_LOST = 4.0  # smallest normal numbers, that underflow may cost


@dataclass(frozen=True)
class SplitProbe:
    """A sum of probes in two parts that add up to it.

    Attributes:
        terms: the probes and their weights.
        shares: part of each entry that belongs to the first part, 0, 1/2 or 1, (k,).
        factors: that the parts are multiplied by: one large, one small.
        lost: what underflow may cost an entry of the product, over the small factor.
    """

    terms: tuple[Term, ...]
    shares: Values
    factors: tuple[float, float]
    lost: float = 0.0

    def part(self, number: int) -> Values:
        """Part 0, the large one, or 1, times its factor, (k,)."""
        share = self.shares if number == 0 else 1.0 - self.shares
        return self.factors[number] * share * weighted_sum(self.terms)

    def probe_of_usual_size(self) -> SplitProbe:
        """The same in two parts that are as large as the sum."""
        large, small = (math.copysign(1.0, factor) for factor in self.factors)
        return replace(self, factors=(large, small), lost=0.0)

    @property
    def sizes(self) -> str:
        """The sizes of the two, in words."""
        large, small = (math.frexp(factor)[1] - 1 for factor in self.factors)
        return f"2^{small} to 2^{large}"


def split_cotangent(measurements: Measurements) -> SplitProbe:
    """The sum of special cotangents, in two parts."""
    map_ = measurements.map
    shares = _split_shares(map_.codomain, measurements.settings.seed, 0)
    terms = special_cotangents(
        map_.codomain, measurements.cotangent(0), shares, measurements.settings.seed
    )
    spaces, size = (map_.codomain, map_.domain), _largest_entry(measurements.gradient(0))
    return _split_probe(spaces, terms, shares, size, measurements.arithmetic_unit)


def split_tangent(measurements: Measurements) -> SplitProbe:
    """The sum of special tangents, in two parts."""
    map_ = measurements.map
    shares = _split_shares(map_.domain, measurements.settings.seed, 1)
    terms = special_tangents(
        map_.domain,
        measurements.tangent(0),
        shares,
        measurements.scales,
        measurements.settings.seed,
    )
    spaces, size = (map_.domain, map_.codomain), _largest_entry(measurements.pushforward(0))
    return _split_probe(spaces, terms, shares, size, measurements.arithmetic_unit)


def _split_probe(
    spaces: tuple[Space, Space],
    terms: tuple[Term, ...],
    shares: Values,
    product: float,
    unit: float,
) -> SplitProbe:
    """The sum of some terms, in two parts.

    Args:
        spaces: the one that the probe belongs to, and that of its product.
        terms: probes and weights.
        shares: part of each entry that belongs to the large part.
        product: the largest entry of the product of the first term.
        unit: unit round-off that the map shows.
    """
    whole, dense = _largest_entry(weighted_sum(terms)), _largest_entry(terms[0].probe)
    times = whole / dense if dense else 1.0
    up, down, lost = _reach(spaces, (whole, product * times), unit)
    factors = (up * FULL_MANTISSA[0], down * FULL_MANTISSA[1])
    return SplitProbe(terms, shares, factors, lost / abs(factors[1]))


def _reach(
    spaces: tuple[Space, Space], sizes: tuple[float, float], unit: float
) -> tuple[float, float, float]:
    """Powers of two by which the parts may be larger and smaller, and what underflow costs.

    `sizes` are those of the probe and of its product.
    """
    grains = [slot.grain for space in spaces for slot in space.slots if slot.size]
    if not grains:
        return 1.0, 1.0, 0.0
    normal = max(grain.normal for grain in grains)
    largest = min(grain.largest for grain in grains)
    if unit >= SINGLE and unit > 2 * max(grain.unit for grain in grains):
        # It computes in 16 bits, perhaps in the format of which the range is small.
        half = FORMATS["float16"]
        normal, largest = max(normal, half.normal), min(largest, half.largest)
    used = [min(size, largest) for size in sizes if size > 0] or [1.0]
    above = math.log2(largest) - math.log2(max(used))
    below = max(math.log2(min(used)) - math.log2(normal), 0.0)
    up = math.floor(min(_DIGITS, above * _SHARE_OF_DIGITS))
    down = math.floor(min(_DIGITS, below * _SHARE_OF_DIGITS))
    return 2.0**up, 2.0**-down, _LOST * normal


def _split_shares(space: Space, seed: int, number: int) -> Values:
    """The part of each entry that belongs to the first of two parts: 0, 1/2 or 1, (k,).

    Blocks of rows belong to either, others are scattered. The first and the last block belong to
    different parts, so that each has zeros at an end. A single number belongs to both, in halves.
    """
    pieces = [
        _shares_of_slot(slot, seed, 8 + 2 * position + number)
        for position, slot in enumerate(space.slots)
    ]
    return np.concatenate(pieces) if pieces else np.zeros(0)


def _shares_of_slot(slot: Slot, seed: int, number: int) -> Values:
    if slot.size < 2:
        return np.full(slot.size, 0.5)
    rows = next(extent for extent in (*slot.shape, len(slot.parts)) if extent > 1)
    count = min(rows, _BLOCKS)
    bits = random_bits(seed, Kind.SPECIAL, number, count + slot.size)
    block_bits, shares = bits[:count], bits[count:].reshape(rows, -1).astype(float)
    block_bits[-1] = not block_bits[0]
    scattered = np.arange(count) % 2 == 1
    scattered[-1] = count == 2 and slot.size > rows  # of two rows one has some zeros
    block = np.arange(rows) * count // rows
    whole = ~scattered[block]
    shares[whole] = block_bits[block[whole], None]
    if shares.min() == shares.max():  # of few entries all may have been drawn alike
        shares[-1, -1] = 1.0 - shares[-1, -1]
    return shares.reshape(-1)


def _largest_entry(values: Values) -> float:
    """The largest finite size; 0.0 without any."""
    size = np.abs(values)
    return float(np.max(size, initial=0.0, where=np.isfinite(size)))
