"""Located columns measured by themselves, and judged as every entry is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gradproof._data.records import Finding
from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace
from gradproof._judge import limiting_slopes
from gradproof._judge.claims import Claim
from gradproof._judge.decide import Bar, Decision, decide, of_entry, of_user
from gradproof._judge.found import MOST_FINDINGS, findings_of, ranked
from gradproof._locate.residuals import WeightedResiduals
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional, jacobian

# Parts of the half-gap of two slopes above which a gap is not looked at as a kink's.
_BENT = 64.0


@dataclass(frozen=True)
class Column:
    """One column of a Jacobian, measured.

    Attributes:
        findings: its wrong entries, largest gap first.
        wrong: the rows of these.
        claimed: in every row; NaN where nothing is claimed.
        gap: claimed minus measured, zero in rows of which that is not known.
        bar: what the gap may be off by along the first tangent; 0 where that is nothing to others.
        first: the first of the wrong entries at every step; None where it was one difference.
    """

    findings: list[Finding]
    wrong: list[int]
    claimed: Array
    gap: Array
    bar: Array
    first: jacobian.Stepped | None


def by_ladder(
    map_: DifferentiableMap, settings: Settings, claim: Claim, j: int, rows: Mapping[int, Array]
) -> Column:
    """A column with error bars. Where the mode claims none, `rows`, as claimed, are judged."""
    lean = map_.resolution > directional.DOUBLE
    climbed = jacobian.climbed(map_, settings, j, lean=lean)
    found = climbed.estimate
    xp = namespace(found.value)
    claimed, known = _claimed(map_, claim, j, rows)
    size = float(xp.max(xp.where(xp.isfinite(found.value), xp.abs(found.value), 0.0)))
    comparison = replace(
        _compared(map_, settings, (claimed, known), found.value, Bar(found.error, found.kink)),
        small=0.5 * max(size, settings.atol),
    )
    wrong = comparison.wrong
    findings = findings_of(claim.check, map_, comparison, wrong, columns=[j])
    where = [i for i, _ in ranked(comparison, wrong)]
    bent = xp.zeros_like(wrong[:, 0])
    bent[where[:MOST_FINDINGS]] = True
    bent &= (found.kink >= 0.5 * found.error) & (comparison.gap[:, 0] <= _BENT * found.error)
    if not settings.classic_step and bool(xp.any(bent)):
        claims = comparison.claimed[:, 0], bent
        findings = limiting_slopes.renamed(map_, settings, findings, j, claims)
    gap = xp.where(known, claimed - found.value, 0.0)
    bar = xp.broadcast_to(xp.zeros(1), gap.shape)
    return Column(findings, where, claimed, gap, bar, climbed.entry(where[0]) if where else None)


def by_difference(
    residuals: WeightedResiduals,
    settings: Settings,
    claim: Claim,
    j: int,
    rows: Mapping[int, Array],
) -> Column:
    """A column by one difference, with the step and the bars of a few rows; those are judged."""
    map_, first = residuals.map, residuals.first
    xp, move = namespace(first.direction), abs(float(first.direction[j]))
    measured = jacobian.classic_column(map_, residuals.step * move, j)
    claimed, known = _claimed(map_, claim, j, rows)
    error = xp.full_like(measured, math.inf)
    error[residuals.at] = residuals.noise / move
    known = known & xp.isfinite(error)
    comparison = _compared(map_, settings, (claimed, known), measured, Bar(error))
    wrong = known[:, None] & ~comparison.close
    findings = findings_of(claim.check, map_, comparison, wrong, columns=[j])
    where = [i for i, _ in ranked(comparison, wrong)]
    gap, bar = (xp.where(known, one, 0.0) for one in (claimed - measured, error * move))
    return Column(findings, where, claimed, gap, bar, None)


def _compared(
    map_: DifferentiableMap,
    settings: Settings,
    claim: tuple[Array, Array],
    measured: Array,
    bar: Bar,
) -> Decision:
    """A column as claimed, and in which rows, against what was measured."""
    claimed, known = claim
    xp = namespace(measured)
    usable = xp.isfinite(measured) & xp.isfinite(bar.error)
    size = float(xp.max(xp.where(usable, xp.abs(measured), 0.0)))
    return decide(
        xp.where(known, claimed, measured)[:, None],
        measured[:, None],
        Bar(*(one if isinstance(one, float) else one[:, None] for one in (bar.error, bar.kink))),
        of_entry(map_, size),
        of_user(settings),
    )


def _claimed(
    map_: DifferentiableMap, claim: Claim, j: int, rows: Mapping[int, Array]
) -> tuple[Array, Array]:
    """What is claimed of a column, NaN where nothing is, and in which rows something is."""
    claimed = claim.along(jacobian.unit(map_.point, j))
    if claimed is not None:
        return claimed, namespace(claimed).ones_like(claimed) > 0
    claimed = namespace(map_.point).zeros(map_.codomain.size) + math.nan
    known = claimed == claimed
    for i, row in rows.items():
        claimed[i], known[i] = float(row[j]), True
    return claimed, known
