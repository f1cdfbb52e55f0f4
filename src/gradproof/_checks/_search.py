"""Locating wrong entries of a Jacobian that is too large to be measured whole."""

from __future__ import annotations

from dataclasses import dataclass, replace

from array_api_compat import array_namespace

from gradproof._checks import _entries
from gradproof._checks._claims import Claim
from gradproof._checks._outcome import failed, inconclusive, passed
from gradproof._explain.localise import MANY, Residual, columns_of_rows, rows_by_splitting
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure, probes
from gradproof._records import CheckResult, Finding
from gradproof._settings import Settings
from gradproof._space import Array

_ROUNDS = 3


@dataclass
class _Hunt:
    """The state of one search: what is known of the rows under suspicion."""

    map: DifferentiableMap
    settings: Settings
    claim: Claim
    rows: list[int]
    claimed_rows: list[Array]  # empty where the mode has no rows


def locate(
    map_: DifferentiableMap, settings: Settings, claim: Claim, suspects: tuple[int, ...]
) -> CheckResult:
    """Find the wrong entries behind a suspicion and judge those."""
    many_rows = len(suspects) > MANY
    rows = list(suspects[:MANY])
    if not rows:
        found, complete = _suspect_rows(map_, settings, claim)
        rows, many_rows = list(found), not complete
    findings: list[Finding] = []
    seen: set[int] = set()
    vague = 0
    remaining = rows
    for _ in range(_ROUNDS):
        if not remaining:
            break
        hunt = _hunt(map_, settings, claim, remaining)
        columns, crowded = _columns(hunt)
        fresh = [j for j in columns if j not in seen][:MANY]
        vague += crowded
        if not fresh:
            break
        explained = _confirm(hunt, fresh, findings)
        seen.update(fresh)
        if not suspects or crowded:
            break
        remaining = _unexplained(map_, settings, claim, suspects, explained)
    return _conclude(map_, settings, claim, findings, (len(suspects), many_rows, vague))


def _suspect_rows(
    map_: DifferentiableMap, settings: Settings, claim: Claim
) -> tuple[tuple[int, ...], bool]:
    """Wrong rows, from projections on ranges of outputs: one VJP each and no evaluation."""
    first = measure.along(map_, settings, 0)
    xp = array_namespace(first.direction)
    v = probes.cotangent(map_, settings.seed or 0, 0)
    index = xp.arange(map_.codomain.size)
    usable = xp.isfinite(first.estimate.error)

    def residual(low: int, high: int) -> tuple[float, float]:
        part = xp.where((index >= low) & (index < high) & usable, v, 0.0)
        found = first.ladder.estimate(part[None, :])
        gradient = claim.project(part)
        assert gradient is not None  # only a mode that projects is searched this way
        claimed = float((gradient * first.direction).sum())
        size = float(((part * first.estimate.value) ** 2).sum()) ** 0.5
        return claimed - float(found.value[0]), 4 * float(found.error[0]) + 1e-9 * size

    return rows_by_splitting(residual, map_.codomain.size)


def _hunt(map_: DifferentiableMap, settings: Settings, claim: Claim, rows: list[int]) -> _Hunt:
    rows = rows[:MANY]
    claimed = [claim.row(i) for i in rows]
    known = [row for row in claimed if row is not None]
    return _Hunt(map_, settings, claim, rows, known)


def _columns(hunt: _Hunt) -> tuple[list[int], int]:
    """Columns to measure, and how many rows are wrong in more columns than can be told."""
    first = measure.along(hunt.map, hunt.settings, 0)
    xp = array_namespace(first.direction)
    at = xp.asarray(hunt.rows)
    step = float(xp.min(first.estimate.step[at]))
    noise = 3 * first.estimate.step_error[at]

    def residual(mask: Array) -> Residual:
        u = first.direction * mask
        moved = hunt.map.value(hunt.map.point + step * u) - hunt.map.value(
            hunt.map.point - step * u
        )
        gap = _claimed(hunt, u) - moved[at] / (2 * step)
        return Residual(gap, noise)

    total = Residual(_claimed(hunt, first.direction) - first.estimate.value[at], noise)
    per_row = columns_of_rows(residual, total, hunt.map.domain.size, first.direction)
    columns = list(dict.fromkeys(j for row in per_row if row is not None for j in row))
    crowded = [k for k, row in enumerate(per_row) if row is None]
    for k in crowded[:1]:
        columns += _representatives(hunt, k, first.direction)
    return columns, len(crowded)


