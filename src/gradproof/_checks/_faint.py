"""Claims so small that the best measurement cannot tell them from zero.

Where all terms of a derivative cancel, as of a divergence between two equal distributions, both
modes claim roundings of these terms, and no identity holds between roundings. The terms cannot be
seen, and the value of the function may be zero too; but differences cannot see such claims either.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradproof._checks._found import BARS
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure, probes
from gradproof._settings import Settings
from gradproof._space import Array, dot, namespace


def bars(map_: DifferentiableMap, settings: Settings) -> Array:
    """Error bars of J u, kinks apart; 0 where nothing is known, and below double precision.

    Differences in few bits see next to nothing: that excuses no claim.
    """
    found = measure.along(map_, settings, 0).estimate
    xp = namespace(found.error)
    if map_.resolution > measure.DOUBLE:
        return xp.zeros_like(found.error)
    error = BARS * (found.error - xp.minimum(found.kink, found.error))
    return xp.where(xp.isfinite(error), error, 0.0)


def kinks(map_: DifferentiableMap, settings: Settings) -> Array:
    """Half-gaps of the slopes along u, 0 where nothing is known."""
    found = measure.along(map_, settings, 0).estimate
    xp = namespace(found.error)
    kink = xp.minimum(found.kink, found.error)
    return xp.where(xp.isfinite(kink), kink, 0.0)


def gradients(
    map_: DifferentiableMap, settings: Settings, v: Array, found: Sequence[Array]
) -> bool:
    """Whether all these gradients, of cotangents up to the size of v, are that small."""
    u = abs(probes.tangent(map_, settings.seed or 0, 0))
    bar = dot(abs(v), bars(map_, settings))
    return all(dot(abs(gradient), u) <= bar for gradient in found)
