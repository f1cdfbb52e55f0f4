"""What is allowed, and what that decides: nowhere else.

Three numbers per comparison. m +- b is measured; c +- s is claimed, s its own rounding; t is what
the user allows. *Wrong*: c is further from m than b + s + t. *Right*: it is not, and b is small
beside the scale. *Open*: otherwise.

What is allowed never grows with the size of an array: tiling an array changes no verdict. Where
terms are added up along a probe, their roundings add up as the signs of the probe, which are
drawn, let them (`drawn`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from gradproof._data.records import rounded_up as rounded_up  # others ask for it here
from gradproof._data.settings import Settings
from gradproof._data.space import FORMATS, Array, dot, namespace, norm
from gradproof._data.vectors import KEPT, blocks, finite, rms
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional, evaluate, steps
from gradproof._measure.richardson import Estimate
from gradproof._measure.sizes import ROUNDINGS

Numbers = Any  # an array, or one number
Said = TypeVar("Said")

# Error bars of distance at which a gap is no accident. Outside one bar is the truth in 5e-4 of the
# measurements of benchmarks/error_bars.py in double precision, in 5e-3 in bfloat16.
BARS = 4.0


@dataclass(frozen=True)
class Tolerance:
    """What the user lets pass."""

    absolute: Numbers = 0.0  # of every entry
    relative: float = 0.0  # in parts of what is measured

    def beside(self, measured: Numbers) -> Numbers:
        return self.absolute + self.relative * abs(measured) if self.relative else self.absolute


EXACT = Tolerance()


def of_user(settings: Settings) -> Tolerance:
    """What the user lets a measured entry be off by."""
    return Tolerance(settings.atol, settings.rtol)


def of_claims(settings: Settings) -> Tolerance:
    """What the user lets two claims differ by: each may be off by rtol."""
    return Tolerance(settings.atol, settings.slack)


@dataclass(frozen=True)
class Bar:
    """By how much a measurement may be off.

    The half-gap of the slopes of a kink is an exact bound. Noise and truncation are estimated: a
    gap of one such bar may be an accident.
    """

    error: Numbers = 0.0  # all of it
    kink: Numbers = 0.0  # the part that a kink makes, or more

    @property
    def noise(self) -> Numbers:
        """The part that is estimated."""
        if isinstance(self.error, float):
            return self.error - min(self.kink, self.error)
        if isinstance(self.kink, float):  # none
            return self.error
        return self.error - namespace(self.kink).minimum(self.kink, self.error)


@dataclass(frozen=True)
class Decision:
    """Claimed against measured; arrays of one shape, or numbers."""

    claimed: Numbers  # what automatic differentiation says
    measured: Numbers  # what the oracle says
    gap: Numbers  # between the two
    # Error bar of `measured`; infinite where nothing was measured, or is to be judged.
    error: Numbers
    allowed: Numbers  # largest gap accepted
    bar: Bar  # of `measured`, with its parts
    # The largest error bar that is small beside the scale; None where any finite one is.
    small: Numbers | None = None

    @property
    def further(self) -> Numbers:
        """Largest gap accepted where the error bar is not small."""
        return self.allowed + (BARS - 1) * self.bar.noise

    @property
    def close(self) -> Numbers:
        """Where the gap is allowed, whatever the error bar."""
        return _within(self.gap, self.allowed)

    @property
    def sharp(self) -> Numbers:
        if self.small is None:
            return self.error < math.inf
        return _within(self.error, self.small)

    @property
    def wrong(self) -> Numbers:
        sharp, gap = self.sharp, self.gap
        near = _beyond(gap, self.allowed)
        if getattr(near, "shape", ()) and not namespace(near).any(near):
            return near  # as nearly always: further is no less
        far = _beyond(gap, self.further)
        return (self.error < math.inf) & ((sharp & near) | ((sharp ^ True) & far))

    @property
    def right(self) -> Numbers:
        return self.sharp & self.close

    def plus(self, rounding: Numbers) -> Decision:
        """A copy that allows a larger rounding of the claim."""
        return replace(self, allowed=self.allowed + rounding)


def decide(
    claimed: Numbers,
    measured: Numbers,
    bar: Bar,
    rounding: Numbers = 0.0,
    tolerance: Tolerance = EXACT,
    small: Numbers | None = None,
) -> Decision:
    """The law.

    Args:
        claimed: c.
        measured: m, the middle of an interval.
        bar: b; half of the interval is the part of a kink.
        rounding: s.
        tolerance: t.
        small: the largest b that is small; with a wider one a gap is wrong from `BARS` of them on.
            Any finite one where it is None; none, where it is 0.
    """
    allowed = bar.error + (rounding + tolerance.beside(measured))
    return Decision(claimed, measured, abs(claimed - measured), bar.error, allowed, bar, small)


def _within(gap: Numbers, allowed: Numbers) -> Numbers:
    """Where a gap is allowed. NaN, in either, is not, and an infinite allowance allows nothing."""
    return (gap <= allowed) & (allowed < math.inf)


def _beyond(gap: Numbers, allowed: Numbers) -> Numbers:
    """Where a gap is larger than allowed. NaN, in either, is; nothing finite beyond infinity."""
    return ((gap <= allowed) & (gap < math.inf)) ^ True


def resolved(error: Numbers, small: Numbers) -> Numbers:
    """Where an error bar is as small as it has to be; NaN and infinity are not."""
    return _within(error, small)


def explained(gap: Numbers, rounding: Numbers) -> Numbers:
    """Where a rounding, of known size, is all that a gap need be."""
    return _within(gap, rounding)


# Of a sum of many terms whose signs are drawn, in roots of the sum of their squares: what it is
# seldom larger than, and what it is with odds of 2 exp(-32) (Hoeffding 1963).
SELDOM, NEVER = 3.0, 8.0


def drawn(terms: Array) -> float:
    """A bound of a sum of terms of known sizes, whose signs are drawn with a probe.

    Nothing that F or its backward rounds knows the probe: of m roundings the root of m counts, not
    m. Copies of an array beside each other then hide hardly more of an entry than one does.
    """
    total = squares = 0.0
    for block in blocks(terms, KEPT):
        here = abs(finite(terms[block]))
        total += float(namespace(here).sum(here))
        squares = math.hypot(squares, norm(here))
    return min(total, NEVER * squares)


# To what something is verified: a bound of what may be wrong and pass.


def of_largest(map_: DifferentiableMap, part: float, inputs: int, probes: int = 1) -> float:
    """A part of outputs' derivatives along a tangent, in parts of their largest entries.

    Of n entries up to E, each moved by 1/2 to 3/2 of a unit, the derivative is seldom larger than
    3 sqrt(n) E, and what is off by a part of it may be one entry, moved by 1/2; with a cotangent as
    a second of the `probes` by 1/4. In few bits single entries are not seen, and the part is told
    as it is.
    """
    if map_.resolution > directional.DOUBLE or inputs < 2:
        return part
    return 2.0**probes * min(inputs, SELDOM * math.sqrt(inputs)) * part


def of_smallest(map_: DifferentiableMap, unseen: Array, rows: Array, columns: Array) -> float:
    """What is unseen in derivatives along a tangent u, in parts of the smallest column's entries.

    `rows` are |v_i (J u)_i| and `columns` |(J^T v)_j u_j|, for cotangents v of the size of 1. A
    column of m entries of one size adds up to sqrt(m) of them, one of a single entry to that: no
    entry is smaller than what its column adds up to over sqrt(m). Where every row has a column of
    its own, the two are the same numbers, and none hides another.
    """
    xp = namespace(columns)
    if one_to_one(rows, columns, half_the_digits(map_)):
        return 0.0
    least = float(xp.min(xp.where(columns > 0, columns, xp.inf)))
    return float(xp.max(unseen)) * math.sqrt(rows.shape[0]) / least


def one_to_one(rows: Array, columns: Array, part: float) -> bool:
    """Whether the two are the same numbers but for a part of them, in whatever order."""
    xp = namespace(columns)
    if rows.shape != columns.shape:
        return False
    order = xp.sort(columns)
    return bool(xp.all(xp.abs(xp.sort(rows) - order) <= part * order))


# The rounding of a claim, where it is not measured (`claim_error` measures it).


_CLAIMED = ("claimed in",)  # key of a map's memo: unit round-off of its claims alone


def excusing_single(
    map_: DifferentiableMap, ask: Callable[[], Said], wrong: Callable[[Said], object]
) -> Said:
    """What is said of a map in double precision that stands for one in few bits.

    A kernel of few bits keeps sums, and what it saves for its backward, in float32, whatever its
    arrays are: that is no mistake of its formula. So what is wrong is asked again, as if the claims
    were rounded as in single precision, and stands where it is wrong even so.
    """
    said = ask()
    if not wrong(said):
        return said
    map_.memo[_CLAIMED] = FORMATS["float32"].unit
    try:
        again = ask()
    finally:
        del map_.memo[_CLAIMED]
    return said if wrong(again) else again


def claimed_unit(map_: DifferentiableMap) -> float:
    """Unit round-off of what a map claims: that of F, or more where its claims may have more."""
    claimed: float = map_.memo.get(_CLAIMED, 0.0)
    return max(map_.resolution, claimed)


def half_the_digits(map_: DifferentiableMap) -> float:
    """Sums in another order lose a few digits, never half of them."""
    return math.sqrt(max(directional.resolution(map_), claimed_unit(map_)))


# `benchmarks/error_bars.py --claims` prints what autograd rounds of 71 functions, in these parts: a
# few 1e-16 at most points, and more than is allowed here at one in thirty (of 203, `--quick`).
_ENTRY = 1e-12  # of a claimed entry, as a part of the largest entry of its row
_SUM = 1e-10  # of a row along a tangent; and of a sum of rows, as a part of the root of its squares


def of_entry(map_: DifferentiableMap, size: Numbers) -> Numbers:
    """Rounding of a claimed entry, whose row's largest is of this size."""
    return max(_ENTRY, ROUNDINGS / 4 * claimed_unit(map_)) * size


