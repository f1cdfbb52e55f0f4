"""One mode's claims at one point beside F, and the words for what comparing them shows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from gradproof._compare.claims import MOST_ENTRIES, Claim
from gradproof._compare.tolerances import Resolution, rounding_of_claim
from gradproof._data.records import Finding, digits_of_gap
from gradproof._data.settings import RunSettings
from gradproof._data.space import Mask, Values
from gradproof._maps.contract import DifferentiableMap, Mode, Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._measurements import Measurements
from gradproof._numdiff.probes import Kind, random_offsets, random_tangent
from gradproof._numdiff.slopes import Slopes, slopes_along
from gradproof._numdiff.steps import NEARBY, SHORT_STEP, StepTables, coordinate_scales
from gradproof._numdiff.values import FunctionValues

ROUNDED_UNIT = 2.0**-36  # unit round-off of the runs that show the rounding of claims
OTHER_SLOPE = 1e-3  # slopes that differ by this part are slopes of another piece of F
_TINY = 16.0  # times the scale of an input: a zero of the same array is moved by no more
_FEW_POINTS = 8  # that tell whether F is smooth, along a direction that moves every input


@dataclass(frozen=True)
class Comparison:
    """What one mode claims of a map, and all that is needed to measure F beside it.

    Attributes:
        measurements: of the map, at its point.
        function: values of F: those of the measurements, or known no better than to a jitter.
        claim: the claimed Jacobian.
        check: name of the check, for findings.
        unit: unit round-off in which F is computed.
        resolution: how small error bars must be.
        map, settings, scales, steps: those of the measurements.
        u: the first tangent, (n,): that of the measurements, or a part of it.
    """

    measurements: Measurements
    function: FunctionValues
    claim: Claim
    check: str
    unit: float
    resolution: Resolution
    map: DifferentiableMap
    settings: RunSettings
    scales: Values
    u: Values
    steps: StepTables

    @property
    def inputs(self) -> int:
        return self.map.domain.size

    @property
    def outputs(self) -> int:
        return self.map.codomain.size

    @property
    def jacobian_text(self) -> str:
        """The Jacobian by its size, without inputs that are not moved: "3 x 4 Jacobian"."""
        moved = int(np.count_nonzero(self.u))
        return f"{self.outputs:,} x {moved:,} Jacobian"

    @property
    def can_measure_every_entry(self) -> bool:
        """Whether the Jacobian is small enough to be measured entry by entry."""
        return (
            self.inputs <= self.settings.full_jacobian
            and self.inputs * self.outputs <= MOST_ENTRIES
        )

    @property
    def second_tangent(self) -> Values:
        """Another random direction, (n,)."""
        return random_tangent(self.map.domain, self.scales, self.settings.seed, 1)

    def in_own_scales(self) -> Comparison | None:
        """The same where each input is moved by parts of its own size; None where it is already.

        Else a number that is tiny beside others of its array is moved as they are: by more than
        rounding, but out of its domain where it has another unit.
        """
        own = coordinate_scales(self.map.domain, self.map.point, least=0.0)
        moved = self.scales != 0
        parts = np.divide(own, self.scales, out=np.zeros_like(own), where=moved)
        return replace(self, scales=own, u=self.u * parts) if (parts[moved] < 1).any() else None

    def in_scales_of_zeros(self, columns: Mask) -> Comparison | None:
        """The same with these inputs moved as if they were zero; None where that is hardly more.

        An array of tiny numbers, as a bias of 1e-16, is moved by less than the rounding of what it
        is added to.
        """
        scales = coordinate_scales(self.map.domain, np.where(columns, 0.0, self.map.point))
        larger = columns & (scales > _TINY * self.scales) & (self.scales != 0)
        if not larger.any():
            return None
        parts = np.divide(scales, self.scales, out=np.ones_like(scales), where=larger)
        return replace(self, scales=self.scales * parts, u=self.u * parts)

    def slopes_along(self, u: Values) -> Slopes:
        """The slope of every output along u, (n,); those along the tangent measured are kept."""
        if u is self.measurements.tangent and self.function is self.measurements.function:
            return self.measurements.slopes
        return slopes_along(self.function, u, self.steps)

    def slope_nearby(self, w: Values, number: int, part: float = 1.0) -> Values:
        """The slope along w at a nearby point, by one plain difference, (m,).

        The point is so near, in parts of each coordinate, that only a kink makes slopes differ, or
        a function that oscillates very fast. `part`, a power of two, moves it towards the point.
        """
        point, size = self.map.point, np.abs(self.map.point)
        own = np.minimum(self.scales, np.where(size > 0, size, self.scales))
        moves = random_offsets(self.settings.seed, Kind.NEARBY_POINT, number, point.size)
        x, step = point + part * NEARBY * own * moves, part * SHORT_STEP
        ahead, behind = (self.function.value_at(x + h * w) for h in (step, -step))
        return np.asarray((ahead - behind) / (2 * step))

    def varies_nearby(self, w: Values) -> Mask:
        """Outputs whose slope along w is another one at some of a few nearby points, (m,)."""
        found = [self.slope_nearby(w, number) for number in range(_FEW_POINTS)]
        low, high = np.fmin.reduce(found), np.fmax.reduce(found)
        size = np.maximum(np.abs(low), np.abs(high))
        noise = 8 * 2 * self.function.unit * np.abs(self.function.centre) / SHORT_STEP
        return np.asarray(high - low > OTHER_SLOPE * size + noise)

    @cached_property
    def is_smooth_nearby(self) -> bool:
        """Whether no slope along u, which moves every input, is another one nearby."""
        return not self.varies_nearby(self.u).any()

    @cached_property
    def rounded_runs(self) -> list[tuple[Callable[[], Claim], Values]]:
        """Two runs with every operation rounded to 36 bits: claims, and how far F is off, (m,).

        There are fewer where the function does not run in rounded arithmetic. The claims are made
        when they are asked for, and kept.
        """
        found = list[tuple[Callable[[], Claim], Values]]()
        for seed in range(2):
            try:
                with users_errors():
                    rounded = self.map.rounded_map(ROUNDED_UNIT, 0.0, seed)
                    off = np.abs(np.asarray(rounded.kept_value(), float) - self.function.centre)
            except (Unsupported, UsersError):
                break
            claim = functools.cache(partial(self.claim.claim_of, rounded, ROUNDED_UNIT))
            found.append((claim, np.nan_to_num(off)))
        return found

    def rounding(self, *sizes: Values | float) -> Values:
        """S of a claim whose terms have these sizes."""
        return rounding_of_claim(self.claim.unit, *sizes)


def comparison_of(
    measurements: Measurements, mode: Mode, check: str, claimed_unit: float = 0.0
) -> Comparison:
    """The comparison of one mode with F.

    Args:
        measurements: of the function at its point.
        mode: "backward" or "forward".
        check: name of the check, for findings.
        claimed_unit: unit round-off of the claims, where it is larger than that of F and than the
            measurements say.
    """
    unit = measurements.value_unit
    claimed_unit = max(unit, claimed_unit, measurements.claimed_unit)
    return Comparison(
        measurements=measurements,
        function=measurements.function,
        claim=Claim(measurements, mode, claimed_unit),
        check=check,
        unit=unit,
        resolution=Resolution.from_unit(unit, measurements.settings.resolution),
        map=measurements.map,
        settings=measurements.settings,
        scales=measurements.scales,
        u=measurements.tangent,
        steps=measurements.steps,
    )


def verified_text(comparison: Comparison, bound: float) -> str:
    """That a Jacobian was verified, and how finely."""
    finely = f"to {bound:.0e}" if bound < 1 else "along random directions, not entry by entry"
    return f"{comparison.jacobian_text} verified {finely}"


def entry_finding(
    comparison: Comparison, row: int, column: int | None, numbers: Sequence[Any]
) -> Finding:
    """The finding of a wrong entry, or with no column of a wrong slope along a random direction.

    `numbers` are claimed, measured, error bar and allowed gap.
    """
    map_, (claimed, measured, error, allowed) = comparison.map, map(float, numbers)
    output = map_.codomain.locate(row)
    input_ = None if column is None else map_.domain.locate(column)
    shown = digits_of_gap(claimed, measured)
    bar = f" +- {error:.1g}" if error == error else ""
    place = f"{input_} -> {output}" if input_ else f"{output} along a random direction"
    message = (
        f"{place}: claimed {claimed:.{shown}g}, measured {measured:.{shown}g}{bar}; "
        f"the gap is {abs(claimed - measured):.3g}, allowed {allowed:.2g}"
    )
    kind = "entry" if column is not None else "row"
    if map_.codomain.slots[output.slot].detached:
        message += f"; {output.name} claims to have no derivative (it does not require grad)"
        kind = "detached"
    return Finding(
        comparison.check, message, kind, input_, output, claimed, measured, error, allowed
    )
