"""Noise of a function from a table of differences.

Moré and Wild, Estimating Computational Noise, SIAM Journal on Scientific Computing 33, 2011.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gradproof._data.space import Array, namespace

_ORDER = 6  # of the differences: what is smooth along a line of this length leaves nothing of it
_POINTS = 14
_SPACING = 2.0**-11


def along(function: Callable[[Array], Array], point: Array, direction: Array) -> Array:
    """Standard deviation of the noise of each output, from values on a line through the point.

    One output is enough: it is known, to a factor of a few, from eight differences. Their variance
    is that of one value times the sum of the squares of the binomial coefficients.
    """
    xp, first = namespace(point), -(_POINTS - 1) / 2
    moves = [(first + k) * _SPACING for k in range(_POINTS)]
    table = xp.stack([function(point + move * direction) for move in moves])
    for _ in range(_ORDER):
        table = table[1:, :] - table[:-1, :]
    return xp.sqrt(xp.mean(table**2, axis=0) / math.comb(2 * _ORDER, _ORDER))
