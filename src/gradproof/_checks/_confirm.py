"""Single columns of a Jacobian that is too large to be measured whole, confirmed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradproof._checks import _kinks
from gradproof._checks._claims import Claim
from gradproof._checks._entries import CLAIM_ROUNDING
from gradproof._checks._found import (
    BARS,
    MOST_FINDINGS,
    Confirmed,
    findings_of,
    ranked,
    wrong_entries,
)
from gradproof._checks._outcome import entry
from gradproof._checks._picked import Row
from gradproof._map import DifferentiableMap
from gradproof._numerics import jacobian, measure
from gradproof._numerics.compare import compare, within
from gradproof._records import Finding
from gradproof._settings import Settings
from gradproof._space import Array, namespace

# Parts of the half-gap of two slopes above which a gap is not looked at as a kink's.
_BENT = 64.0


def column_findings(
    map_: DifferentiableMap, settings: Settings, claim: Claim, j: int, rows: Mapping[int, Row]
) -> Confirmed:
    """Confirm one column. Only `rows`, as claimed, are judged where the mode has no columns."""
    whole = claim.along(jacobian.unit(map_.point, j))
    measured = jacobian.climbed(map_, settings, j, lean=_few_bits(map_))
    found = measured.estimate
    xp = namespace(found.value)
    claimed = found.value if whole is None else whole
    if whole is None:
        for i, row in rows.items():
            claimed = xp.where(xp.arange(claimed.shape[0]) == i, row[j], claimed)
    size = xp.where(xp.isfinite(found.value), xp.abs(found.value), 0.0)
    comparison = compare(
        claimed[:, None],
        found.value[:, None],
        found.error[:, None],
        atol=settings.atol,
        rtol=settings.rtol,
        floor=max(CLAIM_ROUNDING, 16 * map_.resolution) * float(xp.max(size)),
    )
    largest = max(float(xp.max(size)), settings.atol)
    blurred = ~within(comparison.error, xp.full_like(comparison.error, 0.5 * largest))
    wrong = wrong_entries(comparison, found.kink[:, None], blurred)
    findings = findings_of(claim.check, map_, comparison, wrong, columns=[j])
    where = [i for i, _ in ranked(comparison, wrong)]
    bent = xp.zeros_like(wrong[:, 0])
    bent[where[:MOST_FINDINGS]] = True
    bent &= (found.kink >= 0.5 * found.error) & (comparison.gap[:, 0] <= _BENT * found.error)
    if not settings.classic_step and bool(xp.any(bent)):
        findings = _kinks.renamed(map_, settings, findings, j, (claimed, bent))
    known = list(rows) if whole is None else []
    return Confirmed(findings, where, claimed, known, measured, comparison)


def _few_bits(map_: DifferentiableMap) -> bool:
    return map_.resolution > measure.DOUBLE


def grouped_findings(
    map_: DifferentiableMap,
    settings: Settings,
    claim: Claim,
    along: tuple[Array, Mapping[int, Row]],
    entries: Sequence[tuple[int, int, float]],
) -> tuple[list[Finding], Array]:
    """Confirm single entries of several rows at once, by one ladder along all of their columns.

    Each row is wrong in one column, so all of its gap along `u` comes from there.

    Args:
        map_: whose Jacobian it is.
        settings: of the run.
        claim: the mode.
        along: direction, zero outside of the columns; and the claimed rows, as far as known.
        entries: row, its wrong column, and what is claimed of that entry.

    Returns:
        Findings, and the gap of each row along `u`; NaN where nothing is claimed of a row.
    """
    u, rows = along
    found = measure.direction_of(map_, settings, u, lean=_few_bits(map_)).estimate
    xp = namespace(u)
    whole = claim.along(u)
    gaps = xp.full_like(found.value, float("nan")) if whole is None else whole - found.value
    for i, row in rows.items() if whole is None else ():
        gaps = xp.where(xp.arange(gaps.shape[0]) == i, row.dot(u) - found.value[i], gaps)
    findings = []
    for i, j, claimed in entries:
        gap, error = (float(of[i]) / abs(float(u[j])) for of in (gaps, found.error))
        gap = gap if float(u[j]) > 0 else -gap
        findings += told_entry(claim.check, map_, settings, (i, j), (claimed, gap, error, BARS))
    return findings, gaps


def told_entry(
    check: str,
    map_: DifferentiableMap,
    settings: Settings,
    at: tuple[int, int],
    numbers: tuple[float, float, float, float],
) -> list[Finding]:
    """The finding that one entry is, if it is one.

    Args:
        check: name of the check.
        map_: whose Jacobian it is.
        settings: of the run.
        at: row and column.
        numbers: claimed, the gap to what was measured, its error bar, and how many of those a gap
            may be.
    """
    claimed, gap, error, bars = numbers
    measured = claimed - gap
    floor = max(CLAIM_ROUNDING, 16 * map_.resolution) * max(abs(claimed), abs(measured))
    allowed = bars * error + settings.atol + settings.rtol * abs(measured) + floor
    xp = namespace(map_.point)
    if within(xp.asarray(abs(gap)), xp.asarray(allowed)):
        return []
    return [entry(check, map_, at, (claimed, measured, error, allowed))]
