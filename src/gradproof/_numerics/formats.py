"""Floating-point formats, as their numbers show them."""

from __future__ import annotations

from gradproof._space import Array, namespace


def all_of(values: Array, unit: float) -> bool:
    """Whether every value, and at least one that is not zero, is a number of unit round-off `unit`.

    The range of the format is not looked at.
    """
    xp = namespace(values)
    used = values[xp.isfinite(values) & (values != 0)]
    if used.shape[0] == 0:
        return False
    spacing = 2 * unit * 2.0 ** xp.floor(xp.log2(xp.abs(used)))
    return bool(xp.all(used / spacing == xp.round(used / spacing)))
