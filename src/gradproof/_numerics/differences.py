"""Directional derivatives with an error bar: one geometric ladder of steps.

F(x +- h_k u) is evaluated at every rung h_k. From the odd part d_k = (F(x+h_k u) - F(x-h_k u))/2
and the even part e_k = (F(x+h_k u) + F(x-h_k u))/2 - F(x) each output chooses its own rung and
Richardson level. The error bar of a candidate is made of

* truncation: the larger distance to its two parents in the Richardson table (Ridders 1982, Adv.
  Eng. Software 4), at level 0 the distance to the next finer rung;
* rounding noise s/h_k, s measured at the finest rungs, where e and d minus their smooth parts
  are nothing but noise, with half a unit in the last place as a floor;
* the kink guard: |e_k|/h_k is exactly the error of D_k with one kink inside the step; for a
  smooth function it decays like h and is switched off. At a kink in x itself the bar is half the
  gap of the one-sided slopes;
* a veto by every finer rung: a candidate may not lie outside the noise bar of a finer rung.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace

from gradproof._numerics.compare import rms
from gradproof._space import Array

_NOISE_FACTOR = 5.0  # bar in units of the measured noise
_CAP = 16.0  # how far one sample may raise the noise above its neighbour
_ROUGH = 64.0  # noise in ulp above which, if it is also large beside F's variation, F is rough
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


@dataclass(frozen=True)
class Estimate:
    """Measured derivative of each output along one direction.

    Attributes:
        value: derivative D, size m.
        error: error bar B, infinite where nothing could be measured.
        kink: the part of B that a kink at, or near, the point makes.
        step: best step of a plain central difference, per output.
        step_error: error bar of that plain difference.
        noise: of one evaluation.
    """

    value: Array
    error: Array
    kink: Array
    step: Array
    step_error: Array
    noise: Array


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
            if self._good(estimate, target):
                break
            step = self._next_step(estimate)
            if step is None:
                break
            self._climb(step)
            estimate = self.estimate()
        return estimate

    def _good(self, estimate: Estimate, target: float) -> bool:
        """Whether most outputs are known to `target`, in parts of their own derivative.

        An output whose derivative is zero cannot be known in parts of itself; it counts as known
        when its bar is small beside the other outputs' derivatives.
        """
        if estimate.value.shape[0] == 0:
            return True
        xp = array_namespace(estimate.value)
        scale = xp.abs(estimate.value) + 1e-3 * rms(estimate.value)
        wide = ~(estimate.error <= target * scale) & ~(estimate.error == 0)
        return float(xp.mean(xp.astype(wide, xp.float64))) < 0.25

    def _next_step(self, estimate: Estimate) -> float | None:
        """A step next to the best ones: above if they are the largest, below if the smallest."""
        steps = self.steps
        xp = array_namespace(estimate.value)
        used = xp.sort(estimate.step)
        best = float(used[used.shape[0] // 2])
        at = min(range(len(steps)), key=lambda k: abs(steps[k] - best))
        finite = bool(xp.any(xp.isfinite(estimate.error)))
        if at == 0 and finite:
            up = steps[0] * 2.0**6
            return up if up <= self._plan.largest else None
        if not finite or at >= len(steps) - 2:
            down = steps[-1] * 2.0**-5
            return down if down >= self._plan.smallest else None
        middle = 2.0 ** round(math.log2(steps[at] * steps[at + 1]) / 2)
        return None if middle in self._rungs else middle

    def estimate(self, functionals: Array | None = None) -> Estimate:
        """Derivative of every output or, given rows V (k, m), of every V.F, at no evaluation."""
        steps = self.steps
        if functionals is None:
            return _in_blocks(steps, self._centre, self._rungs, self._resolution, self._noise)
        absolute = abs(functionals)
        ulps = [absolute @ abs(_finite(self._centre))]
        rungs = {}
        for step in steps:
            rungs[step] = tuple(functionals @ side for side in self._rungs[step])
            ulps.append(absolute @ abs(_finite(self._rungs[step][0])))
        xp = array_namespace(self._centre)
        # Roundings of the outputs are independent: sqrt(m) of them make m ulps at most.
        ulp = 2 * self._resolution * xp.stack(ulps)
        quiet = isinstance(self._noise, float)
        floor = 0.0 if quiet else ((absolute * self._noise) ** 2).sum(axis=1) ** 0.5
        return _estimate(
            steps,
            functionals @ self._centre,
            xp.stack([rungs[step][0] for step in steps]),
            xp.stack([rungs[step][1] for step in steps]),
            ulp[0],
            ulp[1:],
            floor,
        )


def _finite(values: Array) -> Array:
    xp = array_namespace(values)
    return xp.where(xp.isfinite(values), values, xp.zeros_like(values))


def _in_blocks(
    steps: Sequence[float],
    centre: Array,
    rungs: dict[float, tuple[Array, Array]],
    resolution: float,
    noise: Array | float,
) -> Estimate:
    xp = array_namespace(centre)
    size = centre.shape[0]
    parts = []
    for start in range(0, max(size, 1), _BLOCK):
        block = slice(start, start + _BLOCK)
        plus = xp.stack([rungs[step][0][block] for step in steps])
        minus = xp.stack([rungs[step][1][block] for step in steps])
        middle = centre[block]
        ulp0 = 2 * resolution * xp.abs(middle)
        ulps = 2 * resolution * xp.maximum(xp.abs(plus), xp.abs(minus))
        floor = noise if isinstance(noise, float) else noise[block]
        parts.append(_estimate(steps, middle, plus, minus, ulp0, _finite(ulps), floor))
    if len(parts) == 1:
        return parts[0]
    names = Estimate.__dataclass_fields__
    return Estimate(**{name: xp.concat([getattr(p, name) for p in parts]) for name in names})


def _estimate(
    steps: Sequence[float],
    centre: Array,
    plus: Array,
    minus: Array,
    ulp0: Array,
    ulps: Array,
    floor: Array | float,
) -> Estimate:
    """Best candidate of the Richardson table for every output (columns of `plus`, `minus`)."""
    xp = array_namespace(centre)
    if centre.shape[0] == 0:
        return Estimate(centre, centre, centre, centre, centre, centre)
    odd, even = (plus - minus) / 2, (plus + minus) / 2 - centre
    h = xp.reshape(xp.asarray(steps), (-1, 1))
    first = odd / h
    spread = _noise(xp, steps, odd, even, ulp0, floor)
    noise = _NOISE_FACTOR * 0.71 * xp.maximum(spread, ulps / 2) / h
    kink = _kink(xp, steps, xp.abs(even) / h)
    values, bars, kinks = _candidates(xp, steps, first, noise, kink)
    bars = xp.where(xp.isfinite(values) & xp.isfinite(bars), bars, xp.inf)
    best = xp.argmin(bars, axis=0, keepdims=True)
    error = _pick(xp, bars, best)
    varied = xp.max(xp.abs(_finite(odd)) + xp.abs(_finite(even)), axis=0)
    rough = (spread > _ROUGH * xp.maximum(ulp0, _median(xp, ulp0))) & (spread > 0.02 * varied)
    error = xp.where(rough, xp.inf, error)
    rung = xp.argmin(bars[: len(steps) - 1], axis=0, keepdims=True)
    return Estimate(
        value=_pick(xp, values, best),
        error=error,
        kink=_pick(xp, kinks, best),
        step=xp.take(xp.reshape(h, (-1,)), xp.reshape(rung, (-1,))),
        step_error=xp.where(rough, xp.inf, _pick(xp, bars, rung)),
        noise=spread,
    )


def _pick(xp: Any, table: Array, row: Array) -> Array:
    return xp.reshape(xp.take_along_axis(table, row, axis=0), (-1,))


def _median(xp: Any, values: Array) -> Array:
    return xp.sort(values)[values.shape[0] // 2]


def _noise(
    xp: Any, steps: Sequence[float], odd: Array, even: Array, ulp: Array, floor: Array | float
) -> Array:
    """Rounding noise of one evaluation of each output, from the two finest pairs of rungs.

    With r = h_k/h_{k-1}, e_k - r^2 e_{k-1} and d_k - r d_{k-1} keep noise of variance 1.5 and 0.5
    and lose the smooth part. A d-sample may exceed the others by the cap only: a kink between
    the finest rungs would otherwise pass for noise.
    """
    samples = []
    for k in (len(steps) - 1, len(steps) - 2):
        ratio = steps[k] / steps[k - 1]
        samples.append(_finite(xp.abs(even[k] - ratio**2 * even[k - 1])) / 1.22)
        samples.append(_finite(xp.abs(odd[k] - ratio * odd[k - 1])) / 0.71)
    e_fine, d_fine, e_next, d_next = samples
    own = xp.maximum(e_fine, xp.minimum(d_fine, _CAP * xp.maximum(e_fine, ulp / 2)))
    third = xp.maximum(e_next, d_next)
    own = xp.maximum(own, xp.minimum(third, _CAP * xp.maximum(own, ulp / 2)))
    # One output has few samples; all together have many. The pool counts in absolute terms or in
    # ulp, whichever is smaller, so that a large output does not drown a small one.
    in_ulp = xp.where(ulp > 0, own / xp.where(ulp > 0, ulp, xp.ones_like(ulp)), 0.0)
    pooled = xp.minimum(xp.full_like(own, rms(own)), ulp * rms(in_ulp))
    own = xp.maximum(xp.maximum(own, pooled), xp.maximum(ulp / 2, xp.zeros_like(ulp) + floor))
    return xp.maximum(own, _plateau(xp, odd, even, ulp))


def _plateau(xp: Any, odd: Array, even: Array, ulp: Array) -> Array:
    """Height of the plateau of an output that does not move at all at the finest rungs.

    Arithmetic in fewer bits, or in larger numbers, than the output shows makes F piecewise
    constant: where the steps are fine no noise is then seen, and a derivative of exactly zero. The
    smallest change on both sides bounds the height; where there is none, the rounding of the
    largest output does. (A change on one side alone is a switch, as at the border of a clamp, and
    an output that is exactly zero is switched off, as relu's is.)
    """
    odd, even = xp.abs(_finite(odd)), xp.abs(_finite(even))
    change = xp.maximum(odd, even)
    still = (change[-1, :] == 0) & (change[-2, :] == 0) & (ulp > 0)
    smallest = xp.min(xp.where((change > 0) & (odd != even), change, xp.inf), axis=0)
    height = xp.where(xp.isfinite(smallest), smallest, xp.max(ulp) / 2)
    return xp.where(still, height, 0.0)


def _kink(xp: Any, steps: Sequence[float], gap: Array) -> Array:
    """|e_k|/h_k where it does not decay from rung to rung, else 0."""
    decay = xp.sqrt(xp.asarray([fine / coarse for coarse, fine in itertools.pairwise(steps)]))
    decays = gap[1:] <= decay[:, None] * gap[:-1]
    stays = xp.where(decays, xp.zeros_like(gap[1:]), gap[1:])
    # The coarsest rung has none above it: it has a kink if the next one has.
    top = xp.where(decays[0], xp.zeros_like(gap[0]), gap[0])
    return _finite(xp.concat([top[None, :], stays]))


def _candidates(
    xp: Any, steps: Sequence[float], first: Array, noise: Array, kink: Array
) -> tuple[Array, Array, Array]:
    """Values, bars and kink parts of Richardson levels 0 to 2, one row per candidate."""
    rungs = len(steps)
    table, values, bars, kinks = first, [], [], []
    for level in range(3):
        parents = table
        if level:
            powers = [(steps[k + level] / steps[k]) ** 2 for k in range(rungs - level)]
            p = xp.reshape(xp.asarray(powers), (-1, 1))
            table = (parents[1:] - p * parents[:-1]) / (1 - p)
        for k in range(table.shape[0]):
            finest = k + level
            if level == 0 and finest + 1 == rungs:
                continue
            value = table[k]
            if level == 0:
                bar = xp.abs(value - first[k + 1]) + noise[k + 1]
            else:
                bar = xp.maximum(xp.abs(value - parents[k]), xp.abs(value - parents[k + 1]))
            bar = bar + 1.1 * noise[finest] + kink[finest]
            for finer in range(finest + 1, rungs):
                bar = xp.maximum(bar, xp.abs(value - first[finer]) - noise[finer])
            values.append(value)
            bars.append(bar)
            kinks.append(kink[finest])
    return xp.stack(values), xp.stack(bars), xp.stack(kinks)
