"""Noise of a function from a table of differences.

Moré and Wild, Estimating Computational Noise, SIAM Journal on Scientific Computing 33, 2011: what
is smooth along a line leaves nothing of high differences, and noise of standard deviation s leaves
s times the root of the sum of the squares of the binomial coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gradproof._data.space import Array, namespace

_ORDER, _POINTS, _SPACING = 6, 14, 2.0**-11
# Of lines as long as x: 1/x leaves 2e-5 of itself there, which falls by 2^4 as the spacing halves.
_JUMP_ORDER, _JUMP_POINTS, _JUMP_SPACING = 4, 17, 2.0**-5


def along(function: Callable[[Array], Array], point: Array, direction: Array) -> Array:
    """Standard deviation of the noise of each output, from values on a line through the point.

    One output is enough: it is known, to a factor of a few, from eight differences.
    """
    return _of_table(_table(function, point, direction, _POINTS, _SPACING), _ORDER)


def of_jumps(function: Callable[[Array], Array], point: Array, direction: Array) -> Array:
    """Noise of each output on a line so long that a smooth function leaves something of its own.

    That falls by 2^4 where the spacing is halved, and what jumps leave does not: 0 where it falls
    by more than half of that in orders of two.
    """
    xp = namespace(point)
    table = _table(function, point, direction, _JUMP_POINTS, _JUMP_SPACING)
    fine, coarse = (_of_table(part, _JUMP_ORDER) for part in (table, table[::2, :]))
    stays = 2.0 ** (_JUMP_ORDER / 2) * fine > coarse
    return xp.where(xp.isfinite(fine) & stays, fine, 0.0)


def _table(
    function: Callable[[Array], Array], point: Array, direction: Array, count: int, spacing: float
) -> Array:
    moves = [(k - (count - 1) / 2) * spacing for k in range(count)]
    return namespace(point).stack([function(point + move * direction) for move in moves])


def _of_table(table: Array, order: int) -> Array:
    xp = namespace(table)
    for _ in range(order):
        table = table[1:, :] - table[:-1, :]
    return xp.sqrt(xp.mean(table**2, axis=0) / math.comb(2 * order, order))
