"""Wrong entries of a Jacobian that is too large to be measured whole: ask, fit, believe or split.

Rounds. Of a few rows under suspicion weighted residuals are asked for, by weights that are drawn.
Single columns, or one hypothesis about many, are fitted to them. What is believed is confirmed: its
columns are measured, and judged as every entry is. A row that nothing explains is split. What the
measured columns do not account for is asked again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from gradproof._data.records import Finding
from gradproof._data.space import Array, Indices, Values, dot, namespace, norm, on_host
from gradproof._data.vectors import largest_size
from gradproof._judge import limiting_slopes
from gradproof._judge.claims import Claim, OfClaim
from gradproof._judge.decide import (
    BARS,
    Bar,
    Decision,
    Tolerance,
    decide,
    of_entry,
    of_sum,
    of_user,
)
from gradproof._judge.found import findings_of, ranked
from gradproof._judge.projections import gap_on
from gradproof._judge.screen import Screen
from gradproof._locate.decode import MOST, Draws, Residual, one_column, weights_of
from gradproof._locate.hypotheses import (
    Common,
    Lines,
    Weighed,
    common,
    largest,
    missing,
)
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import directional, evaluate, jacobian, probes
from gradproof._measure.noise import FACTOR
from gradproof._measure.sizes import DRAWS, FEW_ULPS, FINE, MANY, MOST_FINDINGS, TRIES

_PROOF = 256  # parts of the outputs, of which a projection shows hundredths of rows surely
_SAFE = 8.0  # parts of a tangent may be bent more than the whole


class Few:
    """A vector; a long one, of which mostly little is not zero, by that."""

    def __init__(self, vector: Array) -> None:
        self.values, self._at = vector, None
        if vector.shape[0] > directional.KEPT:
            (at,) = namespace(vector).nonzero(vector)
            if 4 * at.shape[0] < vector.shape[0]:
                self.values, self._at = namespace(vector).take(vector, at), at

    def take(self, rows: Array) -> Array:
        """What it is at some places."""
        xp, at = namespace(rows), self._at
        if at is None:
            return xp.take(self.values, rows)
        if not at.shape[0]:
            return xp.zeros(rows.shape[0])
        place = xp.clip(xp.searchsorted(at, rows), None, at.shape[0] - 1)
        return xp.where(xp.take(at, place) == rows, xp.take(self.values, place), 0.0)

    def dot(self, other: Array) -> float:
        """Its inner product with a vector, over what that moves: 0 times no number is none."""
        there = other if self._at is None else namespace(other).take(other, self._at)
        found = dot(self.values, there)
        if found == found:
            return found
        return dot(namespace(there).where(there == 0, 0.0, self.values), there)


@dataclass(frozen=True)
class Column:
    """One column of a Jacobian, measured."""

    findings: list[Finding]  # its wrong entries, largest gap first
    wrong: list[int]  # the rows of these
    claimed: float  # at the first of these, NaN without any
    gap: Few  # claimed minus measured, zero in rows of which that is not known
    # What the gap may be off by along the first tangent; 0 where that is nothing to others.
    bar: Few


@dataclass
class Search(OfClaim):
    """A search and what it found, in numbers: evidence of a failure where something is wrong."""

    claim: Claim  # of the mode that is searched
    screen: Screen  # whose suspicion it followed
    # Whether every entry is measured where this explains nothing, so that no row is split.
    briefly: bool = False
    rows: list[int] = field(default_factory=list)  # followed last
    # What is claimed of those; empty where the mode has no rows.
    claims: dict[int, Few] = field(default_factory=dict)
    residuals: WeightedResiduals | None = None  # of the rows
    # Rows that the backward claims, where the mode has none.
    lines: dict[int, Array] = field(default_factory=dict)
    gap: Array | None = None  # of every row along the first tangent; None where that is not known
    many: bool = False  # more rows are under suspicion than were followed
    crowded: bool = False  # rows are wrong in more columns than were told
    complete: bool = True  # the columns account for all that is wrong with the rows
    columns: dict[int, Column] = field(default_factory=dict)  # that were measured, by their numbers
    common: Common | None = None  # what explains rows that are wrong in many columns

    @property
    def findings(self) -> list[Finding]:
        """Wrong entries, column by column."""
        return [finding for column in self.columns.values() for finding in column.findings]

    @property
    def explained(self) -> bool:
        """Whether it is known which entries are wrong, or what many have in common."""
        return bool(self.findings) and (not self.crowded or self.common is not None)

    @property
    def accounted(self) -> bool:
        """Whether what was measured accounts for all that was suspected."""
        return self.complete and not self.many and not self.crowded

    @property
    def first(self) -> directional.Measurement:
        return directional.along(self.map, self.settings, 0)

    @property
    def along(self) -> Decision:
        """What is claimed and measured along the first tangent of the rows followed last."""
        assert self.residuals is not None  # some were measured
        found = self.first.estimate.of(self.residuals.at)
        bar, tolerance = Bar(BARS * found.error), Tolerance(0.0, FINE)
        return decide(self.residuals.total, found.value, bar, 0.0, tolerance)


def locate(claim: Claim, screen: Screen, *, briefly: bool = False) -> Search:
    """Find the wrong entries behind a suspicion, and measure those.

    In rounds: locate the columns of a few rows, measure those, see what they leave open. `briefly`:
    nothing is measured of rows that no column and no hypothesis explains.
    """
    search = Search(claim, screen, briefly)
    suspects = rows = _suspects(search)
    if screen.suspects and (along := claim.along(search.first.direction)) is not None:
        search.gap = along - search.first.estimate.value
        del along  # a vector of the size of the output
    for _ in range(TRIES if rows else 0):
        search.many = search.many or len(rows) > MANY
        search.rows = rows[:MANY]
        search.claims = {}  # the last ones make room for the next
        for i in search.rows:
            if (row := claim.row(i)) is not None:
                search.claims[i] = Few(row)
        search.residuals = residuals = _residuals(search)
        columns = _columns(search, residuals, *_decoded(search, residuals))
        fresh = [j for j in columns if j not in search.columns][:MANY]
        for j in fresh:
            search.columns[j] = _column(search, j)
        if search.common is not None and not search.findings:
            search.common = None  # refuted, by entries that are right
            j = _one(search, residuals, [0])
            search.columns[j] = _column(search, j)
        rows = _unexplained(search, suspects)
        search.crowded = search.crowded and bool(rows)
        if not rows or not fresh or search.crowded or (search.many and search.findings):
            break
    search.complete = not rows
    return search


def _suspects(search: Search) -> list[int]:
    """The rows to follow; `search.many` is set where these are not all."""
    screen = search.screen
    if screen.suspects:
        search.many = screen.count > len(screen.suspects)
        return list(screen.suspects)
    if screen.projected is None:
        return []
    found, every = _suspect_rows(search)
    # Without any, what is wrong, if anything is, is spread over rows too thin to tell.
    search.many = not every or not found
    return list(found)


def _residuals(search: Search) -> WeightedResiduals:
    """Of the rows followed now, less the columns that were measured."""
    at = namespace(search.map.point).asarray(search.rows)
    known = {j: (one.gap.take(at), one.bar.take(at)) for j, one in search.columns.items()}
    # Of the search itself it would be a cycle, whose long vectors live until garbage is collected.
    claimed = partial(_claimed, search.claim, search.rows, search.claims)
    return weighted_residuals(search.map, search.first, at, claimed, known)


def _claimed(claim: Claim, rows: Sequence[int], claims: Mapping[int, Few], u: Array) -> Array:
    """J u as claimed, of some rows; `claims` are those, empty where the mode has no rows."""
    xp = namespace(u)
    if claims:
        return xp.asarray([row.dot(u) for row in claims.values()])
    whole = claim.along(u)
    assert whole is not None  # a mode has rows or columns
    return xp.take(whole, xp.asarray(rows))


def _columns(
    search: Search, residuals: WeightedResiduals, draws: Draws, found: Common | None
) -> list[int]:
    """Columns to measure: single ones of a row each, those of a hypothesis, or one by splitting.

    Rows that are not told wait for the columns of the others, which may explain them.
    """
    columns = [draws.column(k) for k in draws.rows]
    fresh = [j for j in dict.fromkeys(columns) if j is not None and j not in search.columns]
    rest = [k for k, j in enumerate(columns) if j is None]
    if fresh or not rest:
        return fresh
    if found is not None:
        search.common, search.crowded = found, True
        few = () if found.among is None else np.flatnonzero(found.among)
        return list(found.measure) or [_one(search, residuals.of(rest), rest, few)]
    search.crowded = True
    return [] if search.briefly else [_one(search, residuals.of(rest[:1]), rest[:1])]


def _one(
    search: Search,
    residuals: WeightedResiduals,
    rows: list[int],
    few: Sequence[int] | Indices = (),
) -> int:
    """One column in which the first row is wrong; of a few, or its largest, if it shows there."""
    row, size = residuals.of([0]), search.map.domain.size
    if not len(few):
        number = 2 * MANY  # of columns tried at once
        few = range(size // (2 * number), size, max(1, size // number))
        if (lines := _lines(search, row, rows[:1])) is not None:
            few = largest(lines[0] * on_host(row.first.direction), number=number) or few
    return one_column(row.ask, row.whole, search.map.point, few)


def _decoded(search: Search, residuals: WeightedResiduals) -> tuple[Draws, Common | None]:
    """Draws until every row is told its only column, or a hypothesis about the others is believed.

    As long as one fits, more draws may tell it from chance, or the ends of a run from their
    neighbours.
    """
    like = search.map.point
    draws = Draws(residuals.ask, residuals.whole, like)
    found = None
    while len(draws.found) < MOST:
        draws.ask()
        rest = [k for k in draws.rows if draws.column(k) is None]
        alone = len(rest) < len(draws.rows) and not draws.worthwhile()
        if not rest or alone:
            return draws, None
        if len(draws.found) >= DRAWS:
            seen = _weighed(search, residuals, draws, rest)
            found = common(seen)
            early = len(draws.found) == DRAWS and not search.briefly
            if found is None and not early and not draws.worthwhile():
                return draws, missing(seen, residuals.of(rest).ask, like)
            if found is not None and found.believed and found.sure:
                break
    return draws, found if found is not None and found.believed else None


def _weighed(
    search: Search, residuals: WeightedResiduals, draws: Draws, rest: list[int]
) -> Weighed:
    """What was measured of the rows that are not told, beside what is known of them."""
    found = [one.of(rest) for one in (residuals.whole, *draws.found)]
    size, lines = search.map.domain.size, _lines(search, residuals.of(rest), rest)
    if lines is None:
        return Weighed(found, size, None)
    values, claimed = lines
    tangent = on_host(residuals.first.direction)
    drawn = (on_host(weights_of(search.map.point, k)) for k in range(len(draws.found)))
    return Weighed(found, size, Lines(values, [tangent, *(w * tangent for w in drawn)], claimed))


def _lines(
    search: Search, residuals: WeightedResiduals, rest: list[int]
) -> tuple[Values, bool] | None:
    """The rows, each as long as the input, and whether as claimed or as they should be.

    A mode without rows asks the backward, which may be right or make the same mistake. None of an
    input that is too long.
    """
    if search.map.domain.size > directional.KEPT:
        return None
    rows = [search.rows[k] for k in rest]
    if search.claims:
        return np.stack([on_host(search.claims[i].values) for i in rows]), True
    try:
        lines = [_line(search, i) for i in rows]
    except Unsupported:
        return None
    sums = np.asarray([dot(line, residuals.first.direction) for line in lines])
    measured = np.asarray(residuals.whole.measured)
    for claimed, total in ((True, residuals.whole.value + measured), (False, measured)):
        noise = BARS * on_host(residuals.bar) + FINE * np.abs(total)
        if bool((np.abs(sums - total) <= noise).all()):
            return np.stack([on_host(line) for line in lines]), claimed
    return None


def _line(search: Search, i: int) -> Array:
    """A row as the backward claims it, asked once."""
    if i not in search.lines:
        v = jacobian.unit(search.map.point, i, count=search.map.codomain.size)
        search.lines[i] = search.map.vjp(v)
    return search.lines[i]


def _unexplained(search: Search, suspects: list[int]) -> list[int]:
    """Rows whose residual the measured columns do not account for.

    One that is no number they account for as soon as one of them has none there either.
    """
    first = search.first
    rows = search.rows if search.gap is None else suspects
    xp = namespace(first.direction)
    at = xp.asarray(rows)
    if search.gap is None:
        claimed = _claimed(search.claim, search.rows, search.claims, first.direction)
        start = claimed - xp.take(first.estimate.value, at)
    else:
        start = xp.take(search.gap, at)
    residual = start
    bar = BARS * xp.take(first.estimate.error, at) + FINE * xp.abs(start)
    for j, column in search.columns.items():
        gap = column.gap.take(at) * float(first.direction[j])
        residual = xp.where(xp.isnan(gap), 0.0, residual - gap)
        bar = xp.where(xp.isnan(gap), math.inf, bar) + column.bar.take(at)
    open_ = ~(xp.abs(residual) <= bar)
    return [row for row, still in zip(rows, on_host(open_), strict=True) if still]


# Located columns measured by themselves, and judged as every entry is.


def _column(search: Search, j: int) -> Column:
    """A column by a ladder; by one difference as soon as one was refuted by a ladder.

    Where the mode claims none, the rows that it claims are judged.
    """
    map_, settings = search.map, search.settings
    if directional.large(map_):  # sums over outputs have told the rows, and ask no more
        directional.drop_ladder(map_, 0)
    claimed, known = _claimed_of_column(search, j)
    if search.findings:
        climbed, small = None, None
        measured, bar, off = _by_difference(search, j, known)
        xp, known = namespace(measured), known & (bar.error < math.inf)
    else:
        lean = map_.resolution > directional.DOUBLE
        climbed = jacobian.climbed(map_, settings, j, lean=lean)
        found, rows = climbed.estimate, namespace(known).asarray(search.rows)
        xp, measured = namespace(found.value), found.value
        here, most = found.of(rows), settings.resolution * largest_size(measured)
        bent = (here.kink >= here.error / 2) & (here.error > most)
        if map_.resolution < directional.DOUBLE and bool(xp.any(bent)):
            sides = jacobian.either_side(climbed.ladder.line, settings, rows)
            found, _ = jacobian.beside_kinks(sides, settings, found, rows, climbed.scale)
            measured = found.value
        bar = Bar(found.error, found.kink if bool(xp.any(found.kink)) else 0.0)
        off, small = xp.zeros(1), 0.5 * max(largest_size(measured), settings.atol)
    comparison = replace(_compared(search, (claimed, known), measured, bar), small=small)
    wrong = comparison.wrong
    findings = findings_of(search.claim.check, map_, comparison, wrong, columns=[j])
    where = [i for i, _ in ranked(comparison, wrong)]
    if climbed is not None and not settings.classic_step:
        findings = _at_kinks(search, findings, j, comparison, where)
    del comparison  # vectors of the size of the output
    worst = float(claimed[where[0]]) if where else math.nan
    gap, off = (Few(xp.where(known, one, 0.0)) for one in (claimed - measured, off))
    return Column(findings, where, worst, gap, off)


def _at_kinks(
    search: Search, findings: list[Finding], j: int, comparison: Decision, where: Sequence[int]
) -> list[Finding]:
    """The findings of one column, those at kinks by that name."""
    bar, bent = comparison.bar, comparison.wrong & False
    bent[where[:MOST_FINDINGS]] = True
    bent &= bar.kink >= 0.5 * bar.error
    if not bool(namespace(bent).any(bent)):
        return findings
    claimed, bent = comparison.claimed[:, 0], bent[:, 0]
    return limiting_slopes.renamed(search.claim, findings, j, claimed, bent)


def _by_difference(search: Search, j: int, known: Array) -> tuple[Array, Bar, Array]:
    """A column by one difference, with the step and the bars of a few rows; those are judged.

    What it may be off by along the first tangent is last.
    """
    residuals = search.residuals
    assert residuals is not None  # columns are those of rows that are followed
    xp, move = namespace(known), abs(float(residuals.first.direction[j]))
    measured = jacobian.classic_column(search.map, residuals.step * move, j)
    error = xp.full_like(measured, math.inf)
    error[residuals.at] = residuals.bar / move
    error = xp.where(known, error, math.inf)
    return measured, Bar(error), error * move


def _compared(search: Search, claim: tuple[Array, Array], measured: Array, bar: Bar) -> Decision:
    """A column as claimed, and in which rows, against what was measured."""
    claimed, known = claim
    xp = namespace(measured)
    usable = xp.isfinite(measured) & xp.isfinite(bar.error)
    size = float(xp.max(xp.where(usable, xp.abs(measured), 0.0)))
    return decide(
        (claimed if bool(xp.all(known)) else xp.where(known, claimed, measured))[:, None],
        measured[:, None],
        Bar(*(one if isinstance(one, float) else one[:, None] for one in (bar.error, bar.kink))),
        of_entry(search.map, size),
        of_user(search.settings),
    )


def _claimed_of_column(search: Search, j: int) -> tuple[Array, Array]:
    """What is claimed of a column, NaN where nothing is, and in which rows something is."""
    claimed = search.claim.along(jacobian.unit(search.map.point, j))
    if claimed is not None:
        return claimed, namespace(claimed).ones_like(claimed) > 0
    claimed = namespace(search.map.point).zeros(search.map.codomain.size) + math.nan
    known = claimed == claimed
    at = namespace(claimed).asarray([j])
    for i, row in search.claims.items():
        claimed[i], known[i] = float(row.take(at)[0]), True
    return claimed, known


# Wrong rows from projections on ranges of outputs, halved until one output is left.


def _suspect_rows(search: Search) -> tuple[tuple[int, ...], bool]:
    """Wrong rows in order, and whether all: by projections on ranges of outputs, one VJP each."""
    map_, screen = search.map, search.screen
    assert screen.projected is not None  # no row is under suspicion, so a projection is
    number, v = screen.projected
    along = directional.along(map_, search.settings, number)
    xp = namespace(map_.point)
    hinted_above = map_.codomain.size // _PROOF

    def residual(low: int, high: int) -> tuple[float, float]:
        span = slice(low, high)
        rows = along.estimate.span(span)
        usable = xp.isfinite(rows.error)
        part = xp.where(usable, v[span], 0.0)
        only = xp.zeros(map_.codomain.size)
        only[span] = part
        quiet = of_sum(norm(part * xp.where(usable, rows.value, 0.0)))
        found = gap_on(search.claim, number, only, span, quiet=quiet, mixed=False)
        # Of a long range a gap is a hint, if that is what led here, and no more.
        hint = screen.hints and span.stop - span.start > hinted_above
        return found.gap, found.allowed if hint else found.further

    start = [(span.start, span.stop) for span in screen.hints[1]] if screen.hints else []
    return rows_by_splitting(residual, map_.codomain.size, start)


def rows_by_splitting(
    residual: Callable[[int, int], tuple[float, float]],
    size: int,
    start: Sequence[tuple[int, int]] = (),
) -> tuple[tuple[int, ...], bool]:
    """Wrong rows where only projections can be claimed, in order, and whether all.

    Where there are many only the first, the last and two strong ones between them are followed:
    the first and the last of all wrong rows.

    Args:
        residual: (low, high) -> residual and threshold of a cotangent supported on [low, high).
        size: m.
        start: ranges that all wrong rows lie in; of all rows where empty.
    """
    live = list(start) or [(0, size)]
    complete = True
    while any(high - low > 1 for low, high in live):
        weighed: list[tuple[float, tuple[int, int]]] = []
        for low, high in live:
            if high - low == 1:
                weighed.append((float("inf"), (low, high)))
                continue
            middle = (low + high) // 2
            for half in ((low, middle), (middle, high)):
                value, threshold = residual(*half)
                if not abs(value) <= threshold:
                    weighed.append((abs(value) / threshold if threshold else 1.0, half))
        complete = complete and len(weighed) <= MANY
        if not complete and len(weighed) > 2:
            weighed.sort(key=lambda item: item[1])
            weighed = [weighed[0], *sorted(weighed[1:-1])[-2:], weighed[-1]]
        live = [half for _, half in weighed]
    return tuple(sorted(low for low, _ in live)), complete


# Weighted residuals of a few rows: claimed minus measured along a tangent times weights.


@dataclass(frozen=True)
class WeightedResiduals:
    """Residuals of some rows along a tangent times weights."""

    map: DifferentiableMap  # the map
    first: directional.Measurement  # the measurement along the tangent
    at: Array  # the rows
    claimed: Callable[[Array], Array]  # direction -> what is claimed of the rows
    total: Array  # claimed along the whole tangent
    whole: Residual  # what is left of the residuals along it
    step: float  # of symmetric differences
    bar: Array  # what those are off by
    rounding: Array  # the part of it that does not grow with what is measured
    # Gaps of columns that were measured, in these rows: residuals are what is left.
    known: Mapping[int, Array] = field(default_factory=dict)

    def of(self, rows: list[int]) -> WeightedResiduals:
        """Some of the rows, by their positions."""
        xp = namespace(self.at)
        chosen = xp.asarray(rows)
        return replace(
            self,
            at=xp.take(self.at, chosen),
            claimed=lambda u: xp.take(self.claimed(u), chosen),
            total=xp.take(self.total, chosen),
            whole=self.whole.of(rows),
            bar=xp.take(self.bar, chosen),
            rounding=xp.take(self.rounding, chosen),
            known={j: xp.take(gap, chosen) for j, gap in self.known.items()},
        )

    def ask(self, weights: Array) -> Residual:
        """Claimed minus measured, by two evaluations."""
        u = self._representable(weights * self.first.direction)
        sides = evaluate.values_beside(self.map, u, self.step)
        plus, minus = (namespace(u).take(side, self.at) for side in sides)
        measured = (plus - minus) / (2 * self.step)
        left = self.claimed(u) - measured
        for j, gap in self.known.items():
            left = left - float(u[j]) * gap
        return Residual(left, self._bar(measured), measured)

    def _bar(self, measured: Array) -> Array:
        """Of a part of the tangent, which bends by about that part; rounding stays what it is."""
        xp = namespace(measured)
        size = xp.abs(xp.asarray(self.whole.measured))
        part = _SAFE * xp.abs(measured) / xp.where(size > 0, size, 1.0)
        part = xp.where((size > 0) & (part < 1), part, 1.0)
        return self.rounding + part * (self.bar - self.rounding)

    def _representable(self, u: Array) -> Array:
        """The direction in steps that few bits can follow: x + h u is then what is evaluated.

        In double precision its rounding is none beside the others'.
        """
        if self.map.resolution < directional.DOUBLE:
            return u
        xp = namespace(u)
        # A coordinate that is moved may cross a power of two.
        grain = FEW_ULPS * self.map.resolution / self.step * probes.scales_of(self.map)
        return xp.round(u / grain) * grain


def weighted_residuals(
    map_: DifferentiableMap,
    first: directional.Measurement,
    at: Array,
    claimed: Callable[[Array], Array],
    known: Mapping[int, tuple[Array, Array]],
) -> WeightedResiduals:
    """Residuals of rows; `known` are gaps of columns that were measured, and their errors.

    A symmetric difference along a part of the tangent is off by what that of the whole is, which is
    known. It may be so little by luck: the rounding of F is the least that is assumed.
    """
    # Without evaluations: what was worked out of them is all that is read.
    xp, first = namespace(at), replace(first, ladder=None)
    found, total = first.estimate.of(at), claimed(first.direction)
    left, off = total - found.value, xp.zeros_like(found.value)
    for j, (column, bar) in known.items():
        left, off = left - float(first.direction[j]) * column, off + bar
    step, bar = float(xp.min(found.step)), BARS * found.step_error + off
    whole, gaps = Residual(left, bar, found.value), {j: column for j, (column, _) in known.items()}
    rounding = FACTOR * found.noise / step
    return WeightedResiduals(map_, first, at, claimed, total, whole, step, bar, rounding, gaps)
