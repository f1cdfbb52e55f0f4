"""The only comparator.

A gap is accepted where it is at most what is allowed, written so that NaN is never accepted. What
is allowed never grows with the size of an array: tiling an array changes no verdict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradproof._data.space import Array


@dataclass(frozen=True)
class Comparison:
    """Claimed against measured, entry by entry; arrays of one shape.

    Attributes:
        claimed: what automatic differentiation says.
        measured: what the oracle says.
        error: error bar of `measured`.
        allowed: largest gap accepted, the error bar included.
    """

    claimed: Array
    measured: Array
    error: Array
    allowed: Array

    @property
    def gap(self) -> Array:
        return abs(self.claimed - self.measured)

    @property
    def ok(self) -> Array:
        return within(self.gap, self.allowed)


def within(gap: Array, allowed: Array) -> Array:
    """Where a gap is allowed. NaN, in either, is not, and an infinite allowance allows nothing."""
    return (gap <= allowed) & (allowed < math.inf)


def compare(
    claimed: Array,
    measured: Array,
    error: Array,
    *,
    atol: float = 0.0,
    rtol: float = 0.0,
    floor: Array | float = 0.0,
) -> Comparison:
    """Allow the error bar plus ``atol + rtol * |measured|``.

    Args:
        claimed: what automatic differentiation says.
        measured: what the oracle says.
        error: error bar of `measured`, not negative.
        atol: absolute tolerance.
        rtol: relative tolerance.
        floor: rounding of the claimed derivative itself.
    """
    return Comparison(claimed, measured, error, error + (atol + rtol * abs(measured)) + floor)
