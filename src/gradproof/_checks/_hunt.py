"""The columns of a few wrong rows of a large Jacobian: found, measured and kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gradproof._checks import _entries
from gradproof._checks._claims import Claim
from gradproof._checks._gallery import Gallery
from gradproof._checks._patterns import Pattern, Probed, between, explained
from gradproof._checks._picked import Row
from gradproof._explain.localise import (
    Residual,
    columns_by_bits,
    columns_by_splitting,
)
from gradproof._map import DifferentiableMap
from gradproof._numerics import jacobian, measure
from gradproof._records import Finding
from gradproof._settings import Settings
from gradproof._space import Array, Space, namespace

_ALONE = 2  # columns that are measured one by one, where they could be measured at once
_SPLIT = 2  # rows whose many columns are told one by one


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


def columns_of(hunt: Hunt) -> list[int]:
    """Columns to measure for the rows of the hunt."""
    first = measure.along(hunt.map, hunt.settings, 0)
    like = hunt.map.point
    xp = namespace(like)
    at = xp.asarray(hunt.rows)
    step = float(xp.min(xp.take(first.estimate.step, at)))
    noise = 3 * xp.take(first.estimate.step_error, at)

    def residual(mask: Array) -> Residual:
        u = mask * first.probe  # a packed probe is exact, times one or zero
        return Residual(claimed(hunt, u) - plain(hunt, u, step, at), noise)

    total = Residual(claimed(hunt, first.direction) - xp.take(first.estimate.value, at), noise)
    size = hunt.map.domain.size
    bits = columns_by_bits(residual, total, size, like)
    hunt.single |= {hunt.rows[k]: j for k, j in enumerate(bits) if j is not None}
    columns = list(dict.fromkeys(j for j in bits if j is not None))
    rest = [k for k, j in enumerate(bits) if j is None]
    if not rest:
        return columns
    hunt.pattern = explained(_probed(hunt, rest, step))
    if hunt.pattern is not None:
        hunt.crowded += len(rest)
        found = list(hunt.pattern.columns)
        silent = any(cause.name == "zero" for cause in hunt.pattern.causes)
        return columns + (found if found and not silent else [_halved(residual, rest[0], like)])
    split = rest[:_SPLIT]
    per_row = columns_by_splitting(residual, size, like, split)
    columns += [j for row in per_row if row is not None for j in row if j not in columns]
    crowded = [k for k, row in zip(split, per_row, strict=True) if row is None]
    hunt.crowded += len(crowded)
    hunt.pattern = between(_probed(hunt, crowded, step)) if crowded else None
    if hunt.pattern is not None:
        return columns + list(hunt.pattern.columns)
    for k in crowded[:1]:
        columns += _representatives(hunt, k, first.direction)
        columns.append(_halved(residual, k, like))
    return columns


def plain(hunt: Hunt, u: Array, step: float, at: Array) -> Array:
    """J u by one symmetric difference, at some outputs."""
    sides = []
    for way in (1, -1):
        moved = way * step * u
        moved += hunt.map.point
        sides.append(namespace(u).take(hunt.map.value(moved), at))
        del moved  # a long vector is lent
    return (sides[0] - sides[1]) / (2 * step)


def _probed(hunt: Hunt, rest: list[int], step: float) -> Probed:
    """Some of the rows, by their positions, as patterns are looked for in them."""
    first = measure.along(hunt.map, hunt.settings, 0)
    xp = namespace(first.direction)
    at = xp.asarray([hunt.rows[k] for k in rest])
    chosen = xp.asarray(rest)

    return Probed(
        map=hunt.map,
        direction=first.direction,
        claimed=lambda u: xp.take(claimed(hunt, u), chosen),
        measured=lambda u: plain(hunt, u, step, at),
        noise=3 * xp.take(first.estimate.step_error, at),
        total=(
            xp.take(claimed(hunt, first.direction), chosen),
            xp.take(first.estimate.value, at),
        ),
        lines=_lines(hunt, rest),
    )


def _lines(hunt: Hunt, rest: list[int]) -> list[Array]:
    """The claimed rows, each as long as the input; none of an input that is too long for that."""
    if not hunt.claimed_rows or hunt.map.domain.size > measure.KEPT:
        return []
    return [hunt.claimed_rows[k].values for k in rest]


def _halved(residual: Callable[[Array], Residual], k: int, u: Array) -> int:
    """A column in which the row is wrong: of two halves the one with the larger residual."""
    xp, low, high = namespace(u), 0, u.shape[0]
    index = xp.arange(high)
    whole = float(residual(xp.ones_like(u)).value[k])
    while high - low > 1:
        middle = (low + high) // 2
        mask = xp.astype((index >= low) & (index < middle), u.dtype)
        part = float(residual(mask).value[k])
        below = abs(part) >= abs(whole - part)
        low, high, whole = (low, middle, part) if below else (middle, high, whole - part)
    return low


def claimed(hunt: Hunt, u: Array) -> Array:
    """J u on the rows of the hunt."""
    xp = namespace(u)
    if hunt.claimed_rows:
        return xp.asarray([row.dot(u) for row in hunt.claimed_rows])
    whole = hunt.claim.along(u)
    assert whole is not None  # a mode has rows or columns
    return xp.take(whole, xp.asarray(hunt.rows))


def _representatives(hunt: Hunt, k: int, u: Array) -> list[int]:
    """Columns of a row that is wrong nearly everywhere: its largest claimed, then a spread."""
    n = hunt.map.domain.size
    spread = [n // 7, n // 2, (6 * n) // 7]
    if not hunt.claimed_rows:
        return spread
    return [*hunt.claimed_rows[k].strongest(u), *spread]
