"""Single columns of a Jacobian that is too large to be measured whole, confirmed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from gradproof._data.records import CheckResult, Curve, Finding, Patch
from gradproof._data.settings import Settings
from gradproof._data.space import Array, Space, dot, namespace, norm, on_host
from gradproof._data.vectors import unpacked
from gradproof._explain import diagnose, pictures, words
from gradproof._explain.diagnose import quietly
from gradproof._explain.scaling import near_one
from gradproof._judge import decide as law
from gradproof._judge import entries, limiting_slopes
from gradproof._judge.claims import Claim
from gradproof._judge.decide import (
    BARS,
    ROUNDING,
    Bar,
    decide,
    dot_and_rounding,
    resolved,
    signs_count,
)
from gradproof._judge.found import (
    MOST_FINDINGS,
    Confirmed,
    count,
    findings_of,
    ranked,
    sorted_findings,
)
from gradproof._judge.outcome import entry, failed, inconclusive, passed
from gradproof._judge.screen import Screen, summed
from gradproof._locate.decode import (
    LAST,
    MANY,
    MOST,
    Draws,
    Piece,
    between,
    columns_by_splitting,
    pieces_by_digits,
    pieces_by_draws,
    rows_by_splitting,
    scattered,
    weights_of,
)
from gradproof._locate.hypotheses import END, Fit, combed, fitted, run_of
from gradproof._locate.patterns import Pattern, Probed, explained, moved, named, of_run
from gradproof._locate.residuals import Masked, masked
from gradproof._locate.rows import Row, SomeOf, picked
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import directional, jacobian, probes
from gradproof._measure.richardson import Estimate
from gradproof._measure.statistics import common_ratio

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
    comparison = decide(
        claimed[:, None],
        found.value[:, None],
        Bar(found.error[:, None], found.kink[:, None]),
        law.of_entry(map_, float(xp.max(size))),
        law.of_user(settings),
        small=0.5 * max(float(xp.max(size)), settings.atol),
    )
    wrong = comparison.wrong
    findings = findings_of(claim.check, map_, comparison, wrong, columns=[j])
    where = [i for i, _ in ranked(comparison, wrong)]
    bent = xp.zeros_like(wrong[:, 0])
    bent[where[:MOST_FINDINGS]] = True
    bent &= (found.kink >= 0.5 * found.error) & (comparison.gap[:, 0] <= _BENT * found.error)
    if not settings.classic_step and bool(xp.any(bent)):
        findings = limiting_slopes.renamed(map_, settings, findings, j, (claimed, bent))
    known = list(rows) if whole is None else []
    return Confirmed(findings, where, claimed, known, measured, comparison)


def _few_bits(map_: DifferentiableMap) -> bool:
    return map_.resolution > directional.DOUBLE


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
    found = directional.direction_of(map_, settings, u, lean=_few_bits(map_)).estimate
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
    rounding = law.of_entry(map_, max(abs(claimed), abs(measured)))
    found = decide(claimed, measured, Bar(bars * error), rounding, law.of_user(settings))
    if found.close:
        return []
    return [entry(check, map_, at, (claimed, measured, error, found.allowed))]


# Pictures of a Jacobian too large to be measured whole, gathered while its columns are.


_REACH = 2  # rows before and after that of the first wrong entry
_BESIDE = 1  # columns before and after, measured for the picture alone
_NOISE = 3.0  # bars of a plain difference, as the search takes them

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass
class Gallery:
    """Columns of a few rows, and the curves of a few entries.

    Attributes:
        rows: around the first wrong entry; empty before there is one.
        columns: claimed, measured, error and wrong in those rows, by column.
        curves: of the largest wrong entry of each column, by its gap.
    """

    rows: list[int] = field(default_factory=list)
    columns: dict[int, Numbers] = field(default_factory=dict)
    curves: list[tuple[float, Curve]] = field(default_factory=list)

    def add(self, map_: DifferentiableMap, j: int, found: Confirmed) -> None:
        """Take what is to be shown of a measured column."""
        if not found.wrong:
            return
        i = found.wrong[0]
        entry = pictures.Claimed(i, j, float(found.claimed[i]))
        curve = pictures.of_ladder(map_, found.measured, entry)
        self.curves.append((-abs(curve.claimed - curve.value), curve))
        if not self.rows:
            low = max(0, min(i - _REACH, map_.codomain.size - 2 * _REACH - 1))
            self.rows = list(range(low, min(map_.codomain.size, low + 2 * _REACH + 1)))
        self.columns[j] = self._cut(found)

    def _cut(self, found: Confirmed) -> Numbers:
        rows, comparison = np.asarray(self.rows), found.comparison
        numbers = [
            on_host(values)[rows, 0]
            for values in (comparison.claimed, comparison.measured, comparison.error)
        ]
        if found.known:  # elsewhere the claim was filled with what was measured
            numbers[0] = np.where(np.isin(rows, found.known), numbers[0], np.nan)
        return np.stack([*numbers, np.isin(rows, found.wrong).astype(float)])

    def shown(self) -> tuple[Curve, ...]:
        """The curves of the largest gaps."""
        return tuple(curve for _, curve in sorted(self.curves, key=lambda one: one[0]))[
            : pictures.CURVES
        ]

    def patch(
        self, map_: DifferentiableMap, settings: Settings, claim: Claim, *, crowded: bool
    ) -> Patch | None:
        """The columns found wrong; a single one with those beside it, at two calls for each."""
        if not self.rows:
            return None
        first = next(iter(self.columns))
        for j in (
            ()
            if crowded or len(self.columns) > 1
            else range(max(0, first - _BESIDE), min(map_.domain.size, first + _BESIDE + 1))
        ):
            if j not in self.columns:
                self.columns[j] = self._plain(map_, settings, claim, j)
        self._claim_rows(claim)
        chosen = sorted(self.columns, key=lambda j: abs(j - first))[: pictures.SIDE]
        chosen.sort()
        table = np.stack([self.columns[j] for j in chosen], axis=-1)
        claimed, measured, error, wrong = (pictures.table(values) for values in table)
        return Patch(
            outputs=tuple(str(map_.codomain.locate(i)) for i in self.rows),
            inputs=tuple(str(map_.domain.locate(j)) for j in chosen),
            claimed=claimed,
            measured=measured,
            error=error,
            wrong=tuple(tuple(one > 0 for one in row) for row in wrong),
        )

    def _plain(self, map_: DifferentiableMap, settings: Settings, claim: Claim, j: int) -> Numbers:
        """A column by one plain difference, with the step and the bar that the rows want."""
        along = directional.along(map_, settings, 0)
        xp = namespace(along.direction)
        move = abs(float(along.direction[j]))
        step = move * float(xp.min(along.estimate.of(xp.asarray(self.rows)).step))
        measured = jacobian.classic_column(map_, step, j)
        return self._of_plain(along, measured, claim.along(jacobian.unit(map_.point, j)), j)

    def _of_plain(
        self, along: directional.Measurement, measured: Array, claimed: Array | None, j: int
    ) -> Numbers:
        xp = namespace(measured)
        at = xp.asarray(self.rows)
        error = _NOISE * xp.take(along.estimate.step_error, at) / abs(float(along.direction[j]))
        found = xp.take(measured, at)
        claims = xp.full_like(found, float("nan")) if claimed is None else xp.take(claimed, at)
        return np.stack([*map(on_host, (claims, found, error)), np.zeros(len(self.rows))])

    def add_plain(
        self,
        along: directional.Measurement,
        j: int,
        column: tuple[Array, Array | None],
        wrong: list[int],
    ) -> None:
        """Take what is to be shown of a column that one difference measured: that and the claim."""
        if self.rows and wrong:
            numbers = self.columns[j] = self._of_plain(along, *column, j)
            numbers[3] = np.isin(self.rows, wrong)

    def _claim_rows(self, claim: Claim) -> None:
        """Fill in what is claimed, row by row, where the mode has no columns."""
        if not any(np.isnan(numbers[0]).any() for numbers in self.columns.values()):
            return
        for k, i in enumerate(self.rows):
            row: Array | None = claim.row(i)
            for j, numbers in self.columns.items():
                if row is not None:
                    numbers[0, k] = float(row[j])


# The columns of a few wrong rows of a large Jacobian: found, measured and kept.


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


def measure_columns(hunt: Hunt, fresh: list[int]) -> None:
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
        column = column_findings(hunt.map, hunt.settings, hunt.claim, j, known)
        hunt.findings += column.findings
        hunt.gaps[j] = column.claimed - column.comparison.measured[:, 0]
        hunt.gallery.add(hunt.map, j, column)
    if not together:
        return
    u = directional.along(hunt.map, hunt.settings, 0).direction
    xp = namespace(u)
    mask = xp.zeros_like(u)
    for j in together:
        mask = mask + jacobian.unit(u, j)
    entries = [(i, j, _entry(hunt, i, j)) for i, j in hunt.single.items() if j in together]
    found, gap = grouped_findings(hunt.map, hunt.settings, hunt.claim, (u * mask, known), entries)
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
        claimed_along = float(claims[i]) if claims is not None else hunt.claimed_rows[k][j]
        gap, error = claimed_along - float(column[i]), float(rows.noise[k]) / abs(move)
        gaps[i], errors[i] = gap, error * abs(move)
        numbers = claimed_along, gap, error, 1.0
        found = told_entry(hunt.claim.check, hunt.map, hunt.settings, (i, j), numbers)
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


def claimed_along(hunt: Hunt, u: Array) -> Array:
    """J u on the rows of the hunt."""
    xp = namespace(u)
    if hunt.claimed_rows:
        return xp.asarray([row.dot(u) for row in hunt.claimed_rows])
    whole = hunt.claim.along(u)
    assert whole is not None  # a mode has rows or columns
    return xp.take(whole, xp.asarray(hunt.rows))


# One column in which a row is wrong, where that is all there is to be told: halved for.


_SPREAD = 8  # columns tried at once for one in which a row is wrong


def instead(hunt: Hunt) -> list[int]:
    """A wrong column, halved for, where those that a pattern told are right.

    Of a pattern that only tells where nothing is wrong, within that; any other is refuted.
    """
    if hunt.masked is None or hunt.pattern is None:
        return []
    within = hunt.pattern.within
    hunt.pattern = hunt.pattern if within else None
    return [wrong_one(hunt.masked.of([hunt.crowd]), hunt.map.point, [], within)]


def wrong_one(
    part: Masked, like: Array, known: list[int], within: tuple[int, int] | None = None
) -> int:
    """A column in which the first row is wrong: one of a few, or else of all, or all `within`.

    Of two halves the one with the larger residual is followed.
    """
    xp = namespace(like)
    low, high = within or (0, like.shape[0])
    some = [*known, *(low + (2 * k + 1) * (high - low) // (2 * _SPREAD) for k in range(_SPREAD))]
    columns: Array = xp.asarray(sorted(set(some)))
    whole = _residual(part, like, columns)
    if abs(whole) <= float(part.whole.threshold[0]):
        columns = xp.arange(low, high)
        whole = float(part.whole.value[0])
    while columns.shape[0] > 1:
        middle = columns.shape[0] // 2
        found = _residual(part, like, columns[:middle])
        below = abs(found) >= abs(whole - found)
        columns = columns[:middle] if below else columns[middle:]
        whole = found if below else whole - found
    return int(columns[0])


def _residual(part: Masked, like: Array, columns: Array) -> float:
    weights = namespace(like).zeros(like.shape[0])
    weights[columns] = 1.0
    return float(part.residual(weights).value[0])


# The ends of a run of wrong columns, where noise leaves them open.
#
# Of all columns together an evaluation says little of a single one: its gap is a small part of
# what the whole is rounded by. Along the few columns that may or may not belong to the run there
# is nothing else, and every output is looked at, not a few rows. An end is told where the error
# bars of all outputs leave one place only.


_MOST = 32  # columns that are looked at
_ENDS_BESIDE = 2  # of them on either side of those in doubt
_BARS = 2.0  # error bars that a gap may be off by
_PART = 1 / 4  # of the tangent: what is bent then is no noise at the finest steps
_FACTOR = 1 / 16  # part of itself that the factor of the run, a fit, may be off by


def sharpened(hunt: Hunt, fit: Fit, factor: float) -> Fit | None:
    """The same run with fewer places for its ends, by one ladder along the columns in doubt.

    Where the mode claims no whole tangents the run stays as it is. None where no place for its
    ends agrees: what is wrong there, or beside it, is no part of a run.

    Args:
        hunt: the search.
        fit: a run of columns.
        factor: the gap of its entries, in parts of what is claimed of them.
    """
    size = hunt.map.domain.size
    starts = range(max(0, fit.starts[0] - _ENDS_BESIDE), fit.starts[1])
    stops = range(fit.stops[0], min(size, fit.stops[1] + _ENDS_BESIDE))
    columns = [*starts, *stops]
    if not 0 < len(columns) <= _MOST or hunt.map.codomain.size > directional.KEPT:
        return fit
    direction = directional.along(hunt.map, hunt.settings, 0).direction
    xp = namespace(direction)
    claims, u = [], xp.zeros_like(direction)
    for j in columns:
        one = jacobian.unit(direction, j, _PART * float(direction[j]))
        claimed = hunt.claim.along(one)
        if claimed is None:
            return fit
        claims.append(claimed)
        u = u + one
    found = directional.direction_of(hunt.map, hunt.settings, u, short=True).estimate
    places = _places(xp.stack(claims), found, factor, (len(starts), len(stops)), hunt)
    if not places:
        return None
    first = [starts.start + at for at, _ in places]
    last = [stops.start + at for _, at in places]
    ends = (min(first), max(first)), (min(last), max(last))
    run = replace(fit.run, low=min(first), high=max(last))
    return replace(fit, run=run, starts=ends[0], stops=ends[1])


def _places(
    claims: Array, found: Estimate, factor: float, counts: tuple[int, int], hunt: Hunt
) -> list[tuple[int, int]]:
    """Columns in doubt that are right at the beginning, and wrong at the end: what is possible.

    Args:
        claims: of the columns along the direction, (columns, m).
        found: all of them together, measured.
        factor: gap of a wrong one, in parts of its claim.
        counts: of columns in doubt at the beginning, and at the end.
        hunt: the search.
    """
    xp = namespace(claims)
    gap = xp.sum(claims, axis=0) - found.value
    bar = _BARS * found.error
    bar += ROUNDING * hunt.map.resolution * xp.sum(xp.abs(claims), axis=0)
    seen = xp.isfinite(bar)
    gap, bar = xp.where(seen, gap, 0.0), xp.where(seen, bar, 1.0)
    weights = xp.where(seen & (bar > 0), 1 / xp.where(bar > 0, bar, 1.0), 0.0)
    possible = []
    for right in range(counts[0] + 1):
        for wrong in range(counts[1] + 1):
            inside = xp.sum(claims[right : counts[0] + wrong, :], axis=0)
            terms = xp.where(seen, inside, 0.0)
            size = dot(weights * terms, weights * terms)
            own = dot(weights * terms, weights * gap) / size if size else factor
            own = factor * min(max(own / factor, 1 - _FACTOR), 1 + _FACTOR)
            if bool(xp.all(resolved(xp.abs(gap - own * terms), bar))):
                possible.append((right, wrong))
    return possible


# The columns in which a few rows of a large Jacobian are wrong.


_SPLIT = 2  # rows whose many columns are told one by one
_FEW = 1 / 16  # part of the columns that misses a few wrong ones, and not many
_NOISY = 1 / 64  # bar, in parts of the whole, from which sums of many columns may be overlooked
_SPLITS = 24  # residuals, of which each takes two noisy evaluations, to tell several columns
_ALIKE = 3  # rows from which a run of wrong columns is thought of
_EARLY = 4  # residuals of weighed columns from which a run is thought of
_TRIED = (_EARLY, 6, *range(MOST, LAST + 1))  # after so many it is looked for
_CALLS, _CALLS_OF_FEW_BITS = 36, 12  # for one run of wrong columns
_AGREES = 1e-6
_NEARLY = 1e-4  # by how much a ratio of residuals may be off, however large they are


def columns_of(hunt: Hunt) -> list[int]:
    """Columns to measure for the rows of the hunt."""
    first = directional.along(hunt.map, hunt.settings, 0)
    like, size = hunt.map.point, hunt.map.domain.size
    at = namespace(like).asarray(hunt.rows)
    rows = masked(hunt.map, first, at, partial(claimed_along, hunt))
    if hunt.gaps:  # what was found does not explain the rows: the rest is small
        rows = replace(rows, short=None, bar=rows.noise)
    hunt.masked = rows
    single, span = _told(hunt, rows, size)
    hunt.single |= {hunt.rows[k]: j for k, j in enumerate(single) if j is not None}
    columns = list(dict.fromkeys(j for j in single if j is not None))
    rest = [k for k, j in enumerate(single) if j is None]
    if rest and columns:
        still = _open(rows, rest, columns, like)
        _assign(hunt, rows, [k for k in rest if k not in still], columns)
        rest = still
    if not rest:
        return columns
    return columns + [j for j in _several(hunt, rows, rest, span) if j not in columns]


def _told(hunt: Hunt, rows: Masked, size: int) -> tuple[list[int | None], tuple[int, int]]:
    """The wrong column of every row that has only one, and where those of the others may lie."""
    if _noisy(hunt):
        return _by_draws(hunt, rows), (0, size)
    pieces = pieces_by_digits(rows.residual, rows.whole, size, hunt.map.point)
    single = [piece.column for piece in pieces]
    rest = [piece for piece in pieces if piece.column is None] or pieces
    return single, (min(piece.low for piece in rest), max(piece.high for piece in rest))


def _noisy(hunt: Hunt) -> bool:
    return hunt.map.resolution > directional.DOUBLE and hunt.map.domain.size <= directional.KEPT


def _by_draws(hunt: Hunt, rows: Masked) -> list[int | None]:
    """The same where residuals are noisy; a run of wrong columns that explains the rest, too.

    More draws tell the ends of a run that is seen more sharply.
    """
    like, every = hunt.map.point, range(len(hunt.rows))
    draws = Draws(rows.residual, rows.whole, like, Piece(0, like.shape[0]), on_host(rows.bar))
    fit: Fit | None = None
    while True:
        draws.ask()
        number = len(draws.found)
        rest = [k for k in every if draws.column(k) is None]
        if len(rest) >= _ALIKE and number in _TRIED:
            fit = _fitted(hunt, rows, draws, rest)
        if _enough(draws, fit, _EARLY if len(rest) >= _ALIKE else 1):
            break
    single = {k: draws.column(k) for k in every}
    if fit is None or not fit.believed:
        pass
    elif fit.run.high - fit.run.low == 1:
        single |= dict.fromkeys(rest, fit.run.low)
    else:
        hunt.pattern = _of_fit(hunt, rows, rest, fit)
    return [single[k] for k in every]


def _enough(draws: Draws, fit: Fit | None, least: int) -> bool:
    """Whether more draws tell no more of a run, or of single columns where there is none."""
    number = len(draws.found)
    if fit is None:
        return number >= MOST or (number >= least and not draws.worthwhile())
    if fit.believed:
        return fit.sure or number >= MOST
    return number >= LAST


def _fitted(hunt: Hunt, rows: Masked, draws: Draws, rest: list[int]) -> Fit | None:
    """A run, of not nearly all columns, that explains those rows, or every k-th column."""
    part, size = rows.of(rest), hunt.map.domain.size
    lines, _ = _lines(hunt, part, rest)
    if not lines:
        return None
    terms = np.stack([on_host(line * part.first.direction) for line in lines])
    found = [part.whole, *(residual.of(rest) for residual in draws.found)]
    drawn = (on_host(weights_of(hunt.map.point, k)) for k in range(len(draws.found)))
    weights = [np.ones(size), *drawn]
    fit = fitted(found, weights, terms)
    if fit is not None:
        inside = fit.run.low >= size // END or fit.run.high <= size - size // END
        return fit if inside else None
    comb = combed(found, weights, terms)
    if comb is None:
        return None
    return Fit(comb, (comb.low, comb.low), (comb.high, comb.high), believed=True)


def _of_fit(hunt: Hunt, rows: Masked, rest: list[int], fit: Fit) -> Pattern | None:
    part = rows.of(rest)
    lines, claimed = _lines(hunt, part, rest)
    probed = Probed(hunt.map, part.first.direction, part, lines if claimed else [])
    factor = fit.run.factor or 0.0
    if not fit.sure and factor != -1.0:  # of a run of zeros no claim tells a column
        sharper = sharpened(hunt, fit, factor if claimed else factor / (1 + factor))
        if sharper is None:
            return None
        fit = sharper
    return of_run(fit.run, probed, true=not claimed, sure=fit.sure)


def _open(rows: Masked, rest: list[int], columns: list[int], like: Array) -> list[int]:
    """The rows that are wrong in other columns than those that were found in others."""
    weights = namespace(like).zeros(like.shape[0]) + 1.0
    weights[columns] = 0.0
    found = rows.of(rest).residual(weights)
    return [k for place, k in enumerate(rest) if not found.zero(place)]


def _assign(hunt: Hunt, rows: Masked, known: list[int], columns: list[int]) -> None:
    """Of rows that are wrong in no other columns, the one that each is wrong in, if it is one."""
    if not known:
        return
    part = rows.of(known)
    weights = scattered(hunt.map.point, 1)
    found, expected = part.residual(weights), [float(weights[j]) for j in columns]
    for place, k in enumerate(known):
        total = float(part.whole.value[place])
        slack = _NEARLY + 3 * float(part.whole.threshold[place]) / abs(total)
        ratio = float(found.value[place]) / total
        near = [
            j for j, weight in zip(columns, expected, strict=True) if abs(ratio - weight) <= slack
        ]
        if len(near) == 1:
            hunt.single[hunt.rows[k]] = near[0]


def _several(hunt: Hunt, rows: Masked, rest: list[int], span: tuple[int, int]) -> list[int]:
    """The same of those rows, by their positions, that are wrong in several columns."""
    part, like = rows.of(rest), hunt.map.point
    span = _held(part, span, like)
    lines, claimed = _lines(hunt, part, rest)
    probed = Probed(hunt.map, part.first.direction, part, lines if claimed else [])
    if hunt.pattern is None and not _few(part, span, like):
        hunt.pattern = explained(probed) or _run(hunt, probed, lines, span) or moved(probed)
    if hunt.pattern is not None:
        hunt.crowded, hunt.crowd = hunt.crowded + len(rest), rest[0]
        found = list(hunt.pattern.columns)
        silent = any(cause.name == "zero" for cause in hunt.pattern.causes)
        return found if found and not silent else [wrong_one(part, like, found)]
    split = list(range(len(rest)))[:_SPLIT]
    some = part.of(split)
    tell = (pieces_by_draws, _SPLITS) if _noisy(hunt) else (pieces_by_digits,)
    per_row = columns_by_splitting(some.residual, some.whole, like.shape[0], like, split, *tell)
    columns = list(dict.fromkeys(j for row in per_row if row is not None for j in row))
    crowded = [k for k, row in zip(split, per_row, strict=True) if row is None]
    hunt.crowded += len(crowded)
    for k in crowded[:1]:
        spread = _representatives(hunt, rest[k], probed.direction)
        columns += [*spread, wrong_one(part.of([k]), like, spread)]
    return columns


def _held(part: Masked, span: tuple[int, int], like: Array) -> tuple[int, int]:
    """The span, if all that is wrong lies there; else all columns."""
    everything = 0, like.shape[0]
    if span == everything:
        return span
    return span if (part.whole - part.residual(between(*span, like))).nothing else everything


def _few(part: Masked, span: tuple[int, int], like: Array) -> bool:
    """Whether only a few columns are wrong: some of all, taken at random, hold none.

    Of 64 wrong columns two draws miss all once in 30 times, of 3 both hit one as rarely. Where
    bars are wide the sum of many may be too small to be seen, and it takes two that miss.
    """
    xp = namespace(like)
    draw = scattered(like)
    draw[: span[0]] = 1.0
    draw[span[1] :] = 1.0
    noisy = bool((abs(part.whole.value) * _NOISY < part.whole.threshold).any())
    misses = hits = 0
    while misses < 1 + noisy and hits < 2:
        low = (misses + hits) * _FEW
        some = xp.astype((draw >= low) & (draw < low + _FEW), xp.float64)
        if part.residual(some).nothing:
            misses += 1
        else:
            hits += 1
    return hits < 2


def _run(hunt: Hunt, probed: Probed, lines: list[Array], span: tuple[int, int]) -> Pattern | None:
    """All that is wrong lies between two columns."""
    part, like = probed.rows.sharp(), hunt.map.point
    terms = np.stack([on_host(line * probed.direction) for line in lines]) if lines else None
    calls = _CALLS if hunt.map.resolution < directional.DOUBLE else _CALLS_OF_FEW_BITS
    most = calls if part.short is not None else calls // 2
    found = run_of(part.residual, part.whole, terms, like, span, most)
    return None if found is None else of_run(found, probed, true=not probed.lines)


def _lines(hunt: Hunt, part: Masked, rest: list[int]) -> tuple[list[Array], bool]:
    """The rows, each as long as the input, and whether as claimed or as they should be.

    A mode without rows asks the backward, which may be right or make the same mistake. None of an
    input that is too long.
    """
    if hunt.map.domain.size > directional.KEPT:
        return [], True
    if hunt.claimed_rows:
        return [hunt.claimed_rows[k].values for k in rest], True
    try:
        lines = [_line(hunt, hunt.rows[k]) for k in rest]
    except Unsupported:
        return [], True
    for claimed in (True, False):
        if _near(lines, part, part.total[0 if claimed else 1]):
            return lines, claimed
    return [], True


def _line(hunt: Hunt, i: int) -> Array:
    """A row as the backward claims it, asked once."""
    if i not in hunt.lines:
        hunt.lines[i] = hunt.map.vjp(jacobian.unit(hunt.map.point, i, count=hunt.map.codomain.size))
    return hunt.lines[i]


def _near(lines: list[Array], part: Masked, total: Array) -> bool:
    sums = [dot(line, part.first.direction) for line in lines]
    gap = np.abs(np.asarray(sums) - on_host(total))
    return bool((gap <= 4 * on_host(part.noise) + _AGREES * np.abs(on_host(total))).all())


def _representatives(hunt: Hunt, k: int, u: Array) -> list[int]:
    """Columns of a row that is wrong nearly everywhere: its largest claimed, then a spread."""
    n = hunt.map.domain.size
    spread = [n // 7, n // 2, (6 * n) // 7]
    if not hunt.claimed_rows:
        return spread
    return [*hunt.claimed_rows[k].strongest(u), *spread]


# Where and why, for a Jacobian of which only a few columns were measured.


_PLAIN = 1e-3  # of a row's derivative
_NEAR = 1e-6  # likewise
_SEEN = 1e-7  # likewise: a gap below it may not be looked into
# Parts of the wrong outputs that may be followed by others of which nothing can be told.
_LOCATED_FEW = 16
_ENOUGH = 4  # entries from which a common factor is no accident


def explained_failure(hunt: Hunt, screen: Screen, result: CheckResult) -> CheckResult:
    """The failure with what explains it."""
    result = replace(result, curves=hunt.gallery.shown())
    for explain in (_patch, _why, partial(_where, screen=screen)):
        result = quietly(result, partial(explain, hunt))
    return result


def _patch(hunt: Hunt, result: CheckResult) -> CheckResult:
    crowded = bool(hunt.crowded or hunt.grouped)
    found = hunt.gallery.patch(hunt.map, hunt.settings, hunt.claim, crowded=crowded)
    return replace(result, patch=found)


def _why(hunt: Hunt, result: CheckResult) -> CheckResult:
    """The cause that the probes showed, or the common ratio of the entries found."""
    causes = list(hunt.pattern.causes) if hunt.pattern is not None else []
    numbers = np.asarray([(f.claimed, f.measured, f.allowed) for f in result.findings])
    ratio = common_ratio(*numbers.T)
    number = len(numbers)
    told = ratio is not None and (number > 1 or abs(ratio[0]) < 1e-6 or near_one(abs(ratio[0])))
    if ratio is not None and told and not causes:
        evidence = f"ratio {ratio[0]:.9g} +- {ratio[1]:.1g} over {number} entries measured"
        score = 1.0 if number >= _ENOUGH else 0.8 if number > 1 else 0.5
        causes.append(replace(named(ratio[0], evidence), score=score))
    return replace(result, causes=diagnose.ranked(causes))


def _where(hunt: Hunt, result: CheckResult, screen: Screen) -> CheckResult:
    rows, sure = _rows(hunt, screen)
    columns = _columns(hunt, result.findings)
    if rows is None or (rows.all() and not sure):
        outputs = ""
    else:
        outputs = words.described(rows, hunt.whole)
        outputs = outputs if sure or not outputs else f"only inside {outputs}"
    every = rows is not None and bool(rows.all())
    if not columns:
        told = outputs
    elif every or not outputs or columns.startswith("only inside"):
        seen = rows is not None and int(rows.sum()) <= len(hunt.rows)
        told = columns if seen else f"{columns} (in the {len(hunt.rows)} outputs looked at)"
    else:
        told = f"{outputs} with respect to {columns}"
    return replace(result, where=told)


def _rows(hunt: Hunt, screen: Screen) -> tuple[words.Mask | None, bool]:
    """The wrong outputs, and whether it is they and not only where they lie; None if unknown."""
    if hunt.gap is not None and screen.mask is not None:
        rows = on_host(screen.mask)
        # Of a large map it is no longer known what lies between them.
        large = hunt.whole is not hunt.map.codomain
        return (rows if large else _filled(hunt, screen, rows)), True
    if screen.suspects or not _alike(hunt):
        return None, False
    rows = np.zeros(hunt.whole.size, dtype=bool)
    followed = hunt.rows
    if isinstance(hunt.map.codomain, SomeOf):
        followed = [int(hunt.map.codomain.rows[i]) for i in followed]
    if hunt.many_rows:
        rows[min(followed) : max(followed) + 1] = True
        return rows, False
    rows[followed] = True
    return rows, True


def _filled(hunt: Hunt, screen: Screen, rows: words.Mask) -> words.Mask:
    """The wrong outputs, and those between them of which nothing can be told.

    A few before the first and after the last are filled in, too. They are blurred, or have a
    derivative so small that a gap as large, for its size, as the others have would not be seen.
    """
    found = directional.along(hunt.map, hunt.settings, 0).estimate
    exact, error = on_host(found.value), on_host(found.error)
    part = float(
        np.median(np.abs(on_host(hunt.gap)[rows]) / np.maximum(np.abs(exact[rows]), 1e-300))
    )
    with np.errstate(all="ignore"):
        unseen = 0.5 * part * np.abs(exact) <= BARS * error + _SEEN * np.abs(exact)
    unseen[list(screen.blurred)] = True
    between = np.zeros_like(rows)
    first, last = int(np.argmax(rows)), rows.size - int(np.argmax(rows[::-1]))
    few = (last - first) // _LOCATED_FEW  # unseen ones before the first or after the last
    first = 0 if first <= few and unseen[:first].all() else first
    last = rows.size if rows.size - last <= few and unseen[last:].all() else last
    between[first:last] = True
    return between if bool((rows | unseen)[between].all()) else rows


def _alike(hunt: Hunt) -> bool:
    """Whether other rows like these would have been seen by projections.

    A gap that is a small part of the row is seen only in the few rows whose bars are smallest:
    they are then alike in nothing but that.
    """
    first = directional.along(hunt.map, hunt.settings, 0)
    exact, error = (
        on_host(values)[hunt.rows] for values in (first.estimate.value, first.estimate.error)
    )
    got = on_host(claimed_along(hunt, first.direction))
    ratio = common_ratio(got, exact, BARS * error + _NEAR * np.abs(exact))
    plain = np.abs(got - exact) >= _PLAIN * np.abs(exact)
    return bool(plain.all()) and (ratio is not None or not hunt.many_rows)


def _columns(hunt: Hunt, findings: tuple[Finding, ...]) -> str:
    """The wrong inputs, where they are the same for all rows looked at; "" where not, or all."""
    if hunt.pattern is not None:
        return hunt.pattern.words
    if hunt.unexplained:  # by the columns that were found: there are others
        return ""
    single = set(hunt.single.values())
    if len(single) == 1 and not hunt.crowded:
        return str(hunt.map.domain.locate(single.pop()))
    places = {str(finding.input) for finding in findings}
    return places.pop() if len(places) == 1 and not hunt.crowded else ""


# Locating wrong entries of a Jacobian that is too large to be measured whole.


_ROUNDS = 3
_PROOF = 256  # parts of the outputs, of which a projection shows hundredths of rows surely
_OTHER = 2  # number of the cotangent whose signs a projection takes a second look with


def locate(
    map_: DifferentiableMap, settings: Settings, claim: Claim, screen: Screen
) -> CheckResult:
    """Find the wrong entries behind a suspicion and judge those."""
    hunt = Hunt(map_, settings, claim, whole=map_.codomain)
    if screen.suspicious:
        _follow(hunt, screen)
    if hunt.findings:
        return _refuted(hunt, screen)
    notes: tuple[str, ...] = ()
    if screen.blurred:
        if not settings.classic_step or 2 * map_.domain.size > settings.budget // 2:
            return _at_kinks(map_, settings, claim, screen)
        result = entries.settle_classic(map_, settings, claim, screen.blurred)
        if result is not None:
            return result
        notes = ("rows with wide error bars were judged by plain central differences",)
    return _acquitted(hunt, screen, notes)


def hinted(
    map_: DifferentiableMap, settings: Settings, claim: Claim, screen: Screen
) -> CheckResult | None:
    """The failure that hints led to; None where they led to nothing, for they prove nothing."""
    assert screen.hints is not None  # asked only where there are some
    hunt = Hunt(map_, settings, claim, whole=map_.codomain)
    v = probes.cotangent(map_, settings.seed or 0, 1)
    screen = replace(screen, projected=(screen.hints[0], v))
    _follow(hunt, screen)
    return _refuted(hunt, screen) if hunt.findings else None


def _follow(hunt: Hunt, screen: Screen) -> None:
    """Rounds of: locate the columns of a few rows, measure those, see what they leave open."""
    rows = list(screen.suspects)
    hunt.many_rows = screen.count > len(rows)
    if not rows:
        found, complete = _suspect_rows(hunt, screen)
        rows, hunt.many_rows = list(found), not complete
    if not rows:  # what is wrong, if anything is, is spread over rows too thin to tell
        hunt.many_rows = True
        return
    hunt.map, hunt.claim, rows = picked(hunt.map, hunt.claim, rows)
    first = directional.along(hunt.map, hunt.settings, 0)
    along = hunt.claim.along(first.direction) if screen.suspects else None
    hunt.gap = None if along is None else along - first.estimate.value
    suspects = rows
    for _ in range(_ROUNDS):
        hunt.many_rows = hunt.many_rows or len(rows) > MANY
        hunt.rows = _spread(rows)
        hunt.claimed_rows = []  # the last ones make room for the next
        claimed = (hunt.claim.row(i) for i in hunt.rows)
        hunt.claimed_rows = [Row(row) for row in claimed if row is not None]
        columns = columns_of(hunt)
        fresh = [j for j in columns if j not in hunt.gaps and j not in hunt.shared][:MANY]
        measure_columns(hunt, fresh)
        if not hunt.findings:
            measure_columns(hunt, instead(hunt))
        rows = _unexplained(hunt, suspects, along)
        if not rows or not fresh or hunt.crowded or (hunt.many_rows and hunt.findings):
            break
    hunt.unexplained = rows


def _spread(rows: list[int]) -> list[int]:
    """As many rows as are followed: the strongest, and the first and the last of all."""
    if len(rows) <= MANY:
        return rows
    ends = [i for i in (min(rows), max(rows)) if i not in rows[: MANY - 2]]
    return [*rows[: MANY - len(ends)], *ends]


def _suspect_rows(hunt: Hunt, screen: Screen) -> tuple[tuple[int, ...], bool]:
    """Wrong rows, from projections on ranges of outputs: one VJP each and no evaluation."""
    map_, settings = hunt.map, hunt.settings
    assert screen.projected is not None  # no row is under suspicion, so a projection is
    number, v = screen.projected
    ladder = directional.ladder(map_, settings, number)
    along = directional.along(map_, settings, number)
    xp = namespace(map_.point)
    hinted_above = map_.codomain.size // _PROOF

    def asked(span: slice, other: Array | None = None) -> tuple[float, float]:
        rows = along.estimate.span(span)
        usable = xp.isfinite(rows.error)
        part = unpacked(v[span]) if other is None else unpacked(v[span]) * xp.sign(other[span])
        part = xp.where(usable, part, 0.0)
        gradient = hunt.claim.project(_only(map_.codomain.size, span, part))
        assert gradient is not None  # only a mode that projects is searched this way
        claimed, rounding = dot_and_rounding(map_, gradient, along.probe)
        sums = ladder.of_functionals(part[None, :], span, signs=signs_count(map_))
        whole = (float(sums.value[0]), float(sums.error[0]))
        measured, error = summed(whole, part, rows)
        size = norm(part * xp.where(usable, rows.value, 0.0))
        # Of a long range a gap is a hint, if that is what led here, and no more.
        bars = 1.0 if screen.hints and span.stop - span.start > hinted_above else BARS
        return claimed - measured, bars * error + law.of_sum(size) + rounding

    def residual(low: int, high: int) -> tuple[float, float]:
        span = slice(low, high)
        found = asked(span)
        # Beside wide bars the gaps of many outputs may cancel: other signs are asked for, too.
        if abs(found[0]) > found[1] or high - low == 1 or not signs_count(map_):
            return found
        return asked(span, probes.cotangent(map_, settings.seed or 0, _OTHER))

    start = [(span.start, span.stop) for span in screen.hints[1]] if screen.hints else []
    return rows_by_splitting(residual, map_.codomain.size, start)


def _only(size: int, span: slice, values: Array) -> Array:
    """A vector that is zero outside a span."""
    vector = namespace(values).zeros(size)
    vector[span] = values
    return vector


def _unexplained(hunt: Hunt, suspects: list[int], whole: Array | None) -> list[int]:
    """Rows whose residual the measured columns do not account for; `whole` is J u as claimed."""
    first = directional.along(hunt.map, hunt.settings, 0)
    rows = hunt.rows if whole is None else suspects
    xp = namespace(first.probe)
    at = xp.asarray(rows)
    claimed = claimed_along(hunt, first.direction) if whole is None else xp.take(whole, at)
    residual = start = claimed - xp.take(first.estimate.value, at)
    for j, gap in hunt.gaps.items():
        residual = residual - xp.take(gap, at) * float(first.probe[j])
    for gap in hunt.grouped:
        residual = residual - xp.take(gap, at)
    bar = 4 * xp.take(first.estimate.error, at) + 1e-6 * xp.abs(start)
    bar = bar if isinstance(hunt.brief, float) else bar + xp.take(hunt.brief, at)
    open_ = ~(xp.abs(residual) <= bar)
    return [row for row, still in zip(rows, on_host(open_), strict=True) if still]


def _refuted(hunt: Hunt, screen: Screen) -> CheckResult:
    unique = {(str(f.output), str(f.input)): f for f in hunt.findings}
    kept = sorted_findings(list(unique.values()))
    size = f"{hunt.whole.size:,} x {hunt.map.domain.size:,} Jacobian"
    summary = f"{count(len(unique), 'wrong entry')} located in the {size}"
    if hunt.crowded:
        summary = f"rows of the {size} are wrong in many columns, {kept[0].output} first"
        kept = tuple(replace(found, kind="row") for found in kept)
    elif hunt.many_rows:
        told = f"{max(screen.count, len(screen.suspects)):,}" if screen.suspects else "many"
        summary = f"{told} rows of the {size} are wrong"
        if not hunt.unexplained and len({str(found.input) for found in kept}) == 1:
            summary += f", all with respect to {kept[0].input}"
    return explained_failure(hunt, screen, failed(hunt.claim.check, summary, kept))


def _acquitted(hunt: Hunt, screen: Screen, notes: tuple[str, ...]) -> CheckResult:
    """No measured entry is beyond its tolerance: believed if that explains the suspicion."""
    check = hunt.claim.check
    if screen.suspicious:
        note = "a projection differs, but every entry located is within its tolerance"
        explained = not hunt.unexplained and not hunt.many_rows and not hunt.crowded
        if not explained and not hunt.settings.classic_step:
            return inconclusive(check, "a projection differs, but no wrong entry could be located")
        notes = (*notes, note)
    return passed(
        check,
        f"{hunt.whole.size:,} x {hunt.map.domain.size:,} Jacobian, the entries under "
        "suspicion measured",
        resolution=screen.resolution,
        notes=notes,
    )


def _at_kinks(
    map_: DifferentiableMap, settings: Settings, claim: Claim, screen: Screen
) -> CheckResult:
    """Rows that could not be resolved: not differentiable, as far as that is what they are."""
    if settings.classic_step:
        return _blurred(map_, claim, screen)
    kinks, open_ = limiting_slopes.along_probe(map_, settings, claim, screen.blurred)
    if wrong := tuple(
        limiting_slopes.finding_of(claim.check, kink) for kink in kinks if not kink.within
    ):
        summary = f"claims at {count(len(wrong), 'entry')} lie outside the one-sided slopes"
        return failed(claim.check, summary, sorted_findings(wrong), kinks=kinks)
    if open_:
        return replace(_blurred(map_, claim, replace(screen, blurred=open_)), kinks=kinks)
    return passed(
        claim.check,
        f"{map_.codomain.size:,} x {map_.domain.size:,} Jacobian, not differentiable in "
        f"{len(screen.blurred):,} outputs, the others verified to {screen.resolution:.0e}",
        resolution=screen.resolution,
        kinks=kinks,
    )


def _blurred(map_: DifferentiableMap, claim: Claim, screen: Screen) -> CheckResult:
    place = map_.codomain.locate(screen.blurred[0])
    why = map_.memo.get(("raised",))
    return inconclusive(
        claim.check,
        f"{len(screen.blurred):,} of {map_.codomain.size:,} outputs could not be resolved, "
        f"{place} first{': ' + why if why else ''}; the others agree to {screen.resolution:.0e}",
        resolution=screen.resolution,
    )
