"""Every entry of a Jacobian by the law: what a check means wherever the screen is in doubt.

Columns are measured one by one, many at a time. An entry that looks wrong, or open, has to survive
further measurements of its column before it is reported: the finer step table, slopes at nearby
points, and the rounding that claim and values show in runs with fewer bits.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np

from gradproof._compare.claims import FEW_OUTPUTS
from gradproof._compare.comparison import (
    ROUNDED_UNIT,
    Comparison,
    entry_finding,
)
from gradproof._compare.nonsmooth import (
    joint_mismatch,
    kink_finding,
    kinks_of_entries,
    slopes_of_ties,
    slopes_with_neighbours,
    width_beyond_sample,
)
from gradproof._compare.screen import CANCELS, Screen, may_be_rounding
from gradproof._compare.tolerances import decide
from gradproof._data.formats import DOUBLE
from gradproof._data.records import Finding, Kink, Verdict
from gradproof._data.results import (
    MeasuredBlock,
    PointResult,
    count_of,
    inconclusive_point,
    passed_point,
)
from gradproof._data.space import Indices, Mask, Values, root_mean_square
from gradproof._maps.contract import Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._numdiff.probes import unit_vector
from gradproof._numdiff.slopes import Slopes, column_slopes, measured_slopes, some_scale_agrees
from gradproof._numdiff.steps import StepTable

_MOST_FINDINGS = 64  # that a report holds
_AT_ONCE = 1 << 17  # entries that are measured and decided together
_SCALES = StepTable(2.0**-3, 0.5, 8)  # where a staircase shows its mean slope
_REMEASURED = 64  # columns, the most doubtful first, that are measured again
_REMEASURED_OPEN = 8  # of these, that are not wrong at first
_PLAIN = 100.0  # bars beyond what is allowed: a gap that no further measurement explains
# Times the width of the sampled slopes: k kinks that meet reach k, of which a sample of 64 spans
# 2.3 root(k). Of twenty it leaves half its width at either end.
_UNSEEN = 0.5
TIMES_HONEST = 16.0  # of the error of such a run, scaled back to F's own precision


class Entries:
    """Decided entries of some columns, all outputs by these, in units of the tangent u.

    Attributes:
        comparison: of claims and F.
        columns: inputs, none of which stands still, (k,).
        u: of these columns, (k,).
        claimed: the entries times u, (m, k).
        unknown: entries of which nothing is claimed, (m, k).
        low, high, bar: the slopes, (m, k).
        wrong, open: the decisions, (m, k).
        allowed: b + s + t of each, (m, k).
        bound: how far the right ones may be off.
    """

    def __init__(
        self, comparison: Comparison, columns: Indices, claimed: Values, unknown: Mask
    ) -> None:
        self.comparison, self.columns, self.unknown = comparison, columns, unknown
        self._tangent = comparison.scales * np.sign(comparison.u)  # (n,)
        self.u = self._tangent[columns]
        self.claimed = np.where(claimed == 0, 0.0, claimed * self.u)
        self.low, self.high, self.bar, self.allowed = (np.empty(claimed.shape) for _ in range(4))
        self.wrong, self.open = (np.empty(claimed.shape, bool) for _ in range(2))
        self.bound = 0.0

    def column_slopes(self, which: Indices) -> Slopes:
        """The slopes of some of the columns, one after the other, (c * m,)."""
        columns, comparison = self.columns[which].tolist(), self.comparison
        return column_slopes(comparison.function, self._tangent, columns, comparison.steps)

    @functools.cached_property
    def row_sizes(self) -> Values:
        """The largest claimed term of each row, (m,)."""
        sizes = np.where(np.isfinite(self.claimed), np.abs(self.claimed), 0.0)
        return np.asarray(sizes.max(axis=1))

    def decide_columns(self, which: Indices, slopes: Slopes, further: Values | float = 0.0) -> None:
        """Decide the entries of some of the columns by the law.

        Args:
            which: positions of the columns, (c,).
            slopes: of these, one after the other, (c * m,).
            further: rounding of the claims that was measured.
        """
        comparison, settings = self.comparison, self.comparison.settings
        outputs, claimed = self.row_sizes.size, self.claimed[:, which].T.reshape(-1)
        sizes = np.where(np.isfinite(claimed), np.abs(claimed), 0.0).reshape(-1, outputs)
        beside = np.tile(self.row_sizes, len(which))
        # The terms of a row may cancel in all of its entries, and are as large as those of others.
        terms = np.minimum(np.repeat(sizes.max(axis=1), outputs), CANCELS * beside)
        typical = np.maximum(beside, root_mean_square(self.row_sizes))
        tolerance = settings.atol * np.repeat(np.abs(self.u[which]), outputs)
        tolerance = tolerance + settings.rtol * slopes.size
        # Of 0 times an infinite slope nothing is known, but where the entry is measured as zero.
        unknown, zero = self.unknown[:, which].T.reshape(-1), np.abs(slopes.middle) <= slopes.bar
        claimed = np.where(unknown, np.where(zero, 0.0, np.inf), claimed)
        known = replace(slopes, bar=np.where(unknown & ~zero, np.inf, slopes.bar))
        # Iterative solvers, and other sums that cancel, leave half the digits of a row as zero.
        half = math.sqrt(comparison.claim.unit) * beside
        rounding = np.where(zero, half, 0.0) + comparison.rounding(beside, terms) + further
        decisions = decide(
            known,
            claimed,
            rounding,
            tolerance,
            typical,
            comparison.resolution.of_entry,
            comparison.resolution.small,
            np.where(beside > 0, beside, typical),
        )
        for table, values in (
            (self.low, slopes.low),
            (self.high, slopes.high),
            (self.bar, slopes.bar),
            (self.wrong, decisions.wrong),
            (self.open, decisions.open),
            (self.allowed, decisions.allowed),
        ):
            table[:, which] = values.reshape(len(which), -1).T
        self.bound = max(self.bound, decisions.bound)

    def block(self, rows: Indices | None = None) -> MeasuredBlock:
        """The entries of some outputs, or of all, as derivatives, for places and causes."""
        rows = np.arange(len(self.claimed)) if rows is None else rows
        low, high = self.low[rows], self.high[rows]
        return MeasuredBlock(
            rows=rows,
            columns=self.columns,
            claimed=self.claimed[rows] / self.u + 0.0,  # no -0
            measured=(low + high) / 2 / self.u + 0.0,
            error=(self.bar[rows] + (high - low) / 2) / np.abs(self.u),
            allowed=self.allowed[rows] / np.abs(self.u),
            wrong=self.wrong[rows],
            whole=self.claimed[rows].size == len(self.claimed) * self.comparison.inputs,
        )

    def wrong_findings(self) -> tuple[Finding, ...]:
        """The findings of wrong entries, NaN and the largest gap first."""
        block = self.block()
        gap = np.abs(block.claimed - block.measured)
        gap = np.where(block.wrong, np.where(np.isnan(gap), np.inf, gap), -1.0)
        order = np.argsort(-gap, axis=None, kind="stable")[:_MOST_FINDINGS]
        findings = []
        for i, k in zip(*np.unravel_index(order, gap.shape), strict=True):
            if not block.wrong[i, k]:
                break
            tables = (block.claimed, block.measured, block.error, block.allowed)
            numbers = [table[i, k] for table in tables]
            finding = entry_finding(self.comparison, int(i), int(block.columns[k]), numbers)
            low, high = sorted((self.low[i, k] / self.u[k], self.high[i, k] / self.u[k]))
            findings.append(finding if low == high else kink_finding(finding, low, high))
        return tuple(findings)


def entries_result(comparison: Comparison, screen: Screen) -> PointResult:
    """Measure and decide every entry of the Jacobian.

    Args:
        comparison: of at most `full_jacobian` inputs.
        screen: what the first tangent shows.
    """
    if (height := _height_of_treads(comparison, screen)).any():
        comparison = replace(comparison, function=comparison.function.with_jitter(height))
    claimed, columns = comparison.claim.matrix(), np.flatnonzero(screen.u)
    smooth = screen.is_smooth and comparison.is_smooth_nearby
    found = decided_entries(comparison, claimed[:, columns], columns, smooth=smooth)
    block = found.block()
    kinked = (found.high > found.low) & np.isfinite(found.bar)
    ends = found.low / found.u, found.high / found.u
    kinks = kinks_of_entries(comparison, block, ends, kinked & ~found.wrong)
    if found.wrong.any():
        total, number = block.wrong.size, int(block.wrong.sum())
        text = f"{number:,} of {total:,} entries wrong"
        findings = found.wrong_findings()
        is_known = np.isfinite(block.error[block.wrong]).all()  # else there is no cause in them
        evidence = block if is_known else None
        return PointResult(Verdict.FAILED, text, findings, kinks=kinks, block=evidence)
    if block.whole and kinked.any():
        mismatch = joint_mismatch(comparison, claimed, block.allowed, kinked.sum(axis=1))
        if mismatch is not None:
            text = "each entry is a slope at a kink, but together they are no gradient near it"
            return PointResult(Verdict.FAILED, text, (mismatch,), kinks=kinks, block=block)
    if found.open.any():
        return _open_entries(found, kinks)
    finely = f"to {found.bound:.0e}" if found.bound < 1 else "within the tolerance"
    text = f"{comparison.jacobian_text} verified {finely}, entry by entry"
    result = replace(passed_point(text, found.bound), kinks=kinks)
    return result.with_notes(_note_of_small_entries(block, comparison.settings.atol))


def _height_of_treads(comparison: Comparison, screen: Screen) -> Values:
    """The height of treads in which outputs go along whole tangents, (m,); 0 of other outputs.

    A single column may see one tread alone, and one tangent may too: that of outputs so small that
    they may be rounding is looked for along two.
    """
    function, decisions = comparison.function, screen.decisions
    height = np.where(screen.slopes.in_treads, screen.slopes.noise, 0.0)
    if screen.claimed is not None:
        doubtful = (decisions.wrong | decisions.open) & (height == 0)
        if (doubtful & may_be_rounding(function.centre, function.unit)).any():
            table = function.table(comparison.second_tangent, comparison.steps.fine)
            other = measured_slopes(table)
            height = np.maximum(height, np.where(other.in_treads, other.noise, 0.0))
    return height


def _note_of_small_entries(block: MeasuredBlock, atol: float) -> str:
    """That some entries are right only because all that is known of them is below `atol`."""
    granted = np.abs(block.claimed - block.measured) > block.allowed - atol
    granted &= np.maximum(np.abs(block.claimed), np.abs(block.measured)) < atol
    text = f"{count_of(int(granted.sum()))} of {granted.size:,} passed by atol alone"
    return f"{text}: claimed and measured differ, both below atol" if granted.any() else ""


def decided_entries(
    comparison: Comparison,
    claimed: Values,
    columns: Indices,
    *,
    smooth: bool,
    unknown: Mask | None = None,
) -> Entries:
    """The decision of every entry of some columns; of ill-scaled ones beside each other only.

    Args:
        comparison: of claims and F.
        claimed: entries of these columns, (m, k).
        columns: inputs, none of which stands still, (k,).
        smooth: whether F has no kink at the point: then a gap of many bars is final.
        unknown: entries of which nothing is claimed, (m, k); None for none.
    """
    # 0 times an infinite slope is NaN, and no claim of the entry beside the infinite one.
    infinite = np.isinf(claimed)
    beside = np.expand_dims(infinite.any(axis=0), 0) | np.expand_dims(infinite.any(axis=1), 1)
    still = comparison.map.domain.still
    if still is not None and np.isnan(claimed).any():  # beside the slope of an input that is held
        held = comparison.claim.push(still.astype(float))
        beside |= held is not None and ~np.isfinite(held)[:, None]
    lost = np.isnan(claimed) & beside
    found = Entries(comparison, columns, claimed, lost if unknown is None else lost | unknown)
    step = max(1, _AT_ONCE // (8 * comparison.outputs))
    for start in range(0, len(columns), step):
        which = np.arange(start, min(start + step, len(columns)))
        slopes = found.column_slopes(which)
        # A slope that looks infinite may be one that only finer steps show: it is open first.
        found.decide_columns(
            which, replace(slopes, bar=np.where(np.isinf(slopes.width), np.inf, slopes.bar))
        )
    if found.wrong.any() or found.open.any():
        _remeasure_columns(found, smooth=smooth)
    if found.open.any() and comparison.settings.classic_step:
        _judge_by_classic_step(found)
    return found


def _remeasure_columns(found: Entries, *, smooth: bool) -> None:
    """Measure the most doubtful columns again, until an entry is wrong for sure.

    Others that were not measured again count as wrong too, but for those at kinks; as open without
    a sure one.
    """
    doubt = np.maximum(2 * found.wrong, found.open).max(axis=0)
    unasked, kinked = found.wrong.copy(), found.high > found.low
    is_sure, open_columns = False, 0
    for k in np.argsort(-doubt, kind="stable")[:_REMEASURED]:
        is_wrong, which = doubt[k] > 1, np.asarray([k])
        if not doubt[k] or is_sure or open_columns == _REMEASURED_OPEN:
            break
        again, rounding = remeasured_slopes(
            found.comparison,
            found.column_slopes(which),
            found.claimed[:, k],
            unit_vector(found.comparison.inputs, int(found.columns[k]), float(found.u[k])),
            found.allowed[:, k] if smooth and is_wrong else None,
        )
        found.decide_columns(which, again, rounding)
        unasked[:, k], is_sure = False, bool(found.wrong[:, k].any())
        open_columns += not is_wrong
    if is_sure:
        unasked &= kinked
    found.wrong &= ~unasked
    found.open |= unasked


def remeasured_slopes(
    comparison: Comparison,
    slopes: Slopes,
    claimed: Values,
    w: Values,
    allowed: Values | None = None,
) -> tuple[Slopes, Values]:
    """Slopes along w measured again, as a finding has to survive it: with the rounding of claims.

    With the finer step table. Where a claim is still off: with the slopes at nearby points, with
    the rounding that claims and values show, and with a bar as wide as the gap where differences on
    some scale agree with the claim.

    Args:
        comparison: of claims and F.
        slopes: along w, (m,).
        claimed: J w, (m,).
        w: a direction, (n,); one coordinate of it for a column.
        allowed: of each claim, (m,): where one is off by that and by many bars, and by more than
            the rounding of claims and values, nothing else is measured; None to measure always.
    """
    function = comparison.function
    if allowed is not None:
        plain = (slopes.gap(claimed) > allowed + _PLAIN * slopes.bar) & (slopes.width == 0)
        plain &= ~may_be_rounding(function.centre, function.unit)
        if plain.any() and _is_beyond_doubt(comparison, slopes, claimed, w, plain, allowed):
            return slopes, np.zeros(claimed.size)
    fine, moved = function.table(w, comparison.steps.fine), np.flatnonzero(w)
    slopes = slopes.merge(measured_slopes(fine))
    rounding = np.zeros(claimed.size)
    if not (slopes.gap(claimed) > slopes.bar).any():
        return slopes, rounding
    smooth = slopes.width == 0
    at_point = slopes
    slopes = slopes_with_neighbours(comparison, slopes, claimed, w)
    # Of many pieces that meet a sample misses some, and with them the ends of the interval: a claim
    # a little beyond is open.
    unseen = _UNSEEN * width_beyond_sample(at_point, slopes)
    missed = (slopes.gap(claimed) > slopes.bar) & (slopes.gap(claimed) <= unseen)
    slopes = replace(slopes, bar=np.where(missed, np.inf, slopes.bar))
    if not (slopes.width > 0).any():
        doubtful = slopes.gap(claimed) > slopes.bar
        gaps = np.where(doubtful, slopes.gap(claimed), 0.0)
        rounding, jitter = rounding_of_runs(comparison, claimed, w, gaps)
        jitter = np.where(doubtful, jitter, 0.0)  # the others stay as sharp
        if (jitter > slopes.noise).any():
            usual = function.table(w, comparison.steps.usual)
            noisy = [measured_slopes(replace(table, jitter=jitter)) for table in (fine, usual)]
            slopes = noisy[0].merge(noisy[1])
    if len(moved) == 1:
        slopes = slopes_of_ties(comparison, slopes, claimed, int(moved[0]), smooth)
    agrees = some_scale_agrees(fine, slopes, claimed)
    agrees |= some_scale_agrees(function.table(w, _SCALES), slopes, claimed)
    return replace(slopes, bar=np.where(agrees, 2 * slopes.gap(claimed), slopes.bar)), rounding


def _is_beyond_doubt(
    comparison: Comparison, slopes: Slopes, claimed: Values, w: Values, plain: Mask, allowed: Values
) -> bool:
    """Whether some gap of many bars is wide beside rounding, also by the longest and shortest step.

    On the treads of a staircase short steps agree on a slope that is not that of long ones; where F
    oscillates faster than the steps that were made, these agree on its mean.
    """
    function, gap, steps = comparison.function, slopes.gap(claimed), comparison.steps.usual.steps
    for step in (steps[0], steps[-1]):
        ahead, behind = (function.value_at(comparison.map.point + h * w) for h in (step, -step))
        rounding = 2 * function.unit * np.abs(function.centre) / step
        off = np.abs((ahead - behind) / (2 * step) - slopes.middle)
        plain = plain & (off <= gap / 4 + rounding)
        if not plain.any():
            return False
    rounding, jitter = rounding_of_runs(comparison, claimed, w, np.where(plain, gap, 0.0))
    room = allowed + _PLAIN * slopes.bar + rounding + jitter / comparison.steps.usual.steps[-1]
    return bool((plain & (gap > room)).any())


def rounding_of_runs(
    comparison: Comparison, claimed: Values, u: Values, gaps: Values
) -> tuple[Values, Values]:
    """How far rounding moves J u as claimed, and F, (m,) each.

    Of sigmoid(x) - 1 few digits are left, in the claim and in F. Runs of the same function with
    every operation rounded show how many; their errors are scaled back. Where J u cannot be had at
    once the outputs with the largest gaps are asked for, and others count as rounded like the worst
    of these.

    Args:
        comparison: of claims and F.
        claimed: J u, (m,).
        u: a direction, (n,).
        gaps: by how much each claim is off, (m,); 0 of those that are not in doubt.
    """
    off, error = np.zeros(claimed.size), np.zeros(claimed.size)
    rows = np.argsort(-gaps, kind="stable")[: min(FEW_OUTPUTS, np.count_nonzero(gaps))]
    for claim, value_error in comparison.rounded_runs:
        error = np.maximum(error, value_error)
        try:
            with users_errors():
                run = claim()
                other = run.push(u)
                if other is None and rows.size:
                    products = np.array([run.row_products(int(i))(u) for i in rows])
                    worst = np.nan_to_num(np.abs(products - claimed[rows])).max()
                    other = np.where(gaps > 0, claimed + worst, claimed)
                    other[rows] = products
        except (Unsupported, UsersError):
            break
        if other is None:
            break
        off = np.maximum(off, np.nan_to_num(np.abs(other - claimed)))
    # Of a claim in fewer bits than the runs have, what it differs by is its own rounding already.
    unit = max(comparison.unit, 2.0**-53)
    back = TIMES_HONEST * unit / max(ROUNDED_UNIT, unit)
    return back * off, back * error / 4


def _judge_by_classic_step(found: Entries) -> None:
    """Decide open entries by a plain central difference, as PyTorch's gradcheck does.

    Their error bars stay as they were, infinite at a jump: no step is known to be right.
    Not of unknown entries, nor of outputs in few bits, which so short a step does not move.
    """
    comparison, settings = found.comparison, found.comparison.settings
    point, function, step = comparison.map.point, comparison.function, settings.classic_step
    assert step is not None
    for k in np.flatnonzero(found.open.any(axis=0)):
        move = unit_vector(comparison.inputs, int(found.columns[k]), step)
        slope = (function.value_at(point + move) - function.value_at(point - move)) / (2 * step)
        slope, u = slope * found.u[k], abs(found.u[k])
        allowed = settings.atol * u + settings.rtol * np.abs(slope)
        gap = np.abs(found.claimed[:, k] - slope)
        close = gap <= allowed
        decided = found.open[:, k] & ~found.unknown[:, k]
        decided &= np.isfinite(function.centre) & (function.unit < DOUBLE)
        # A plain difference is rounded as well: a gap of that size refutes nothing.
        rounded = 2 * function.unit * np.abs(function.centre) / step * u
        decided &= close | (gap > allowed + rounded)
        wrong = decided & ~close
        for table, value in ((found.low, slope), (found.high, slope), (found.allowed, allowed)):
            table[wrong, k] = value[wrong]
        found.wrong[:, k] |= wrong
        found.open[:, k] &= ~decided


def _open_entries(found: Entries, kinks: tuple[Kink, ...]) -> PointResult:
    """That some entries are open, the first of them and why."""
    comparison = found.comparison
    i, k = (int(at[0]) for at in np.nonzero(found.open))
    value = float((found.low + found.high)[i, k] / 2 / found.u[k])
    bar = float(found.bar[i, k] / abs(found.u[k]))
    if math.isfinite(bar):
        why = f"measured {value:.3g} +- {bar:.1g}"
        tolerance = comparison.settings.atol + comparison.settings.rtol * abs(value)
        rounding = float(found.allowed[i, k] / abs(found.u[k])) - bar - tolerance
        if rounding > bar:
            why = f"{why}, but the claim is rounded by up to {rounding:.1g} itself"
    elif not math.isfinite(comparison.function.centre[i]):
        why = f"the output is {comparison.function.centre[i]:g} there"
    else:
        why = comparison.function.raised or "no step gives a stable difference"
    input_ = comparison.map.domain.locate(int(found.columns[k]))
    place = f"{input_} -> {comparison.map.codomain.locate(i)}"
    number = int(found.open.sum())
    summary = (
        f"{number:,} of {found.open.size:,} entries could not be resolved, {place} first: {why}"
    )
    return replace(inconclusive_point(summary), bound=found.bound, kinks=kinks)


def open_outputs_text(comparison: Comparison, rows: Indices, bound: float) -> str:
    """That some outputs could not be resolved, in words."""
    place = comparison.map.codomain.locate(int(rows[0]))
    raised = comparison.function.raised
    others = f"; the others agree to {bound:.0e}" if len(rows) < comparison.outputs else ""
    return (
        f"{count_of(len(rows), 'output', 'outputs')} of {comparison.outputs:,} could not be "
        f"resolved, {place} first{': ' + raised if raised else ''}{others}"
    )
