"""Points without a derivative: what may be claimed there, and the records that say so.

A claim c is right where it is a limiting slope of F, or a mixture of several (Clarke, Optimization
and Nonsmooth Analysis, 1983): where c.u lies, along every direction u, between the least and the
greatest slope that F has along u beside the point. Along an input alone the slopes on both sides
of the point itself are two of these. Where F jumps, or its slope has no end, any number is a
convention, and only the derivative beside the point can tell a right rule from a wrong one.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gradproof._data.records import Finding, Kink, Place
from gradproof._data.settings import Settings
from gradproof._data.space import Array, dot, namespace, positions
from gradproof._data.vectors import finite, median_of_positive
from gradproof._judge import claim_error
from gradproof._judge.claims import Claim
from gradproof._judge.decide import BARS, Bar, Tolerance, decide
from gradproof._judge.found import Entries
from gradproof._judge.opinion import Opinion
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
from gradproof._measure.sizes import ALIKE, FINE, MANY, MOST_FINDINGS, SMALL, TRIES

# In the memo of a map at a smooth neighbour of such a point: the size of F there.
BESIDE = ("beside",)

Told = dict[int, tuple[float, float, float]]  # row -> claimed along a direction, least, greatest


@dataclass(frozen=True)
class Examined:
    """What became of the entries that looked as if they had no derivative."""

    named: Array  # mask of the entries that are no longer open: not differentiable, and said so
    outside: Array  # mask of those whose claim is no limiting slope
    spoilt: Array  # mask of NaN beside an infinite slope
    records: tuple[Kink, ...]  # one per named entry, as far as they are kept
    number: int  # of named entries

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


def examine(entries: Entries, blurred: Array, wrong: Array) -> Examined:
    """Hold the claims where F has no derivative against its slopes at the point and beside it.

    Asked about are the entries that are blurred, bent by a kink, or wrong in a row whose slopes
    along single inputs say nothing of any other direction.
    """
    c = entries.comparison
    xp = namespace(blurred)
    bent = xp.isfinite(c.error) & (entries.kink >= 0.5 * c.error)
    suspects = blurred | (bent & (c.error > FINE * entries.size))
    found = _sides(entries, suspects)
    named = suspects & (found.kind != SMOOTH) & (found.kind != UNRESOLVED)
    claim_error.remember_gaps(entries, xp.where(named, finite(abs(found.right - found.left)), 0.0))
    outside = named & ~_acceptable(entries.settings, found, c.claimed)
    spoilt, told = _spoilt(c.claimed, named & (found.kind == INFINITE)), Told()
    if entries.map.resolution <= directional.DOUBLE and bool(xp.any(named | wrong)):
        beside = _Beside(entries, found)
        mixed = beside.reached(outside & (found.kind == KINK))
        outside = outside & ~mixed
        uneven = beside.uneven(wrong & ~named)
        named = named | ((wrong | blurred) & uneven[:, None])
        told = beside.told(named & ~outside, uneven)
        apart = xp.asarray([i in told for i in range(named.shape[0])])
        outside = outside | (named & apart[:, None])
    records = _records(entries, found, (named, outside), told)
    return Examined(named, outside, spoilt, records, int(xp.sum(xp.astype(named, xp.int64))))


def _sides(entries: Entries, suspects: Array) -> Kinks:
    """What the suspects are along their own input, and their slopes; of others as measured."""
    c, xp = entries.comparison, namespace(suspects)
    kind = xp.astype(suspects & ~suspects, xp.int64) + SMOOTH
    found = Kinks(kind, 1.0 * c.measured, 1.0 * c.measured, 1.0 * c.error)
    for j in positions(xp.any(suspects, axis=0)):
        column = jacobian.sides(entries.map, entries.settings, j)
        column = column if entries.rows is None else column.of(xp.asarray(list(entries.rows)))
        for name in Kinks.__dataclass_fields__:
            part = getattr(found, name)
            part[:, j] = xp.where(suspects[:, j], getattr(column, name), part[:, j])
    return found


# Slopes beside the point.


_MORE = 32  # random neighbours of claims that none of the first `MANY` explains


class _Around:
    """The slopes of F along a direction a little beside the point: what a claim may be a mix of."""

    def __init__(self, map_: DifferentiableMap, settings: Settings, direction: Array) -> None:
        self._map, self._seed, self.direction = map_, settings.seed, direction
        self._asked: list[tuple[Array, Array]] = []

    def drawn(self, number: int) -> Array:
        """A random move."""
        return probes.tangent(self._map, self._seed, probes.ALONE + number)

    def ask(self, move: Array) -> Array:
        """The slopes a part of a move away."""
        self._asked.append((move, self._slope(move, steps.TIE / 2)))
        return self._asked[-1][1]

    def _slope(self, move: Array, distance: float) -> Array:
        step = steps.one_sided(self._map.resolution)
        at = self._map.point + distance * move
        plus, minus = evaluate.values_beside(self._map, self.direction, step, at)
        return (plus - minus) / (2 * step)

    def blur(self) -> Array:
        """What F rounds and what its runs differ by, in one of these slopes."""
        start, xp = evaluate.centre(self._map), namespace(self.direction)
        rounded = 4 * self._map.resolution * xp.abs(finite(start.value))
        return BARS * (rounded + start.noise) / steps.one_sided(self._map.resolution)

    def bends(self) -> list[Array]:
        """By how much the first slopes asked for may be others than those they tend to.

        Where F is smooth its slope changes by twice as much at twice the distance; that of a tie
        does not, but where two draws are alike.
        """
        pairs = ((self._slope(move, steps.TIE), near) for move, near in self._asked[:TRIES])
        return [BARS * finite(abs(far - near)) for far, near in pairs]

    def turned(self, number: int, count: int) -> tuple[Array, Array]:
        """What kinks that are added up may be claimed to slope by, each on either side.

        On half a turn around the point each of them is crossed once, and the slope changes by what
        it bends there: by half of all that it may be off the mean of both ends. Two crossings in
        one of so many pieces may cancel, about as much again as in pieces twice as long.
        """
        xp, (start, way) = namespace(self.direction), (self.drawn(2 * number + k) for k in (0, 1))
        turns = (math.pi * k / count for k in range(count + 1))
        every = [finite(self.ask(math.cos(t) * start + math.sin(t) * way)) for t in turns]
        fine, coarse = (
            sum(xp.abs(one - next_) for one, next_ in itertools.pairwise(every[::each]))
            for each in (1, 2)
        )
        middle, (low, high), bent = (every[0] + every[-1]) / 2, self.range(), fine - coarse / 2
        return xp.minimum(low, middle - bent), xp.maximum(high, middle + bent)

    def slack(self) -> Array:
        """What such slopes may be off by."""
        return self.blur() + functools.reduce(namespace(self.direction).maximum, self.bends())

    def range(self) -> tuple[Array, Array]:
        """The least and the greatest slope of all that were asked for."""
        every = namespace(self.direction).stack([near for _, near in self._asked])
        xp, known = namespace(every), namespace(every).isfinite(every)
        low = xp.min(xp.where(known, every, xp.inf), axis=0)
        return low, xp.max(xp.where(known, every, -xp.inf), axis=0)


@dataclass(frozen=True)
class _Beside:
    """The slopes of F beside a point, held against the claims."""

    entries: Entries  # claimed and measured
    found: Kinks  # the slopes along single inputs at the point

    def _around(self, direction: Array) -> _Around:
        return _Around(self.entries.map, self.entries.settings, direction)

    def uneven(self, wrong: Array) -> Array:
        """Rows with wrong entries whose slope along a direction is not the sum of their entries'.

        Where three numbers are tied, the middle one in order has slope zero along each of them, and
        yet moves when all do, one way forwards and another way backwards perhaps: no matrix is its
        derivative, and none can be held against the claim. The bar is the distance of two steps: a
        part of F in fewer bits moves with the longer one and stands still at the shorter.
        """
        map_, xp = self.entries.map, namespace(wrong)
        start = evaluate.centre(map_)
        uneven = xp.any(wrong, axis=1)
        found = uneven & ~uneven
        if wrong.shape[1] < 2 or not bool(xp.any(uneven)):
            return found
        size = xp.abs(self.entries.comparison.measured)
        short = steps.one_sided(map_.resolution)
        drawn = probes.tangent(map_, self.entries.settings.seed, 0)
        # What is tied may move apart, or together.
        for u in (drawn, -drawn, xp.abs(drawn), -xp.abs(drawn)):
            # Each input moves to the side that its part of u points to.
            side = xp.where(u > 0, self.found.right, self.found.left) @ u
            long, near = (
                self.entries.chosen(evaluate.value_beside(map_, u, step) - start.value) / step
                for step in (steps.TIE, short)
            )
            bar = BARS * (self.found.error @ xp.abs(u) + xp.abs(long - near))
            bar = bar + 2 * self.entries.chosen(self._around(u).blur()) + SMALL * (size @ xp.abs(u))
            found = found | (xp.abs(near - side) > bar)
        return uneven & found

    def reached(self, outside: Array) -> Array:
        """Which entries are claimed as F slopes along their input beside the point, not at it.

        Of a sum of kinks the slopes on both sides along one input are two mixtures of many.
        """
        xp, map_ = namespace(outside), self.entries.map
        reached, refuted = outside & ~outside, False
        aside = self._on_nearer_sides(xp.any(self.found.kind == KINK, axis=0))
        for j in positions(xp.any(outside, axis=0)):
            u = jacobian.unit(map_.point, j, jacobian.own_scale(map_, j))
            around = self._around(u)
            around.ask(aside)
            for number in range(1 if refuted else TRIES):
                found = around, around.turned(number, MANY * 4**number)
                reached[:, j] |= outside[:, j] & self._mixed(*found, j)
                if not bool(xp.any(outside[:, j] & ~reached[:, j])):
                    break
            else:  # others are as wrong, or right: that is not worth as many calls
                refuted = True
        return reached

    def _mixed(self, around: _Around, ends: tuple[Array, Array], j: int) -> Array:
        """Rows whose claim of an input lies among slopes beside the point that are none at it."""
        c, xp, scale = self.entries.comparison, namespace(around.direction), around.direction[j]
        left, right = self.found.left[:, j], self.found.right[:, j]
        low, high, slack = (self.entries.chosen(end) / scale for end in (*ends, around.slack()))
        low = xp.minimum(xp.minimum(left, right), low)
        high = xp.maximum(xp.maximum(left, right), high)
        other = high - low > (1 + FINE) * xp.abs(right - left) + slack
        missed = ALIKE / 2 * (high - low)  # of crossings that cancelled all the same
        error = self.found.error[:, j] + slack
        wider = Kinks(self.found.kind[:, j], low - missed, high + missed, error)
        return other & _acceptable(self.entries.settings, wider, c.claimed[:, j])

    def _on_nearer_sides(self, moved: Array) -> Array:
        """Every input moved to the side of the point whose slope is nearer to what is claimed.

        Of kinks that are added up the claims are those of one region in 2^n: no draw meets it.
        """
        xp, claimed = namespace(moved), self.entries.comparison.claimed
        off = [finite(xp.abs(claimed - side)) for side in (self.found.left, self.found.right)]
        far = xp.sum(off[0] - off[1], axis=0)
        drawn = xp.abs(self._around(claimed[0, :]).drawn(0))
        return xp.where(moved, xp.where(far < 0, -drawn, drawn), 0.0)

    def told(self, tied: Array, uneven: Array) -> Told:
        """Rows whose claims, accepted one by one, are together no mixture of slopes.

        Where two numbers are the largest, a maximum has the slope of the one or of the other: a
        claim of 1 for both lies between the slopes of each.
        """
        xp, told = namespace(tied), Told()
        rows = (xp.sum(xp.astype(tied, xp.int64), axis=1) >= 2) | uneven
        if not bool(xp.any(rows)):
            return told
        # Who takes part in a tie is not seen where the slopes along single inputs say nothing.
        moved = xp.any(tied & rows[:, None], axis=0) | bool(xp.any(uneven))
        for u in self._directions(rows, moved):
            claims = self.entries.comparison.claimed @ u
            bad, low, high = self._apart(u, rows, moved)
            told |= {i: (float(claims[i]), float(low[i]), float(high[i])) for i in positions(bad)}
            rows = rows & ~bad
            if not bool(xp.any(rows)):
                break
        return told

    def _directions(self, rows: Array, moved: Array) -> Iterator[Array]:
        """The direction in which all tied numbers that count grow alike; then random directions.

        Along the first all slopes beside the tie of a maximum are one number, and what is claimed
        too often adds up. Along a random one it may hide between the least and the greatest.
        """
        xp, measured = namespace(moved), self.entries.comparison.measured
        counts = xp.sum(xp.where(rows[:, None] & xp.isfinite(measured), measured, 0.0), axis=0)
        scales = probes.scales_of(self.entries.map)
        yield xp.where(moved, xp.where(counts < 0, -1.0, 1.0) * scales, 0.0)
        for number in range(1, TRIES):
            drawn = self._around(scales).drawn(number)
            yield xp.where(moved, drawn, 0.0)

    def _apart(self, u: Array, rows: Array, moved: Array) -> tuple[Array, Array, Array]:
        """Rows whose claim is no mixture of slopes along u, and the least and greatest of these."""
        xp, claimed = namespace(u), self.entries.comparison.claimed
        claims, around = claimed @ u, self._around(u)
        bad, low, high = rows, claims, claims
        # Of points that are rounded, before F is asked.
        slack = BARS * steps.one_sided(self.entries.map.resolution) * (xp.abs(claimed) @ xp.abs(u))
        for number, ends in enumerate(self._reaches(around, moved)):
            low, high = (self.entries.chosen(end) for end in ends)
            slack = slack if number else slack + self.entries.chosen(around.slack())
            apart = (claims < low - slack) | (claims > high + slack)
            bad = rows & xp.isfinite(low) & apart & xp.isfinite(claims)
            if not bool(xp.any(bad)):
                break
        return bad, low, high

    def _reaches(self, around: _Around, moved: Array) -> Iterator[tuple[Array, Array]]:
        """From where to where slopes reach, of more and more neighbours.

        One that is not tried can only widen it: where a claim lies outside, more are. At last by
        how far kinks that are added up reach, of which draws meet few combinations.
        """
        u, drawn = around.direction, around.drawn
        # As of a sort that is clamped: few draws have so many numbers on the same side.
        draws = (namespace(u).where(moved, drawn(TRIES + k), 0.0) for k in range(3 * _MORE))
        claim_like = (*self._as_claimed(moved), self._on_nearer_sides(moved))
        for points in ([u, -u, *claim_like, *itertools.islice(draws, MANY)], draws):
            for move in points:
                around.ask(move)
            yield around.range()
        for number in range(TRIES):
            yield around.turned(number, MANY * 4**number)

    def _as_claimed(self, moved: Array) -> Iterator[Array]:
        """Where what is claimed grows, all rows alike or one after the other.

        A maximum has the claimed slope where the input that it claims is the largest, and numbers
        in order have it where those that they claim are in order. Random neighbours alone do not
        meet it: the right claims of a sort of many equal numbers would fail.
        """
        xp, scales = namespace(moved), probes.scales_of(self.entries.map)
        claimed = finite(self.entries.comparison.claimed)
        alike = xp.ones_like(claimed[:, 0])
        for weights in (alike, xp.cumulative_sum(alike) - (claimed.shape[0] + 1) / 2):
            way = xp.where(moved, (weights @ claimed) * scales, 0.0)
            most = float(xp.max(xp.abs(way)))
            if most:
                rest = self._around(scales).drawn(TRIES) / (4 * claimed.shape[1])
                yield xp.where(moved, scales * way / most + rest, 0.0)
                yield xp.where(moved, -scales * way / most + rest, 0.0)


# Slopes beside the point along one tangent, of a Jacobian too large to be measured whole.


@dataclass(frozen=True)
class Limits:
    """All that F may slope by along the first tangent, of outputs whose slope is not one number."""

    tied: Array  # mask of the outputs with slopes beside the point that are none of those at it
    low: Array  # the least slope of each output, size m
    high: Array  # the greatest


def limits(claim: Claim) -> Limits | None:
    """The limiting slopes along the first tangent; None where they are those at the point.

    Where three numbers are tied, the median has the slope of the middle one on both sides of the
    point, and beside it those of all three; where many are, a sum mixes them in as many ways, of
    which a few are met: it may reach as far again, or as tied outputs usually do. In double
    precision, asked once per point.
    """
    map_, settings = claim.map, claim.settings
    if directional.LIMITS not in map_.memo:
        asked = map_.resolution <= directional.DOUBLE and BESIDE not in map_.memo
        asked = asked and not settings.classic_step and settings.largest_step is None
        map_.memo[directional.LIMITS] = _limits(map_, settings) if asked else None
    found: Limits | None = map_.memo[directional.LIMITS]
    return found


def but_tied(map_: DifferentiableMap, mask: Array, outputs: slice | Array) -> Array:
    """A mask of some outputs, less those with other slopes beside the point, as far as asked."""
    found: Limits | None = map_.memo.get(directional.LIMITS)
    return mask if found is None else mask & ~found.tied[outputs]


def _limits(map_: DifferentiableMap, settings: Settings) -> Limits | None:
    first, xp = directional.along(map_, settings, 0), namespace(map_.point)
    here, around = first.estimate, _Around(map_, settings, first.direction)
    blur = 4 * around.blur()  # of 10^5 outputs a few are beyond four times their noise

    def other(slope: Array, known: Sequence[Array], bar: Array | float) -> Array:
        """Outputs whose slope is none of those known."""
        gap = functools.reduce(xp.minimum, (xp.abs(slope - each) for each in known))
        size = xp.maximum(xp.abs(slope), xp.abs(known[0]))
        return gap > blur + bar + SMALL * size

    near = [finite(around.ask(around.drawn(k))) for k in range(TRIES)]
    known: tuple[Array, ...] = (here.value,)
    if not any(bool(xp.any(other(one, known, 0.0))) for one in near):
        return None
    pairs = list(zip(near, around.bends(), strict=True))
    if not any(bool(xp.any(other(one, known, bend))) for one, bend in pairs):
        return None
    sides = jacobian.sides_along(map_, settings, first.direction)
    known, error = (here.value, finite(sides.left), finite(sides.right)), finite(sides.error)
    if not any(bool(xp.any(other(one, known, bend + error))) for one, bend in pairs):
        return None
    usual = xp.sort(xp.stack([bend for _, bend in pairs]), axis=0)[TRIES // 2, :] + error
    near += [finite(around.ask(around.drawn(k))) for k in range(TRIES, _MORE)]
    tied = functools.reduce(operator.or_, (other(one, known, usual) for one in near))
    low, high = (functools.reduce(way, (*known, *near)) for way in (xp.minimum, xp.maximum))
    reach = high - low
    reach = xp.maximum(reach, 0 * reach + median_of_positive(xp.where(tied, reach, 0.0)))
    return Limits(tied, low - reach, high + reach)


# Records and findings.


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


def _records(
    entries: Entries,
    found: Kinks,
    masks: tuple[Array, Array],
    told: Told,
) -> tuple[Kink, ...]:
    """Records of the entries without a derivative, claims outside their slopes first."""
    (named, outside), xp = masks, namespace(masks[0])
    claimed, count = entries.comparison.claimed, named.shape[1]
    records = []
    for mask in (named & outside, named & ~outside):
        places = positions(xp.reshape(mask, (-1,)))[:MOST_FINDINGS]
        for i, j in (divmod(at, count) for at in places):
            output = entries.map.codomain.locate(entries.output(i))
            entry = output, entries.map.domain.locate(j)
            alone = not bool(outside[i, j]) or i in told
            record = _record(entry, found, (i, j), float(claimed[i, j]), alone)
            records.append(_together(record, *told[i]) if i in told else record)
    return tuple(records[:MOST_FINDINGS])


def _together(kink: Kink, along: float, low: float, high: float) -> Kink:
    """The record, of a row whose claims are no mixture of slopes, as one of a wrong claim."""
    message = (
        f"{kink.message}; but not together with the others of its output: along a direction "
        f"through the tie the claims add up to {along:.6g}, and beside it the slopes lie between "
        f"{low:.6g} and {high:.6g}"
    )
    return replace(kink, within=False, message=message)


def _record(
    places: tuple[Place, Place | None],
    found: Kinks,
    at: int | tuple[int, int],
    claimed: float,
    accepted: bool,
) -> Kink:
    output, input_ = places
    kind = int(found.kind[at])
    left, right = float(found.left[at]), float(found.right[at])
    where = f"{output} along a random direction" if input_ is None else f"{input_} -> {output}"
    slopes, words = _slopes(left, right), _WORDS[kind]
    if kind in (SMOOTH, UNRESOLVED):
        kind, words = KINK, "not differentiable, a kink of several inputs together"
        judged = (
            "which only neighbours can judge: slopes do not add up to the one along a direction"
        )
    elif kind in (JUMP, INFINITE) and accepted:
        judged = "which is a convention"
    elif kind in (JUMP, INFINITE):
        judged = "which is no slope at all"
    elif kind == BOUNDARY:
        judged = "which is that slope" if accepted else "which is not that slope"
    elif accepted and not min(left, right) <= claimed <= max(left, right):
        judged = "between the slopes beside the point"
    else:
        judged = "between them" if accepted else "outside of them"
    message = f"{where}: {words}; {slopes}; claimed {claimed:.6g}, {judged}"
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


def _slopes(left: float, right: float) -> str:
    """Both, in as many digits as tell them apart."""
    for digits in (6, 9, 12, 17):
        if _slope(left, digits) != _slope(right, digits):
            return f"left slope {_slope(left, digits)}, right slope {_slope(right, digits)}"
    return f"slope {_slope(left)} on both sides" if left == right else "no slope on either side"


def _slope(value: float, digits: int = 6) -> str:
    return "none" if math.isnan(value) else f"{value:.{digits}g}"


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
    claim: Claim, findings: Sequence[Finding], j: int, claimed: Array, bent: Array
) -> list[Finding]:
    """The findings of column j, those at kinks by that name; `bent` are rows that may have one."""
    map_, found = claim.map, jacobian.sides(claim.map, claim.settings, j)
    accepted = _acceptable(claim.settings, found, claimed)
    kinks: dict[str, Kink] = {}
    for i in positions(bent & (found.kind != SMOOTH) & (found.kind != UNRESOLVED)):
        places = map_.codomain.locate(i), map_.domain.locate(j)
        record = _record(places, found, i, float(claimed[i]), bool(accepted[i]))
        kinks[str(places[0])] = record
    return [_named(finding, kinks.get(str(finding.output))) for finding in findings]


def _named(finding: Finding, kink: Kink | None) -> Finding:
    return finding if kink is None or kink.within else finding_of(finding.check, kink)


def told(said: Opinion, found: Examined) -> Opinion:
    """The findings, of which those at kinks say so."""
    at = {(str(kink.output), str(kink.input)): kink for kink in found.records if not kink.within}
    findings = [_named(f, at.get((str(f.output), str(f.input)))) for f in said.findings]
    return replace(said, findings=tuple(findings), kinks=found.records)


def along_probe(claim: Claim, rows: Sequence[int]) -> tuple[tuple[Kink, ...], tuple[int, ...]]:
    """Kinks of rows of a Jacobian too large to be measured whole, and the rows still open.

    The slopes are those along the first tangent. Every claim is judged; those outside come first,
    and no more than `MOST_FINDINGS` are kept.
    """
    map_, settings = claim.map, claim.settings
    direction = directional.along(map_, settings, 0).direction
    xp = namespace(direction)
    whole = claim.along(direction)
    # Without J u a row costs a VJP.
    chosen = list(rows) if whole is not None else list(rows[:MOST_FINDINGS])
    lines = [] if whole is not None else [r for r in map(claim.row, chosen) if r is not None]
    claimed = (
        xp.asarray([dot(line, direction) for line in lines])
        if whole is None
        else xp.take(whole, xp.asarray(chosen))
    )
    found = jacobian.first_sides(map_, settings, xp.asarray(chosen))
    if not bool(xp.all(_acceptable(settings, found, claimed))):
        found = _with_limits(limits(claim), found, chosen)
    bent = (found.kind != SMOOTH) & (found.kind != UNRESOLVED)
    if settings.classic_step:  # which tells of what jumps, or has a slope without end
        bent = found.kind == KINK
    accepted = _acceptable(settings, found, claimed)
    order = positions(bent & ~accepted) + positions(bent & accepted)
    records = []
    for k in order[:MOST_FINDINGS]:
        places = map_.codomain.locate(chosen[k]), None
        records.append(_record(places, found, k, float(claimed[k]), bool(accepted[k])))
    open_ = [i for k, i in enumerate(chosen) if not bool(bent[k])] + list(rows[len(chosen) :])
    return tuple(records), tuple(open_)


def _with_limits(wider: Limits | None, found: Kinks, rows: Sequence[int]) -> Kinks:
    """The slopes of some rows, of those that are tied as far as they reach beside the point."""
    if wider is None:
        return found
    xp, at = namespace(found.left), namespace(found.left).asarray(list(rows))
    tied, low, high = (xp.take(part, at) for part in (wider.tied, wider.low, wider.high))
    return Kinks(
        xp.where(tied, KINK, found.kind),
        xp.where(tied, low, found.left),
        xp.where(tied, high, found.right),
        found.error,
    )
