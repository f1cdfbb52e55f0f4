"""Every backward of a map is a projection along a tangent that was measured.

A check that meets a backward which does not fit asks another question, and where that is answered
rightly the claim is right. A backward that is off once, as by a race, would be forgiven that way
in most checks. So what goes back is heard: (J^T v).u is held against v.(J u), whoever asked for it.
A gap proves nothing by itself, and costs no call. The same cotangent asked again does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gradproof._data.space import Array, dot, norm
from gradproof._judge.claims import pulled
from gradproof._judge.decide import drawn, of_sum
from gradproof._maps.contract import HEARD, DifferentiableMap
from gradproof._measure import directional
from gradproof._measure.richardson import Estimate
from gradproof._measure.sizes import FINE, TRIES


@dataclass(frozen=True)
class Off:
    """A backward whose projection does not fit."""

    map: DifferentiableMap  # whose backward it is
    v: Array  # the cotangent
    layout: str  # its memory layout; "" for the usual one
    gradient: Array

    def again(self) -> Array:
        """What the same cotangent is answered now."""
        return pulled(self.map, self.v, self.layout)


@dataclass(frozen=True)
class Heard:
    """The backwards of a map that were asked since its slopes are known; what it is called with."""

    map: DifferentiableMap
    direction: Array  # u
    slopes: Estimate  # J u as measured
    off: list[Off] = field(default_factory=list)  # the first few that do not fit

    def __call__(self, gradient: Array, v: Array, layout: str = "") -> None:
        claimed, measured = gradient.dot(self.direction), v.dot(self.slopes.value)
        # As nearly always; of what is no number nothing is said.
        if not abs(claimed - measured) > FINE * abs(measured) or len(self.off) == TRIES:
            return
        terms = self.map.resolution * gradient * self.direction
        bar = drawn(terms) + of_sum(norm(v * self.slopes.value))
        if abs(claimed - measured) > bar + dot(abs(v), self.slopes.error):
            self.off.append(Off(self.map, 1.0 * v, layout, 1.0 * gradient))


def listen(
    map_: DifferentiableMap,
    direction: Array,
    slopes: Estimate,
    exact: DifferentiableMap | None = None,
) -> None:
    """Hear what goes back from now on, of a map whose vectors are short and NumPy's.

    `exact` is the same function in more bits, which has been heard so far.
    """
    if HEARD not in map_.memo and type(direction) is np.ndarray and not directional.large(map_):
        known = [] if exact is None else off(exact)
        map_.memo[HEARD] = Heard(map_, direction, slopes, known)


def off(map_: DifferentiableMap) -> list[Off]:
    """The backwards heard that do not fit, so far."""
    heard: Heard | None = map_.memo.get(HEARD)
    return [] if heard is None else list(heard.off)
