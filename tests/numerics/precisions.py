"""Arithmetic of fewer bits for tests of the numerics: functions as kernels of a dtype run them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradproof._data.space import Grain, Slot, Space
from gradproof._measure import probes
from gradproof._measure.ladder import Ladder, Line
from gradproof._measure.steps import Plan
from numpy_map import FunctionMap

Vector = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Precision:
    """A dtype: every number of it has `bits` significant ones, the smallest being `tiny`."""

    name: str
    bits: int
    tiny: float
    largest: float

    @property
    def unit(self) -> float:
        return 2.0**-self.bits

    @property
    def grain(self) -> Grain:
        return Grain(self.unit, self.tiny)

    def round(self, x: Vector) -> Vector:
        """The nearest numbers of the dtype, infinite beyond its largest."""
        _, exponent = np.frexp(x)
        spacing = np.maximum(np.ldexp(1.0, exponent - self.bits), self.tiny)
        near = np.rint(x / spacing) * spacing
        return np.where(np.abs(near) > self.largest, np.copysign(np.inf, near), near)

    def run(self, fn: Callable[[Vector], Vector]) -> Callable[[Vector], Vector]:
        """The function as a kernel runs it that works in more bits than it returns."""
        return lambda x: self.round(np.asarray(fn(self.round(np.asarray(x)))))

    def map(self, fn: Callable[[Vector], Vector], point: Any) -> FunctionMap:
        """The function at a point, with a domain and codomain of this dtype."""
        map_ = FunctionMap(self.run(fn), self.round(np.asarray(point, float)), np.zeros((1, 1)))
        map_.resolution = self.unit
        map_.domain = Space((Slot("x", map_.point.shape, grain=self.grain),))
        map_.codomain = Space((Slot("y", fn(map_.point).shape, grain=self.grain),))
        return map_

    def ladder(self, fn: Callable[[Vector], Vector], point: Any, seed: int = 0) -> Ladder:
        """The ladder that a check would climb along its first tangent."""
        map_ = self.map(fn, point)
        u = probes.tangent(map_, seed, 0)
        line = Line(map_.fn, map_.point, map_.fn(map_.point), u, self.unit)
        return Ladder(line, Plan.of(self.unit))


SINGLE = Precision("float32", 24, 2.0**-149, float(np.finfo(np.float32).max))
BRAIN = Precision("bfloat16", 8, 2.0**-133, float(np.finfo(np.float32).max))
HALF = Precision("float16", 11, 2.0**-24, 65504.0)
COARSE = (SINGLE, BRAIN, HALF)
