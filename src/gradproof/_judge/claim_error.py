"""Rounding that a derivative close to singular magnifies: measured, not typed in.

The backward of a decomposition divides by the gaps of its spectrum. How much rounding that costs
shows where the cotangent, or the tangent, moves by a few units in the last place: a derivative
moves by as little, unless the arithmetic in between magnifies it. A derivative that is wrong is as
steady as a right one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gradproof._data.settings import Settings
from gradproof._data.space import Array, dot, namespace, positions
from gradproof._judge.claims import Claim
from gradproof._judge.decide import BARS, Bar, drawn, explained
from gradproof._judge.found import Entries
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import directional, jacobian, probes

_ULPS = 8.0  # by which each entry of a vector is moved
_DRAWS, _TIMES = 4, 64.0  # moved vectors, and how often their largest change is allowed
_SMALL = 1e-3  # part of the largest entry of its row that is taken for rounding at most
_MOST = 64  # rows, or columns, looked into

# From the map, whether it is the backward, and a probe or None for the usual one.
Method = Callable[[DifferentiableMap, bool, Array | None], Array]


def gradients(map_: DifferentiableMap) -> Array | float:
    """What rounding may do to each entry of J^T v, of cotangents of the usual size.

    Zero below double precision, where the errors of honest runs are known.
    """

    def along(number: int) -> Array:
        return probes.cotangent(map_, 0, number)

    return _changes(map_, "gradient", map_.vjp, along)


def tangents(map_: DifferentiableMap) -> Array | float:
    """The same of each entry of J u."""

    def along(number: int) -> Array:
        return probes.tangent(map_, 0, number)

    return _changes(map_, "tangent", map_.jvp, along)


def in_both(map_: DifferentiableMap, u: Array, v: Array) -> float:
    """What rounding may do to <J^T v, u> and <v, J u> together."""
    pairs = ((gradients(map_), u), (tangents(map_), v))
    return sum(drawn(by * size) for size, by in pairs if not isinstance(size, float))


def _changes(
    map_: DifferentiableMap,
    what: str,
    pulled: Callable[[Array], Array],
    probe: Callable[[int], Array],
) -> Array | float:
    """The largest change of each entry where a probe moves, times what two runs may differ by."""
    if map_.resolution > directional.DOUBLE:
        return 0.0
    key = ("magnified", what)
    if key not in map_.memo:
        vector = probe(0)
        xp, start = namespace(vector), pulled(vector)
        worst = xp.zeros_like(start)
        for number in range(1, 1 + _DRAWS):
            moved = vector * (1.0 + _ULPS * map_.resolution * xp.sign(probe(number)))
            change = xp.abs(pulled(moved) - start)
            worst = xp.maximum(worst, xp.where(xp.isfinite(change), change, 0.0))
        map_.memo[key] = _TIMES * worst
    found: Array = map_.memo[key]
    return found


def of_wrong(map_: DifferentiableMap, claim: Claim, entries: Entries, wrong: Array) -> Array:
    """The rounding of wrong entries that their own row, or column in forward mode, explains.

    A row is asked by itself: rounding of a large one says nothing of a small one. 0 elsewhere.
    """
    xp, gap = namespace(wrong), entries.comparison.gap
    rounding = xp.zeros_like(gap)
    if map_.resolution > directional.DOUBLE or not bool(xp.any(wrong)):
        return rounding
    backward = not claim.columnwise
    for method, most in ((_moved, _SMALL * entries.size), (_rounded, xp.full_like(gap, math.inf))):
        left = wrong & ~explained(gap, rounding) & (gap <= most)
        if not bool(xp.any(left)):
            continue
        usual = _along(map_, claim, entries, method, None)
        left = left & explained(gap, usual + xp.zeros_like(gap))
        for at in positions(xp.any(left, axis=1 if backward else 0))[:_MOST]:
            here = xp.arange(wrong.shape[0 if backward else 1]) == at
            here = left & (here[:, None] if backward else here[None, :])
            own = _along(map_, claim, entries, method, at) + xp.zeros_like(gap)
            rounding = xp.where(here & explained(gap, own), own, rounding)
    return rounding


def _along(
    map_: DifferentiableMap, claim: Claim, entries: Entries, method: Method, at: int | None
) -> Array:
    """Rounding of a row of the Jacobian, or a column in forward mode; of the usual probe for None.

    In a shape that goes with that of the entries.
    """
    if not claim.columnwise:
        row = at if at is None or entries.rows is None else entries.rows[at]
        count = map_.codomain.size
        one = None if row is None else jacobian.unit(map_.point, row, count=count)
        return method(map_, True, one)[None, :]
    found = method(map_, False, None if at is None else jacobian.unit(map_.point, at))
    return _of_rows(found, entries)


def _moved(map_: DifferentiableMap, backward: bool, one: Array | None) -> Array:
    """By probes that move by a few units in the last place."""
    if one is None:
        found = gradients(map_) if backward else tangents(map_)
        assert not isinstance(found, float)  # in double precision it is asked
        return found
    pull = map_.vjp if backward else map_.jvp
    return rounding(map_, pull, one, pull(one))


# Arithmetic in which doubles are rounded at random. What is finer is taken from it: roundings move
# a value in proportion, but for those that cross a tie, which then count for less than any rtol.
_COARSE = 2.0**-26
_HONEST = 16.0  # of the largest of four: two runs of up to thrice the size, heavy tails


def _rounded(map_: DifferentiableMap, backward: bool, one: Array | None) -> Array:
    """By stochastic arithmetic."""

    def pull(of: DifferentiableMap) -> Array:
        if backward:
            return of.vjp(probes.cotangent(map_, 0, 0) if one is None else one)
        return of.jvp(probes.tangent(map_, 0, 0) if one is None else one)

    return _stochastic(map_, pull)


def of_rows(map_: DifferentiableMap, claim: Claim, u: Array) -> Array:
    """Rounding of J u in every row, by stochastic arithmetic."""

    def pull(of: DifferentiableMap) -> Array:
        if claim.columnwise:
            return of.jvp(u)
        return of.transposed_vjp(u, probes.cotangent(map_, 0, 0))[0]

    return _stochastic(map_, pull)


def _stochastic(map_: DifferentiableMap, pull: Callable[[DifferentiableMap], Array]) -> Array:
    """By runs of the claim in which every operation is rounded at random (stochastic arithmetic).

    A term that the function holds itself, as 1 in 1 - sigmoid(x), is rounded whatever the probe.
    Zero where operations cannot be rounded one by one.
    """
    known = pull(map_)
    xp, worst = namespace(known), namespace(known).zeros_like(known)
    try:
        for seed in range(_DRAWS):
            change = xp.abs(pull(map_.rounded(_COARSE, 0.0, seed)) - known)
            worst = xp.maximum(worst, xp.where(xp.isfinite(change), change, 0.0))
    except Unsupported:
        return xp.zeros_like(known)
    return _HONEST * (map_.resolution / _COARSE) * worst


def _of_rows(values: Array, entries: Entries) -> Array:
    """Those of all outputs, of the rows that are looked at; a column."""
    xp = namespace(values)
    if entries.rows is not None:
        values = xp.take(values, xp.asarray(list(entries.rows)))
    return values[:, None]


def rounding(
    map_: DifferentiableMap, pulled: Callable[[Array], Array | None], one: Array, known: Array
) -> Array:
    """How far a claim is from linear in factors of almost 1: its rounding, in any precision.

    A claim that stays what it is where its probe moves is not linear for another reason: it
    ignores the probe, or is clamped.
    """
    xp = namespace(known)
    worst = xp.zeros_like(known)
    for times in range(1, 1 + _DRAWS):
        factor = 1.0 + (2 * times - 1) * _ULPS * map_.resolution * (-1) ** times
        moved = pulled(factor * one)
        change = worst
        if moved is not None:
            change = xp.minimum(xp.abs(moved / factor - known), xp.abs(moved - known))
        worst = xp.maximum(worst, xp.where(xp.isfinite(change), change, 0.0))
    return _TIMES * worst


# Claims so small that the best measurement cannot tell them from zero.
#
# Where all terms of a derivative cancel, as of a divergence between two equal distributions, both
# modes claim roundings of these terms, and no identity holds between roundings. The terms cannot
# be seen, and the value of the function may be zero too; but differences cannot see such claims
# either.


def bars(map_: DifferentiableMap, settings: Settings) -> Array:
    """Error bars of J u, kinks apart; 0 where nothing is known, and below double precision.

    Differences in few bits see next to nothing: that excuses no claim.
    """
    found = directional.along(map_, settings, 0).estimate
    xp = namespace(found.error)
    if map_.resolution > directional.DOUBLE:
        return xp.zeros_like(found.error)
    error = BARS * Bar(found.error, found.kink).noise
    return xp.where(xp.isfinite(error), error, 0.0)


def kinks(map_: DifferentiableMap, settings: Settings) -> Array:
    """Half-gaps of the slopes along u, 0 where nothing is known."""
    found = directional.along(map_, settings, 0).estimate
    xp = namespace(found.error)
    kink = xp.minimum(found.kink, found.error)
    return xp.where(xp.isfinite(kink), kink, 0.0)


def below_noise(
    map_: DifferentiableMap, settings: Settings, v: Array, found: Sequence[Array]
) -> bool:
    """Whether all these gradients, of cotangents up to the size of v, are that small."""
    u = abs(probes.tangent(map_, settings.seed or 0, 0))
    bar = dot(abs(v), bars(map_, settings))
    return all(dot(abs(gradient), u) <= bar for gradient in found)
