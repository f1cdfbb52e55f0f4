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
from functools import reduce

import numpy as np

from gradproof._data.formats import FORMATS, SINGLE, Grain
from gradproof._data.space import KEPT, Indices, Slot, Space, Values, finite_values
from gradproof._measurements import ClaimedProducts
from gradproof._numdiff.probes import Kind, random_bits, random_integer, unit_vector

FULL_MANTISSA = (-math.pi / 3, math.e / 2)  # factors whose products need every digit
_EQUAL = -0.25  # entries of a constant cotangent that is not of ones

# Weights of the terms. Their sum is not 1, so that an added constant shows too.
_DENSE, _CONSTANT, _SINGLE, _CANCELLING, _EQUALS = 2.0, -1.0, 4.0, 5.0, 3.0

# Times as large, and as small, as usual; less in formats of a small range, such as float16, and
# where products are nearly as large as can be.
_TIMES = (2.0**20, 2.0**4, 1.0)
_ROOM = 64.0  # times as large: a sum of terms, and results in between
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
    def sizes_text(self) -> str:
        """The sizes of the two parts: "2^-20 to 2^20"."""
        large, small = (math.frexp(factor)[1] - 1 for factor in self.factors)
        return f"2^{small} to 2^{large}"


def split_probe(products: ClaimedProducts) -> SplitProbe:
    """2 v - s w + 3 q + 5 z + 4 e, each a probe that a rule may have a branch for, in two parts.

    v is the random probe of the mode, and w the constant one. s is the smallest scale and 1 for a
    cotangent; q is -w/4; z is 1 on one row and -1 on the next, so that sums are exactly zero; e has
    a single entry. Of tangents, and of one number, there are v, w and e. Of very long probes, each
    product of which is dear, v alone is a term.
    """
    measurements, space, known = products.measurements, products.probe_space, products.product
    seed, unit = measurements.settings.seed, measurements.arithmetic_unit
    shares = split_shares(space, random_bits(seed, Kind.SPECIAL, 8, space.size))
    terms = [Term("dense", _DENSE, products.probe)]
    if 0 < space.size <= KEPT:
        constant = products.constant_probe
        scales = measurements.scales if products.is_forward else np.ones(space.size)
        # J w may cancel, as that of a softmax: it is kept small beside J u, u in units of scales.
        terms.append(Term("constant", _CONSTANT * float(scales.min()), constant))
        if not products.is_forward and space.size > 1:
            terms.append(Term("equal", _EQUALS, _EQUAL * constant))
            terms.append(Term("cancelling", _CANCELLING, cancelling_cotangent(space, seed)))
        terms.append(_single_entry(terms, shares, scales, seed))
    slots = [slot for each in (space, products.space) for slot in each.slots]
    grains = [slot.grain for slot in slots if slot.size] or [Grain()]
    if unit >= SINGLE:  # it may compute in fewer bits than its arrays have, in a smaller range
        grains += [grain for grain in FORMATS.values() if grain.unit == unit]
    largest = max(1.0, float(finite_values(np.abs(known)).max(initial=0.0)))
    room = min(grain.largest for grain in grains) / largest
    times = next((each for each in _TIMES if _ROOM * each <= room), 1.0)
    factors = times * FULL_MANTISSA[0], FULL_MANTISSA[1] / times
    lost = _LOST * max(grain.normal for grain in grains) / factors[1]
    return SplitProbe(tuple(terms), shares, factors, lost)


def _weighted_sum(terms: Sequence[Term]) -> Values:
    return np.asarray(reduce(np.add, [term.weight * term.probe for term in terms]))


def _single_entry(terms: Sequence[Term], shares: Values, scales: Values, seed: int) -> Term:
    """A single entry, of its own scale, which is asked by itself as large as the large part is.

    Its sign is not that of the largest entry of the large part: a clamp may be on one side only,
    and a single number has one sign.
    """
    at = random_integer(seed, Kind.SPECIAL, 1, shares.size)
    rest = _weighted_sum(terms) * shares
    # The factor of the large part is negative: the largest entry of it has the other sign.
    value = math.copysign(FULL_MANTISSA[seed % 2], float(rest[np.argmax(np.abs(rest))]))
    return Term("single", _SINGLE, unit_vector(shares.size, at, value * float(scales[at])))


def cancelling_cotangent(space: Space, seed: int) -> Values:
    """A cotangent of 1 on a row of the largest output, -1 on the next, else 0, (m,).

    Of single numbers two have one each.
    """
    cotangent = np.zeros(space.size)
    position = max(range(len(space.slots)), key=lambda k: space.slots[k].size)
    rows = _rows_of_slot(cotangent[space.span(position)], space.slots[position])
    if len(rows) == 1:
        rows = cotangent[:, None]
    at = random_integer(seed, Kind.SPECIAL, 3, len(rows) - 1)
    rows[at], rows[at + 1] = 1.0, -1.0
    return cotangent


def _rows_of_slot(values: Values, slot: Slot) -> Values:
    """The coordinates of an array by rows, along its first dimension that is longer than 1."""
    longer = (extent for extent in (*slot.shape, len(slot.parts)) if extent > 1)
    return values.reshape(next(longer, 1), -1)


def split_shares(space: Space, draws: Values | Indices) -> Values:
    """The part of each entry that belongs to the first of two parts: 0, 1/2 or 1, (k,).

    The first row of each array belongs to one part and the last row to the other, so that each
    part has rows of zeros; entries between are drawn. A single number belongs to both, in halves.
    """
    shares = draws.astype(float)
    for position, slot in enumerate(space.slots):
        if slot.size < 2:
            shares[space.span(position)] = 0.5
            continue
        rows = _rows_of_slot(shares[space.span(position)], slot)
        rows[0] = rows[0, 0]
        # Of two rows one has some zeros only.
        last = rows[-1:] if len(rows) > 2 else rows[-1:, -1:]
        last[:] = 1.0 - rows[0, 0]
    return shares
