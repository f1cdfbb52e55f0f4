"""A ladder for a million outputs: three quarters of the memory."""

from __future__ import annotations

from gradproof._numerics.coarse import units
from gradproof._numerics.differences import Evidence, Ladder
from gradproof._numerics.packing import blocks, halved, put, unpacked
from gradproof._numerics.richardson import Estimate, of_parts
from gradproof._numerics.robust import finite
from gradproof._space import Array, namespace

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