def of_entries(
    map_: DifferentiableMap, measured: tuple[Array, Array], size: Array, typical: Array
) -> Array:
    """Rounding of every claimed entry of a Jacobian.

    Where zero is measured, an iterative solver and other sums that cancel leave half the digits of
    their terms, which are of the size of the row: a floor beside its largest entry.

    `measured` are entries and their error bars, `size` the largest entry of each row, in units of
    the column, `typical` of all rows.
    """
    xp, (value, error) = namespace(size), measured
    # An output that does not move at all may have been rounded away, beside larger numbers.
    flat = ROUNDINGS * claimed_unit(map_) * typical
    rounded = xp.where(size > 0, of_entry(map_, size), flat)
    return xp.where(abs(value) <= error, half_the_digits(map_) * size + rounded, rounded)


def of_row(map_: DifferentiableMap, found: Estimate, size: float, typical: float) -> Array:
    """Rounding of a claimed row along a tangent, beside rows measured of a `typical` size.

    `size` is that of all rows, by which the claim of one row may be rounded: 0 for a backward that
    works out each row by itself.
    """
    xp, unit = namespace(found.value), ROUNDINGS * claimed_unit(map_)
    # An output that does not move at all may have been rounded away, beside larger numbers.
    still = (found.value == 0) & (found.error == 0)
    rounded = xp.where(still, max(size, typical), size)
    rounded *= unit
    rounded += max(_SUM, unit) * xp.abs(found.value)
    return rounded


