"""Slopes on both sides of the point: along a direction, along an input, and who bends a row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from gradproof._data.records import Finding, Kink, Place
from gradproof._data.settings import Settings
from gradproof._data.space import Array, dot, namespace, on_host, positions
from gradproof._judge.claims import Claim
from gradproof._judge.decide import BARS, Bar, Tolerance, decide
from gradproof._judge.found import Entries
from gradproof._judge.opinion import Opinion
from gradproof._locate.decode import MANY, Residual, single_columns
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional, evaluate, jacobian, probes, steps
from gradproof._measure.one_sided import (
    BOUNDARY,
    INFINITE,
    JUMP,
    KINDS,
    KINK,
    SMOOTH,
    UNRESOLVED,
    Kinks,
)
from gradproof._measure.richardson import Estimate


def of_rows(found: Kinks, rows: Sequence[int]) -> Kinks:
    """The same of some rows."""
    xp = namespace(found.left)
    at = xp.asarray(list(rows))
    return Kinks(
        *(xp.take(part, at) for part in (found.kind, found.left, found.right, found.error))
    )


def bending(map_: DifferentiableMap, rows: Sequence[int], direction: Array) -> list[int | None]:
    """The input with which each row bends; None where there are several, or none is seen."""
    xp = namespace(direction)
    at = xp.asarray(list(rows))
    start = xp.take(evaluate.centre(map_).value, at)

    noise = 64 * map_.resolution * xp.abs(start)

    def even(parts: Array) -> Array:
        sides = evaluate.values_beside(map_, direction * parts, steps.central(map_.resolution))
        plus, minus = (xp.take(side, at) for side in sides)
        return (plus + minus) / 2 - start

    whole = even(xp.ones_like(direction))
    total = Residual(whole, noise, whole)
    seen = [bool(one) for one in abs(total.value) > total.threshold]
    if not any(seen):
        return [None for _ in rows]

    def weighted(weights: Array) -> Residual:
        # The even part of a kink is that of the size of a weight: those from 0 to 1 are taken.
        return Residual(2 * even((1 + weights) / 2) - whole, 3 * noise, whole)

    found = single_columns(weighted, total, direction, range(direction.shape[0]))
    return [j if bends else None for j, bends in zip(found, seen, strict=True)]


# Entries of rows whose slopes along single inputs say nothing of any other direction.


MOST = 1024  # records kept
_UNEVEN = 1e-3  # of a row, by which its slopes must fail to add up


def uneven_entries(
    map_: DifferentiableMap,
    settings: Settings,
    entries: Entries,
    open_: tuple[Array, Array],
    slopes: tuple[Array, Array, Array],
) -> tuple[Array, list[Kink]]:
    """Open entries of rows whose slope along a direction is not the sum of its entries'.

    Where three numbers are tied, the middle one in order has slope zero along each of them, and
    yet moves when all do, one way forwards and another way backwards perhaps: no matrix is its
    derivative, and none can be held against the claim.

    Args:
        map_: whose Jacobian it is.
        settings: of the run.
        entries: measured and claimed.
        open_: masks of the entries that are wrong, and of those that are not resolved.
        slopes: of every entry on its left and on its right, with their error bars.

    Returns:
        A mask of the open entries in such rows, and a record for each wrong one.
    """
    wrong, blurred = open_
    c = entries.comparison
    xp = namespace(wrong)
    none = wrong & ~wrong
    if settings.classic_step or not bool(xp.any(wrong)) or wrong.shape[1] < 2:
        return none, []
    first = directional.along(map_, settings, 0)
    rows = list(range(wrong.shape[0])) if entries.rows is None else list(entries.rows)
    u = first.direction
    apart, bar = _apart(first.estimate, xp.asarray(rows), u, slopes)
    if map_.resolution <= directional.DOUBLE:
        near, near_bar = _apart_near(map_, xp.asarray(rows), u, slopes)
        finer = near_bar < bar
        apart, bar = xp.where(finer, near, apart), xp.where(finer, near_bar, bar)
    known = xp.all(xp.isfinite(c.measured), axis=1) & xp.isfinite(bar) & xp.isfinite(apart)
    row = (known & (apart > bar + _UNEVEN * (xp.abs(c.measured) @ xp.abs(u))))[:, None]
    uneven = wrong & row
    records = []
    places = (on_host(found).tolist() for found in xp.nonzero(uneven))
    measured_, claimed_ = on_host(c.measured), on_host(c.claimed)
    for i, j in list(zip(*places, strict=True))[:MOST]:
        slope, claimed = float(measured_[i, j]), float(claimed_[i, j])
        output, input_ = map_.codomain.locate(rows[i]), map_.domain.locate(j)
        message = (
            f"{input_} -> {output}: not differentiable, a kink; the slope is {slope:.6g} on both "
            "sides, but slopes do not add up to the one along a random direction; "
            f"claimed {claimed:.6g}, which only neighbours can judge"
        )
        records.append(Kink(KINDS[KINK], output, input_, slope, slope, claimed, False, message))
    return uneven | (blurred & row), records


def _sums(u: Array, slopes: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    """What the entries' slopes add up to forwards along u and backwards, and their error bars.

    Forwards each input moves to the side that its part of u points to, backwards to the other.
    """
    xp = namespace(u)
    left, right, error = slopes
    ahead, behind = xp.clip(u, 0.0, None), xp.clip(-u, 0.0, None)
    forwards, backwards = right @ ahead - left @ behind, left @ ahead - right @ behind
    return forwards, backwards, error @ xp.abs(u)


def _apart(
    whole: Estimate, at: Array, u: Array, slopes: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    """How far the slopes of some rows along u are from the sums of their entries', and a bar.

    Which of the two slopes along u is which is not known.
    """
    xp = namespace(u)
    forwards, backwards, error = _sums(u, slopes)
    value, kink = xp.take(whole.value, at), xp.take(whole.kink, at)
    kink = xp.minimum(kink, xp.take(whole.error, at))
    one, other = value + kink, value - kink
    apart = xp.minimum(
        xp.maximum(xp.abs(forwards - one), xp.abs(backwards - other)),
        xp.maximum(xp.abs(forwards - other), xp.abs(backwards - one)),
    )
    return apart, BARS * (xp.take(whole.error, at) - kink + error)


def _apart_near(
    map_: DifferentiableMap, at: Array, u: Array, slopes: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    """The same from two short steps on either side, whose difference is the bar.

    A number close to tied ones comes between them where a ladder of steps begins, and blurs their
    slope along u, though not the one along an input that moves by itself.
    """
    xp = namespace(u)
    forwards, backwards, error = _sums(u, slopes)
    start = evaluate.centre(map_)
    value = xp.take(start.value, at)
    noise = 4 * map_.resolution * xp.abs(value) + xp.max(xp.zeros_like(value) + start.noise)
    near = 16 * steps.one_sided(map_.resolution), steps.one_sided(map_.resolution)
    apart = bar = xp.zeros_like(value)
    for way, total in zip((1.0, -1.0), (forwards, backwards), strict=True):
        short, shorter = (
            way * (xp.take(evaluate.value_beside(map_, u, way * step), at) - value) / step
            for step in near
        )
        apart = xp.maximum(apart, xp.abs(shorter - total))
        bar = xp.maximum(bar, xp.abs(short - shorter) + 2 * noise / near[1])
    return apart, BARS * (bar + error)


# Entries at which the function is not differentiable: what they are, and what may be claimed.
#
# Where one-sided slopes exist, a claim must lie between them: it is then the slope of a smooth
# function as near as one likes. Where F jumps, or its slope has no end, any number is a
# convention, and only the derivative beside the point can tell a right rule from a wrong one.


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
        found = jacobian.sides(map_, settings, j)
        if entries.rows is not None:
            found = of_rows(found, entries.rows)
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
    slack = Tolerance(settings.atol + settings.rtol * xp.maximum(xp.abs(low), xp.abs(high)))
    between = decide(claimed, middle, Bar(half + found.error, half), 0.0, slack).close
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
    found = jacobian.sides(map_, settings, j)
    kinks = {}
    for i in positions(bent)[: 8 * MANY]:
        if int(found.kind[i]) not in (SMOOTH, UNRESOLVED):
            kink = _judged(map_, settings, (i, j), found, i, float(claimed[i]))
            kinks[str(kink.output)] = kink
    return [_named(finding, kinks.get(str(finding.output))) for finding in findings]


def _named(finding: Finding, kink: Kink | None) -> Finding:
    return finding if kink is None or kink.within else finding_of(finding.check, kink)


def told(said: Opinion, found: Examined) -> Opinion:
    """The findings, of which those at kinks say so."""
    at = {(str(kink.output), str(kink.input)): kink for kink in found.records if not kink.within}
    findings = [_named(f, at.get((str(f.output), str(f.input)))) for f in said.findings]
    return replace(said, findings=tuple(findings), kinks=found.records)


def along_probe(
    map_: DifferentiableMap, settings: Settings, claim: Claim, rows: Sequence[int]
) -> tuple[tuple[Kink, ...], tuple[int, ...]]:
    """Kinks of rows of a Jacobian too large to be measured whole, and the rows still open.

    The slopes are those along the first tangent, unless the row bends with one input only: then
    they are those of that entry. Every claim is judged; those outside come first, and no more
    than `MOST` are kept.
    """
    direction = directional.along(map_, settings, 0).direction
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
    found = of_rows(jacobian.sides_along(map_, settings, direction), chosen)
    bent = (found.kind != SMOOTH) & (found.kind != UNRESOLVED)
    accepted = _acceptable(settings, found, claimed)
    columns = bending(map_, chosen[:MANY], direction)
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
    found = of_rows(jacobian.sides(map_, settings, at[1]), [at[0]])
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
    one = of_rows(found, [k])
    xp = namespace(one.left)
    accepted = bool(_acceptable(settings, one, xp.asarray([claimed]))[0])
    places = map_.codomain.locate(at[0]), map_.domain.locate(at[1])
    return _record(places, one, 0, claimed, accepted)


# Claims at a tie that lie between the slopes one by one, and together are no slope at all.
#
# Where two numbers are the largest, a maximum has the slope of the one or of the other, or claims
# a mixture of both. That each entry lies between its one-sided slopes, 0 and 1, a claim of 1 for
# both meets as well. So the claimed derivative is held, along directions through the tie, against
# the slopes that the function has beside it: a mixture of slopes lies between the least and the
# greatest of them (Clarke, Optimization and Nonsmooth Analysis, 1983).


_FIRST = 40  # number of the first tangent used here
_DIRECTIONS, _BESIDE = 3, 8
_MORE = 48  # random neighbours of claims that none of the first explains
_COLUMNS = 8  # inputs of a tie that are moved one by one
_CLIMBED = 12  # rows of which neighbours are looked for input by input, of _TURNED inputs at most
_TURNED = 24
_SLACK = 1e-5  # of the claims' sizes
_FEWEST = 4  # slopes from which the least and the greatest are known


def together(
    map_: DifferentiableMap, settings: Settings, entries: Entries, found: Examined
) -> Examined:
    """What became of the entries, those outside whose row is no mixture of slopes."""
    claimed = entries.comparison.claimed
    xp = namespace(claimed)
    tied = found.named & ~found.outside
    uneven = xp.any(found.uneven, axis=1)
    rows = (xp.sum(xp.astype(tied, xp.int64), axis=1) >= 2) | uneven
    if settings.classic_step or map_.resolution > directional.DOUBLE or not bool(xp.any(rows)):
        return found
    # Who takes part in a tie is not seen where the slopes along single inputs say nothing.
    everywhere = bool(xp.any(uneven))
    moved = xp.any(tied & rows[:, None], axis=0) | everywhere
    outside: Array = found.outside
    told: dict[tuple[object, ...], tuple[float, float, float]] = {}
    for u in _directions(map_, settings, entries.comparison.measured, rows, moved):
        tie = _Tie(map_, settings, entries, rows, u, moved)
        bad, low, high = tie.judged()
        outside = outside | (tied & bad[:, None])
        numbers_of = [on_host(each).tolist() for each in (tie.claims, low, high)]
        for i in positions(bad):
            place = map_.codomain.locate(i if entries.rows is None else entries.rows[i])
            numbers = numbers_of[0][i], numbers_of[1][i], numbers_of[2][i]
            told.setdefault((place.slot, place.index, place.part), numbers)
    kinks = tuple(sorted((_worded(k, told) for k in found.records), key=lambda k: k.within))
    return replace(found, outside=outside, records=kinks)


def _directions(
    map_: DifferentiableMap, settings: Settings, measured: Array, rows: Array, moved: Array
) -> Iterator[Array]:
    """The direction in which all tied numbers grow alike, as far as they count; then random ones.

    Along the first all slopes beside the tie of a maximum are one number, and what is claimed too
    often adds up. Along a random one it may hide between the least and the greatest of them.
    """
    xp = namespace(measured)
    counts = xp.sum(xp.where(rows[:, None] & xp.isfinite(measured), measured, 0.0), axis=0)
    yield xp.where(moved, xp.where(counts < 0, -1.0, 1.0) * probes.scales_of(map_), 0.0)
    for number in range(1, _DIRECTIONS):
        drawn = probes.tangent(map_, settings.seed or 0, _FIRST + number)
        yield xp.where(moved, drawn, 0.0)


@dataclass(frozen=True)
class _Tie:
    """A tie, and a direction through it.

    Attributes:
        map_: whose point is a tie.
        settings: of the run.
        entries: claimed and measured.
        rows: mask of the rows that are asked about.
        u: the direction.
        moved: mask of the inputs that take part.
    """

    map_: DifferentiableMap
    settings: Settings
    entries: Entries
    rows: Array
    u: Array
    moved: Array

    @property
    def claims(self) -> Array:
        """What is claimed along the direction."""
        return self.entries.comparison.claimed @ self.u

    def judged(self) -> tuple[Array, Array, Array]:
        """Rows whose claim is no mixture of slopes, and the least and the greatest of these.

        A neighbour that is not tried can only widen them: where a claim lies outside, more are.
        """
        slopes = [s for beside in self._first() for s in self._slopes(beside)]
        bad, low, high = self._outside(slopes)
        xp = namespace(low)
        if bool(xp.any(bad)):
            slopes += [s for beside in self._random() for s in self._slopes(beside)]
            bad, low, high = self._outside(slopes)
        for look in (self._between, self._climb):
            for i in positions(bad)[:_CLIMBED]:
                if bool(bad[i]):
                    slopes += look(i, float(high[i]) < float(self.claims[i]))
                    bad, low, high = self._outside(slopes)
        return bad, low, high

    def _outside(self, found: list[Array]) -> tuple[Array, Array, Array]:
        xp, claims = namespace(self.u), self.claims
        slopes = xp.stack(found)
        known = xp.isfinite(slopes)
        low = xp.min(xp.where(known, slopes, xp.inf), axis=0)
        high = xp.max(xp.where(known, slopes, -xp.inf), axis=0)
        size = xp.abs(self.entries.comparison.claimed) @ xp.abs(self.u)
        slack = _SLACK * xp.maximum(size, xp.maximum(xp.abs(low), xp.abs(high)))
        enough = xp.sum(xp.astype(known, xp.int64), axis=0) >= _FEWEST
        apart = (claims < low - slack) | (claims > high + slack)
        return self.rows & enough & apart & xp.isfinite(claims), low, high

    def _slopes(self, beside: Array) -> list[Array]:
        """Slopes along the direction near a neighbour, and what they tend to at the tie.

        Beside the tie a curved function has other slopes than at it, by a part of the distance:
        twice the slope at half the distance, less that at the whole, is free of that.
        """
        far, near = self._slope(steps.TIE * beside), self._slope(steps.TIE / 2 * beside)
        return [near, 2 * near - far]

    def _slope(self, move: Array) -> Array:
        step = steps.one_sided(self.map_.resolution)
        sides = evaluate.values_beside(self.map_, self.u, step, self.map_.point + move)
        slope = (sides[0] - sides[1]) / (2 * step)
        rows = self.entries.rows
        return slope if rows is None else namespace(slope).take(slope, _index(slope, rows))

    def _first(self) -> Iterator[Array]:
        """Directions that break the tie: the one asked along, single inputs, and random ones."""
        u = self.u
        yield from (u, -u)
        for j in positions(self.moved)[:_COLUMNS]:
            single = jacobian.unit(u, j, float(probes.scales_of(self.map_)[j]))
            yield from (single, -single)
        for number in range(_BESIDE):
            yield self._drawn(number)

    def _random(self) -> Iterator[Array]:
        for number in range(_BESIDE, _BESIDE + _MORE):
            yield self._drawn(number)

    def _drawn(self, number: int) -> Array:
        first = _FIRST + _DIRECTIONS + number
        drawn = probes.tangent(self.map_, self.settings.seed or 0, first)
        return namespace(drawn).where(self.moved, drawn, 0.0)

    def _between(self, i: int, upwards: bool) -> list[Array]:
        """Slopes of neighbours with the input that row i claims most of at every place in order.

        Of numbers that are equal the one of a given rank is each of them somewhere beside the tie;
        a random neighbour has the claimed one at that rank as seldom as there are many.
        """
        del upwards
        xp, point = namespace(self.u), self.map_.point
        weight = xp.where(self.moved, xp.abs(self.entries.comparison.claimed[i, :]), -1.0)
        most = int(xp.argmax(weight))
        others = self.moved & (point == point[most]) & (xp.arange(point.shape[0]) != most)
        beside = self._drawn(0)
        places = sorted(on_host(beside)[on_host(others)].tolist())[:_TURNED]
        if not places:
            return []
        levels = [places[0] - 1.0, *((a + b) / 2 for a, b in pairwise(places)), places[-1] + 1.0]
        here = xp.arange(point.shape[0]) == most
        return [s for level in levels for s in self._slopes(xp.where(here, level, beside))]

    def _climb(self, i: int, upwards: bool) -> list[Array]:
        """Slopes of a neighbour at which row i has a greater slope, or a smaller one.

        From one region to the next, by turning the neighbour's inputs round one after the other:
        there are more regions around a tie of many numbers than random neighbours.
        """
        xp, way = namespace(self.u), 1.0 if upwards else -1.0
        beside = self._drawn(0)
        best = self._slopes(beside)
        for j in positions(self.moved)[:_TURNED]:
            turned = xp.where(xp.arange(beside.shape[0]) == j, -beside, beside)
            slopes = self._slopes(turned)
            if way * float(slopes[1][i]) > way * float(best[1][i]):
                beside, best = turned, slopes
        return best


def _index(like: Array, rows: object) -> Array:
    return namespace(like).asarray(rows)


def _worded(kink: Kink, told: dict[tuple[object, ...], tuple[float, float, float]]) -> Kink:
    """The record, of a row whose claims are no mixture of slopes, as one of a wrong claim."""
    numbers = told.get((kink.output.slot, kink.output.index, kink.output.part))
    if numbers is None:
        return kink
    along, low, high = numbers
    message = (
        f"{kink.message}; but not together with the others of its output: along a direction "
        f"through the tie the claims add up to {along:.6g}, and beside it the slopes lie between "
        f"{low:.6g} and {high:.6g}"
    )
    return replace(kink, within=False, message=message)
