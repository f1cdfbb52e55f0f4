"""Probes as they are not drawn at random: constants, single entries, sums of zero.

A rule may be right for random probes alone, which are dense, of the size of 1 and of few digits.
Each probe here may meet a branch of its own. They are asked for together, as one weighted sum
(`_checks/split_probes.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradproof._data.space import Space, Values
from gradproof._numdiff.probes import Kind, constant_cotangent, random_integer, unit_vector

FULL_MANTISSA = (-math.pi / 3, math.e / 2)  # factors whose products need every digit
_LARGE = 1 << 17  # entries of a probe from which each product is dear: no special ones are asked
_EQUAL = -0.25  # entries of a constant cotangent that is not of ones

# Weights of the terms. Their sum is not 1, so that an added constant shows too.
_DENSE, _CONSTANT, _SINGLE, _CANCELLING, _EQUALS = 2.0, -1.0, 4.0, 5.0, 3.0


@dataclass(frozen=True)
class Term:
    """A probe, (k,), and its weight in the sum.

    `kind` is "dense", "constant", "single", "equal" or "cancelling".
    """

    kind: str
    weight: float
    probe: Values


def weighted_sum(terms: Sequence[Term]) -> Values:
    """The weighted sum of some probes, (k,)."""
    total: Values = np.sum([term.weight * term.probe for term in terms], axis=0)
    return total


def special_cotangents(space: Space, v: Values, shares: Values, seed: int) -> tuple[Term, ...]:
    """2 v - w + 3 q + 5 z + 4 e, each a cotangent that a rule may have a branch for.

    w is constant on each output, 1 on the first; q is -w/4; z is 1 on one row, or column, and -1 on
    the next, so that sums are exactly zero; e has a single entry. Of one number there are v, w and
    e; of very many only v.
    """
    dense = Term("dense", _DENSE, v)
    if not space.size or space.size > _LARGE:
        return (dense,)
    constant = constant_cotangent(space, seed)
    terms = [dense, Term("constant", _CONSTANT, constant)]
    if space.size > 1:
        terms.append(Term("equal", _EQUALS, _EQUAL * constant))
        terms.append(Term("cancelling", _CANCELLING, cancelling_cotangent(space, seed)))
    return (*terms, _single_entry(terms, shares, np.ones(space.size), seed))


def special_tangents(
    space: Space, u: Values, shares: Values, scales: Values, seed: int
) -> tuple[Term, ...]:
    """2 u - s w + 4 e, w constant, s the smallest scale, and e a single entry of its own scale."""
    dense = Term("dense", _DENSE, u)
    if not space.size or space.size > _LARGE:
        return (dense,)
    # J w may cancel, as that of a softmax: it is kept small beside u, whose size is the inputs'.
    smallest = float(scales.min())
    terms = [dense, Term("constant", _CONSTANT * smallest, np.ones(space.size))]
    return (*terms, _single_entry(terms, shares, scales, seed))


def _single_entry(terms: Sequence[Term], shares: Values, scales: Values, seed: int) -> Term:
    """A single entry, which is asked by itself as large as the large part is.

    Its sign is not that of the largest entry of the large part: a clamp may be on one side only,
    and a single number has one sign.
    """
    at = random_integer(seed, Kind.SPECIAL, 1, shares.size)
    rest = weighted_sum(terms) * shares
    # The factor of the large part is negative: the largest entry of it has the other sign.
    value = math.copysign(FULL_MANTISSA[seed % 2], float(rest[np.argmax(np.abs(rest))]))
    return Term("single", _SINGLE, unit_vector(shares.size, at, value * float(scales[at])))


def cancelling_cotangent(space: Space, seed: int) -> Values:
    """A cotangent of 1 on a row, or column, of the largest output, -1 on the next, else 0, (m,).

    Each is constant, as a sum along one dimension hands its cotangent over. Of single numbers two
    have one each.
    """
    found = np.zeros(space.size)
    position = max(range(len(space.slots)), key=lambda k: space.slots[k].size)
    slot, start = space.slots[position], space.offsets[position]
    shape = slot.shape if math.prod(slot.shape) * len(slot.parts) == slot.size else (slot.size,)
    axes = [axis for axis, extent in enumerate(shape) if extent > 1]
    if not axes:
        found[start], found[start + 1 if start + 1 < found.size else 0] = 1.0, -1.0
        return found
    axis = axes[random_integer(seed, Kind.SPECIAL, 2, len(axes))]
    rows = found[space.span(position)].reshape(*shape, -1)[..., 0].swapaxes(axis, 0)
    at = random_integer(seed, Kind.SPECIAL, 3, len(rows) - 1)
    rows[at], rows[at + 1] = 1.0, -1.0
    return found
