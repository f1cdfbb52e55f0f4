"""Rounding that a derivative close to singular magnifies: measured, not typed in.

The backward of a decomposition divides by the gaps of its spectrum. How much rounding that costs
shows where its probe, a cotangent or a tangent, moves by a few units in the last place, or where
every operation of it is rounded at random (stochastic arithmetic): a derivative moves by as little,
unless the arithmetic in between magnifies it. A derivative that is wrong is as steady as a right
one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from gradproof._data.settings import Settings
from gradproof._data.space import Array, dot, namespace, positions
from gradproof._data.vectors import finite, largest_size
from gradproof._judge.claims import Claim
from gradproof._judge.decide import BARS, Bar, claimed_unit, drawn, explained, resolved
from gradproof._judge.found import Entries
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import directional, jacobian, probes
from gradproof._measure.rounding import ROUNDABLE
from gradproof._measure.sizes import DRAWS, FEW_ULPS, NO_ROUNDING, ROUNDINGS, SMALL

HONEST = 16.0  # of the largest of four: two runs of up to thrice the size, heavy tails

Pull = Callable[[DifferentiableMap, Array], Array]  # what a mode claims of a map at a probe


def gradients(map_: DifferentiableMap) -> Array | float:
    """What rounding may do to each entry of J^T v, of cotangents of the usual size.

    Zero below double precision, where the errors of honest runs are known.
    """
    return _usual(map_, "gradient", lambda of, v: of.vjp(v), probes.cotangent)


def tangents(map_: DifferentiableMap) -> Array | float:
    """What rounding may do to each entry of J u, of tangents of the usual size; likewise."""
    return _usual(map_, "tangent", lambda of, u: of.jvp(u), probes.tangent)


def in_both(map_: DifferentiableMap, u: Array, v: Array) -> float:
    """What rounding may do to <J^T v, u> and <v, J u> together."""
    pairs = ((gradients(map_), u), (tangents(map_), v))
    return sum(drawn(by * size) for size, by in pairs if not isinstance(size, float))


def _usual(
    map_: DifferentiableMap,
    what: str,
    pull: Pull,
    probe: Callable[[DifferentiableMap, int, int], Array],
) -> Array | float:
    """By both ways to measure it: u - sum(y u) of a saturated softmax is zero for u and 2 u."""
    if map_.resolution > directional.DOUBLE:
        return 0.0
    key = ("magnified", what, claimed_unit(map_))
    if key not in map_.memo:
        vector = probe(map_, 0, 0)
        moved, rounded = (of(map_, pull, vector) for of in (_moved, _stochastic))
        map_.memo[key] = namespace(moved).maximum(moved, rounded)
    found: Array = map_.memo[key]
    return found


def of_wrong(entries: Entries, wrong: Array) -> Array:
    """The rounding of wrong entries that their own row, or column in forward mode, explains.

    A row is asked by itself: rounding of a large one says nothing of a small one. 0 elsewhere.
    """
    claim, map_ = entries.claim, entries.map
    xp, gap = namespace(wrong), entries.comparison.gap
    found = xp.zeros_like(gap)
    if map_.resolution > directional.DOUBLE:
        return found
    axis = 0 if claim.columnwise else 1
    usual = (probes.tangent if claim.columnwise else probes.cotangent)(map_, 0, 0)
    for of in (_moved, _stochastic):
        left = wrong & ~explained(gap, found)
        if of is _moved:
            left = left & (gap <= SMALL * entries.size)
        if bool(xp.any(left)):  # a probe of the usual size tells which rows may be so rounded
            shown = ROUNDINGS * of(map_, claim.pull, usual, draws=1)
            left = left & explained(gap, _of_rows(shown, entries))
        for at in positions(xp.any(left, axis=axis)):
            number, count = _asked(entries, at)
            one = jacobian.unit(map_.point, number, count=count)
            own = _of_rows(of(map_, claim.pull, one), entries)
            here = xp.arange(wrong.shape[1 - axis]) == at
            here = left & (here[:, None] if axis else here[None, :])
            found = xp.where(here & explained(gap, own), own, found)
    return found


def _asked(entries: Entries, at: int) -> tuple[int, int]:
    """The unit vector that asks for a row of the entries, or for a column: its one, its length."""
    map_ = entries.map
    if entries.claim.columnwise:
        return at, map_.domain.size
    return entries.output(at), map_.codomain.size


def _of_rows(values: Array, entries: Entries) -> Array:
    """Numbers of a row, or of a column, in a shape that goes with that of the entries."""
    xp = namespace(values)
    if not entries.claim.columnwise:
        return values[None, :] + xp.zeros_like(entries.comparison.gap)
    return entries.chosen(values)[:, None] + xp.zeros_like(entries.comparison.gap)


def beyond(claim: Claim, along: tuple[Array, Array, Array], at: Array) -> tuple[Array, Array]:
    """Rows under suspicion whose gap no rounding of their claim explains, and those that are open.

    Open are those whose gap it explains, and is no small part of the row. `along` are a tangent,
    and what is claimed and measured along it.
    """
    map_, settings = claim.map, claim.settings
    xp = namespace(at)
    u, claimed, measured = along
    gap, measured = xp.abs(xp.take(claimed - measured, at)), xp.take(measured, at)
    told = gap < 0
    for of in (_moved, _stochastic):
        if not bool(xp.all(told)):
            told = told | explained(gap, xp.take(of(map_, claim.push, u), at))
    small = resolved(gap, settings.resolution * xp.abs(measured))
    return at[~told], at[told & ~small]


def of_projection(claim: Claim, v: Array, u: Array) -> float:
    """What rounding may do to (J^T v).u, where the entries of v may be of very different sizes.

    A backward that mixes rows rounds all of them by the largest.
    """
    map_ = claim.map

    def pulled(vector: Array) -> Array:
        return namespace(u).asarray([dot(claim.pull(map_, vector), u)])

    return float(rounding(map_, pulled, v, pulled(v))[0])


def _moved(map_: DifferentiableMap, pull: Pull, probe: Array, draws: int = DRAWS) -> Array:
    """By probes that move by a few units in the last place."""
    pulled = functools.partial(pull, map_)
    return rounding(map_, pulled, probe, pulled(probe), draws)


def _stochastic(map_: DifferentiableMap, pull: Pull, probe: Array, draws: int = DRAWS) -> Array:
    """By runs of the claim in which every operation is rounded at random (stochastic arithmetic).

    A term that the function holds itself, as 1 in 1 - sigmoid(x), is rounded whatever the probe.
    Zero where operations cannot be rounded one by one, and below double precision.
    """
    known = pull(map_, probe)
    xp, worst = namespace(known), namespace(known).zeros_like(known)
    if map_.resolution > directional.DOUBLE:
        return worst
    try:
        for seed in range(draws):
            change = xp.abs(pull(map_.rounded(ROUNDABLE, 0.0, seed), probe) - known)
            worst = xp.maximum(worst, finite(change))
    except Unsupported:
        return xp.zeros_like(known)
    found = HONEST * (claimed_unit(map_) / ROUNDABLE) * worst
    if claimed_unit(map_) == map_.resolution:
        return found
    # So coarse a claim could be off by all of what a run differs by that went another way: forward
    # mode by what the backward claims, which rounded runs differentiate instead.
    return xp.where(found <= NO_ROUNDING * largest_size(known), found, 0.0)


def rounding(
    map_: DifferentiableMap,
    pulled: Callable[[Array], Array | None],
    one: Array,
    known: Array,
    draws: int = DRAWS,
) -> Array:
    """How far a claim is from linear in factors of almost 1: its rounding, in any precision.

    A claim that stays what it is where its probe moves, or goes with its square, is not linear for
    another reason: it ignores the probe, or is clamped, or is multiplied by it twice.
    """
    xp = namespace(known)
    worst = xp.zeros_like(known)
    for times in range(1, 1 + draws):
        factor = 1.0 + (2 * times - 1) * 2 * FEW_ULPS * map_.resolution * (-1) ** times
        moved = pulled(factor * one)
        change = worst
        if moved is not None:
            one_of = [xp.abs(moved / factor**power - known) for power in (1, 0, 2)]
            change = functools.reduce(xp.minimum, one_of)
        worst = xp.maximum(worst, finite(change))
    return ROUNDINGS * worst


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
    return finite(error)


def kinks(map_: DifferentiableMap, settings: Settings) -> Array:
    """Half-gaps of the slopes along u, 0 where nothing is known.

    Those along the inputs one by one are added up where they were looked at: along u a kink that is
    convex and one that is concave may cancel.
    """
    found = directional.along(map_, settings, 0).estimate
    xp = namespace(found.error)
    kink = finite(xp.minimum(found.kink, found.error))
    one_by_one = map_.memo.get(_GAPS)
    return kink if one_by_one is None else xp.maximum(kink, one_by_one)


_GAPS = ("gaps of one-sided slopes",)


def remember_gaps(entries: Entries, gaps: Array) -> None:
    """Keep by how far the slopes on both sides of each input lie apart, for `kinks`."""
    u = probes.tangent(entries.map, entries.settings.seed, 0)
    if entries.rows is None:
        entries.map.memo[_GAPS] = 0.5 * (gaps @ abs(u))


def below_noise(
    map_: DifferentiableMap, settings: Settings, v: Array, found: Sequence[Array]
) -> bool:
    """Whether all these gradients, of cotangents up to the size of v, are that small."""
    u = abs(probes.tangent(map_, settings.seed, 0))
    bar = dot(abs(v), bars(map_, settings))
    return all(dot(abs(gradient), u) <= bar for gradient in found)
