"""Staircases: functions that stand still between jumps closer together than the steps reach.

Differences across jumps measure the slope of the whole flight, 1 for a floor; at the point the
slope is that of a tread, 0. A tread also looks like arithmetic that has rounded the change away,
of which zero would be a wrong derivative. Whole numbers that need more bits where they are larger
are counts, and no rounding: there zero is right. A number with digits down to the last bit was not
rounded at the end, but it may have been inside: there nothing is decided.
"""

from __future__ import annotations

import math

from gradproof._data.space import Array, namespace, positions
from gradproof._data.vectors import finite, two_to
from gradproof._judge.claims import Claim
from gradproof._judge.found import Entries
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional, evaluate, jacobian, probes, steps
from gradproof._measure.noise import NARROW
from gradproof._measure.sizes import FEW_ULPS, ROUNDINGS

_LITTLE = 2.0**-5  # part of an entry by which it is off
# A step that crosses no treads of counts up to 2^47; longer ones see the line between them.
_FINEST = 2.0**-48
_NEARER_ZERO = (0.71, 0.63, 0.59, 0.53, 0.47, 0.41, 0.37, 0.31, 0.23)  # parts of an input


def treads(entries: Entries, doubtful: Array) -> tuple[Array, Array]:
    """Which doubtful entries are claimed zero on a tread: those surely right, and those open.

    Of counts those are open that stand still on one side only, where the point is the edge of a
    tread, and those that do on treads so narrow that only the shortest step stays on one: what
    arithmetic has lost inside looks like that as well.
    """
    map_, claimed = entries.map, entries.comparison.claimed
    none = doubtful & ~doubtful
    asked = doubtful & (claimed == 0)
    xp = namespace(claimed)
    if map_.resolution > steps.SINGLE or not bool(xp.any(asked)):
        return none, none
    step = steps.still(map_.resolution)
    both, either = _standing(entries, asked, step)
    if directional.counts(map_):
        if map_.resolution < directional.DOUBLE:
            either = either | _standing(entries, asked, _FINEST)[1]
        return both, either & ~both
    return none, either & _finer(entries.values, map_.resolution)[:, None]


def _standing(entries: Entries, asked: Array, step: float) -> tuple[Array, Array]:
    """Which of the entries asked about keep their very bits on both sides, and on either."""
    both, either = asked & ~asked, asked & ~asked
    for j in positions(namespace(asked).any(asked, axis=0)):
        right, left = _still(entries, j, step)
        both[:, j] = asked[:, j] & right & left
        either[:, j] = asked[:, j] & (right | left)
    return both, either


def flight(claim: Claim) -> bool:
    """Whether counts that stand still at the point are claimed to have a slope.

    Differences across their jumps show that of the whole flight of stairs. Arithmetic that has lost
    the change inside looks the same.
    """
    map_, settings = claim.map, claim.settings
    if map_.resolution > directional.DOUBLE or not directional.counts(map_):
        return False
    along, start = directional.along(map_, settings, 0), evaluate.centre(map_).value
    xp, found = namespace(start), along.estimate
    size = xp.abs(found.value)
    standing = size < 0
    for step in (steps.still(map_.resolution), _FINEST):
        seen = (size > found.error) & (step * size > FEW_ULPS * 2 * map_.resolution * xp.abs(start))
        for way in (step, -step) if bool(xp.any(seen)) else ():
            beside = evaluate.value_beside(map_, along.direction, way)
            standing = standing | (seen & (beside == start))
    if not bool(xp.any(standing)):
        return False
    v = xp.where(standing, probes.cotangent(map_, settings.seed, 0), 0.0)
    claimed = claim.project(v)
    if claimed is None:
        claimed = claim.along(along.direction) * v
    return bool(xp.any(claimed != 0))


def stands_still(map_: DifferentiableMap) -> bool:
    """Whether a map in double precision keeps its very bits where all inputs move a little.

    And not because it was rounded to few bits at the end: some value has digits down to the last.
    At a point of few bits, which may be a border of treads or a number without digits, it is asked
    close by too.
    """
    aside = probes.nearby(map_, 0, 0, steps.TIE)
    return any(_stands_still(map_, x) for x in (map_.point, aside))


def _stands_still(map_: DifferentiableMap, x: Array) -> bool:
    step = steps.still(map_.resolution)
    start, u = evaluate.value_at(map_, x), probes.tangent(map_, 0, 0)
    xp = namespace(start)
    if any(bool(xp.any(evaluate.value_beside(map_, u, h, x) != start)) for h in (step, -step)):
        return False
    return bool(xp.any(_finer(start, map_.resolution)))


