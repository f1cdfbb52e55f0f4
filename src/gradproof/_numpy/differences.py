"""The gradient of a function by differences, where only its second derivative is claimed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gradproof._data.settings import DOUBLE
from gradproof._data.space import Array
from gradproof._maps.contract import DifferentiableMap
from gradproof._numdiff.steps import coordinate_scales

# Weights of F(x + k h) - F(x - k h), k from 1, in differences of the sixth and fourth order.
_SIXTH, _FOURTH = (45 / 60, -9 / 60, 1 / 60), (8 / 12, -1 / 12)
_STEPS, _APART = (2.0**-10, 2.0**-12, 2.0**-14), 1e-9
_COARSE, _COARSE_APART = (2.0**-4, 2.0**-6), 1e-3  # in single precision and below


def measured_gradient(map_: DifferentiableMap, v: Array) -> Callable[[Array], Array]:
    """The function x -> J(x)^T v by differences of the sixth order, where no derivative is claimed.

    Their own differences are second derivatives, with what rounding does to these rungs as noise.
    That asks for one formula everywhere, whose truncation is smaller still: of steps in parts of
    each coordinate the largest is taken at which the fourth order differs by no more than `_APART`
    from it. In units of the length over which F bends that step is below (30 `_APART`)^(1/4), and
    the sixth order is off by its sixth power over 140. Without such a step all is NaN.
    """
    scales = coordinate_scales(map_.domain, map_.point)
    steps, most = (_STEPS, _APART) if map_.resolution < DOUBLE else (_COARSE, _COARSE_APART)

    def differences(x: Array, step: float, weights: Sequence[float]) -> Array:
        found = np.zeros(x.size)
        for j, size in enumerate(step * scales):
            move = np.zeros(x.size)
            for k, weight in enumerate(weights, 1):
                move[j] = k * size
                found[j] += weight * float(v @ (map_.value(x + move) - map_.value(x - move)))
        return found / (step * scales)

    here = abs(float(v @ map_.value(map_.point))) / scales
    for step in steps:
        best = differences(map_.point, step, _SIXTH)
        apart = abs(best - differences(map_.point, step, _FOURTH))
        if bool(np.all(apart <= most * np.maximum(np.max(abs(best)), here))):
            return partial(differences, step=step, weights=_SIXTH)
    return lambda x: np.full(x.size, np.nan)
