"""The columns of a few wrong rows of a large Jacobian: found, measured and kept."""

from __future__ import annotations

from dataclasses import dataclass, field

from gradproof._checks import _entries
from gradproof._checks._claims import Claim
from gradproof._checks._gallery import Gallery
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
        gaps: claimed minus measured of every column measured.
        findings: wrong entries so far.
        unexplained: rows whose residual the measured columns do not account for.
        gallery: what pictures are drawn from.
        single: the wrong column of rows that have only one.
        grouped: gaps along several of those columns at once.
        shared: the columns that are in one of those.
        pattern: what rows with many wrong columns have in common.
        gap: of every row along the first tangent; None where the mode does not tell all at once.
    """

    map: DifferentiableMap
    settings: Settings
    claim: Claim
    whole: Space
    rows: list[int] = field(default_factory=list)
    claimed_rows: list[Row] = field(default_factory=list)
    many_rows: bool = False
    crowded: int = 0
    gaps: dict[int, Array] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    unexplained: list[int] = field(default_factory=list)
    gallery: Gallery = field(default_factory=Gallery)
    single: dict[int, int] = field(default_factory=dict)
    grouped: list[Array] = field(default_factory=list)
    shared: set[int] = field(default_factory=set)
    pattern: Pattern | None = None
    gap: Array = None


def measured(hunt: Hunt, fresh: list[int]) -> None:
    """The columns one by one; those of rows with one wrong column each, but for one, at once."""
    together = [j for j in fresh[1:] if len(fresh) > _ALONE and j in hunt.single.values()]
    known = dict(zip(hunt.rows, hunt.claimed_rows, strict=False))
    for j in fresh:
        if j in together:
            continue
        column = _entries.column_findings(hunt.map, hunt.settings, hunt.claim, j, known)
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
    found, gap = _entries.grouped_findings(
        hunt.map, hunt.settings, hunt.claim, (u * mask, known), entries
    )
    hunt.findings += found
    hunt.grouped.append(gap)
    hunt.shared |= set(together)


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