def of_sum(size: float) -> float:
    """Rounding of a projection of rows: `size` is the root of the sum of their squares."""
    return _SUM * size


def dot_and_rounding(map_: DifferentiableMap, one: Array, other: Array) -> tuple[float, float]:
    """The inner product of a claimed gradient and a tangent, and what it may be off by."""
    total = size = squares = 0.0
    for block in blocks(one, KEPT):
        left, right = one[block], other[block]
        total += dot(left, right)
        size += dot(abs(left), abs(right))
        squares = math.hypot(squares, norm(left * right))
    least = min(size, NEVER * squares) if signs_count(map_) else size
    return total, ROUNDINGS * claimed_unit(map_) * least


def signs_count(map_: DifferentiableMap) -> bool:
    """Whether error bars of rows are taken to add up as the signs of probes let them.

    In double precision there is room for all of them, and 16 bits follow rules of their own.
    """
    return directional.DOUBLE < map_.resolution < steps.SINGLE


def of_vector(map_: DifferentiableMap, size: Array, floor: Numbers) -> Array:
    """Rounding of an entry of J^T v or J u, made of terms of this size, beside others."""
    return half_the_digits(map_) * size + floor


def same_value(
    map_: DifferentiableMap, got: Array, expected: Array, noise: Array | float
) -> Decision:
    """Two values of F; nothing is said of those that are not finite."""
    xp, known = namespace(expected), finite(expected)
    bar = Bar(xp.where(xp.isfinite(expected), noise, math.inf))
    rounding = of_vector(map_, abs(known), half_the_digits(map_) * rms(known))
    return decide(got, known, bar, rounding, small=0.0)


def two_modes(
    map_: DifferentiableMap, along: tuple[Array, Array], claimed: tuple[Array, Array]
) -> Decision:
    """<v, J u> against <J^T v, u>: `claimed` are J u and J^T v, by two formulas."""
    (v, u), (forward, backward) = along, claimed
    one, other = dot(v, forward), dot(u, backward)
    # A sum of m terms is no more than sqrt(m) times the root of their squares, which is in `size`.
    least = half_the_digits(map_) * abs(one) / math.sqrt(max(v.shape[0], 1))
    if abs(one - other) <= least:  # as nearly always: what follows allows no less
        return decide(one, other, Bar(), least)
    size = _of_products(v, forward) + _of_products(u, backward)
    # What cancels in exact arithmetic leaves the roundings of both modes: in a sum of a softmax
    # these are of the size of its value, as u is scaled to the point.
    value = finite(evaluate.centre(map_).value)
    # F may be near the largest number: what it is rounded by is taken before it is multiplied.
    rounding = half_the_digits(map_) * size + _of_products(v, value, _of_value(map_))
    return decide(one, other, Bar(), rounding)


def _of_products(one: Array, other: Array, times: float = 1.0) -> float:
    """The root of the sum of squares of the products of entries, block by block."""
    found = 0.0
    for block in blocks(one, KEPT):
        there = other[block] if times == 1.0 else times * other[block]
        found = math.hypot(found, norm(one[block] * there))
    return found


def of_second_order(map_: DifferentiableMap, size: float, value: float) -> float:
    """Rounding of v . D^2 F[a, b], 64 times that of the first derivatives, of which it is made.

    `size` is that of its factors, `value` <v, F>, as the tangents are scaled to the point.
    """
    return ROUNDINGS * (half_the_digits(map_) * size + _of_value(map_) * value)


def _of_value(map_: DifferentiableMap) -> float:
    return ROUNDINGS * directional.resolution(map_)
