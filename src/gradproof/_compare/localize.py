"""Wrong entries of a Jacobian too large to be measured: by bisection of outputs and inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradproof._compare.comparison import Comparison, verified_text
from gradproof._compare.entries import decided_entries, remeasured_slopes
from gradproof._compare.screen import Screen
from gradproof._compare.tolerances import bound_of_entry, decide
from gradproof._data.records import Verdict
from gradproof._data.results import PointResult, count_of, inconclusive_point, passed_point
from gradproof._data.space import Indices, Space, Values, root_mean_square
from gradproof._numdiff.probes import unit_vector

_BLOCK_COLUMNS = 24  # columns that are measured for places and causes of more than one mistake
_LONGEST_LINE = 64  # entries of a line along the last axis of an array, in place of these
_BLOCK_ROWS = 64
_BLOCK_ENTRIES = 1 << 20  # of which the rows are chosen that are wrong
_NO_WRONG_ENTRY = "a projection differs, but by no entry that is wrong beyond rounding"

SlopeOfPart = Callable[[Values], float]


def localized_result(comparison: Comparison, screen: Screen) -> PointResult:
    """What the law says of a wrong column in a wrong row, or of a few columns around it.

    The row is found by halving the outputs, the column by halving the tangent. Columns around it
    show places and causes of a mistake in several: one after which the row is off still, or that
    leaves many other rows wrong.
    """
    if (row := _wrong_output(comparison, screen)) is None:
        return inconclusive_point(_NO_WRONG_ENTRY)
    claimed_product = comparison.claim.row_products(row)
    steps = comparison.steps
    # The step that showed the row first. A longer one may leave the piece of F that the point is
    # in; but beside large terms a short one shows their rounding.
    for table in (steps.quick, steps.usual):
        if table is None:
            continue
        step = float(table.steps[1])
        column, gap, rest = _wrong_input(comparison, screen, row, claimed_product, step)
        several = abs(rest) > 1e-2 * abs(gap)
        if screen.claimed is not None:
            several |= int(screen.decisions.wrong.sum()) > _BLOCK_COLUMNS
        found = _columns_result(comparison, screen, row, column, several=several)
        if found.verdict is Verdict.FAILED:
            return found
    return _result_within_tolerance(comparison, screen) or found


def _wrong_output(comparison: Comparison, screen: Screen) -> int | None:
    """An output whose row is wrong: the one with the largest gap, or found by halving.

    In parts of its bar and of what the user tolerates of one entry as large as the row.
    """
    if screen.claimed is not None:
        settings, rows = comparison.settings, screen.slopes
        gap = np.nan_to_num(rows.gap(screen.claimed), nan=np.inf)
        tolerance = settings.rtol * rows.size + settings.atol * float(np.abs(screen.u).max())
        ratio = gap / (rows.bar + tolerance + 1e-300)
        return int(np.argmax(np.where(screen.decisions.wrong, ratio, -1.0)))
    slopes = screen.slopes.middle
    remaining = np.flatnonzero(np.isfinite(screen.slopes.bar))
    if not remaining.size:
        return None
    v, used = comparison.claim.v, screen.u != 0

    def gap_of(outputs: Indices) -> float:
        part = np.zeros_like(v)
        part[outputs] = v[outputs]
        gradient = comparison.claim.pull(part)
        return float(part[outputs] @ slopes[outputs] - gradient[used] @ screen.u[used])

    return int(_position_by_bisection(remaining, gap_of(remaining), gap_of)[0])


def _position_by_bisection(
    remaining: Indices, total: float, gap_of: Callable[[Indices], float]
) -> tuple[int, float, float]:
    """The position with a gap that halving finds, its gap, and that of all others."""
    gap = total
    while len(remaining) > 1:
        half, other = np.array_split(remaining, 2)
        part = gap_of(half)
        if not np.isfinite(part) or abs(part) >= abs(gap - part):
            remaining, gap = half, part
        else:
            remaining, gap = other, gap - part
    return int(remaining[0]), gap, total - gap


def _wrong_input(
    comparison: Comparison, screen: Screen, row: int, claimed: SlopeOfPart, step: float
) -> tuple[int, float, float]:
    """A column that is wrong in one row, the gap it makes, and the gap of all others.

    The slope along each part of the tangent is one central difference of this step.
    """
    value_at = comparison.function.value_at

    def gap_of(inputs: Indices) -> float:
        part = np.zeros_like(screen.u)
        part[inputs] = screen.u[inputs]
        ahead = value_at(comparison.map.point + step * part)[row]
        behind = value_at(comparison.map.point - step * part)[row]
        return claimed(part) - float((ahead - behind) / (2 * step))

    total = claimed(screen.u) - float(screen.slopes.middle[row])
    return _position_by_bisection(np.flatnonzero(screen.u), total, gap_of)


def _columns_result(
    comparison: Comparison,
    screen: Screen,
    row: int,
    column: int,
    *,
    several: bool,
) -> PointResult:
    """What the law says of all entries of a column; with `several` of those around it too.

    Of very many outputs no column around it is measured. Where a backward can only be asked for
    rows, those around the wrong one are.
    """
    inputs, columns = comparison.inputs, np.asarray([column])
    if several or screen.claimed is None:
        around = _entries_around(comparison.map.domain, column)
        around = around[comparison.u[around] != 0]
        columns = around if comparison.outputs * around.size <= _BLOCK_ENTRIES else columns
    claims = [comparison.claim.push(unit_vector(inputs, int(j))) for j in columns]
    claimed, unknown, compared = np.zeros((comparison.outputs, len(columns))), None, ""
    known = [each for each in claims if each is not None]
    if len(known) == len(columns):
        claimed = np.stack(known, axis=1)
    else:
        near = _entries_around(comparison.map.codomain, row)
        for i in near:
            claimed[i] = comparison.claim.pull(unit_vector(comparison.outputs, int(i)))[columns]
        unknown = np.ones(claimed.shape, dtype=bool)
        unknown[near] = False
        compared = f", of which {len(near):,} x {len(columns):,} entries were compared"
    found = decided_entries(comparison, claimed, columns, smooth=screen.is_smooth, unknown=unknown)
    rows = np.flatnonzero(found.wrong.any(axis=1))
    if not rows.size:
        return inconclusive_point(_NO_WRONG_ENTRY)
    number, wrong_columns = int(found.wrong.sum()), columns[found.wrong.any(axis=0)]
    summary = f"{count_of(number, 'wrong entry', 'wrong entries')} located in the "
    summary += f"{comparison.jacobian_text}{compared}"
    if len(wrong_columns) == 1 and number > 1:
        place = comparison.map.domain.locate(int(wrong_columns[0]))
        summary += f", all with respect to {place}"
    wrong_rows = int(screen.decisions.wrong.sum()) if screen.claimed is not None else 0
    if wrong_rows > len(rows):
        summary = f"{wrong_rows:,} rows of the {comparison.jacobian_text} are wrong"
    # The row, one of each wrong column, which would look right without it, and others.
    first = found.wrong.argmax(axis=0)[found.wrong.any(axis=0) & ~found.wrong[row]]
    order = np.argsort(np.where(rows == row, 0, 2 - np.isin(rows, first)), kind="stable")
    block = found.block(np.sort(rows[order][:_BLOCK_ROWS]))
    return PointResult(Verdict.FAILED, summary, found.wrong_findings(), block=block)


def _entries_around(space: Space, position: int) -> Indices:
    """The line along the last axis in which an entry of an array lies, or its neighbours."""
    slot = space.slots[space.slot_at(position)]
    span = space.span(space.slot_at(position))
    length = slot.shape[-1] * len(slot.parts) if slot.shape and slot.entries is None else 0
    if 1 < length <= _LONGEST_LINE:
        first = span.start + (position - span.start) // length * length
        return np.arange(first, first + length)
    first = max(span.start, min(position - _BLOCK_COLUMNS // 2, span.stop - _BLOCK_COLUMNS))
    return np.arange(first, min(first + _BLOCK_COLUMNS, span.stop))


def _result_within_tolerance(comparison: Comparison, screen: Screen) -> PointResult | None:
    """That rows are off by no more than entries of random signs within `rtol` add up to.

    Errors of n such entries add up to sqrt(n) of one. None where a row is off by more, or open.
    """
    if screen.claimed is None:
        return None
    slopes, further = remeasured_slopes(comparison, screen.slopes, screen.claimed, screen.u)
    tolerance = comparison.settings.rtol * np.sqrt(np.count_nonzero(screen.u)) * slopes.size
    tolerance += comparison.settings.atol * float(np.sqrt(screen.u @ screen.u))
    decisions = decide(
        slopes.without_kinks(),
        screen.claimed,
        comparison.rounding(slopes.size, root_mean_square(slopes.middle)) + further,
        tolerance,
        0.0,
        comparison.resolution.of_row,
    )
    if not decisions.are_all_right or not decisions.bound < 1:
        return None
    bound = bound_of_entry(decisions.bound, comparison.inputs)
    return passed_point(f"{verified_text(comparison, bound)}, within the tolerance", bound)
