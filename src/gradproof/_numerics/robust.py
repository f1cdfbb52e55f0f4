"""Sizes and medians that a few odd values do not spoil."""

from __future__ import annotations

from gradproof._space import Array, namespace

_SAMPLE = 250  # values of which a median is taken


def finite(values: Array) -> Array:
    """The values, 0 where they are not finite."""
    xp = namespace(values)
    known = xp.isfinite(values)
    return values if bool(xp.all(known)) else xp.where(known, values, xp.zeros_like(values))


def largest(plus: Array, minus: Array) -> Array:
    """Size of the largest finite F at the coarsest and the finest rung; the others lie between."""
    xp = namespace(plus)
    coarse = finite(xp.maximum(xp.abs(plus[0, :]), xp.abs(minus[0, :])))
    return xp.maximum(coarse, finite(xp.abs(plus[-1, :])))


def sampled(values: Array) -> Array:
    """A few hundred of the values, evenly spread; all where they are no more."""
    return values[:: max(1, values.shape[0] // _SAMPLE)]


def median_of_positive(values: Array, *, zero: bool = False) -> float:
    """Median of the positive values, of a sample of them where they are many; 0 without any.

    With `zero` those that are zero count too.
    """
    xp = namespace(values)
    ordered = xp.sort(sampled(values))
    side = "left" if zero else "right"
    zeros = int(xp.searchsorted(ordered, xp.zeros_like(ordered[:1]), side=side)[0])
    middle = zeros + (ordered.shape[0] - zeros) // 2
    return float(ordered[middle]) if middle < ordered.shape[0] else 0.0
