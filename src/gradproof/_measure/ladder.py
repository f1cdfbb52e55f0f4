"""Directional derivatives with an error bar: one geometric ladder of steps.

F(x +- h_k u) is evaluated at every rung h_k; each output, or each sum over outputs, then chooses
its own rung and Richardson level (`richardson`). While the bars are too wide the ladder grows up,
down, or in between.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

from gradproof._data.settings import DOUBLE
from gradproof._data.space import Array, namespace
from gradproof._data.vectors import BLOCK, blocks, finite, halved, largest, put, rms, unpacked
from gradproof._measure.one_sided import Kinks, classify
from gradproof._measure.richardson import Estimate, estimate, of_parts, shown, units
from gradproof._measure.steps import DOWN, UP, Plan

_LOOK = 1 << 14  # outputs from which the need of more rungs is judged

# Steps, (F(x), F(x + h u), F(x - h u)) and rounding, as `estimate` and `classify` take them.
Evidence = tuple[list[float], tuple[Array, Array, Array], tuple[Array, Array, Array | float]]


# F at both ends of each step.
Rungs = Mapping[float, tuple[Array, Array]]


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
        rungs: evaluations made before, where some are.
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
        rungs: Rungs | None = None,
    ) -> None:
        self._value, self._point, self._direction = value, point, direction
        self._centre, self._resolution, self._plan = centre, resolution, plan
        self._noise = noise
        self._rungs: dict[float, tuple[Array, Array]] = dict(rungs or {})
        for step in plan.steps():
            if step not in self._rungs:
                self._climb(step)

    def _climb(self, step: float) -> None:
        plus = self._value(self._point + step * self._direction)
        self._rungs[step] = (plus, self._value(self._point - step * self._direction))

    @property
    def steps(self) -> list[float]:
        return sorted(self._rungs, reverse=True)

    def solve(self, target: float = 1e-4, extra: int = 3, *, keep: bool = True) -> Estimate:
        """Estimate, adding up to `extra` rungs while the median bar is above `target`.

        Args:
            target: error bar wanted, in parts of the derivative.
            extra: rungs to add at most.
            keep: False lets the result overwrite the evaluations, which are then gone: six
                vectors less at the peak.
        """
        size = self._centre.shape[0]
        every = slice(None, None, max(1, size // _LOOK))
        found = self._of_outputs(every)
        for _ in range(extra):
            if known(found, target):
                break
            step = self._next_step(found)
            if step is None:
                break
            self._climb(step)
            found = self._of_outputs(every)
        if size < 2 * _LOOK:  # the sample was everything
            return found
        return self.estimate() if keep else self._consume()

    def sharpen(self, outputs: Array, target: float = 1e-6, extra: int = 3) -> Estimate:
        """Estimate of all outputs after up to `extra` rungs chosen for a few of them."""
        found = self.estimate()
        for _ in range(extra):
            part = found.of(outputs)
            step = None if known(part, target) else self._next_step(part)
            if step is None:
                break
            self._climb(step)
            found = self.estimate()
        return found

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
        if middle not in self._rungs:
            return middle
        up = steps[0] * UP
        return up if at == 0 and up <= self._plan.largest else None

    def refine(self, rungs: int) -> None:
        """Add so many rungs, in the widest gaps between those there are."""
        for _ in range(rungs):
            steps = self.steps
            wide = max(range(len(steps) - 1), key=lambda k: steps[k] / steps[k + 1])
            middle = 2.0 ** round(math.log2(steps[wide] * steps[wide + 1]) / 2)
            if middle not in self._rungs:
                self._climb(middle)

    def rungs_of(self, output: int) -> list[tuple[float, float, float]]:
        """Each step, largest first, with F(x + h u) and F(x - h u) of one output."""
        pairs = ((step, *self._rungs[step]) for step in self.steps)
        return [(step, float(plus[output]), float(minus[output])) for step, plus, minus in pairs]

    def varies(self) -> bool:
        """Whether any output differs from F(x), by more than rounding, where steps are large."""
        return any(map(self._block_varies, blocks(self._centre)))

    def _block_varies(self, which: slice) -> bool:
        xp = namespace(self._centre)
        change, centre = self._change(which), xp.abs(self._centre[which])
        return bool(xp.any(change > 8 * self._resolution * centre + self._floor(which)))

    def _change(self, which: slice) -> Array:
        """By how much the coarsest rung moves some outputs."""
        xp, centre = namespace(self._centre), self._centre[which]
        plus, minus = (side[which] for side in self._rungs[self.steps[0]])
        return xp.maximum(xp.abs(plus - centre), xp.abs(minus - centre))

    def kinks(self) -> Kinks:
        """What every output is at the point, smooth or not, at no evaluation."""
        return classify(*self._evidence(slice(None)))

    def estimate(self) -> Estimate:
        """Derivative of every output, at no evaluation."""
        size = self._centre.shape[0]
        if size <= BLOCK:
            return self._of_outputs(slice(None))
        xp = namespace(self._centre)
        return self._fill([xp.empty_like(self._centre) for _ in Estimate.__dataclass_fields__])

    def _consume(self) -> Estimate:
        """The estimate, written over the evaluations it was made from."""
        xp, count = namespace(self._centre), len(Estimate.__dataclass_fields__)
        held = [side for step in self.steps for side in self._rungs[step]][:count]
        held += [xp.empty_like(self._centre) for _ in range(count - len(held))]
        found = self._fill(held)
        self._rungs.clear()
        return found

    def _fill(self, arrays: list[Array]) -> Estimate:
        """Estimate block by block into the arrays, one per field."""
        names = list(Estimate.__dataclass_fields__)
        for block in blocks(self._centre):
            found = self._of_outputs(block)
            for name, array in zip(names, arrays, strict=True):
                array[block] = getattr(found, name)
        return Estimate(**dict(zip(names, arrays, strict=True)))

    def _of_outputs(self, which: slice) -> Estimate:
        return estimate(*self._evidence(which), self._resolution)

    def _evidence(self, which: slice) -> Evidence:
        """Steps, values and rounding of some outputs."""
        xp, steps = namespace(self._centre), self.steps
        plus = xp.stack([self._rungs[step][0][which] for step in steps])
        minus = xp.stack([self._rungs[step][1][which] for step in steps])
        rounding = self._rounding(which, self._sizes(plus, minus))
        return steps, (self._centre[which], plus, minus), rounding

    def _rounding(self, which: slice, sizes: Array) -> tuple[Array, Array, Array | float]:
        """Unit in the last place of F(x) and of the largest F, and the noise of repetition."""
        unit = 2 * self._resolution * namespace(sizes).abs(self._centre[which])
        return unit, units(self._resolution, sizes), self._floor(which)

    def _floor(self, which: slice) -> Array | float:
        return self._noise if isinstance(self._noise, float) else self._noise[which]

    def _sizes(self, plus: Array, minus: Array) -> Array:
        """Size of the largest numbers that an output's rounding may come from."""
        return shown(largest(plus, minus), self._direction, self._resolution)

    def of_functionals(
        self, functionals: Array, outputs: slice = slice(None), *, signs: bool = False
    ) -> Estimate:
        """Derivative of every V.F, rows V (k, m) over some outputs, at no evaluation.

        The sum of the outputs' ulp bounds a functional's: roundings may all be of one sign. Where
        the `signs` of V were drawn, and nothing that F was evaluated at follows them, the root of
        the sum of their squares does, whatever the roundings are (Hoeffding 1963).
        """
        xp, steps = namespace(self._centre), self.steps
        centre = self._centre[outputs]
        size = 2 * self._resolution * xp.abs(functionals)
        total = _root if signs else operator.matmul
        sides = [[functionals @ side[outputs] for side in self._rungs[step]] for step in steps]
        ends = [self._rungs[step][0][outputs] for step in (steps[0], steps[-1])]
        if self._resolution > DOUBLE:
            both = xp.stack(ends)
            ends = [self._sizes(both, both)] * 2
        least = total(xp.abs(functionals), units(self._resolution, xp.zeros_like(centre)))
        ulps = [total(size, xp.abs(finite(values))) + least for values in ends]
        floor: Array | float = 0.0
        if not isinstance(self._noise, float):
            floor = xp.sqrt(xp.sum((functionals * self._noise[outputs]) ** 2, axis=1))
        return estimate(
            steps,
            (
                functionals @ centre,
                xp.stack([plus for plus, _ in sides]),
                xp.stack([minus for _, minus in sides]),
            ),
            (total(size, xp.abs(finite(centre))), xp.maximum(*ulps), floor),
            self._resolution,
        )