def _claimed(hunt: _Hunt, u: Array) -> Array:
    """J u on the rows of the hunt."""
    xp = array_namespace(u)
    if hunt.claimed_rows:
        return xp.stack([(row * u).sum() for row in hunt.claimed_rows])
    whole = hunt.claim.along(u)
    assert whole is not None  # a mode has rows or columns
    return whole[xp.asarray(hunt.rows)]


def _representatives(hunt: _Hunt, k: int, u: Array) -> list[int]:
    """Columns of a row that is wrong nearly everywhere: its largest claimed ones, then a spread."""
    xp = array_namespace(u)
    n = hunt.map.domain.size
    spread = [n // 7, n // 2, (6 * n) // 7]
    if not hunt.claimed_rows:
        return spread
    order = xp.argsort(xp.abs(hunt.claimed_rows[k] * u))
    return [int(order[-1]), int(order[-2]), *spread]


def _confirm(hunt: _Hunt, columns: list[int], findings: list[Finding]) -> dict[int, Array]:
    """Measure each column; add what is wrong in it; return claimed minus measured per column."""
    gaps = {}
    for j in columns:
        found, _, gap = _entries.column_findings(hunt.map, hunt.settings, hunt.claim, j, hunt.rows)
        findings += found
        gaps[j] = gap
    return gaps


def _unexplained(
    map_: DifferentiableMap,
    settings: Settings,
    claim: Claim,
    suspects: tuple[int, ...],
    gaps: dict[int, Array],
) -> list[int]:
    """Suspects whose residual the measured columns do not account for."""
    first = measure.along(map_, settings, 0)
    claimed = claim.along(first.direction)
    if claimed is None:
        return []
    residual = claimed - first.estimate.value
    for j, gap in gaps.items():
        residual = residual - gap * first.direction[j]
    bar = 4 * first.estimate.error + 1e-6 * abs(claimed - first.estimate.value)
    return [i for i in suspects if not abs(float(residual[i])) <= float(bar[i])]


def _conclude(
    map_: DifferentiableMap,
    settings: Settings,
    claim: Claim,
    findings: list[Finding],
    extent: tuple[int, bool, int],
) -> CheckResult:
    rows, many_rows, crowded = extent
    findings = sorted(findings, key=lambda found: -found.gap if found.gap == found.gap else 0.0)
    unique = {(str(f.output), str(f.input)): f for f in reversed(findings)}
    kept = tuple(sorted(unique.values(), key=lambda f: -f.gap))[: _entries.MOST_FINDINGS]
    if not kept:
        note = "a projection differs, but no measured entry is beyond its tolerance"
        if settings.atol or settings.classic_step:
            return passed(claim.check, note, notes=(note,))
        return inconclusive(claim.check, note)
    size = f"{map_.codomain.size:,} x {map_.domain.size:,} Jacobian"
    summary = f"{len(unique):,} wrong entries located in the {size}"
    if crowded:
        summary = f"rows of the {size} are wrong in many columns, {kept[0].output} first"
        kept = tuple(replace(found, kind="row") for found in kept)
    elif many_rows:
        inputs = {str(found.input) for found in kept}
        told = f"{rows:,}" if rows else "many"
        summary = f"{told} rows of the {size} are wrong"
        if len(inputs) == 1:
            summary += f", all with respect to {kept[0].input}"
    return failed(claim.check, summary, kept)
