"""The columns of a few wrong rows of a large Jacobian: found, measured and kept."""

from __future__ import annotations

from dataclasses import dataclass, field

from gradproof._checks import _confirm
from gradproof._checks._claims import Claim
from gradproof._checks._gallery import Gallery
from gradproof._checks._masked import Masked
from gradproof._checks._patterns import Pattern
from gradproof._checks._picked import Row
from gradproof._map import DifferentiableMap
from gradproof._numerics import jacobian, measure
from gradproof._records import Finding
from gradproof._settings import Settings
from gradproof._space import Array, Space, namespace

_ALONE = 2  # columns that are measured one by one, where they could be measured at once


@dataclass
class Hunt:
    """The state of one search.

    Attributes:
        rows: under suspicion now.
        whole: the codomain of the map as it was given; of a large one, `map` has a part of it.
        claimed_rows: their claimed rows; empty where the mode has none.
        many_rows: more rows are under suspicion than are followed.
        crowded: rows that are wrong in more columns than can be told.
        crowd: of those that have a pattern in common, the first, by its position.
        gaps: claimed minus measured of every column measured.
        findings: wrong entries so far.
        unexplained: rows whose residual the measured columns do not account for.
        gallery: what pictures are drawn from.
        single: the wrong column of rows that have only one.
        masked: claimed and measured of the rows along any direction.
        brief: what the gaps of columns that one difference measured may be off by, along the
            first tangent.
        grouped: gaps along several of those columns at once.
        shared: the columns that are in one of those.
        pattern: what rows with many wrong columns have in common.
        gap: of every row along the first tangent; None where the mode does not tell all at once.
        lines: rows that the backward claims, where the mode has none.
    """

    map: DifferentiableMap
    settings: Settings
    claim: Claim
    whole: Space
    rows: list[int] = field(default_factory=list)
    claimed_rows: list[Row] = field(default_factory=list)
    many_rows: bool = False
    crowded: int = 0
    crowd: int = 0
    gaps: dict[int, Array] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    unexplained: list[int] = field(default_factory=list)
    gallery: Gallery = field(default_factory=Gallery)
    single: dict[int, int] = field(default_factory=dict)
    masked: Masked | None = None
    brief: Array | float = 0.0
    grouped: list[Array] = field(default_factory=list)
    shared: set[int] = field(default_factory=set)
    pattern: Pattern | None = None
    gap: Array = None
    lines: dict[int, Array] = field(default_factory=dict)


def measured(hunt: Hunt, fresh: list[int]) -> None:
    """The columns one by one; if all rows have one wrong column each, all but one at once.

    As soon as one is confirmed to be wrong, by a ladder, one difference each does for the others.
    """
    every = len(fresh) > _ALONE and hunt.single.keys() >= set(hunt.rows)
    together = [j for j in fresh[1:] if every and j in hunt.single.values()]
    known = dict(zip(hunt.rows, hunt.claimed_rows, strict=False))
    for j in fresh:
        if j in together:
            continue
        if hunt.findings and hunt.masked is not None:
            _briefly(hunt, hunt.masked, j)
            continue
        column = _confirm.column_findings(hunt.map, hunt.settings, hunt.claim, j, known)
        hunt.findings += column.findings
        hunt.gaps[j] = column.claimed - column.comparison.measured[:, 0]
        hunt.gallery.add(hunt.map, j, column)
    if not together:
        return
    u = measure.along(hunt.map, hunt.settings, 0).direction
    xp = namespace(u)
    mask = xp.zeros_like(u)
    for j in together:
        mask = mask + jacobian.unit(u, j)
    entries = [(i, j, _entry(hunt, i, j)) for i, j in hunt.single.items() if j in together]
    found, gap = _confirm.grouped_findings(
        hunt.map, hunt.settings, hunt.claim, (u * mask, known), entries
    )
    hunt.findings += found
    hunt.grouped.append(gap)
    hunt.shared |= set(together)


def _briefly(hunt: Hunt, rows: Masked, j: int) -> None:
    """One column by a single difference, judged in the rows of the hunt."""
    move = float(rows.first.direction[j])
    column = jacobian.classic_column(hunt.map, rows.step * abs(move), j)
    claims = hunt.claim.along(jacobian.unit(hunt.map.point, j))
    xp = namespace(column)
    gaps, errors, wrong = xp.zeros_like(column), xp.zeros_like(column), []
    for k, i in enumerate(hunt.rows):
        claimed = float(claims[i]) if claims is not None else hunt.claimed_rows[k][j]
        gap, error = claimed - float(column[i]), float(rows.noise[k]) / abs(move)
        gaps[i], errors[i] = gap, error * abs(move)
        numbers = claimed, gap, error, 1.0
        found = _confirm.told_entry(hunt.claim.check, hunt.map, hunt.settings, (i, j), numbers)
        wrong += [i] if found else []
        hunt.findings += found
    hunt.gallery.add_plain(rows.first, j, (column, claims), wrong)
    hunt.gaps[j], hunt.brief = gaps, hunt.brief + errors


def _entry(hunt: Hunt, i: int, j: int) -> float:
    """What is claimed of one entry."""
    if hunt.claimed_rows:
        return hunt.claimed_rows[hunt.rows.index(i)][j]
    column = hunt.claim.along(jacobian.unit(hunt.map.point, j))
    assert column is not None  # a mode has rows or columns
    return float(column[i])


def claimed(hunt: Hunt, u: Array) -> Array:
    """J u on the rows of the hunt."""
    xp = namespace(u)
    if hunt.claimed_rows:
        return xp.asarray([row.dot(u) for row in hunt.claimed_rows])
    whole = hunt.claim.along(u)
    assert whole is not None  # a mode has rows or columns
    return xp.take(whole, xp.asarray(hunt.rows))
