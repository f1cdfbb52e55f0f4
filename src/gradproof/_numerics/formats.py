"""Floating-point formats, as their numbers show them."""

from __future__ import annotations

import numpy as np

from gradproof._space import Array, namespace

# A power function may be off by a few units in the last place; below 2^900 there is room to cut.
_CUT, _ROOM = 2.0**30 + 1, 2.0**900


def two_to(exponent: Array) -> Array:
    """Two to the power of whole numbers, exactly.

    NumPy's power function is exact there. That of a device need not be: what it gives is cut to
    23 bits (Veltkamp 1968), which leaves a power of two as it is.
    """
    power = 2.0**exponent
    if type(power) is np.ndarray:
        return power
    wide = _CUT * power
    return namespace(power).where(power < _ROOM, wide - (wide - power), power)


def all_of(values: Array, unit: float) -> bool:
    """Whether every value, and at least one that is not zero, is a number of unit round-off `unit`.

    The range of the format is not looked at.
    """
    xp = namespace(values)
    used = values[xp.isfinite(values) & (values != 0)]
    if used.shape[0] == 0:
        return False
    spacing = 2 * unit * two_to(xp.floor(xp.log2(xp.abs(used))))
    return bool(xp.all(used / spacing == xp.round(used / spacing)))


def need_more(values: Array, unit: float) -> bool:
    """Whether some value is no number of unit round-off `unit`, and not all of them are zero."""
    return bool(namespace(values).any(values != 0)) and not all_of(values, unit)
