"""What the checks share at one point of one map, each quantity computed on first use."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial

import numpy as np

from gradproof._compare.claims import Mode
from gradproof._compare.tolerances import root_mean_square
from gradproof._data.formats import DOUBLE, FORMATS
from gradproof._data.settings import RunSettings
from gradproof._data.space import Values
from gradproof._maps.contract import DifferentiableMap
from gradproof._numdiff.probes import (
    constant_cotangent,
    random_cotangent,
    random_tangent,
    round_to_formats,
)
from gradproof._numdiff.slopes import Slopes, slopes_along
from gradproof._numdiff.steps import StepTables, coordinate_scales, step_tables
from gradproof._numdiff.values import FunctionValues

_COARSE = 2.0**-40  # unit round-off of the runs that show the rounding of a derivative
_RUNS = 4
_HONEST = 16.0  # of the largest of so few runs: another one may have a heavy tail
_ROUNDINGS = 64.0  # of the largest of so few factors


class Measurements:
    """Values of F, claimed products and slopes of a map at its point.

    Every quantity is computed when it is first asked for and then kept. No check writes here, and
    nothing here is a verdict, a flag or a callback. The arrays are shared: do not write into them.

    Attributes:
        map: the function at its point.
        settings: of the run.
        claimed_unit: unit round-off of what the map claims, where it may be larger than that of F.
        reference: makes the map of the user's reference in double precision, or of a derivative
            that of the reference; None where the user gave none.
    """

    def __init__(
        self,
        map_: DifferentiableMap,
        settings: RunSettings,
        claimed_unit: float = 0.0,
        reference: Callable[[], DifferentiableMap] | None = None,
    ) -> None:
        self.map, self.settings, self.claimed_unit = map_, settings, claimed_unit
        if reference is None and settings.reference is not None:
            reference = partial(map_.map_in_double, settings.reference)
        self.reference = reference
        self._derivatives: dict[Mode, Measurements] = {}

    @cached_property
    def unit(self) -> float:
        """Unit round-off of the coarsest dtype, or of the arithmetic that F is known to use."""
        slots = (*self.map.domain.slots, *self.map.codomain.slots)
        return max([self.map.resolution, *(slot.grain.unit for slot in slots if slot.size)])

    @property
    def arithmetic_unit(self) -> float:
        """Unit round-off of claims: of the dtypes, of what values of F show, or `claimed_unit`."""
        return max(self.unit, self.function.coarsest_unit, self.claimed_unit)

    @property
    def is_double(self) -> bool:
        """Whether all arrays are in double precision."""
        return self.unit < DOUBLE

    @cached_property
    def function(self) -> FunctionValues:
        """Values of F at the point and around it."""
        return FunctionValues(self.map)

    @cached_property
    def scales(self) -> Values:
        """A power of two near the size of each input coordinate, (n,)."""
        return coordinate_scales(self.map.domain, self.map.point)

    @cached_property
    def tangent(self) -> Values:
        """A random direction, in units of the scales, (n,)."""
        return random_tangent(self.map.domain, self.scales, self.settings.seed, 0)

    @cached_property
    def cotangent(self) -> Values:
        """A random cotangent, of the size of 1, (m,)."""
        return random_cotangent(self.map.codomain, self.settings.seed, 0)

    @cached_property
    def gradient(self) -> Values:
        """J^T v of the cotangent as the backward claims it, (n,)."""
        return np.asarray(self.map.vjp(self.cotangent))

    @cached_property
    def pushforward(self) -> Values:
        """J u of the tangent as forward mode claims it, (m,)."""
        return np.asarray(self.map.jvp(self.tangent))

    @cached_property
    def constant_cotangent(self) -> Values:
        """The cotangent that is constant on each output, 1 on the first, (m,)."""
        return constant_cotangent(self.map.codomain, self.settings.seed)

    @cached_property
    def constant_gradient(self) -> Values:
        """J^T of the constant cotangent, (n,): the gradient of a sum."""
        return np.asarray(self.map.vjp(self.constant_cotangent))

    @cached_property
    def constant_tangent(self) -> Values:
        """The tangent of ones, (n,)."""
        return np.ones(self.map.domain.size)

    @cached_property
    def constant_pushforward(self) -> Values:
        """J of the constant tangent, (m,)."""
        return np.asarray(self.map.jvp(self.constant_tangent))

    @property
    def steps(self) -> StepTables:
        """The steps by which F is moved."""
        unit = max(self.unit, self.function.coarsest_unit)
        return step_tables(unit, self.settings.largest_step)

    @cached_property
    def slopes(self) -> Slopes:
        """Measured slopes of F along the tangent, (m,)."""
        return slopes_along(self.function, self.tangent, self.steps)

    @cached_property
    def largest_value(self) -> float:
        """The largest finite |F| at the point; 0.0 without any."""
        value = np.abs(self.function.centre)
        return float(np.max(value, initial=0.0, where=np.isfinite(value)))

    @cached_property
    def gradient_rounding(self) -> Values:
        """How far rounding moves J^T v of the cotangent, (n,): 16 times what four runs show."""
        return self.rounding_of_product(self.cotangent, self.gradient, forward=False)

    @cached_property
    def pushforward_rounding(self) -> Values:
        """How far rounding moves J u of the tangent, (m,): 16 times what four runs show."""
        return self.rounding_of_product(self.tangent, self.pushforward, forward=True)

    def rounding_of_product(self, probe: Values, known: Values, *, forward: bool) -> Values:
        """How far rounding moves the product of a probe, whose claim is known: J^T v, or J u.

        It is the difference of runs in fewer bits, scaled back, as far as there are such runs.

        Every operation is rounded at random. Below double precision it is the same function on
        float64 arrays that is rounded so. The probe is multiplied by factors of almost 1 as well
        (`rounding_by_factors`): beside a slope that is infinite, as of a distance that rounding
        left, rounding falls by the root of its unit, and runs in fewer bits that are scaled back
        show too little. In few bits the inputs are moved by a rounding, too: a kernel that casts
        shows nothing in such runs.
        """
        ask = self.map.jvp if forward else self.map.vjp
        by_runs = self._rounding_by_runs(probe, known, forward=forward)
        # Asked again: a claim that another call has changed since is not rounded by that.
        known = np.asarray(ask(probe))
        unit = self.unit if by_runs is None else self.arithmetic_unit
        found = rounding_by_factors(ask, probe, known, unit)
        if by_runs is None and self.is_double:  # a claim that moves by more computes in fewer bits
            return found
        if self.arithmetic_unit >= DOUBLE:  # a kernel may compute in few bits on float64 arrays too
            found = np.maximum(found, self._rounding_by_moves(probe, known, forward=forward))
        return self._pooled(
            found if by_runs is None else np.maximum(found, by_runs), forward=forward
        )

    def _rounding_by_runs(self, probe: Values, known: Values, *, forward: bool) -> Values | None:
        """How far a product moves where every operation is rounded; None where none can be."""
        unit, tiny = (_COARSE, 0.0) if self.is_double else (max(self.unit, _COARSE), self._tiny)
        try:
            exact = self.double.map
            if not self.is_double:
                known = exact.jvp(probe) if forward else exact.vjp(probe)
            worst = np.zeros_like(known)
            for seed in range(_RUNS):
                run = exact.rounded_map(unit, tiny, seed)
                again = np.asarray(run.jvp(probe) if forward else run.vjp(probe), float)
                worst = np.fmax(worst, np.nan_to_num(np.abs(again - known), posinf=0.0))
        except Exception:  # Unsupported, or a user's function may not run in rounded arithmetic
            return None
        return _HONEST * max(self.unit, 2.0**-53) / unit * worst

    def _rounding_by_moves(self, probe: Values, known: Values, *, forward: bool) -> Values:
        """How far a claim moves where each input moves by a rounding, which rounds it anew."""
        worst, step = np.zeros_like(known), 2 * self.arithmetic_unit
        for number in range(_RUNS):
            signs = np.sign(random_tangent(self.map.domain, self.scales, number, number))
            x = round_to_formats(self.map.domain, self.map.point * (1 + step * signs))
            try:
                near = self.map.map_at(x)
                again = np.asarray(near.jvp(probe) if forward else near.vjp(probe), float)
            except Exception:  # Unsupported, or the user's code may raise at another point
                break
            worst = np.fmax(worst, np.nan_to_num(np.abs(again - known), posinf=0.0))
        return _HONEST * worst

    def _pooled(self, rounding: Values, *, forward: bool) -> Values:
        """Roundings, none below what is usual in its array: few runs of one entry may be exact."""
        space = self.map.codomain if forward else self.map.domain
        for position in range(len(space.slots)):
            part = rounding[space.span(position)]
            part[:] = np.maximum(part, root_mean_square(part))
        return rounding

    @property
    def _tiny(self) -> float:
        """The smallest positive number of the coarsest dtype."""
        slots = [slot for slot in (*self.map.domain.slots, *self.map.codomain.slots) if slot.size]
        return max((slot.grain.unit, slot.grain.tiny) for slot in slots)[1]

    @cached_property
    def randomness(self) -> str:
        """That F is random, in words: two runs differ by more than rounding. "" where it is not."""
        function = self.function
        if function.repeats:
            return ""
        size = np.abs(np.nan_to_num(function.centre))
        loud = function.jitter > math.sqrt(self.unit) * np.maximum(size, self.largest_value / 16)
        if not loud.any():
            return ""
        worst = float(function.jitter.max())
        return (
            f"the function returns another value at every call (it varies by {worst:.1g}): fix the "
            "random state inside it, or switch off dropout and the like"
        )

    def derivative(self, mode: Mode) -> Measurements:
        """Measurements of what a mode claims, as a map: (x, v) -> J(x)^T v, or (x, u) -> J(x) u.

        The point of this map is the point and the cotangent, or the tangent. Below double precision
        the claims are those of the same function on float64 arrays.

        Raises:
            Unsupported: that mode cannot be differentiated, or there is no such function.
        """
        exact = self.double
        if mode not in exact._derivatives:
            exact._derivatives[mode] = exact._derivative(mode)
        return exact._derivatives[mode]

    def _derivative(self, mode: Mode) -> Measurements:
        reference = None
        if mode == "backward":
            v = round_to_formats(self.map.codomain, self.cotangent)
            derivative = self.map.derivative(v)
            if (own := self.reference) is not None:
                reference = lambda: own().derivative(v)  # noqa: E731
        else:
            u = round_to_formats(self.map.domain, self.tangent)
            derivative = self.map.forward_derivative(u)
        derivative.derived = True
        return Measurements(derivative, self.settings, self.claimed_unit, reference)

    @cached_property
    def double(self) -> Measurements:
        """Measurements of the function on float64 arrays; these, if its arrays are such already.

        Raises:
            Unsupported: the function does not run there, or has another value there.
        """
        if self.is_double:
            return self
        twin = self.map.map_in_double()
        twin.derived = self.map.derived
        return Measurements(twin, self.settings.with_precision(twin.resolution))

    @cached_property
    def double_with_rounded_claims(self) -> Measurements:
        """Measurements like `double`, of claims that may be rounded as in single precision.

        A kernel for few bits keeps sums, and what it saves for its backward, in float32, whatever
        its arrays are. That is no mistake.
        """
        exact = self.double
        return Measurements(exact.map, exact.settings, FORMATS["float32"].unit, exact.reference)


def rounding_by_factors(
    ask: Callable[[Values], Values], probe: Values, known: Values, unit: float
) -> Values:
    """How far a claim is from linear in factors of almost 1: its rounding, in any precision.

    A claim that stays what it is where its probe moves, or goes with its square, is not linear for
    another reason: it ignores the probe, or is clamped, or is multiplied by it twice. So the
    smallest deviation from any of these is its rounding.

    Args:
        ask: the product with the Jacobian that is claimed of a probe.
        probe: the probe.
        known: what is claimed of it.
        unit: unit round-off of the map.
    """
    worst = np.zeros_like(known)
    for times in (-1, 3, -5, 7):
        factor = 1.0 + 8 * times * unit
        again = ask(factor * probe)
        off = np.min([np.abs(again / factor**power - known) for power in (0, 1, 2)], axis=0)
        worst = np.fmax(worst, np.nan_to_num(off, posinf=0.0))
    return _ROUNDINGS * worst
