"""Directional derivatives with an error bar: one geometric ladder of steps.

F(x +- h_k u) is evaluated at every rung h_k; each output, or each sum over outputs, then chooses
its own rung and Richardson level (`richardson`). While the bars are too wide the ladder grows up,
down, or in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gradproof._numerics.compare import rms
from gradproof._numerics.richardson import Estimate, estimate, finite
from gradproof._space import Array, namespace

_BLOCK = 1 << 14  # outputs estimated at a time: bounds the memory, fits a cache


@dataclass(frozen=True)
class Plan:
    """Steps of a ladder: `top * ratio**k` for k < rungs. Powers of two keep x +- h u exact."""

    top: float = 2.0**-6
    ratio: float = 2.0**-8
    rungs: int = 4
    largest: float = 1.0
    smallest: float = 2.0**-40

    def steps(self) -> list[float]:
        return [self.top * self.ratio**k for k in range(self.rungs)]


class Ladder:
    """Evaluations of a function along one direction, and what they say of its derivative.

    Args:
        value: x -> F(x); may return NaN where the function is not defined.
        point: x, size n.
        centre: F(x), size m.
        direction: u, size n.
        resolution: unit round-off of F's arithmetic.
        plan: steps.
        noise: run-to-run noise of each output, as measured by repeating F(x).
    """

    def __init__(
        self,
        value: Callable[[Array], Array],
        point: Array,
        centre: Array,
        direction: Array,
        *,
        resolution: float,
        plan: Plan,
        noise: Array | float = 0.0,
    ) -> None:
        self._value, self._point, self._direction = value, point, direction
        self._centre, self._resolution, self._plan = centre, resolution, plan
        self._noise = noise
        self._rungs: dict[float, tuple[Array, Array]] = {}
        for step in plan.steps():
            self._climb(step)

    def _climb(self, step: float) -> None:
        move = step * self._direction
        self._rungs[step] = (self._value(self._point + move), self._value(self._point - move))

    @property
    def steps(self) -> list[float]:
        return sorted(self._rungs, reverse=True)

    def solve(self, target: float = 1e-4, extra: int = 3) -> Estimate:
        """Estimate, adding up to `extra` rungs while the median bar is above `target`."""
        estimate = self.estimate()
        for _ in range(extra):
            if known(estimate, target):
                break
            step = self._next_step(estimate)
            if step is None:
                break
            self._climb(step)
            estimate = self.estimate()
        return estimate

    def _next_step(self, estimate: Estimate) -> float | None:
        """A step next to the best ones: above if they are the largest, below if the smallest."""
        steps = self.steps
        xp = namespace(estimate.value)
        used = xp.sort(estimate.step[xp.isfinite(estimate.step_error)])
        most = 2 * used.shape[0] > estimate.step.shape[0]
        best = float(used[used.shape[0] // 2]) if most else steps[-1]
        at = min(range(len(steps)), key=lambda k: abs(steps[k] - best))
        down = steps[-1] * 2.0**-5
        # Bars beyond the values: noise, or an oscillation that only the finest step resolves.
        lost = float(xp.mean(xp.astype(estimate.error > xp.abs(estimate.value), xp.float64))) > 0.5
        if lost and steps[-1] == self._plan.steps()[-1] and down >= self._plan.smallest:
            return down
        if at == 0:
            up = steps[0] * 2.0**6
            return up if up <= self._plan.largest else None
        if at >= len(steps) - 2:
            return down if down >= self._plan.smallest else None
        middle = 2.0 ** round(math.log2(steps[at] * steps[at + 1]) / 2)
        return None if middle in self._rungs else middle

    def estimate(self, functionals: Array | None = None) -> Estimate:
        """Derivative of every output or, given rows V (k, m), of every V.F, at no evaluation."""
        if functionals is not None:
            return self._of_functionals(functionals)
        size = self._centre.shape[0]
        starts = range(0, max(size, 1), _BLOCK)
        parts = [self._of_block(start, min(start + _BLOCK, size)) for start in starts]
        if len(parts) == 1:
            return parts[0]
        xp = namespace(self._centre)
        names = Estimate.__dataclass_fields__
        return Estimate(**{name: xp.concat([getattr(p, name) for p in parts]) for name in names})

    def _of_block(self, start: int, stop: int) -> Estimate:
        xp, steps = namespace(self._centre), self.steps
        plus = xp.stack([self._rungs[step][0][start:stop] for step in steps])
        minus = xp.stack([self._rungs[step][1][start:stop] for step in steps])
        centre = self._centre[start:stop]
        unit = 2 * self._resolution
        ulps = finite(unit * xp.maximum(xp.abs(plus), xp.abs(minus)))
        floor = self._noise if isinstance(self._noise, float) else self._noise[start:stop]
        return estimate(steps, (centre, plus, minus), (unit * xp.abs(centre), ulps, floor))

    def _of_functionals(self, functionals: Array) -> Estimate:
        """The sum of the outputs' ulp bounds a functional's: roundings may all be of one sign."""
        xp, steps = namespace(self._centre), self.steps
        size = 2 * self._resolution * xp.abs(functionals)
        sides = [[functionals @ side for side in self._rungs[step]] for step in steps]
        ulps = [size @ xp.abs(finite(self._rungs[step][0])) for step in steps]
        floor: Array | float = 0.0
        if not isinstance(self._noise, float):
            floor = xp.sqrt(xp.sum((functionals * self._noise) ** 2, axis=1))
        return estimate(
            steps,
            (
                functionals @ self._centre,
                xp.stack([plus for plus, _ in sides]),
                xp.stack([minus for _, minus in sides]),
            ),
            (size @ xp.abs(finite(self._centre)), xp.stack(ulps), floor),
        )


def known(found: Estimate, target: float = 1e-4) -> bool:
    """Whether most outputs are known to `target`, in parts of their own derivative.

    An output whose derivative is zero cannot be known in parts of itself; it counts as known when
    its bar is small beside the other outputs' derivatives.
    """
    if found.value.shape[0] == 0:
        return True
    xp = namespace(found.value)
    scale = xp.abs(found.value) + 1e-3 * rms(found.value)
    wide = ~(found.error <= target * scale) & ~(found.error == 0)
    return float(xp.mean(xp.astype(wide, xp.float64))) < 0.25