def _finer(values: Array, resolution: float) -> Array:
    """Which numbers have digits in the last quarter of those that there are."""
    xp, finest = namespace(values), 2.0 ** round(0.75 * math.log2(resolution))
    spacing = finest * two_to(xp.floor(xp.log2(xp.where(values == 0, 1.0, xp.abs(values)))))
    return values / spacing != xp.round(values / spacing)


def underflown(entries: Entries, wrong: Array) -> Array:
    """Wrong entries of outputs that are zero, and stay zero, whose claim would drown beside 1.

    A function that saturates is rounded where it does: 1 + erf(x) is exactly zero below -8.3, and
    its derivative of 1e-17 is not. What would change the output by less than a few roundings of 1
    is neither confirmed nor refuted by an output that is zero throughout.
    """
    map_, c, xp = entries.map, entries.comparison, namespace(wrong)
    if map_.resolution > directional.DOUBLE or not bool(xp.any(wrong)):
        return wrong & ~wrong
    zero = (entries.values == 0)[:, None] & (entries.size == 0)
    change = xp.abs(c.claimed) * probes.scales_of(map_)[None, :]
    return wrong & zero & (change <= ROUNDINGS * map_.resolution)


def drowned(entries: Entries, wrong: Array) -> Array:
    """Wrong entries, off by little, whose gap drowns in a rounding that F shows nearer to zero.

    1 + erf(x) at -8 has treads as wide as the steps are long. Where it is added to a smooth term
    that is many times larger its slope is missing at every rung, and the term's own is as clean
    as that of any tiny function. What tells them apart is that the same output is rounded like a
    number of size 1 where the input is a few times smaller. A small gap is then left open.
    """
    map_, c, xp = entries.map, entries.comparison, namespace(wrong)
    if map_.resolution > directional.DOUBLE:
        return wrong & ~wrong
    scales = probes.scales_of(map_)[None, :]
    few = wrong & (c.gap <= _LITTLE * xp.abs(c.measured))
    few = few & (c.gap * steps.SMOOTH * scales <= ROUNDINGS * map_.resolution)
    found = few & ~few
    for j in positions(xp.any(few, axis=0)):
        found[:, j] = few[:, j] & _rounded_inside(entries, j)
    return found


def _rounded_inside(entries: Entries, j: int) -> Array:
    """Which rows are rounded by more than their own last place, and little, nearer to x_j = 0.

    Third differences of a step so short hold nothing of a smooth function.
    """
    map_, x = entries.map, entries.map.point
    xp, own_x = namespace(x), float(x[j])
    spans = (map_.domain.span(k).stop for k in range(len(map_.domain.slots)))
    low, high = map_.domain.slots[sum(stop <= j for stop in spans)].limits
    short, shown = steps.one_sided(map_.resolution) / 3, []  # off the grid of powers of two
    for part in (part for part in _NEARER_ZERO if low <= part * own_x <= high):
        moves = [jacobian.unit(x, j, part - 1 + k * short) for k in (-1, 0, 1, 2)]
        a, b, c, d = (entries.chosen(evaluate.value_at(map_, x * (1 + each))) for each in moves)
        noise = finite(xp.abs((d - a) - 3 * (c - b))) / 4
        moved = xp.abs(d - a) / (3 * short)  # by a part of 1 of the input, which is rounded too
        own = FEW_ULPS * 2 * map_.resolution * finite(xp.abs(b) + moved)
        shown.append((noise > own) & (noise <= ROUNDINGS * map_.resolution))
    nowhere = xp.zeros_like(entries.size[:, 0]) > 0
    return xp.any(xp.stack([nowhere, *shown]), axis=0)


def _still(entries: Entries, j: int, step: float) -> list[Array]:
    """On either side, which rows keep their very bits when input j moves by a fine step.

    Only those count that the slope measured would have moved.
    """
    map_, start = entries.map, entries.values
    xp = namespace(start)
    due = xp.abs(entries.comparison.measured[:, j]) * step * jacobian.own_scale(map_, j)
    seen = ~(due <= FEW_ULPS * 2 * map_.resolution * xp.abs(start))
    return [seen & (entries.chosen(side) == start) for side in jacobian.beside(map_, j, step)]


def standing(entries: Entries) -> Array:
    """Error bars, in parts of the largest entry, that tell enough of a row of zeros.

    An output that no step of any input moves by a bit, and that is claimed to be constant, as one
    that is masked, has no size of its own to be known in parts of. Its bar is a few roundings of
    the other outputs: it is zero beside those where that is less than half of the digits. Of
    bfloat16 that would be a tenth.
    """
    map_, xp = entries.map, namespace(entries.size)
    half = math.sqrt(map_.resolution) if directional.DOUBLE < map_.resolution < NARROW else 0.0
    claimed = xp.any(entries.comparison.claimed != 0, axis=1, keepdims=True)
    return xp.where((entries.size == 0) & ~claimed, half, 0.0)