def _root(sizes: Array, values: Array) -> Array:
    """The root of the sum of the squares of what a product adds up."""
    return namespace(values).sqrt((sizes * sizes) @ (values * values))


def known(found: Estimate, target: float = 1e-4) -> bool:
    """Whether most outputs are known to `target`, in parts of their own derivative.

    An output whose derivative is zero cannot be known in parts of itself; it counts as known when
    its bar is small beside the other outputs' derivatives.
    """
    if found.value.shape[0] == 0:
        return True
    xp = namespace(found.value)
    size = rms(found.value)
    if not size:
        return bool(xp.all(xp.isfinite(found.error)))
    scale = xp.abs(found.value) + 1e-3 * size
    wide = ~(found.error <= target * scale) & ~(found.error == 0)
    return float(xp.mean(xp.astype(wide, xp.float64))) < 0.25


# A ladder for a million outputs: three quarters of the memory.


_SUMMED = 1 << 16  # outputs of functionals added up at a time


class LeanLadder(Ladder):
    """A ladder that keeps the odd part d of every rung and, to 24 bits, the even part e.

    In double precision only. The even part tells noise and kinks, of which three digits are
    plenty; the odd part is the derivative, and its noise, and stays as it is. What `kinks` reads
    is not kept. The direction may be packed.
    """

    def _climb(self, step: float) -> None:
        plus, minus = (self._value(self._moved(way * step)) for way in (1, -1))
        for block in blocks(plus):
            right, left = plus[block], minus[block]
            odd, even = right - left, right + left
            odd *= 0.5
            even *= 0.5
            even -= self._centre[block]
            plus[block], minus[block] = odd, even
        self._rungs[step] = (plus, halved(minus))

    def _moved(self, step: float) -> Array:
        """The point moved by `step`, in memory of its own: whoever evaluates may write there."""
        moved = step * unpacked(self._direction)
        moved += self._point
        return moved

    def _change(self, which: slice) -> Array:
        odd, even = self._rungs[self.steps[0]]
        xp = namespace(odd)
        return xp.abs(odd[which]) + xp.abs(unpacked(even[which]))

    def _of_outputs(self, which: slice) -> Estimate:
        xp, steps, centre = namespace(self._centre), self.steps, self._centre[which]
        odd = xp.stack([self._rungs[step][0][which] for step in steps])
        even = xp.stack([unpacked(self._rungs[step][1][which]) for step in steps])
        # The larger of |F(x + h u)| and |F(x - h u)| is |F(x) + e| + |d|.
        ends = [finite(xp.abs(centre + even[k, :]) + xp.abs(odd[k, :])) for k in (0, -1)]
        rounding = self._rounding(which, xp.maximum(*ends))
        return of_parts(steps, (centre, odd, even), rounding, self._resolution)

    def _fill(self, arrays: list[Array]) -> Estimate:
        """Everything but the value to 24 bits, where the exponents fit: three vectors less."""
        value, *others = Estimate.__dataclass_fields__
        xp, size = namespace(self._centre), self._centre.shape[0]
        short = {name: xp.empty(size, dtype=xp.float32) for name in others}
        for block in blocks(self._centre):
            found = self._of_outputs(block)
            arrays[0][block] = found.value
            for name in others:
                new = getattr(found, name)
                if short[name].dtype == xp.float32 and not put(short[name], block, new):
                    short[name] = unpacked(short[name])
                short[name][block] = new
        return Estimate(**{value: arrays[0]}, **short)

    def rungs_of(self, output: int) -> list[tuple[float, float, float]]:
        middle, found = float(self._centre[output]), []
        for step in self.steps:
            odd, even = (float(part[output]) for part in self._rungs[step])
            found.append((step, middle + even + odd, middle + even - odd))
        return found

    def _evidence(self, which: slice) -> Evidence:
        """Made again from the parts; the last digit of each value is lost."""
        xp, steps, centre = namespace(self._centre), self.steps, self._centre[which]
        middle = [centre + unpacked(self._rungs[step][1][which]) for step in steps]
        odd = [self._rungs[step][0][which] for step in steps]
        plus = xp.stack([m + d for m, d in zip(middle, odd, strict=True)])
        minus = xp.stack([m - d for m, d in zip(middle, odd, strict=True)])
        return steps, (centre, plus, minus), self._rounding(which, self._sizes(plus, minus))

    def of_functionals(
        self,
        functionals: Array,
        outputs: slice = slice(None),
        *,
        signs: bool = False,  # noqa: ARG002  # double precision has room for the sum of all
    ) -> Estimate:
        xp, first = namespace(self._centre), outputs.start or 0
        total = None
        for block in blocks(functionals, _SUMMED):
            at = slice(first + block.start, first + block.stop)
            terms = self._terms(functionals[:, block], at)
            total = terms if total is None else total + terms
        if total is None:
            total = xp.zeros((2 * len(self.steps) + 4, functionals.shape[0]))
        count = len(self.steps)
        odd, even = total[:count, :], total[count : 2 * count, :]
        centre, ulp, ulps, squares = (total[2 * count + k, :] for k in range(4))
        floor = 0.0 if isinstance(self._noise, float) else xp.sqrt(squares)
        return of_parts(self.steps, (centre, odd, even), (ulp, ulps, floor), self._resolution)

    def _terms(self, v: Array, at: slice) -> Array:
        """What some outputs add to the parts, F(x), ulps and noise of functionals, stacked."""
        xp, centre = namespace(v), self._centre[at]
        rungs = [tuple(unpacked(part[at]) for part in self._rungs[step]) for step in self.steps]
        size = xp.abs(v)
        unit = 2 * self._resolution
        end = finite(xp.abs(centre + rungs[0][1]) + xp.abs(rungs[0][0]))
        least = units(self._resolution, xp.zeros_like(centre))
        noise = 0.0 if isinstance(self._noise, float) else self._noise[at] ** 2
        parts = [v @ rung[kind] for kind in (0, 1) for rung in rungs]
        parts += [v @ centre, size @ (unit * finite(xp.abs(centre)))]
        parts += [size @ (unit * end + least), v**2 @ (xp.zeros_like(centre) + noise)]
        return xp.stack(parts)
