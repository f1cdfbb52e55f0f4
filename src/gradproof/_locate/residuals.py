"""Residuals of a few rows along weighed parts of one tangent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gradproof._data.space import Array, namespace
from gradproof._locate.decode import Residual
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional, evaluate, probes

_PLAIN = 50.0  # gap, in parts of what a one-sided difference is off by, from which one will do
_SHARP = 1000.0  # likewise, where a part of the gap is to be told from nothing again and again
_SAFE = 8.0  # parts of a tangent may be bent more than the whole
_BENT = 3.0  # likewise, of symmetric differences
_ROOM = 4.0  # units of a coordinate, that one may be moved by; it may cross a power of two
_NOISE = 3.55  # bar of a symmetric difference in units of the noise of one evaluation, over h


@dataclass(frozen=True)
class Masked:
    """Claimed minus measured of some rows, along a tangent times weights.

    Attributes:
        map: the map.
        first: the measurement along the tangent.
        at: the rows.
        claimed: direction -> what is claimed of the rows.
        total: along the whole tangent, claimed and measured.
        step: of symmetric differences.
        noise: of those.
        short: step of one-sided differences, if these are used.
        bar: what a residual is known to.
    """

    map: DifferentiableMap
    first: directional.Measurement
    at: Array
    claimed: Callable[[Array], Array]
    total: tuple[Array, Array]
    step: float
    noise: Array
    short: float | None
    bar: Array

    @property
    def whole(self) -> Residual:
        return Residual(self.total[0] - self.total[1], self.bar)

    def of(self, rows: Sequence[int]) -> Masked:
        """Some of the rows, by their positions."""
        xp = namespace(self.at)
        chosen = xp.asarray(list(rows))
        return replace(
            self,
            at=xp.take(self.at, chosen),
            claimed=lambda u: xp.take(self.claimed(u), chosen),
            total=(xp.take(self.total[0], chosen), xp.take(self.total[1], chosen)),
            noise=xp.take(self.noise, chosen),
            bar=xp.take(self.bar, chosen),
        )

    def sharp(self) -> Masked:
        """The same, by symmetric differences if the gaps do not stand far above the others."""
        whole = self.whole
        enough = bool((abs(whole.value) >= _SHARP * whole.threshold).all())
        return self if enough else replace(self, short=None, bar=self.noise)

    def residual(self, weights: Array) -> Residual:
        """Claimed minus measured, by one evaluation or two."""
        u = self._representable(weights * self.first.probe)
        return Residual(self.claimed(u) - self._quickly(u), self.bar)

    def _representable(self, u: Array) -> Array:
        """The direction in steps that few bits can follow: x + h u is then what is evaluated.

        In double precision its rounding is none beside the others', and a packed probe is exact,
        times one or zero.
        """
        if self.map.resolution < directional.DOUBLE:
            return u
        xp, step = namespace(u), self.short or self.step
        grain = _ROOM * self.map.resolution / step * probes.scales_of(self.map)
        return xp.round(u / grain) * grain

    def _quickly(self, u: Array) -> Array:
        if self.short is None:
            return self.measured(u)
        return _one_sided(self.map, u, self.short, self.at)

    def measured(self, u: Array) -> Array:
        """J u on the rows, by two evaluations."""
        steps = self.step, -self.step
        plus, minus = (
            namespace(u).take(evaluate.value_beside(self.map, u, step), self.at) for step in steps
        )
        return (plus - minus) / (2 * self.step)


def masked(
    map_: DifferentiableMap,
    first: directional.Measurement,
    at: Array,
    claimed: Callable[[Array], Array],
) -> Masked:
    """Residuals of the rows, by one-sided differences where their gaps are large enough for that.

    What these are off by is measured once, along the whole tangent; it may be small there by luck,
    so the rounding of F, which weighs more the shorter the step, is the least that is assumed.
    """
    xp = namespace(at)
    exact = xp.take(first.estimate.value, at)
    total = claimed(first.direction), exact
    gap, unit = xp.abs(total[0] - exact), map_.resolution**0.5
    step, noise = _best_step(first, at, gap)
    made = Masked(map_, first, at, claimed, total, step, noise, None, noise)
    hopeless = ~(gap >= _PLAIN * _SAFE * unit * xp.abs(exact))
    if not evaluate.centre(map_).repeats or bool(xp.any(hopeless)):
        return made
    off = xp.abs(_one_sided(map_, first.direction, unit, at) - exact)
    bar = _SAFE * xp.maximum(off, xp.full_like(off, float(xp.mean(off))))
    rounding = 2**0.5 * _NOISE / unit * xp.take(first.estimate.noise, at)
    bar = xp.maximum(bar, xp.maximum(noise, rounding))
    if not bool(xp.all(gap >= _PLAIN * bar)):
        return made
    return replace(made, short=unit, bar=bar)


def _best_step(first: directional.Measurement, at: Array, gap: Array) -> tuple[float, Array]:
    """The step that tells the gaps of most rows, and what a symmetric difference is off by there.

    By as much as that of the whole tangent is, which is known, and by its rounding.
    """
    xp, found = namespace(at), first.estimate.of(at)
    step, bar = float(xp.min(found.step)), _BENT * found.step_error
    if first.ladder is None:
        return step, bar
    best = float("inf")
    rungs = [first.ladder.rungs_of(int(i)) for i in at]
    for k, (size, _, _) in enumerate(rungs[0]):
        sides = xp.asarray([row[k][1:] for row in rungs])
        off = xp.abs((sides[:, 0] - sides[:, 1]) / (2 * size) - found.value)
        off = xp.maximum(off, xp.full_like(off, float(xp.mean(off))))
        here = _BENT * off + found.error + _NOISE / size * found.noise
        told = here < gap
        part = float(xp.sum(xp.where(told, here / xp.where(told, gap, 1.0), 1.0)))
        if part < best:
            best, step, bar = part, size, here
    return step, bar


def _one_sided(map_: DifferentiableMap, u: Array, step: float, at: Array) -> Array:
    xp = namespace(u)
    value = xp.take(evaluate.value_beside(map_, u, step), at)
    return (value - xp.take(evaluate.centre(map_).value, at)) / step
