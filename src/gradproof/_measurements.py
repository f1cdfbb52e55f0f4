"""What the checks share at one point of one map, each quantity computed on first use.

`Measurements` has values and slopes of F; `ClaimedProducts` what one mode of differentiation
claims, and how far rounding moves it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from gradproof._data.formats import DOUBLE, FORMATS, ROUNDABLE
from gradproof._data.settings import RunSettings
from gradproof._data.space import Space, Values, finite_values, root_mean_square
from gradproof._maps.contract import DifferentiableMap, Mode, Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._numdiff.probes import (
    constant_cotangent,
    random_cotangent,
    random_tangent,
    round_to_formats,
)
from gradproof._numdiff.slopes import Slopes, slopes_along
from gradproof._numdiff.steps import StepTables, coordinate_scales, step_tables
from gradproof._numdiff.values import FunctionValues
from gradproof.errors import UsageError

_RUNS = 4
_HONEST = 16.0  # of the largest of so few runs: another one may have a heavy tail
_PART_OF_NOISE = 2.0**-14  # of the rounding of F in single precision: a part of F may be small
_AT_ONCE = 2.0**-38  # of a scale; numbers in single precision lie 2^-23 apart
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
        without_casts: of a function that is judged as one of fewer bits than its arrays have: the
            map in double precision without its casts to these.
    """

    def __init__(
        self,
        map_: DifferentiableMap,
        settings: RunSettings,
        claimed_unit: float = 0.0,
        reference: Callable[[], DifferentiableMap] | None = None,
        without_casts: DifferentiableMap | None = None,
    ) -> None:
        self.map, self.settings, self.claimed_unit = map_, settings, claimed_unit
        self.without_casts = without_casts
        if reference is None and settings.reference is not None:
            reference = partial(map_.map_in_double, settings.reference)
        self.reference = reference
        self._derivatives: dict[Mode, Measurements] = {}

    @cached_property
    def unit(self) -> float:
        """Unit round-off of the coarsest dtype, or of the arithmetic that F is known to use."""
        slots = (*self.map.domain.slots, *self.map.codomain.slots)
        known = self.map.resolution, self.without_casts.cast_unit if self.without_casts else 0.0
        return max([*known, *(slot.grain.unit for slot in slots if slot.size)])

    @property
    def value_unit(self) -> float:
        """Unit round-off of F: of the dtypes, or of the format that all of its values have."""
        return max(self.unit, self.function.coarsest_unit)

    @cached_property
    def arithmetic_unit(self) -> float:
        """Unit round-off of claims: of the dtypes, of what values of F show, or `claimed_unit`.

        In double precision noise like that of single precision shows a part of F in that; unless F
        moves as claimed over steps that no number in single precision notices.
        """
        unit = max(self.value_unit, self.claimed_unit)
        size, single = np.abs(self.function.centre), FORMATS["float32"].unit
        if unit >= DOUBLE or not size.size:
            return unit
        is_noisy = self.slopes.noise > _PART_OF_NOISE * single * np.maximum(size, size.mean())
        if not is_noisy.any() or self._moves_as_claimed_at_once():
            return unit
        return single

    def _moves_as_claimed_at_once(self) -> bool:
        """Whether v.F has the claimed slope over a very short step, to a part in a hundred.

        A part of F in single precision stands still there, but for a few numbers, while its slope
        is claimed. Noise of F may also come from terms that cancel, or from a function that varies
        much over the usual steps, as of an input that is large beside what it is compared with.
        """
        backward, u = self.backward, self.tangent
        try:
            with users_errors():
                claims = [(backward.probe, backward.product)]
                claims.append((backward.constant_probe, backward.constant_product))
        except (Unsupported, UsageError, UsersError):  # which its own check reports
            return False
        point, move = self.map.point, _AT_ONCE * u
        ahead, behind = (self.function.value_at(x) for x in (point + move, point - move))
        slopes = (ahead - behind) / (2 * _AT_ONCE)
        return any(abs(v @ slopes - g @ u) <= 1e-2 * abs(g @ u) for v, g in claims)

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
    def backward(self) -> ClaimedProducts:
        """What the backward claims."""
        return ClaimedProducts(self, "backward")

    @cached_property
    def forward(self) -> ClaimedProducts:
        """What forward mode claims."""
        return ClaimedProducts(self, "forward")

    @property
    def modes(self) -> list[ClaimedProducts]:
        """What the modes claim whose checks are asked for; the backward where neither is."""
        checks = self.settings.checks
        if "forward" not in checks:
            return [self.backward]
        return [self.backward, self.forward] if "backward" in checks else [self.forward]

    @property
    def gradient(self) -> Values:
        """J^T v of the cotangent as the backward claims it, (n,)."""
        return self.backward.product

    @cached_property
    def transposed_products(self) -> tuple[Values, Values]:
        """(J u, J^T v) of the tangent and the cotangent, both by reverse mode."""
        return self.map.transposed_vjp(self.tangent, self.cotangent)

    @property
    def steps(self) -> StepTables:
        """The steps by which F is moved."""
        return step_tables(self.value_unit, self.settings.largest_step)

    @cached_property
    def slopes(self) -> Slopes:
        """Measured slopes of F along the tangent, (m,)."""
        return slopes_along(self.function, self.tangent, self.steps)

    @cached_property
    def largest_value(self) -> float:
        """The largest finite |F| at the point; 0.0 without any."""
        return float(finite_values(np.abs(self.function.centre)).max(initial=0.0))

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
        found, space = derivative.codomain.slots, self.map.codomain
        word, of = ("tangent", space) if mode == "forward" else ("gradient", self.map.domain)
        if len(found) == len(of.slots):  # else some have none, and which is not known
            pairs = zip(found, of.slots, strict=True)
            named = [replace(slot, name=f"{word} of {source.name}") for slot, source in pairs]
            derivative.codomain = Space(tuple(named))
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
        twin = self.without_casts or self.map.map_in_double()
        twin.derived = self.map.derived
        return Measurements(twin, self.settings.with_precision(twin.resolution))

    @cached_property
    def in_few_bits(self) -> Measurements | None:
        """Measurements that judge a function which casts its arrays as one of fewer bits.

        None where it casts to none; or where its value without casts is the same, or is another one
        by more than rounding, as where it draws other numbers.
        """
        try:
            found = self.map.map_without_casts() if self.is_double else self.double.map
        except Unsupported:
            return None
        if found is None or found.cast_unit <= self.unit:
            return None
        here, unit = self.function.centre, found.cast_unit
        off = np.abs(np.asarray(found.kept_value(), float) - here)
        size = np.maximum(np.abs(here), self.largest_value)
        is_seen = bool((off > _PART_OF_NOISE * unit * size).any())
        if not is_seen or not (off <= math.sqrt(unit) * size).all():
            return None
        settings = self.settings.with_precision(unit)
        return Measurements(self.map, settings, self.claimed_unit, self.reference, found)

    @cached_property
    def users_reference(self) -> Measurements:
        """Measurements of the user's reference in double precision.

        Raises:
            Unsupported, or what the user's code raises: it does not run there.
        """
        assert self.reference is not None
        map_ = self.reference()
        map_.derived = self.map.derived
        return Measurements(map_, self.settings.with_precision(map_.resolution))

    @cached_property
    def double_with_rounded_claims(self) -> Measurements:
        """Measurements like `double`, of claims that may be rounded as in single precision.

        A kernel for few bits keeps sums, and what it saves for its backward, in float32, whatever
        its arrays are. That is no mistake.
        """
        exact = self.double
        return Measurements(exact.map, exact.settings, FORMATS["float32"].unit, exact.reference)


