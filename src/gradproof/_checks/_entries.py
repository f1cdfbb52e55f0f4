"""Entry by entry: every column measured with its own ladder, judged by the user's tolerances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from array_api_compat import array_namespace

from gradproof._checks._claims import Claim
from gradproof._checks._outcome import entry, failed, inconclusive, passed
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure, probes
from gradproof._numerics.compare import Comparison, compare, within
from gradproof._records import CheckResult, Finding
from gradproof._settings import Settings
from gradproof._space import Array

MOST_FINDINGS = 64
_MOST_ENTRIES = 4_000_000
_CLAIM_ROUNDING = 1e-12  # of a claimed entry, as a part of the largest entry of its row


@dataclass(frozen=True)
class Entries:
    """Some rows of the Jacobian, or all, claimed and measured.

    Attributes:
        rows: which rows; None for all.
        comparison: entry by entry.
        size: largest measured entry of each row, in units of the column.
        kink: the part of the error bar that a kink makes.
    """

    rows: Sequence[int] | None
    comparison: Comparison
    size: Array
    kink: Array


def settle(
    map_: DifferentiableMap, settings: Settings, claim: Claim, rows: tuple[int, ...]
) -> CheckResult:
    """Verdict from the full Jacobian, or from as many rows of it as fit in memory."""
    entries = measured_entries(map_, settings, claim, rows)
    comparison = entries.comparison
    xp = array_namespace(comparison.gap)
    blurred = ~within(comparison.error, settings.resolution * entries.size + 0.25 * settings.atol)
    wrong = ~comparison.ok & xp.isfinite(comparison.error)
    notes: list[str] = []
    if settings.classic_step and bool(xp.any(blurred & ~wrong)):
        wrong, blurred, notes, comparison = _classic(map_, settings, entries, wrong, blurred)
    if bool(xp.any(wrong)):
        return _failed(map_, claim.check, entries.rows, comparison, wrong, notes)
    relative = xp.where(entries.size > 0, comparison.error / entries.size, 0.0)
    worst = float(xp.max(xp.where(blurred, 0.0, relative)))
    if bool(xp.any(blurred)):
        return _unresolved(map_, claim.check, entries, blurred, worst)
    return passed(
        claim.check,
        f"{map_.codomain.size:,} x {map_.domain.size:,} Jacobian, every entry measured, "
        f"verified to {worst:.0e}",
        resolution=worst,
        notes=tuple(notes),
    )


def measured_entries(
    map_: DifferentiableMap, settings: Settings, claim: Claim, rows: tuple[int, ...]
) -> Entries:
    """Claimed and measured entries, of all rows if they fit and of `rows` otherwise."""
    n, m = map_.domain.size, map_.codomain.size
    chosen = None if n * m <= _MOST_ENTRIES or not rows else rows[: max(1, _MOST_ENTRIES // n)]
    xp = array_namespace(map_.point)
    columns = [measure.column(map_, settings, j) for j in range(n)]
    value, error, kink = (
        xp.stack([_take(getattr(column, name), chosen) for column in columns], axis=1)
        for name in ("value", "error", "kink")
    )
    scale = probes.scales_of(map_)[None, :]
    finite = xp.where(xp.isfinite(value), xp.abs(value), 0.0)
    size = xp.max(finite * scale, axis=1, keepdims=True) / scale
    claimed = claim.matrix(chosen, (m, n), map_.point)
    comparison = compare(
        claimed,
        value,
        error,
        atol=settings.atol,
        rtol=settings.rtol,
        floor=max(_CLAIM_ROUNDING, 16 * map_.resolution) * size,
    )
    return Entries(chosen, comparison, size, kink)


def _take(values: Array, rows: Sequence[int] | None) -> Array:
    return values if rows is None else values[list(rows)]


def _classic(
    map_: DifferentiableMap, settings: Settings, entries: Entries, wrong: Array, blurred: Array
) -> tuple[Array, Array, list[str], Comparison]:
    """Let a plain central difference decide the entries that the error bars leave open.

    A gap within the half-gap of the one-sided slopes of a kink is a valid subgradient: it is
    accepted, with a remark.
    """
    comparison = entries.comparison
    xp = array_namespace(wrong)
    at_kink = blurred & ~wrong & (entries.kink >= 0.5 * comparison.error)
    at_kink = at_kink & xp.isfinite(comparison.error)
    open_ = blurred & ~wrong & ~at_kink
    notes = []
    if bool(xp.any(at_kink)):
        notes.append(
            "not differentiable here: the claimed derivative lies between the one-sided slopes"
        )
    measured = comparison.measured
    step = settings.classic_step or 0.0
    columns = sorted({int(j) for j in xp.nonzero(open_)[1]})
    for j in columns:
        column = measure.classic_column(map_, step, j)
        column = _take(column, entries.rows)
        here = xp.arange(map_.domain.size) == j
        measured = xp.where(open_ & here[None, :], column[:, None], measured)
    plain = compare(comparison.claimed, measured, 0.0, atol=settings.atol, rtol=settings.rtol)
    wrong = wrong | (open_ & ~plain.ok)
    if columns:
        notes.append(f"some entries were judged by a plain central difference of step {step:g}")
    allowed = xp.where(open_, plain.allowed, comparison.allowed)
    error = xp.where(open_, xp.nan, comparison.error)
    merged = Comparison(comparison.claimed, measured, error, allowed)
    return wrong, xp.zeros_like(blurred), notes, merged


def _failed(
    map_: DifferentiableMap,
    check: str,
    rows: Sequence[int] | None,
    comparison: Comparison,
    wrong: Array,
    notes: list[str],
) -> CheckResult:
    xp = array_namespace(wrong)
    where = [(int(i), int(j)) for i, j in zip(*xp.nonzero(wrong), strict=True)]
    findings = [
        entry(check, map_, (i if rows is None else rows[i], j), _numbers(comparison, i, j))
        for i, j in strongest(where, comparison)
    ]
    total = wrong.shape[0] * wrong.shape[1]
    summary = f"{len(where):,} of {total:,} entries wrong" + pattern(wrong, map_)
    return failed(check, summary, tuple(findings), notes=tuple(notes))


def _numbers(comparison: Comparison, i: int, j: int) -> tuple[float, float, float, float]:
    c = comparison
    return (
        float(c.claimed[i, j]),
        float(c.measured[i, j]),
        float(c.error[i, j]),
        float(c.allowed[i, j]),
    )


def strongest(where: list[tuple[int, int]], comparison: Comparison) -> list[tuple[int, int]]:
    """The wrong entries with the largest gaps, NaN first."""

    def key(at: tuple[int, int]) -> float:
        gap = float(comparison.gap[at[0], at[1]])
        return float("-inf") if gap != gap else -gap

    return sorted(where, key=key)[:MOST_FINDINGS]


def pattern(wrong: Array, map_: DifferentiableMap) -> str:
    """Which whole rows or columns are wrong, in words; empty where neither says it."""
    xp = array_namespace(wrong)
    if wrong.shape[0] < 2 or wrong.shape[1] < 2:
        return ""
    if bool(xp.all(wrong)):
        return ": all of them"
    counts = xp.sum(xp.astype(wrong, xp.int64), axis=1)
    if (
        bool(xp.all((counts == 0) | (counts == wrong.shape[1])))
        and wrong.shape[0] == map_.codomain.size
    ):
        rows = [int(i) for i in xp.nonzero(counts)[0]]
        return f": {len(rows)} whole row(s), {map_.codomain.locate(rows[0])} first"
    columns = [int(j) for j in xp.nonzero(xp.sum(xp.astype(wrong, xp.int64), axis=0))[0]]
    if len(columns) == 1:
        return f": all with respect to {map_.domain.locate(columns[0])}"
    return ""


def _unresolved(
    map_: DifferentiableMap, check: str, entries: Entries, blurred: Array, worst: float
) -> CheckResult:
    xp = array_namespace(blurred)
    rows, columns = xp.nonzero(blurred)
    i, j = int(rows[0]), int(columns[0])
    row = i if entries.rows is None else entries.rows[i]
    output, input_ = map_.codomain.locate(row), map_.domain.locate(j)
    comparison = entries.comparison
    value, error = float(comparison.measured[i, j]), float(comparison.error[i, j])
    if error < float("inf") and float(entries.kink[i, j]) >= 0.5 * error:
        why = f"not differentiable: slopes between {value - error:.3g} and {value + error:.3g}"
    elif error < float("inf"):
        why = f"measured {value:.3g} +- {error:.1g}"
    else:
        why = map_.memo.get(("raised",)) or "no step gives a stable difference"
    return inconclusive(
        check,
        f"{rows.shape[0]:,} of {blurred.shape[0] * blurred.shape[1]:,} entries could not be "
        f"resolved, {input_} -> {output} first: {why}",
        resolution=worst,
    )


def column_findings(
    map_: DifferentiableMap, settings: Settings, claim: Claim, j: int, rows: Sequence[int]
) -> tuple[list[Finding], Array, Array]:
    """Confirm one column: its findings, the wrong rows as a mask, and claimed minus measured.

    Only `rows` are judged where the mode has no columns.
    """
    found = measure.column(map_, settings, j)
    xp = array_namespace(found.value)
    whole = claim.along(measure.unit(map_.point, j))
    claimed = found.value if whole is None else whole
    if whole is None:
        for i in rows:
            row = claim.row(i)
            assert row is not None  # a mode has rows or columns
            claimed = xp.where(xp.arange(claimed.shape[0]) == i, row[j], claimed)
    size = xp.where(xp.isfinite(found.value), xp.abs(found.value), 0.0)
    comparison = compare(
        claimed[:, None],
        found.value[:, None],
        found.error[:, None],
        atol=settings.atol,
        rtol=settings.rtol,
        floor=max(_CLAIM_ROUNDING, 16 * map_.resolution) * float(xp.max(size)),
    )
    wrong = (~comparison.ok & xp.isfinite(comparison.error))[:, 0]
    where = [(int(i), 0) for i in xp.nonzero(wrong)[0]]
    findings = [
        entry(claim.check, map_, (i, j), _numbers(comparison, i, 0))
        for i, _ in strongest(where, comparison)
    ]
    return findings, wrong, claimed - found.value
