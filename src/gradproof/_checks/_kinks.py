"""Entries at which the function is not differentiable: what they are, and what may be claimed.

Where one-sided slopes exist, a claim must lie between them: it is then the slope of a smooth
function as near as one likes. Where F jumps, or its slope has no end, any number is a
convention, and only the derivative beside the point can tell a right rule from a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradproof._checks import _slopes
from gradproof._checks._claims import Claim
from gradproof._checks._found import Entries
from gradproof._checks._uneven import MOST, uneven_entries
from gradproof._explain.localise import MANY
from gradproof._map import DifferentiableMap
from gradproof._numerics import jacobian, measure
from gradproof._numerics.compare import within
from gradproof._numerics.kinks import (
    BOUNDARY,
    INFINITE,
    JUMP,
    KINDS,
    SMOOTH,
    UNRESOLVED,
    Kinks,
)
from gradproof._records import CheckResult, Finding, Kink, Place
from gradproof._settings import Settings
from gradproof._space import Array, dot, namespace, positions

_SMALL = 1e-6  # of the derivative: half-gaps of slopes below are not looked into
# In the memo of a map at a smooth neighbour of such a point: the size of F there.
BESIDE = ("beside",)


@dataclass(frozen=True)
class Examined:
    """What became of the entries that looked as if they had no derivative.

    Attributes:
        named: mask of the entries that are no longer open: not differentiable, and said so.
        outside: mask of those whose claim is not acceptable.
        spoilt: mask of NaN beside an infinite slope.
        uneven: mask of those in rows whose slopes along single inputs do not add up.
        records: one per named entry, as far as they are kept.
        number: of named entries.
    """

    named: Array
    outside: Array
    spoilt: Array
    uneven: Array
    records: tuple[Kink, ...]
    number: int

    @property
    def summary(self) -> str:
        """How many, for the middle of a sentence; empty where there are none."""
        if not self.number:
            return ""
        share = (
            "any of them"
            if bool(namespace(self.named).all(self.named))
            else f"{self.number:,} of them"
        )
        return f", not differentiable at {share}"


def examine(
    map_: DifferentiableMap, settings: Settings, entries: Entries, blurred: Array, wrong: Array
) -> Examined:
    """Measure the slopes on both sides of every entry that is blurred, or bent by a kink.

    Where a plain central difference was asked to settle what is open, nothing is.
    """
    c = entries.comparison
    xp = namespace(blurred)
    bent = xp.isfinite(c.error) & (entries.kink >= 0.5 * c.error)
    suspects = blurred | (bent & (c.error > _SMALL * entries.size) & (entries.kink > 0))
    if settings.classic_step:
        suspects = suspects & ~suspects
    named = outside = endless = suspects & ~suspects
    left, right, error = c.measured, c.measured, c.error
    records: list[Kink] = []
    number = 0
    columns = positions(xp.any(suspects, axis=0))
    for j in columns:
        found = _slopes.column(map_, settings, j)
        if entries.rows is not None:
            found = _slopes.of_rows(found, entries.rows)
        here = xp.arange(suspects.shape[1]) == j
        sharp = (found.kind != SMOOTH) & (found.kind != UNRESOLVED)
        rows = positions(suspects[:, j] & sharp)
        accepted = _acceptable(settings, found, c.claimed[:, j])
        known = (suspects & sharp[:, None]) & here[None, :]
        named, outside = named | known, outside | (known & ~accepted[:, None])
        endless = endless | (known & (found.kind == INFINITE)[:, None])
        left = xp.where(known, found.left[:, None], left)
        right = xp.where(known, found.right[:, None], right)
        error = xp.where(known, found.error[:, None], error)
        number += len(rows)
        for i in rows[: max(0, MOST - len(records))]:
            row = i if entries.rows is None else entries.rows[i]
            places = map_.codomain.locate(row), map_.domain.locate(j)
            records.append(_record(places, found, i, float(c.claimed[i, j]), bool(accepted[i])))
    open_ = wrong & ~named, blurred & ~named
    uneven, more = uneven_entries(map_, settings, entries, open_, (left, right, error))
    records = sorted(records + more, key=lambda kink: kink.within)
    spoilt = _spoilt(c.claimed, endless)
    return Examined(named | uneven, outside, spoilt, uneven, tuple(records), number + len(more))


def _spoilt(claimed: Array, endless: Array) -> Array:
    """NaN in the row or the column of an entry whose slope is infinite, and claimed to be.

    A derivative is asked for entry by entry with probes that are zero elsewhere, and a rule that
    multiplies its slope with the probe turns the zero into NaN: an artefact of the question.
    """
    xp = namespace(claimed)
    source = endless & xp.isinf(claimed)
    reach = xp.any(source, axis=0)[None, :] | xp.any(source, axis=1)[:, None]
    return xp.isnan(claimed) & reach & ~source


def _acceptable(settings: Settings, found: Kinks, claimed: Array) -> Array:
    """Whether a claim lies between the slopes that exist, or is a convention where none does."""
    xp = namespace(claimed)
    low = xp.where(xp.isfinite(found.left), found.left, found.right)
    high = xp.where(xp.isfinite(found.right), found.right, found.left)
    middle, half = (low + high) / 2, xp.abs(high - low) / 2
    slack = settings.atol + settings.rtol * xp.maximum(xp.abs(low), xp.abs(high))
    between = within(xp.abs(claimed - middle), half + found.error + slack)
    is_number = ~xp.isnan(claimed)
    steepest = (claimed == found.left) | (claimed == found.right) | xp.isfinite(claimed)
    accepted = xp.where(found.kind == JUMP, is_number, between)
    return xp.where(found.kind == INFINITE, is_number & steepest, accepted)


def _record(
    places: tuple[Place, Place | None], found: Kinks, i: int, claimed: float, accepted: bool
) -> Kink:
    output, input_ = places
    kind = int(found.kind[i])
    left, right = float(found.left[i]), float(found.right[i])
    where = f"{output} along a random direction" if input_ is None else f"{input_} -> {output}"
    slopes = f"left slope {_slope(left)}, right slope {_slope(right)}"
    if kind in (JUMP, INFINITE) and accepted:
        judged = "which is a convention"
    elif kind in (JUMP, INFINITE):
        judged = "which is no slope at all"
    elif kind == BOUNDARY:
        judged = "which is that slope" if accepted else "which is not that slope"
    else:
        judged = "between them" if accepted else "outside of them"
    message = f"{where}: {_WORDS[kind]}; {slopes}; claimed {claimed:.6g}, {judged}"
    return Kink(KINDS[kind], output, input_, left, right, claimed, accepted, message)


_WORDS = (
    "",
    "differentiable only once",
    "not differentiable, a kink",
    "not differentiable, at the boundary of the domain",
    "not differentiable, the slope is infinite",
    "not differentiable, a jump",
    "",
)


def _slope(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.6g}"


def finding_of(check: str, kink: Kink) -> Finding:
    """The finding for a claim that is not acceptable."""
    slopes = [slope for slope in (kink.left, kink.right) if math.isfinite(slope)]
    middle = sum(slopes) / len(slopes) if slopes else math.nan
    half = abs(slopes[-1] - slopes[0]) / 2 if slopes else math.nan
    return Finding(
        check,
        kink.message,
        "kink",
        kink.input,
        kink.output,
        kink.claimed,
        middle,
        half,
        half,
    )


def renamed(
    map_: DifferentiableMap,
    settings: Settings,
    findings: Sequence[Finding],
    j: int,
    claims: tuple[Array, Array],
) -> list[Finding]:
    """The findings of one column, those at kinks by that name.

    Args:
        map_: whose Jacobian it is.
        settings: of the run.
        findings: in that column.
        j: the column.
        claims: the claimed column, and a mask of the rows that may have a kink.
    """
    claimed, bent = claims
    found = _slopes.column(map_, settings, j)
    kinks = {}
    for i in positions(bent)[: 8 * MANY]:
        if int(found.kind[i]) not in (SMOOTH, UNRESOLVED):
            kink = _judged(map_, settings, (i, j), found, i, float(claimed[i]))
            kinks[str(kink.output)] = kink
    return [_named(finding, kinks.get(str(finding.output))) for finding in findings]


def _named(finding: Finding, kink: Kink | None) -> Finding:
    return finding if kink is None or kink.within else finding_of(finding.check, kink)


def told(result: CheckResult, found: Examined) -> CheckResult:
    """A failure whose findings at kinks say so."""
    at = {(str(kink.output), str(kink.input)): kink for kink in found.records if not kink.within}
    findings = [_named(f, at.get((str(f.output), str(f.input)))) for f in result.findings]
    return replace(result, findings=tuple(findings), kinks=found.records)


def along_probe(
    map_: DifferentiableMap, settings: Settings, claim: Claim, rows: Sequence[int]
) -> tuple[tuple[Kink, ...], tuple[int, ...]]:
    """Kinks of rows of a Jacobian too large to be measured whole, and the rows still open.

    The slopes are those along the first tangent, unless the row bends with one input only: then
    they are those of that entry. Every claim is judged; those outside come first, and no more
    than `MOST` are kept.
    """
    direction = measure.along(map_, settings, 0).direction
    xp = namespace(direction)
    whole = claim.along(direction)
    # Without J u a row costs a VJP.
    chosen = list(rows) if whole is not None else list(rows[: 8 * MANY])
    lines = [] if whole is not None else [r for r in map(claim.row, chosen) if r is not None]
    claimed = (
        xp.asarray([dot(line, direction) for line in lines])
        if whole is None
        else xp.take(whole, xp.asarray(chosen))
    )
    found = _slopes.of_rows(_slopes.along(map_, settings, direction), chosen)
    bent = (found.kind != SMOOTH) & (found.kind != UNRESOLVED)
    accepted = _acceptable(settings, found, claimed)
    columns = _slopes.bending(map_, chosen[:MANY], direction)
    order = positions(bent & ~accepted) + positions(bent & accepted)
    records = []
    for k in order[:MOST]:
        i, j = chosen[k], columns[k] if k < len(columns) else None
        output = map_.codomain.locate(i)
        kink = _record((output, None), found, k, float(claimed[k]), bool(accepted[k]))
        if j is not None:
            single = lines[k][j] if lines else _entry(claim, map_, i, j)
            kink = _of_entry(map_, settings, (i, j), float(single)) or kink
        records.append(kink)
    open_ = [i for k, i in enumerate(chosen) if not bool(bent[k])] + list(rows[len(chosen) :])
    return tuple(records), tuple(open_)


def _entry(claim: Claim, map_: DifferentiableMap, i: int, j: int) -> float:
    column = claim.along(jacobian.unit(map_.point, j))
    return math.nan if column is None else float(column[i])


def _of_entry(
    map_: DifferentiableMap, settings: Settings, at: tuple[int, int], claimed: float
) -> Kink | None:
    """The kink of one entry; None where that entry is smooth by itself."""
    found = _slopes.of_rows(_slopes.column(map_, settings, at[1]), [at[0]])
    if int(found.kind[0]) in (SMOOTH, UNRESOLVED):
        return None
    return _judged(map_, settings, at, found, 0, claimed)


def _judged(
    map_: DifferentiableMap,
    settings: Settings,
    at: tuple[int, int],
    found: Kinks,
    k: int,
    claimed: float,
) -> Kink:
    one = _slopes.of_rows(found, [k])
    xp = namespace(one.left)
    accepted = bool(_acceptable(settings, one, xp.asarray([claimed]))[0])
    places = map_.codomain.locate(at[0]), map_.domain.locate(at[1])
    return _record(places, one, 0, claimed, accepted)
