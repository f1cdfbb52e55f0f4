"""Formats of floating-point numbers, and what arithmetic counts as one of each precision."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Grain:
    """How finely a dtype's numbers lie."""

    unit: float = 2.0**-53  # unit round-off, half the gap between 1 and the next number
    tiny: float = 2.0**-1074  # smallest positive number
    largest: float = 1.7976931348623157e308  # largest finite number

    @property
    def normal(self) -> float:
        """The smallest number with all digits: below it the spacing shrinks no more."""
        return self.tiny / (2 * self.unit)


# Those of IEEE 754, bfloat16, and the two of 8 bits (Micikevicius et al. 2022); the finest first.
FORMATS = {
    "float64": Grain(),
    "float32": Grain(2.0**-24, 2.0**-149, 3.4028234663852886e38),
    "float16": Grain(2.0**-11, 2.0**-24, 65504.0),
    "bfloat16": Grain(2.0**-8, 2.0**-133, 3.3895313892515355e38),
    "float8_e4m3fn": Grain(2.0**-4, 2.0**-9, 448.0),
    "float8_e5m2": Grain(2.0**-3, 2.0**-16, 57344.0),
}

# Unit round-offs below which arithmetic counts as double precision, and as single or double: half
# way to the next coarser format.
_UNITS = [FORMATS[name].unit for name in ("float64", "float32", "float16")]
DOUBLE, SINGLE = (math.sqrt(fine * coarse) for fine, coarse in itertools.pairwise(_UNITS))

ROUNDABLE = 2.0**-40  # unit round-off of the finest arithmetic that doubles can be rounded to
