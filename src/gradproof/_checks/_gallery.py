"""Pictures of a Jacobian too large to be measured whole, gathered while its columns are."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gradproof._checks import _pictures
from gradproof._checks._claims import Claim
from gradproof._checks._found import Confirmed
from gradproof._evidence import Curve, Patch
from gradproof._map import DifferentiableMap
from gradproof._numerics import jacobian, measure
from gradproof._settings import Settings
from gradproof._space import Array, namespace, on_host

_REACH = 2  # rows before and after that of the first wrong entry
_BESIDE = 1  # columns before and after, measured for the picture alone
_NOISE = 3.0  # bars of a plain difference, as the search takes them

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass
class Gallery:
    """Columns of a few rows, and the curves of a few entries.

    Attributes:
        rows: around the first wrong entry; empty before there is one.
        columns: claimed, measured, error and wrong in those rows, by column.
        curves: of the largest wrong entry of each column, by its gap.
    """

    rows: list[int] = field(default_factory=list)
    columns: dict[int, Numbers] = field(default_factory=dict)
    curves: list[tuple[float, Curve]] = field(default_factory=list)

    def add(self, map_: DifferentiableMap, j: int, found: Confirmed) -> None:
        """Take what is to be shown of a measured column."""
        if not found.wrong:
            return
        i = found.wrong[0]
        entry = _pictures.Claimed(i, j, float(found.claimed[i]))
        curve = _pictures.of_ladder(map_, found.measured, entry)
        self.curves.append((-abs(curve.claimed - curve.value), curve))
        if not self.rows:
            low = max(0, min(i - _REACH, map_.codomain.size - 2 * _REACH - 1))
            self.rows = list(range(low, min(map_.codomain.size, low + 2 * _REACH + 1)))
        self.columns[j] = self._cut(found)

    def _cut(self, found: Confirmed) -> Numbers:
        rows, comparison = np.asarray(self.rows), found.comparison
        numbers = [
            on_host(values)[rows, 0]
            for values in (comparison.claimed, comparison.measured, comparison.error)
        ]
        if found.known:  # elsewhere the claim was filled with what was measured
            numbers[0] = np.where(np.isin(rows, found.known), numbers[0], np.nan)
        return np.stack([*numbers, np.isin(rows, found.wrong).astype(float)])

    def shown(self) -> tuple[Curve, ...]:
        """The curves of the largest gaps."""
        return tuple(curve for _, curve in sorted(self.curves, key=lambda one: one[0]))[
            : _pictures.CURVES
        ]

    def patch(
        self, map_: DifferentiableMap, settings: Settings, claim: Claim, *, crowded: bool
    ) -> Patch | None:
        """The columns found wrong; a single one with those beside it, at two calls for each."""
        if not self.rows:
            return None
        first = next(iter(self.columns))
        for j in (
            ()
            if crowded or len(self.columns) > 1
            else range(max(0, first - _BESIDE), min(map_.domain.size, first + _BESIDE + 1))
        ):
            if j not in self.columns:
                self.columns[j] = self._plain(map_, settings, claim, j)
        self._claim_rows(claim)
        chosen = sorted(self.columns, key=lambda j: abs(j - first))[: _pictures.SIDE]
        chosen.sort()
        table = np.stack([self.columns[j] for j in chosen], axis=-1)
        claimed, measured, error, wrong = (_pictures.table(values) for values in table)
        return Patch(
            outputs=tuple(str(map_.codomain.locate(i)) for i in self.rows),
            inputs=tuple(str(map_.domain.locate(j)) for j in chosen),
            claimed=claimed,
            measured=measured,
            error=error,
            wrong=tuple(tuple(one > 0 for one in row) for row in wrong),
        )

    def _plain(self, map_: DifferentiableMap, settings: Settings, claim: Claim, j: int) -> Numbers:
        """A column by one plain difference, with the step and the bar that the rows want."""
        along = measure.along(map_, settings, 0)
        xp = namespace(along.direction)
        move = abs(float(along.direction[j]))
        step = move * float(xp.min(along.estimate.of(xp.asarray(self.rows)).step))
        measured = jacobian.classic_column(map_, step, j)
        return self._of_plain(along, measured, claim.along(jacobian.unit(map_.point, j)), j)

    def _of_plain(
        self, along: measure.Measurement, measured: Array, claimed: Array | None, j: int
    ) -> Numbers:
        xp = namespace(measured)
        at = xp.asarray(self.rows)
        error = _NOISE * xp.take(along.estimate.step_error, at) / abs(float(along.direction[j]))
        found = xp.take(measured, at)
        claims = xp.full_like(found, float("nan")) if claimed is None else xp.take(claimed, at)
        return np.stack([*map(on_host, (claims, found, error)), np.zeros(len(self.rows))])

    def add_plain(
        self,
        along: measure.Measurement,
        j: int,
        column: tuple[Array, Array | None],
        wrong: list[int],
    ) -> None:
        """Take what is to be shown of a column that one difference measured: that and the claim."""
        if self.rows and wrong:
            numbers = self.columns[j] = self._of_plain(along, *column, j)
            numbers[3] = np.isin(self.rows, wrong)

    def _claim_rows(self, claim: Claim) -> None:
        """Fill in what is claimed, row by row, where the mode has no columns."""
        if not any(np.isnan(numbers[0]).any() for numbers in self.columns.values()):
            return
        for k, i in enumerate(self.rows):
            row: Array | None = claim.row(i)
            for j, numbers in self.columns.items():
                if row is not None:
                    numbers[0, k] = float(row[j])