class ClaimedProducts:
    """Products with the Jacobian as one mode claims them: J^T v of cotangents, or J u of tangents.

    Attributes:
        measurements: of the map.
        is_forward: whether it is forward mode; else the backward.
        mode_name: "the backward" or "forward mode".
        probe_name: "cotangent" or "tangent".
        product_name: "gradient" or "tangent".
        probe_space: of the probes, size k.
        space: of the products.
    """

    def __init__(self, measurements: Measurements, mode: Mode) -> None:
        map_ = measurements.map
        self.measurements, self.is_forward = measurements, mode == "forward"
        if self.is_forward:
            names = "forward mode", "tangent", "tangent"
            self.probe_space, self.space = map_.domain, map_.codomain
        else:
            names = "the backward", "cotangent", "gradient"
            self.probe_space, self.space = map_.codomain, map_.domain
        self.mode_name, self.probe_name, self.product_name = names

    def ask(self, probe: Values, map_: DifferentiableMap | None = None) -> Values:
        """The product of a probe; of another map of the same function where one is given."""
        map_ = self.measurements.map if map_ is None else map_
        return np.asarray(map_.jvp(probe) if self.is_forward else map_.vjp(probe), float)

    @property
    def probe(self) -> Values:
        """The random tangent or cotangent of the measurements, (k,)."""
        return self.measurements.tangent if self.is_forward else self.measurements.cotangent

    @cached_property
    def product(self) -> Values:
        """The product of the random probe."""
        return self.ask(self.probe)

    @cached_property
    def constant_probe(self) -> Values:
        """The tangent of ones, or the cotangent that is constant on each output, 1 on the first."""
        if self.is_forward:
            return np.ones(self.probe_space.size)
        return constant_cotangent(self.probe_space, self.measurements.settings.seed)

    @cached_property
    def constant_product(self) -> Values:
        """The product of the constant probe: the gradient of a sum, or J of ones."""
        return self.ask(self.constant_probe)

    @cached_property
    def rounding(self) -> Values:
        """How far rounding moves the product of the random probe."""
        return self.rounding_of(self.probe)

    @cached_property
    def rounding_by_factors(self) -> Values:
        """The part of `rounding` that a few products show, without a run of the function."""
        return self._rounding_by_factors(self.probe, self.ask(self.probe), self.measurements.unit)

    def rounding_of(self, probe: Values) -> Values:
        """How far rounding moves the product of a probe.

        It is the difference of runs in fewer bits, scaled back, as far as there are such runs:
        16 times what four of them show.

        Every operation is rounded at random. Below double precision it is the same function on
        float64 arrays that is rounded so. The probe is multiplied by factors of almost 1 as well
        (`_rounding_by_factors`): beside a slope that is infinite, as of a distance that rounding
        left, rounding falls by the root of its unit, and runs in fewer bits that are scaled back
        show too little. In few bits the inputs are moved by a rounding, too: a kernel that casts
        shows nothing in such runs.
        """
        measurements = self.measurements
        by_runs = self._rounding_by_runs(probe)
        # Asked after those runs: a claim that another call has changed is not rounded by that.
        known = self.ask(probe)
        unit = measurements.unit if by_runs is None else measurements.arithmetic_unit
        found = self._rounding_by_factors(probe, known, unit)
        if by_runs is None and measurements.is_double:
            return found  # a claim that moves by more computes in fewer bits
        if by_runs is not None:
            found = np.maximum(found, by_runs)
        if measurements.arithmetic_unit >= DOUBLE:
            # A kernel may compute in few bits on float64 arrays too.
            found = np.maximum(found, self._rounding_by_moves(probe, known))
        for position in range(len(self.space.slots)):
            # No entry below what is usual in its array: few runs of one may be exact.
            part = found[self.space.span(position)]
            part[:] = np.maximum(part, root_mean_square(part))
        return found

    def _rounding_by_runs(self, probe: Values) -> Values | None:
        """How far a product moves where every operation is rounded; None where none can be."""
        here = self.measurements
        unit, tiny = (ROUNDABLE, 0.0) if here.is_double else (max(here.unit, ROUNDABLE), self._tiny)
        try:
            with users_errors():
                exact = here.double.map
                known = self.ask(probe, exact)
                runs = [
                    self.ask(probe, exact.rounded_map(unit, tiny, seed)) for seed in range(_RUNS)
                ]
        except (Unsupported, UsageError, UsersError):
            return None
        return _HONEST * max(here.unit, 2.0**-53) / unit * _largest_move(runs, known)

    def _rounding_by_moves(self, probe: Values, known: Values) -> Values:
        """How far a claim moves where each input moves by a rounding, which rounds it anew."""
        here, map_ = self.measurements, self.measurements.map
        step, moved = 2 * here.arithmetic_unit, list[Values]()
        for number in range(_RUNS):
            signs = np.sign(random_tangent(map_.domain, here.scales, number, number))
            x = round_to_formats(map_.domain, map_.point * (1 + step * signs))
            try:
                with users_errors():
                    moved.append(self.ask(probe, map_.map_at(x)))
            except (Unsupported, UsageError, UsersError):
                break
        return _HONEST * _largest_move(moved, known)

    def _rounding_by_factors(self, probe: Values, known: Values, unit: float) -> Values:
        """How far a claim is from linear in factors of almost 1: its rounding, in any precision.

        A claim that stays what it is where its probe moves, or goes with its square, is not linear
        for another reason: it ignores the probe, or is clamped, or is multiplied by it twice. So
        the smallest deviation from any of these is its rounding. `known` is what is claimed of the
        probe, in arithmetic of unit round-off `unit`. Rounding occurs for larger and for smaller
        probes alike; what moves on one side only is a jump of the claim at this probe, as of a
        `round()` of an entry halfway between whole numbers.
        """
        sides = []
        for side in ((-1, -5), (3, 7)):
            moves = []
            for times in side:
                factor = 1.0 + 8 * times * unit
                again = self.ask(factor * probe)
                by_power = [np.abs(again / factor**power - known) for power in (0, 1, 2)]
                moves.append(functools.reduce(np.minimum, by_power))
            sides.append(_largest_move(moves, np.zeros_like(known)))
        smaller, larger = sides
        is_jump = np.maximum(smaller, larger) > math.sqrt(unit) * np.abs(known).max(initial=0.0)
        found = np.where(is_jump, np.minimum(smaller, larger), np.maximum(smaller, larger))
        return _ROUNDINGS * found

    @property
    def _tiny(self) -> float:
        """The smallest positive number of the coarsest dtype."""
        slots = [slot for slot in (*self.space.slots, *self.probe_space.slots) if slot.size]
        return max((slot.grain.unit, slot.grain.tiny) for slot in slots)[1]


def _largest_move(products: Sequence[Values], known: Values) -> Values:
    """How far some products are at most from the known one; NaN and infinite moves count as 0."""
    moves = (np.nan_to_num(np.abs(product - known), posinf=0.0) for product in products)
    return functools.reduce(np.maximum, moves, np.zeros_like(known))
