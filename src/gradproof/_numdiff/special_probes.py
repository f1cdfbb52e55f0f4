"""Probes as they are not drawn at random, as one sum in two parts.

A rule may be right for random probes alone, which are dense, of the size of 1 and of few digits.
Each term of the sum may meet a branch of its own: constants, single entries, sums of zero. The sum
is asked in two parts that add up to it, one much larger than usual and one much smaller, and each
has about half of its entries exactly zero. No part has both sizes: where rows are mixed, the large
ones would hide what becomes of the small ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradproof._data.formats import FORMATS, SINGLE
from gradproof._data.space import Slot, Space, Values
from gradproof._data.vectors import KEPT
from gradproof._numdiff.probes import Kind, random_bits, random_integer, unit_vector

FULL_MANTISSA = (-math.pi / 3, math.e / 2)  # factors whose products need every digit
_EQUAL = -0.25  # entries of a constant cotangent that is not of ones

# Weights of the terms. Their sum is not 1, so that an added constant shows too.
_DENSE, _CONSTANT, _SINGLE, _CANCELLING, _EQUALS = 2.0, -1.0, 4.0, 5.0, 3.0

_DIGITS = 20.0  # binary ones, by which the parts are larger and smaller than usual
_SHARE_OF_DIGITS = 1 / 3  # of those that the formats leave: results in between need some too
_BLOCKS = 8  # of rows, that have zeros by the block
_LOST = 4.0  # smallest normal numbers, that underflow may cost


@dataclass(frozen=True)
class Term:
    """A probe, (k,), and its weight in the sum.

    `kind` is "dense", "constant", "single", "equal" or "cancelling".
    """

    kind: str
    weight: float
    probe: Values


@dataclass(frozen=True)
class SplitProbe:
    """A weighted sum of probes in two parts that add up to it.

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

    def scaled_part(self, number: int) -> Values:
        """Part 0, the large one, or 1, times its factor, (k,)."""
        share = self.shares if number == 0 else 1.0 - self.shares
        return self.factors[number] * share * _weighted_sum(self.terms)

    def probe_of_usual_size(self) -> SplitProbe:
        """The same in two parts that are as large as the sum."""
        large, small = (math.copysign(1.0, factor) for factor in self.factors)
        return replace(self, factors=(large, small), lost=0.0)

    @property
    def sizes(self) -> str:
        """The sizes of the two, in words."""
        large, small = (math.frexp(factor)[1] - 1 for factor in self.factors)
        return f"2^{small} to 2^{large}"


def split_cotangent(
    spaces: tuple[Space, Space],
    cotangent: Values,
    gradient: Values,
    constant: Values,
    unit: float,
    seed: int,
) -> SplitProbe:
    """2 v - w + 3 q + 5 z + 4 e, each a cotangent that a rule may have a branch for, in two parts.

    w is constant on each output, 1 on the first; q is -w/4; z is 1 on one row, or column, and -1 on
    the next, so that sums are exactly zero; e has a single entry. Of one number there are v, w and
    e. Of very long cotangents, each product of which is dear, v alone is a term.

    Args:
        spaces: domain and codomain.
        cotangent: v.
        gradient: J^T v as claimed.
        constant: w.
        unit: unit round-off of claims.
        seed: of the run.
    """
    space = spaces[1]
    shares = _split_shares(space, seed, 0)
    terms = [Term("dense", _DENSE, cotangent)]
    if 0 < space.size <= KEPT:
        terms.append(Term("constant", _CONSTANT, constant))
        if space.size > 1:
            terms.append(Term("equal", _EQUALS, _EQUAL * constant))
            terms.append(Term("cancelling", _CANCELLING, cancelling_cotangent(space, seed)))
        terms.append(_single_entry(terms, shares, np.ones(space.size), seed))
    return _split_sum(spaces, terms, shares, gradient, unit)


def split_tangent(
    spaces: tuple[Space, Space],
    tangent: Values,
    pushforward: Values,
    scales: Values,
    unit: float,
    seed: int,
) -> SplitProbe:
    """2 u - s w + 4 e, w constant, s the smallest scale, e a single entry of its own scale.

    Args:
        spaces, unit, seed: as of `split_cotangent`.
        tangent: u.
        pushforward: J u as claimed.
        scales: of the inputs, (n,).
    """
    space = spaces[0]
    shares = _split_shares(space, seed, 1)
    terms = [Term("dense", _DENSE, tangent)]
    if 0 < space.size <= KEPT:
        # J w may cancel, as that of a softmax: it is kept small beside u, whose size is the
        # inputs'.
        terms.append(Term("constant", _CONSTANT * float(scales.min()), np.ones(space.size)))
        terms.append(_single_entry(terms, shares, scales, seed))
    return _split_sum(spaces, terms, shares, pushforward, unit)


def _split_sum(
    spaces: tuple[Space, Space], terms: list[Term], shares: Values, product: Values, unit: float
) -> SplitProbe:
    """The sum of some terms in two parts; `product` is that of the first term."""
    whole, dense = _largest_entry(_weighted_sum(terms)), _largest_entry(terms[0].probe)
    sizes = whole, _largest_entry(product) * (whole / dense if dense else 1.0)
    up, down, lost = _reach(spaces, sizes, unit)
    factors = (up * FULL_MANTISSA[0], down * FULL_MANTISSA[1])
    return SplitProbe(tuple(terms), shares, factors, lost / abs(factors[1]))


def _weighted_sum(terms: Sequence[Term]) -> Values:
    return np.asarray(np.sum([term.weight * term.probe for term in terms], axis=0))


def _single_entry(terms: Sequence[Term], shares: Values, scales: Values, seed: int) -> Term:
    """A single entry, which is asked by itself as large as the large part is.

    Its sign is not that of the largest entry of the large part: a clamp may be on one side only,
    and a single number has one sign.
    """
    at = random_integer(seed, Kind.SPECIAL, 1, shares.size)
    rest = _weighted_sum(terms) * shares
    # The factor of the large part is negative: the largest entry of it has the other sign.
    value = math.copysign(FULL_MANTISSA[seed % 2], float(rest[np.argmax(np.abs(rest))]))
    return Term("single", _SINGLE, unit_vector(shares.size, at, value * float(scales[at])))


def cancelling_cotangent(space: Space, seed: int) -> Values:
    """A cotangent of 1 on a row, or column, of the largest output, -1 on the next, else 0, (m,).

    Each is constant, as a sum along one dimension hands its cotangent over. Of single numbers two
    have one each.
    """
    cotangent = np.zeros(space.size)
    position = max(range(len(space.slots)), key=lambda k: space.slots[k].size)
    slot, start = space.slots[position], space.offsets[position]
    shape = slot.shape if math.prod(slot.shape) * len(slot.parts) == slot.size else (slot.size,)
    axes = [axis for axis, extent in enumerate(shape) if extent > 1]
    if not axes:
        cotangent[start], cotangent[start + 1 if start + 1 < cotangent.size else 0] = 1.0, -1.0
        return cotangent
    axis = axes[random_integer(seed, Kind.SPECIAL, 2, len(axes))]
    rows = cotangent[space.span(position)].reshape(*shape, -1)[..., 0].swapaxes(axis, 0)
    at = random_integer(seed, Kind.SPECIAL, 3, len(rows) - 1)
    rows[at], rows[at + 1] = 1.0, -1.0
    return cotangent


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
