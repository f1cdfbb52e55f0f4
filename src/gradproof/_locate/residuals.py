"""Weighted residuals of a few rows: claimed minus measured along a tangent times weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from gradproof._data.space import Array, namespace
from gradproof._locate.decode import Residual
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional, evaluate, probes
from gradproof._measure.noise import FACTOR, FEW_ULPS

_PLAIN = 50.0  # gap, in parts of what a one-sided difference is off by, from which one will do
_SAFE = 8.0  # parts of a tangent may be bent more than the whole
BENT = 3.0  # likewise, of symmetric differences


@dataclass(frozen=True)
class WeightedResiduals:
    """Residuals of some rows along a tangent times weights."""

    map: DifferentiableMap  # the map
    first: directional.Measurement  # the measurement along the tangent
    at: Array  # the rows
    claimed: Callable[[Array], Array]  # direction -> what is claimed of the rows
    total: Array  # claimed along the whole tangent
    whole: Residual  # what is left of the residuals along it
    step: float  # of symmetric differences
    noise: Array  # what those are off by
    short: float | None  # step of one-sided differences, if these are used
    bar: Array  # what a residual is known to
    rounding: Array  # the part of it that does not grow with what is measured
    # Gaps of columns that were measured, in these rows: residuals are what is left.
    known: Mapping[int, Array] = field(default_factory=dict)

    def of(self, rows: list[int]) -> WeightedResiduals:
        """Some of the rows, by their positions."""
        xp = namespace(self.at)
        chosen = xp.asarray(rows)
        return replace(
            self,
            at=xp.take(self.at, chosen),
            claimed=lambda u: xp.take(self.claimed(u), chosen),
            total=xp.take(self.total, chosen),
            whole=self.whole.of(rows),
            noise=xp.take(self.noise, chosen),
            bar=xp.take(self.bar, chosen),
            rounding=xp.take(self.rounding, chosen),
            known={j: xp.take(gap, chosen) for j, gap in self.known.items()},
        )

    def ask(self, weights: Array) -> Residual:
        """Claimed minus measured, by one evaluation or by two."""
        u = self._representable(weights * self.first.direction)
        step, take = self.short or self.step, namespace(u).take
        plus = take(evaluate.value_beside(self.map, u, step), self.at)
        if self.short is None:
            minus, step = take(evaluate.value_beside(self.map, u, -step), self.at), 2 * step
        else:
            minus = take(evaluate.centre(self.map).value, self.at)
        measured = (plus - minus) / step
        left = self.claimed(u) - measured
        for j, gap in self.known.items():
            left = left - float(u[j]) * gap
        return Residual(left, self._bar(measured), measured)

    def _bar(self, measured: Array) -> Array:
        """Of a part of the tangent, which bends by about that part; rounding stays what it is."""
        xp = namespace(measured)
        size = xp.abs(xp.asarray(self.whole.measured))
        part = _SAFE * xp.abs(measured) / xp.where(size > 0, size, 1.0)
        part = xp.where((size > 0) & (part < 1), part, 1.0)
        return self.rounding + part * (self.bar - self.rounding)

    def _representable(self, u: Array) -> Array:
        """The direction in steps that few bits can follow: x + h u is then what is evaluated.

        In double precision its rounding is none beside the others'.
        """
        if self.map.resolution < directional.DOUBLE:
            return u
        xp, step = namespace(u), self.short or self.step
        # A coordinate that is moved may cross a power of two.
        grain = FEW_ULPS * self.map.resolution / step * probes.scales_of(self.map)
        return xp.round(u / grain) * grain


def weighted_residuals(
    map_: DifferentiableMap,
    first: directional.Measurement,
    at: Array,
    claimed: Callable[[Array], Array],
    known: Mapping[int, tuple[Array, Array]],
) -> WeightedResiduals:
    """Residuals of rows, by one-sided differences where their gaps are large enough for that.

    What these are off by is measured once, along the whole tangent; it may be small there by luck,
    so the rounding of F, which weighs more the shorter the step, is the least that is assumed.
    `known` are gaps of columns that were measured, in the rows, and what those are off by.
    """
    # Without evaluations: what was worked out of them is all that is read.
    xp, first = namespace(at), replace(first, ladder=None)
    exact = xp.take(first.estimate.value, at)
    total = claimed(first.direction)
    left, off = total - exact, xp.zeros_like(exact)
    for j, (column, bar) in known.items():
        left, off = left - float(first.direction[j]) * column, off + bar
    gap, unit = xp.abs(left), map_.resolution**0.5
    found = first.estimate.of(at)
    # A symmetric difference is off by as much as that of the whole tangent is, which is known.
    step, noise = float(xp.min(found.step)), BENT * found.step_error + off
    whole, gaps = Residual(left, noise, exact), {j: column for j, (column, _) in known.items()}
    rounding = FACTOR * found.noise
    bars = noise, rounding / step
    made = WeightedResiduals(map_, first, at, claimed, total, whole, step, noise, None, *bars, gaps)
    hopeless = ~(gap >= _PLAIN * _SAFE * unit * xp.abs(exact))
    if not evaluate.centre(map_).repeats or bool(xp.any(hopeless)):
        return made
    beside = evaluate.value_beside(map_, first.direction, unit)
    rise = xp.take(beside, at) - xp.take(evaluate.centre(map_).value, at)
    off = xp.abs(rise / unit - exact)
    bar = _SAFE * xp.maximum(off, xp.full_like(off, float(xp.mean(off))))
    rounding = 2**0.5 * rounding / unit
    bar = xp.maximum(bar, xp.maximum(noise, rounding))
    if not bool(xp.all(gap >= _PLAIN * bar)):
        return made
    whole = replace(whole, threshold=bar)
    return replace(made, short=unit, bar=bar, rounding=rounding, whole=whole)
