"""Values of F: the only module above the maps that evaluates the function under test."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradproof._data.exceptions import exception_line
from gradproof._data.space import Mask, Space, Values, are_equal, finite_values
from gradproof._maps.contract import DifferentiableMap, OutputChangedError
from gradproof._numdiff.steps import StepTable
from gradproof.errors import UsageError

_BITS = (8, 11, 24)  # significant bits of bfloat16, float16 and float32
_KEPT_VALUES = 1 << 22  # of F in tables, 32 MiB
_SAMPLE = 256  # outputs that are looked at first for such a format
_MOST_ROUNDINGS = 2.0**50  # of a sum of outputs, that it is made to be: its own rounding is less


@dataclass(frozen=True)
class DifferenceTable:
    """F at a point and at the steps of a table along one direction, or along several.

    Attributes:
        steps: (K,), decreasing.
        centre: F(x), (m,).
        ahead, behind: F(x + h u) and F(x - h u) for every step h, (K, m) each.
        unit: unit round-off of each output, (m,).
        jitter: by how much F(x) differs from run to run, (m,).
        group: outputs of one direction, where the tables of several lie side by side.
    """

    steps: Values
    centre: Values
    ahead: Values
    behind: Values
    unit: Values
    jitter: Values
    group: int

    @property
    def moves(self) -> Values:
        """By how much each step moves each output, to either side at most, (K, m)."""
        return np.maximum(np.abs(self.ahead - self.centre), np.abs(self.behind - self.centre))

    def project(self, weights: Values) -> DifferenceTable:
        """The table of the functionals v.F, one for each row v of `weights` (k, m).

        They cost no evaluation. Roundings of the outputs are independent: they add in quadrature.
        """
        with np.errstate(all="ignore"):
            size = np.maximum(np.abs(self.centre), largest_finite(self.ahead, self.behind))
            rounding = np.sqrt(weights**2 @ (self.unit * size) ** 2)
            # Moves are summed, and a centre added that is not so large that it rounds them.
            centre = weights @ self.centre
            centre = np.copysign(np.fmin(np.abs(centre), _MOST_ROUNDINGS * rounding), centre)
            ahead = centre + (self.ahead - self.centre) @ weights.T
            behind = centre + (self.behind - self.centre) @ weights.T
            total = np.maximum(np.abs(centre), largest_finite(ahead, behind))
            unit = rounding / np.where(total > 0, total, 1.0)
        jitter = np.sqrt(weights**2 @ self.jitter**2)
        unit = np.maximum(unit, 2.0**-53)
        return DifferenceTable(self.steps, centre, ahead, behind, unit, jitter, len(weights))

    def part(self, outputs: slice | Mask) -> DifferenceTable:
        """The table of some outputs."""
        centre = self.centre[outputs]
        return DifferenceTable(
            self.steps,
            centre,
            self.ahead[:, outputs],
            self.behind[:, outputs],
            self.unit[outputs],
            self.jitter[outputs],
            centre.size,
        )


def largest_finite(*tables: Values) -> Values:
    """The largest finite size in each column of some tables, (m,); 0 where there is none."""
    sizes = [finite_values(np.abs(t).ravel()).reshape(t.shape).max(axis=0) for t in tables]
    return np.asarray(np.max(sizes, axis=0))


def joined_tables(tables: Sequence[DifferenceTable]) -> DifferenceTable:
    """The tables of several directions side by side: outputs of the first, of the second, ..."""
    first = tables[0]
    parts = [(t.centre, t.ahead, t.behind, t.unit, t.jitter) for t in tables]
    centre, ahead, behind, unit, jitter = (
        np.concatenate(same, axis=-1) for same in zip(*parts, strict=True)
    )
    return DifferenceTable(first.steps, centre, ahead, behind, unit, jitter, first.group)


class FunctionValues:
    """F of a map, evaluated at the point and around it.

    Where F raises beside the point it has no value: NaN throughout. The first exception is kept for
    the report. Nor has it a value where its outputs have another shape or dtype than at the point;
    at the finest step to either side that is refused, since no derivative has two shapes.

    Attributes:
        map: whose F it is.
        centre: F(x), (m,).
        unit: unit round-off in which each output is computed, (m,): that of its dtype, or more
            where all values are numbers of a coarser format.
        jitter: standard deviation of F(x) from run to run, times two, (m,); 0 where it repeats.
        raised: the first exception that F raised beside the point, in words; "" without any.
    """

    def __init__(self, map_: DifferentiableMap) -> None:
        self.map, self.raised = map_, ""
        self._tables: dict[tuple[bytes, StepTable], DifferenceTable] = {}
        self._room = _KEPT_VALUES
        self.centre = self.value_at(map_.point, must_keep_shape=True)
        self.unit = self._units(map_.codomain)
        # The kept call is a run of its own, to which the backward belongs: it costs nothing.
        again = np.asarray(map_.kept_value(), float)
        self.jitter = np.zeros(0) if again.size == 0 else self._jitter(again)

    def with_jitter(self, jitter: Values) -> FunctionValues:
        """The same values, known no better than to a jitter, (m,)."""
        found = copy.copy(self)
        found.jitter, found._tables = np.maximum(self.jitter, jitter), {}
        return found

    @property
    def repeats(self) -> bool:
        """Whether F(x) is the same in every run."""
        return not self.jitter.any()

    @property
    def coarsest_unit(self) -> float:
        """The largest unit round-off of an output, or 2^-53 without any."""
        return float(self.unit.max(initial=2.0**-53))

    def value_at(self, x: Values, *, must_keep_shape: bool = False) -> Values:
        """F(x), (m,); NaN where F raises. UsageError and MemoryError are not caught.

        With `must_keep_shape` an `OutputChangedError` is not caught either.
        """
        try:
            return np.asarray(self.map.value(x), float)
        except OutputChangedError as changed:
            if must_keep_shape:
                raise
            return self._no_value(changed)
        except (UsageError, MemoryError):
            raise
        except Exception as error:  # the user's function may raise anything off its domain
            return self._no_value(error)

    def _no_value(self, error: Exception) -> Values:
        self.raised = self.raised or f"the function raised {exception_line(error)}"
        return np.full(self.map.codomain.size, math.nan)

    def table(self, u: Values, steps: StepTable, outputs: Mask | None = None) -> DifferenceTable:
        """The difference table along u, (n,), of all outputs or of some: 2 evaluations per step.

        Small tables of all outputs are kept: another mode of differentiation asks for them again.
        """
        cost = 2 * steps.count * self.centre.size + u.size
        if outputs is not None or cost > self._room:
            return self._measured_table(u, steps, outputs)
        key = u.tobytes(), steps
        if key not in self._tables:
            self._room -= cost
            self._tables[key] = self._measured_table(u, steps, None)
        return self._tables[key]

    def _measured_table(self, u: Values, steps: StepTable, outputs: Mask | None) -> DifferenceTable:
        chosen, point = slice(None) if outputs is None else outputs, self.map.point
        centre = self.centre[chosen]
        ahead = np.empty((steps.count, centre.size))
        behind = np.empty_like(ahead)
        for k, h in enumerate(steps.steps):
            move, is_finest = h * u, k == steps.count - 1
            ahead[k] = self.value_at(point + move, must_keep_shape=is_finest)[chosen]
            behind[k] = self.value_at(point - move, must_keep_shape=is_finest)[chosen]
        unit, jitter = self.unit[chosen], self.jitter[chosen]
        return DifferenceTable(steps.steps, centre, ahead, behind, unit, jitter, centre.size)

    def column_tables(self, u: Values, columns: Sequence[int], steps: StepTable) -> DifferenceTable:
        """The tables along single coordinates of u side by side, (len(columns) * m,) outputs."""
        tables = []
        for j in columns:
            single = np.zeros_like(u)
            single[j] = u[j]
            tables.append(self.table(single, steps))
        return joined_tables(tables)

    def _units(self, space: Space) -> Values:
        """The unit round-off of each output: of its dtype, or of a format that all values show."""
        resolution = self.map.resolution
        units = [np.full(slot.size, max(slot.grain.unit, resolution)) for slot in space.slots]
        found = np.concatenate(units) if units else np.zeros(0)
        if found.size and (unit := format_of_values(self.centre)) > float(found.min()):
            # At a point whose numbers have few bits, copies of them show those too: so beside it.
            # Each coordinate moves by another part of itself: a quotient of two would not move.
            parts = 1 + 0.618034 * np.arange(self.map.point.size) % 1
            beside = self.value_at(self.map.point * (1 + math.pi * 2.0**-9 * parts))
            unit = min(unit, format_of_values(beside))
            found = np.maximum(found, unit)
        return found

    def _jitter(self, again: Values) -> Values:
        if are_equal(again, self.centre) or not np.nan_to_num(again - self.centre).any():
            return np.zeros_like(again)
        runs = np.stack([self.centre, again, *(self.value_at(self.map.point) for _ in range(4))])
        spread = 2 * np.nan_to_num(runs.std(axis=0, ddof=1))
        # A few runs each: no output is quieter than a quarter of the usual one.
        return np.asarray(np.maximum(spread, np.sqrt(np.mean(spread**2)) / 4))


def format_of_values(values: Values) -> float:
    """Unit round-off of the coarsest format of which all values are numbers; 0.0 if none is.

    Function values that all have at most 8, 11 or 24 significant bits were computed in bfloat16,
    float16 or float32, whatever their dtype. Whole numbers of so few bits, and multiples of one
    common power of two, tell nothing.
    """
    sample = _finite_nonzero(values[:: max(1, values.size // _SAMPLE)])
    if not (sample.size and _have_bits(sample, _BITS[-1])):  # as of nearly all
        return 0.0
    for bits in _BITS:
        if _have_bits(sample, bits) and _have_bits(every := _finite_nonzero(values), bits):
            fraction, exponent = np.frexp(every)
            digits = np.round(fraction * 2.0**bits).astype(np.int64)
            last = exponent - bits + np.log2(digits & -digits).astype(int)
            enough = bits + 1 if bits < 24 else 20  # numbers with 20 bits in common are rare
            spread = int(exponent.max()) - int(last.min())
            whole = last.min() >= 0 and exponent.max() <= bits
            return 2.0**-bits if spread >= enough and not whole else 0.0
    return 0.0


def _finite_nonzero(values: Values) -> Values:
    return np.asarray(values[np.isfinite(values) & (values != 0)])


def _have_bits(values: Values, bits: int) -> bool:
    scaled = np.frexp(values)[0] * 2.0**bits
    return bool((scaled == np.round(scaled)).all())
