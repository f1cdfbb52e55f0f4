"""Claims beside the exact derivative, and honest runs of the reference in the claims' precision."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gradproof._data.formats import DOUBLE, FORMATS, ROUNDABLE, SINGLE, Grain
from gradproof._data.settings import RunSettings
from gradproof._data.space import Space, Values, root_mean_square
from gradproof._maps.contract import DifferentiableMap, Mode, Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._measurements import Measurements
from gradproof._numdiff.probes import (
    Kind,
    constant_cotangent,
    random_bits,
    random_cotangent,
    random_entries,
    round_to_formats,
)
from gradproof._numdiff.values import format_of_values

RUNS = 8
OTHER_ALGORITHM = 4.0  # times more, where honest runs compute the derivative in another way
_FEW_RUNS = 2  # that are made first
_NEAR = 2.0**-16  # of a number: hundreds of roundings in single precision
_FEW_ENTRIES, _MANY_ENTRIES = 64, 512  # in the smallest array: more probes are asked of few
_SAME_VALUE = 0.1  # of its size: rounding that the function magnifies, not another function
_HONEST = 16.0  # times the error of honest runs
_ULPS = 64.0  # of the value: a sum in another order, an approximation of exp
_OTHER_VALUE = 4.0  # times the distance of honest values from the exact one


@dataclass(frozen=True)
class ClaimedBesideExact:
    """Products with a Jacobian in few bits, those of the reference, and errors of honest runs.

    Attributes:
        space: of the products: the domain for J^T v, the codomain for J u.
        got, exact: for every probe, (V, N) each.
        errors: of every honest run, (R, V, N); R is 0 where operations cannot be rounded.
        value_errors: of F in every honest run, (R, m).
        grain: of the arithmetic.
        other_algorithm: whether honest runs compute the products in another way: those of forward
            mode differentiate the backward.
        why_no_runs: why there are no honest runs; "" where there are.
        note: for the report.
    """

    space: Space
    got: Values
    exact: Values
    errors: Values
    value_errors: Values
    grain: Grain
    other_algorithm: bool = False
    why_no_runs: str = ""
    note: str = ""


@dataclass(frozen=True)
class ModeBesideReference:
    """One mode of a map in few bits and of its reference, asked for the same few probes.

    Attributes:
        measurements: of the map.
        reference: in double precision.
        mode: "backward" or "forward".
        is_own: whether the reference is the same function.
        output: position of the output slot that cotangents are of; None for all of them.
    """

    measurements: Measurements
    reference: DifferentiableMap
    mode: Mode
    is_own: bool
    output: int | None = None

    @property
    def map(self) -> DifferentiableMap:
        return self.measurements.map

    @property
    def settings(self) -> RunSettings:
        return self.measurements.settings

    @cached_property
    def exact_value(self) -> Values:
        """F as the reference has it, (m,)."""
        return np.asarray(self.reference.kept_value(), float)

    @cached_property
    def probes(self) -> Values:
        """Random vectors of numbers that few bits can represent, (V, k).

        For the backward ones too: sums that are kept in few bits go wrong under these alone.
        """
        map_, seed = self.map, self.settings.seed
        space = map_.codomain if self.mode == "forward" else map_.domain
        smallest = min((slot.size for slot in space.slots if slot.size), default=1)
        count = 4 if smallest < _FEW_ENTRIES else 2 if smallest < _MANY_ENTRIES else 1
        if self.mode == "forward":
            scales = self.measurements.scales
            draws = [random_entries(seed, Kind.TANGENT, k, scales.size) for k in range(count)]
            return np.stack([round_to_formats(map_.domain, scales * draw) for draw in draws])
        random = [random_cotangent(map_.codomain, seed, k) for k in range(count)]
        cotangents = np.stack([*random, constant_cotangent(map_.codomain, seed)])
        if self.output is not None:
            alone = np.zeros_like(cotangents)
            span = map_.codomain.span(self.output)
            alone[:, span] = cotangents[:, span]
            return alone
        return cotangents

    def products(self, map_: DifferentiableMap) -> Values:
        """J^T v, or J u, of every probe as a map claims it, (V, N)."""
        return np.asarray(map_.products(self.probes, forward=self.mode == "forward"))

    def explanations(self) -> Iterator[ClaimedBesideExact]:
        """The claims beside more and more of what explains their errors, the cheapest first.

        Roundings of each result alone, as of one run without any error; two honest runs, then
        eight; those of coarser formats, if F shows these; and errors as large as those of F, and
        as those of claims at points nearby.
        """
        is_forward, got = self.mode == "forward", self.products(self.map)
        sides = ClaimedBesideExact(
            space=self.map.codomain if is_forward else self.map.domain,
            got=got,
            exact=self.products(self.reference),
            errors=np.zeros((1, *got.shape)),
            value_errors=np.zeros((1, self.map.codomain.size)),
            grain=arithmetic_of(self.measurements, self.exact_value),
            other_algorithm=is_forward,
        )
        yield sides
        sides = self._with_honest_runs(sides, range(_FEW_RUNS))
        yield sides
        if len(sides.errors):
            sides = self._with_honest_runs(sides, range(_FEW_RUNS, RUNS))
            yield sides
        distance, honest = self._distances_of_values(sides)
        is_other = honest > 0 and distance > _OTHER_VALUE * honest
        if is_other and not (self.settings.accumulate or self.settings.trusted):
            known = self._formats_of_casts(sides.grain)
            for grain in known or self._coarser_formats(sides, distance / honest):
                bits = f"{-math.log2(grain.unit):.0f} bits"
                note = f"the function computes in {bits} inside, whatever its arrays are"
                sides = replace(sides, grain=grain, note=note)
                sides = self._with_honest_runs(sides, range(RUNS))
                yield sides
            distance, honest = self._distances_of_values(sides)
            is_other = honest > 0 and distance > _OTHER_VALUE * honest
        if is_other:
            # A value that far off, and yet as near as a few roundings, is computed by another
            # algorithm: its derivative may err as many times more than honest ones.
            sides = replace(sides, errors=sides.errors * (distance / honest))
            yield sides
        yield self._widened_by_neighbours(sides)

    def other_value(self, sides: ClaimedBesideExact) -> str:
        """That F has another value than the reference; "" where rounding explains it.

        The same function may be another one on float64 arrays, as where an epsilon depends on the
        dtype: there rounding alone must explain the difference. A user's reference may differ by a
        tenth.
        """
        got, exact = np.asarray(self.map.kept_value(), float), self.exact_value
        good = np.isfinite(got) & np.isfinite(exact)
        missing = np.flatnonzero(np.isfinite(got) & ~good)
        if missing.size:
            place = self.map.codomain.locate(int(missing[0]))
            return f"it returns another value: {place} is {exact[missing[0]]}"
        for position, slot in enumerate(self.map.codomain.slots):
            span = self.map.codomain.span(position)
            here, part = good[span], _SAME_VALUE
            gap = root_mean_square((got - exact)[span][here])
            size = root_mean_square(exact[span][here])
            runs = [root_mean_square(run[span][here]) for run in sides.value_errors]
            if self.is_own and runs:
                part = min(part, _ULPS * slot.grain.unit)
            if gap > max(part * size, _HONEST * max(runs, default=0.0)):
                return f"it returns another value: off by {gap / max(size, 1e-300):.2g} of its size"
        return ""

    def _distances_of_values(self, sides: ClaimedBesideExact) -> tuple[float, float]:
        """How far F is from its exact value, and the furthest honest run."""
        exact = self.exact_value
        honest = max((value_gap(exact + run, exact) for run in sides.value_errors), default=0.0)
        return value_gap(np.asarray(self.map.kept_value(), float), exact), honest

    def _formats_of_casts(self, grain: Grain) -> list[Grain]:
        """The format that the function casts to, where it is known to cast to a coarser one."""
        unit = self.reference.cast_unit if self.is_own else 0.0
        return [each for each in FORMATS.values() if each.unit == unit > grain.unit]

    def _coarser_formats(self, sides: ClaimedBesideExact, times: float) -> list[Grain]:
        """Formats in which a function may compute inside, as under autocast, the finest first.

        Two things must show it. The noise of F alone might be rounding that cancellation magnifies;
        then honest runs would be as far from the exact value. The distance alone, `times` as far,
        might be another function. A sum hides much of the rounding of its terms: formats up to 64
        times as coarse as what is seen are among those returned.
        """
        unit, centre = sides.grain.unit, self.measurements.function.centre
        size = np.where(centre != 0, np.abs(centre), np.inf)
        noise = float(np.median(self.measurements.slopes.noise / size)) if size.size else 0.0
        if not noise > 4 * unit:
            return []
        inside = (FORMATS["float16"], FORMATS["bfloat16"])
        return [each for each in inside if unit < each.unit <= 64 * max(noise, unit * times)]

    def _widened_by_neighbours(self, sides: ClaimedBesideExact) -> ClaimedBesideExact:
        """The sides with honest errors as large as claims show at points nearby.

        There the claims are rounded anew: what their errors have in common is a mistake, and by
        what they differ is rounding, also that of another algorithm, as of exp(s - log sum exp s).
        Beside honest runs, or one rounding of each result, they count for a few times as much at
        most: a fused operator, or a kernel, rounds where no run does.
        """
        near, step, point = list[Values](), max(2 * sides.grain.unit, _NEAR), self.map.point
        for number in range(RUNS):
            moves = random_entries(self.settings.seed, Kind.NEARBY_POINT, number, point.size)
            x = round_to_formats(self.map.domain, point * (1 + step * moves))
            try:
                with users_errors():
                    exact = self.products(self.reference.map_at(x))
                    near.append(self.products(self.map.map_at(x)) - exact)
            except (Unsupported, UsersError):
                return sides
        moved = np.nan_to_num(near, posinf=0.0, neginf=0.0)  # a NaN excuses no other one
        spread = (moved - np.mean(moved, axis=0)) * (RUNS / (RUNS - 1)) ** 0.5
        size, honest = root_mean_square(spread), root_mean_square(sides.errors)
        if self.is_own or len(sides.errors):
            least = max(sides.grain.unit * root_mean_square(sides.exact), 1e-300)
            errors = sides.errors if honest > least else spread * (least / max(size, least))
            times = max(size / max(honest, least), 1.0)
            return replace(sides, errors=errors * min(times, OTHER_ALGORITHM))
        other = sides.other_algorithm or sides.grain.unit <= SINGLE
        return replace(sides, errors=spread, other_algorithm=other, why_no_runs="")

    def _with_honest_runs(self, sides: ClaimedBesideExact, numbers: range) -> ClaimedBesideExact:
        """The sides with the errors of these honest runs, beside those with smaller numbers."""
        kept, grain, is_forward = numbers.start, sides.grain, self.mode == "forward"
        errors = np.zeros((numbers.stop, *sides.exact.shape))
        value_errors = np.empty((numbers.stop, self.exact_value.size))
        errors[:kept], value_errors[:kept] = sides.errors[:kept], sides.value_errors[:kept]
        done, why, unit = kept, sides.why_no_runs if kept else "", max(grain.unit, ROUNDABLE)
        valued, has_products = kept, bool(kept) and not why
        for number in numbers:
            try:
                with users_errors():
                    run = self.reference.rounded_map(unit, grain.tiny, self.settings.seed + number)
                    value_errors[number] = np.asarray(run.kept_value(), float) - self.exact_value
                    valued = number + 1
                    if not why:
                        np.subtract(self.products(run), sides.exact, errors[number])
                        done, has_products = number + 1, True
            except Unsupported as missing:
                why = missing.reason
                if not is_forward or valued == number:
                    break
            except UsersError as error:
                why = f"it raised {error}"
                break
        if is_forward and not has_products:
            done = valued  # without a double backward there are runs of F alone
        errors, value_errors, made = errors[:done], value_errors[:done], slice(kept, done)
        if unit != grain.unit:  # errors of a finer arithmetic are smaller in proportion
            errors[made] *= grain.unit / unit
            value_errors[made] *= grain.unit / unit
        if is_forward:  # J u of a scaled u is no better known than F itself
            off = np.abs(np.asarray(self.map.kept_value(), float) - self.exact_value)
            for number in range(kept, done):
                bits = random_bits(self.settings.seed, Kind.SPECIAL, number, off.size)
                size = np.nan_to_num(np.maximum(off, np.abs(value_errors[number])))
                # Divided by what multiplies it again.
                errors[number] += np.where(bits, size, -size) / OTHER_ALGORITHM
        why = "" if has_products else why
        return replace(sides, errors=errors, value_errors=value_errors, why_no_runs=why)


def arithmetic_of(measurements: Measurements, exact_value: Values) -> Grain:
    """The grain in which a function computes.

    What the user says by `accumulate`; else what it is known to cast to, or its coarsest dtype; or
    a coarser format, where all values are of it and further from the exact ones than that explains.
    """
    map_, settings = measurements.map, measurements.settings
    if settings.accumulate:
        return FORMATS[settings.accumulate]
    slots = [slot for slot in (*map_.domain.slots, *map_.codomain.slots) if slot.size]
    grain = max((slot.grain for slot in slots), key=lambda each: each.unit, default=Grain())
    unit, value = measurements.unit, np.asarray(map_.kept_value(), float)
    if grain.unit >= DOUBLE and measurements.without_casts is None:
        unit = format_of_values(value)
        if not (unit > grain.unit and value_gap(value, exact_value) > 16 * grain.unit):
            return grain
    return next((each for each in FORMATS.values() if each.unit == unit), grain)


def value_gap(value: Values, exact: Values) -> float:
    """Root mean square of the difference of two values, in parts of their size."""
    good = np.isfinite(value) & np.isfinite(exact)
    size = root_mean_square(exact[good])
    return root_mean_square((value - exact)[good]) / size if size else 0.0
