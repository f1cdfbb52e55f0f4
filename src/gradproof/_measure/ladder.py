"""Directional derivatives with an error bar: one geometric ladder of steps.

F(x +- h_k u) is evaluated at every rung h_k; each output, or each sum over outputs, then chooses
its own rung and Richardson level (`richardson`). While the bars are too wide the ladder grows up,
down, or in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from gradproof._data.space import Array, namespace
from gradproof._data.vectors import BLOCK, KEPT, blocks, finite, rms
from gradproof._measure.noise import Table, shown, staircase, units
from gradproof._measure.one_sided import Kinks, classify
from gradproof._measure.richardson import Estimate, estimate, largest, parts, smooth
from gradproof._measure.sizes import TRIES
from gradproof._measure.steps import DOWN, UP, Plan

_PLAINLY = ("value", "error", "step", "noise")  # what outputs that are plainly smooth differ by


# F at both ends of steps, made before or when one is asked for.
Rungs = Mapping[float, tuple[Array, Array]]


@dataclass(frozen=True)
class Line:
    """A function along a line through a point."""

    fn: Callable[[Array], Array]  # x -> F(x); may return NaN where the function is not defined
    point: Array  # x, size n
    centre: Array  # F(x), size m
    direction: Array  # u, size n
    resolution: float  # unit round-off of F's arithmetic
    noise: Array | float = 0.0  # run-to-run noise of each output, as measured by repeating F(x)
    narrow: bool = True  # whether a part of F may be in fewer bits
    known: Rungs = field(default_factory=dict)  # evaluations that need not be made

    def sides(self, step: float) -> tuple[Side, Side]:
        """F(x + h u) and F(x - h u), each evaluated in memory that it may write to."""
        x, u = self.point, self.direction
        plus, minus = self.known.get(step) or (self.fn(x + step * u), self.fn(x + -step * u))
        told = _beside(self.centre, plus)  # where one side moves much, both do
        return told, _beside(self.centre, minus) if isinstance(told, Beside) else minus

    def of(self, outputs: Array) -> Line:
        """The same of some outputs, given by their positions."""

        def some(values: Side) -> Array:
            return namespace(outputs).take(values[:], outputs)

        known = {}
        if isinstance(self.known, dict):  # evaluations that were made, not such as can be
            known = {step: (some(one), some(other)) for step, (one, other) in self.known.items()}
        return replace(
            self,
            fn=lambda x: some(self.fn(x)),
            centre=some(self.centre),
            noise=self.noise if isinstance(self.noise, float) else some(self.noise),
            known=known,
        )


class Beside:
    """F beside the point, by what of it is not F(x): along one coordinate mostly little."""

    def __init__(self, centre: Array, side: Array, moved: Array) -> None:
        self._centre = centre
        (self._at,) = namespace(centre).nonzero(moved)
        self._values = side[self._at]

    def __getitem__(self, which: slice) -> Array:
        start, stop, step = which.indices(self._centre.shape[0])
        xp, found = namespace(self._centre), 1.0 * self._centre[which]
        first, last = xp.searchsorted(self._at, xp.asarray([start, stop], dtype=self._at.dtype))
        at, values = self._at[first:last] - start, self._values[first:last]
        found[at[at % step == 0] // step] = values[at % step == 0]
        return found


Side = Array | Beside


def _beside(centre: Array, side: Side) -> Side:
    """F beside the point, in as little memory as tells it."""
    if isinstance(side, Beside) or side.shape[0] < BLOCK:
        return side
    few, xp = max(1, side.shape[0] // BLOCK), namespace(centre)
    for step in (few, 1):  # a sample tells where most of it moves
        moved = side[::step] != centre[::step]
        if 4 * int(xp.sum(moved)) > moved.shape[0]:
            return side
    return Beside(centre, side, moved)


class Ladder:
    """Evaluations of a function along a line, and what they say of its derivative."""

    def __init__(self, line: Line, plan: Plan) -> None:
        self.line, self._centre, self._plan = line, line.centre, plan
        self.rungs: dict[float, tuple[Side, Side]] = {}
        for step in plan.steps():
            self._add(step)

    def _add(self, step: float) -> None:
        self.rungs[step] = self.line.sides(step)
        # What the rungs say of all outputs, where these are few.
        self._table: Table | None = None
        self._estimate: Estimate | None = None

    def _parts(self, step: float, which: slice) -> tuple[Array, Array]:
        """Odd and even part of a rung, of some outputs."""
        return parts(self._centre[which], *(side[which] for side in self.rungs[step]))

    def _sides(self, step: float, which: slice) -> tuple[Array, Array]:
        """F at both ends of a rung, some outputs of it."""
        plus, minus = self.rungs[step]
        return plus[which], minus[which]

    @property
    def steps(self) -> list[float]:
        return sorted(self.rungs, reverse=True)

    def solve(self, outputs: Array | None = None, target: float = 1e-4) -> Estimate:
        """Estimate of all outputs, after a few more rungs while the median bar is above a target.

        The median is that of a few outputs, or of a sample of all; `target` is in parts of the
        derivative.
        """
        size = self._centre.shape[0]
        sample = slice(None, None, max(1, size // BLOCK))
        for left in range(TRIES, -1, -1):
            if size > BLOCK and outputs is None:
                found = self._plainly(sample) or estimate(self.table(sample))
            else:
                found = self.estimate() if outputs is None else self.estimate().of(outputs)
            step = self._next_step(found) if left and not known(found, target) else None
            if step is None:
                break
            self._add(step)
        return found if outputs is None and size < 2 * BLOCK else self.estimate()

    def _next_step(self, estimate: Estimate) -> float | None:
        """A step beside the best ones: above if they are the largest, below if the smallest."""
        steps = self.steps
        xp = namespace(estimate.value)
        used = xp.sort(estimate.step[xp.isfinite(estimate.step_error)])
        most = 2 * used.shape[0] > estimate.step.shape[0]
        best = float(used[used.shape[0] // 2]) if most else steps[-1]
        at = min(range(len(steps)), key=lambda k: abs(steps[k] - best))
        down = steps[-1] * DOWN
        # Bars beyond the values: noise, or an oscillation that only the finest step resolves.
        lost = float(xp.mean(xp.astype(estimate.error > xp.abs(estimate.value), xp.float64))) > 0.5
        if lost and steps[-1] == self._plan.steps()[-1] and down >= self._plan.smallest:
            return down
        if at >= len(steps) - 2:
            return down if down >= self._plan.smallest else None
        # The bar of a rung holds the noise of the next finer one, which a closer one has less of.
        middle = 2.0 ** round(math.log2(steps[at] * steps[at + 1]) / 2)
        if middle not in self.rungs:
            return middle
        up = steps[0] * UP
        return up if at == 0 and up <= self._plan.largest else None

    def varies(self) -> bool:
        """Whether any output differs from F(x), by more than rounding, where steps are large."""
        xp, top = namespace(self._centre), self.steps[0]
        for which in blocks(self._centre):
            odd, even = self._parts(top, which)
            rounding = 8 * self.line.resolution * xp.abs(self._centre[which]) + self._floor(which)
            if bool(xp.any(xp.abs(odd) + xp.abs(even) > rounding)):
                return True
        return False

    def kinks(self) -> Kinks:
        """What every output is at the point, smooth or not, at no evaluation."""
        xp, steps, every = namespace(self._centre), self.steps, slice(None)
        sides = [self._sides(step, every) for step in steps]
        plus, minus = (xp.stack([side[way] for side in sides]) for way in (0, 1))
        return classify(self.table(), plus, minus)

    def estimate(self) -> Estimate:
        """Derivative of every output, at no evaluation."""
        size = self._centre.shape[0]
        if size <= BLOCK:
            every = slice(None)
            self._estimate = self._estimate or self._plainly(every) or estimate(self.table())
            return self._estimate
        xp, plainly = namespace(self._centre), size > KEPT
        made = {name: xp.empty_like(self._centre) for name in Estimate.__dataclass_fields__}
        for block in blocks(self._centre):
            found = self._plainly(block) or estimate(self.table(block))
            if plainly and found.step_error is not found.error:
                plainly, before = False, slice(0, block.start)
                made["kink"][before], made["step_error"][before] = 0.0, made["error"][before]
            for name in _PLAINLY if plainly else made:
                made[name][block] = getattr(found, name)
        if plainly:  # one vector less, and one of zeros
            made["kink"] = xp.broadcast_to(xp.zeros(1), made["error"].shape)
            made["step_error"] = made["error"]
        return Estimate(**made)

    def _plainly(self, which: slice) -> Estimate | None:
        """Some of very many outputs, where they are plainly smooth: the others take a table."""
        noise, centre = self.line.noise, self._centre
        if centre.shape[0] <= KEPT or not isinstance(noise, float) or noise:
            return None
        table = self.table(which)
        known = table.is_double and len(table.steps) > 2 and type(centre) is np.ndarray
        if not known or staircase(table) is not None:
            return None
        values = table.centre, table.odd, table.even
        found = smooth(table.steps, values, table.resolution, many=True)
        # What stands still, and is not zero, may stand on a tread.
        tread = found is not None and bool(np.any((found.value == 0) & (table.centre != 0)))
        return None if tread else found

    def table(self, which: slice = slice(None)) -> Table:
        """F at every step, some outputs of it."""
        whole = which == slice(None) and self._centre.shape[0] <= BLOCK
        if whole and self._table is not None:
            return self._table
        found, kind = self._stacked(which), (self.line.resolution, self.line.narrow)
        rounding = self._rounding(which, found)
        made = Table(self.steps, self._centre[which], *found, *rounding, *kind)
        self._table = made if whole else None
        return made

    def _stacked(self, which: slice) -> tuple[Array, Array]:
        """Odd and even parts of some outputs, a row for each rung."""
        xp = namespace(self._centre)
        rungs = [self._parts(step, which) for step in self.steps]
        return xp.stack([odd for odd, _ in rungs]), xp.stack([even for _, even in rungs])

    def _rounding(
        self, which: slice, found: tuple[Array, Array]
    ) -> tuple[Array, Array, Array | float]:
        """Unit in the last place of F(x) and of the largest F, and the noise of one evaluation."""
        centre = self._centre[which]
        sizes = shown(largest(centre, *found), self.line.direction, self.line.resolution)
        unit = 2 * self.line.resolution * namespace(centre).abs(centre)
        return unit, units(self.line.resolution, sizes), self._floor(which)

    def _floor(self, which: slice) -> Array | float:
        return self.line.noise if isinstance(self.line.noise, float) else self.line.noise[which]

    def of_functionals(
        self, functionals: Array, outputs: slice = slice(None), *, signs: bool = False
    ) -> Estimate:
        """Derivative of every V.F, rows V (k, m) over some outputs, at no evaluation.

        The sum of the outputs' ulp bounds a functional's: roundings may all be of one sign. Where
        the `signs` of V were drawn, and nothing that F was evaluated at follows them, the root of
        the sum of their squares does, whatever the roundings are (Hoeffding 1963).
        """
        xp, first, count = namespace(self._centre), outputs.start or 0, len(self.steps)
        total = xp.zeros((2 * count + 4, functionals.shape[0]))
        power = 2 if signs else 1
        for block in blocks(functionals, KEPT):
            at = slice(first + block.start, first + block.stop)
            total += self._terms(functionals[:, block], at, power)
        odd, even = total[:count, :], total[count : 2 * count, :]
        centre, ulp, ulps, squares = (total[2 * count + k, :] for k in range(4))
        floor = 0.0 if isinstance(self.line.noise, float) else xp.sqrt(squares)
        rounding = ulp ** (1 / power), ulps ** (1 / power), floor
        kind = self.line.resolution, self.line.narrow
        return estimate(Table(self.steps, centre, odd, even, *rounding, *kind))

    def _terms(self, v: Array, at: slice, power: int) -> Array:
        """What some outputs add to the parts, F(x), powers of ulps and noise, stacked."""
        xp, found = namespace(v), self._stacked(at)
        size, noise = xp.abs(v) ** power, self._floor(at)
        unit, ulps, _ = self._rounding(at, found)
        summed = [part @ v.T for part in found]
        rows = [v @ self._centre[at], size @ finite(unit) ** power, size @ ulps**power]
        rows.append(v**2 @ (noise + xp.zeros_like(ulps)) ** 2)
        return xp.concat([*summed, xp.stack(rows)])


def known(found: Estimate, target: float = 1e-4) -> bool:
    """Whether most outputs are known to `target`, in parts of their own derivative.

    An output whose derivative is zero cannot be known in parts of itself; it counts as known when
    its bar is small beside the other outputs' derivatives. What a kink adds to a bar no further
    step takes away.
    """
    if found.value.shape[0] == 0:
        return True
    xp = namespace(found.value)
    size = rms(found.value)
    if not size:
        return bool(xp.all(xp.isfinite(found.error)))
    scale = xp.abs(found.value) + 1e-3 * size
    error = found.error - found.kink
    wide = ~(error <= target * scale) & ~(error == 0)
    return float(xp.mean(xp.astype(wide, xp.float64))) < 0.25
