"""The one rule for few bits: sums of errors against the same sums in honest runs.

For an entry, and for slope and sum over an array, its rows, its columns or its blocks,

    |sum w e| <= 8 rms(the same sum over honest runs) + floor,

where e are errors of claims and w is the exact derivative (slope) or 1 (sum). Roundings of
different entries are independent, a wrong formula is not: such sums show what no entry shows. The
floor covers roundings that a reference has no operation for: one rounding of every term,
independent of each other, and a small part of one that is the same for all terms. What is up to
`OPEN_UP_TO` times as large is left open. `benchmarks/low_precision.py` calibrates these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradproof._data.formats import SINGLE, Grain
from gradproof._data.space import Slot, Values, root_mean_square
from gradproof._low_precision.rounding_runs import OTHER_ALGORITHM, ClaimedBesideExact

OPEN_UP_TO = 1.25  # times what is allowed
_SUMS = 8.0  # of 2 x 8 honest sums: quantile of Student's t far beyond one in a thousand arrays
_ENTRIES = 16.0  # single entries have heavier tails
_BRANCHES = 2.0  # times the largest error of any entry
_MANY = 64  # entries, of which a few may take another branch
_CANCELLED = 16 * 2.0**-53  # times honest rounding in units: of what double precision leaves
_MOST_GROUPS = 64  # rows or columns; more are taken together


@dataclass(frozen=True)
class Deviation:
    """How far claims are off in one respect, beside what honest rounding explains.

    Attributes:
        name: "worst entry", "slope", "mean", "row slope", ..., "rms".
        value, allowed: in parts of the size of the exact derivative.
        entry: probe and position in the array, for a single entry; else None.
    """

    name: str
    value: float
    allowed: float
    entry: tuple[int, int] | None = None

    @property
    def is_wrong(self) -> bool:
        return not self.value <= OPEN_UP_TO * self.allowed


@dataclass(frozen=True)
class ArrayDeviations:
    """What one array shows.

    Attributes:
        slot: its position.
        deviations: one for each statistic, the largest over groups.
        resolution: the largest factor on the whole array that would be accepted.
        left_out: entries that are beyond the format's numbers, or that no honest run has.
    """

    slot: int
    deviations: tuple[Deviation, ...]
    resolution: float
    left_out: int = 0

    @property
    def is_wrong(self) -> bool:
        return any(each.is_wrong for each in self.deviations)

    @property
    def is_right(self) -> bool:
        return all(each.value <= each.allowed for each in self.deviations)


def array_deviations(
    sides: ClaimedBesideExact, tolerance: float, *, until_doubt: bool = False
) -> Iterator[ArrayDeviations]:
    """The deviations of every array of the products.

    Args:
        sides: claims, exact products and honest errors.
        tolerance: relative tolerance that the user chose, beside what rounding explains.
        until_doubt: whether to stop after an array that is not right.
    """
    for position, slot in enumerate(sides.space.slots):
        if slot.size:
            span = sides.space.span(position)
            found = _deviations_of_array(sides, position, slot, span, tolerance)
            yield found
            if until_doubt and not found.is_right:
                return


def _deviations_of_array(
    sides: ClaimedBesideExact, position: int, slot: Slot, span: slice, tolerance: float
) -> ArrayDeviations:
    got, exact, runs = sides.got[:, span], sides.exact[:, span], sides.errors[:, :, span]
    eps = 2 * max(slot.grain.unit, sides.grain.unit)
    squares = np.einsum("rvn,rvn->vn", runs, runs)  # infinite or NaN where a run is
    usable = np.isfinite(squares).all(0) & (np.abs(exact) <= slot.grain.largest / 2).all(0)
    missing = np.isnan(got) & usable
    if missing.any():
        probe, k = (int(at[0]) for at in np.nonzero(missing))
        nan = Deviation("worst entry", math.inf, 0.0, (probe, k))
        return ArrayDeviations(position, (nan,), 0.0)
    gap = got - exact
    if not usable.all():
        gap, exact, runs, squares = (
            np.where(usable, each, 0.0) for each in (gap, exact, runs, squares)
        )
    honest = squares / max(len(runs), 1)
    # What is left of terms that cancel, below its own rounding in double precision, is zero.
    is_left = np.abs(exact) > _CANCELLED / sides.grain.unit * np.sqrt(honest)
    is_drowned = exact.any() and not (is_left & (exact != 0)).any()
    exact = np.where(is_left, exact, 0.0)
    honest = np.sqrt(honest.mean(axis=0))
    sums = _Sums(gap, exact, runs, honest, eps, slot.grain, tolerance, not sides.why_no_runs)
    every = [sums.worst_entry(), sums.root_mean_square()]
    if eps > 2 * SINGLE and slot.size >= _MANY:
        every.append(sums.percentile())
    # Sums over parts of small entries say little where honest runs compute in another way.
    groupings = [_WHOLE] if sides.other_algorithm else list(_groups_of(slot))
    every += sums.worst_weighted_sums("slope", exact, groupings)
    every += sums.worst_weighted_sums("mean", np.ones_like(exact), groupings)
    if sides.other_algorithm:
        every = [replace(each, allowed=OTHER_ALGORITHM * each.allowed) for each in every]
    slope = next(each.allowed for each in every if each.name == "slope")
    left_out, resolution = int(slot.size - usable.sum()), math.inf if is_drowned else slope
    return ArrayDeviations(position, tuple(every), resolution, left_out)


class _Sums:
    """The statistics of one array: V probes, N entries, R honest runs.

    Args:
        gap, exact: (V, N).
        runs: (R, V, N).
        honest: root mean square of an entry's error over all of these, (N,).
        eps: spacing of the format at 1.
        grain: of the array's dtype.
        tolerance: relative, of the user.
        measured: whether there are honest runs; else roundings of the format are all there is.
    """

    def __init__(
        self,
        gap: Values,
        exact: Values,
        runs: Values,
        honest: Values,
        eps: float,
        grain: Grain,
        tolerance: float,
        measured: bool,
    ) -> None:
        self.gap, self.exact, self.runs, self.eps = gap, exact, runs, eps
        self.tolerance, self.tiny, self.measured = tolerance, grain.tiny, measured
        self.size = root_mean_square(exact)
        self.absolute, self.square = np.abs(exact), np.einsum("vn,vn->n", exact, exact)
        self.own_size = own_size = np.sqrt(self.square / len(exact))
        # Few runs each: beside an entry's own error stands what is usual for numbers of its size.
        usual = root_mean_square(honest) * (own_size / max(self.size, 1e-300))
        self.entry_errors = np.maximum(
            honest, np.minimum(usual, 4 * np.maximum(honest, eps * own_size))
        )
        if not measured:  # a chain of operations whose roundings add up as random ones
            self.entry_errors = np.maximum(self.entry_errors, eps * np.maximum(own_size, self.size))
        # Sums inside an operation, as of a product of matrices, err by the size of all entries.
        self.typical = root_mean_square(self.entry_errors) + eps * self.size / 2

    def worst_entry(self) -> Deviation:
        floor = _ENTRIES * np.maximum(self.entry_errors, self.eps * self.own_size)
        floor = np.maximum(floor, _ENTRIES * max(self.typical / 2, self.eps * self.size))
        # A branch that rounding takes otherwise in one entry of an honest run it may take so here.
        largest = max(self.runs.max(initial=0.0), -self.runs.min(initial=0.0))
        floor = np.maximum(floor, _BRANCHES * largest)
        room = np.maximum(floor, _ENTRIES * self.eps * self.absolute)
        room += 4 * self.tiny
        if self.tolerance:
            room += self.tolerance * self.absolute
        ratio = np.abs(self.gap) / room
        probe, k = (int(at) for at in np.unravel_index(np.argmax(ratio), ratio.shape))
        unit = max(self.size, 1e-300)
        return Deviation(
            "worst entry",
            float(abs(self.gap[probe, k]) / unit),
            float(room[probe, k] / unit),
            (probe, k),
        )

    def percentile(self) -> Deviation:
        """The 95th percentile of all entries, each beside its own rounding.

        The other statistics see large entries, whose rounding hides many small ones. In float32
        sums inside an operation are rounded as results are, and small entries err as large ones.
        """
        room = _ENTRIES * np.maximum(self.entry_errors, self.eps * self.absolute) + 4 * self.tiny
        room += self.tolerance * self.absolute
        ratio = float(np.quantile(np.abs(self.gap) / room, 0.95))
        return Deviation("95th percentile", ratio * _ENTRIES * self.eps, _ENTRIES * self.eps)

    def root_mean_square(self) -> Deviation:
        allowed = 4 * root_mean_square(self.entry_errors) + 3 * self.eps * self.size + self.tiny
        allowed += self.tolerance * self.size
        unit = max(self.size, 1e-300)
        return Deviation("rms", root_mean_square(self.gap) / unit, allowed / unit)

    def worst_weighted_sums(
        self, name: str, weight: Values, groupings: Sequence[_Groups]
    ) -> list[Deviation]:
        """The weighted sum of errors over a group and all probes that is most off, by grouping."""
        # Over probes first, so that every grouping adds up vectors, (N,).
        error = np.einsum("vn,vn->n", weight, self.gap)
        terms = weight * np.maximum(self.absolute, self.typical / self.eps)
        square_of_terms = np.einsum("vn,vn->n", terms, terms)
        sizes = np.einsum("vn,vn->n", np.abs(weight), self.absolute)
        honest = np.einsum("vn,rvn->rn", weight, self.runs)
        square_of_weights = np.einsum("vn,vn->n", weight, weight)
        floor = 4 * self.tiny * np.sqrt(weight.size) * np.abs(weight).max(initial=0.0)
        found = []
        for groups in groupings:
            off, alike = np.abs(groups.sums(error)), groups.sums(sizes)
            independent = np.sqrt(groups.sums(square_of_terms))
            spread = (not self.measured) * self.eps * (2 * independent + alike / 8)
            if len(honest):
                spread = np.maximum(spread, np.sqrt(np.mean(groups.sums(honest) ** 2, axis=0)))
            usual = root_mean_square(spread) / max(root_mean_square(independent), 1e-300)
            pooled = usual * independent
            allowed = _SUMS * np.maximum(spread, pooled) + self.eps * (6 * independent + alike / 2)
            allowed += floor + self.tolerance * alike
            unit = np.sqrt(groups.sums(square_of_weights)) * np.sqrt(groups.sums(self.square))
            unit = np.maximum(unit, 1e-300)
            worst = int(np.argmax(off / np.maximum(allowed, 1e-300)))
            value, room = float(off[worst] / unit[worst]), float(allowed[worst] / unit[worst])
            found.append(Deviation(f"{groups.name}{name}", value, room))
        return found


@dataclass(frozen=True)
class _Groups:
    """Groups of the entries of an array: runs of neighbours, or of columns.

    Attributes:
        name: of one group, before that of a statistic.
        starts: the first entry of each group, or its first column, (G,).
        columns: number of columns that are added up first; 0 where entries are grouped.
    """

    name: str
    starts: tuple[int, ...]
    columns: int = 0

    def sums(self, values: Values) -> Values:
        """Sums over the groups of the last dimension, (..., G)."""
        if self.columns:
            values = values.reshape(*values.shape[:-1], -1, self.columns).sum(axis=-2)
        return np.asarray(np.add.reduceat(values, self.starts, axis=-1))


_WHOLE = _Groups("", (0,))


def _groups_of(slot: Slot) -> Iterator[_Groups]:
    """The whole array; its rows and columns, or blocks of a vector."""
    yield _WHOLE
    count = slot.size
    last = slot.shape[-1] * len(slot.parts) if slot.shape and slot.entries is None else count
    if len(slot.shape) > 1 and count > last > 1:
        rows = count // last
        yield _Groups("row ", tuple(start * last for start in _even_starts(rows, _MOST_GROUPS)))
        yield _Groups("column ", _even_starts(last, _MOST_GROUPS), last)
    elif count > 16:
        yield _Groups("block ", _even_starts(count, min(count // 4, 16)))


def _even_starts(count: int, most: int) -> tuple[int, ...]:
    """Where each of at most so many groups of about the same size begins."""
    groups = min(count, most)
    return tuple(-(-group * count // groups) for group in range(groups))
