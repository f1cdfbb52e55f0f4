"""What the longest step of a ladder sees of F, and no shorter one does.

A part of F in 16 bits stands still for all steps but the longest: they agree on the slope of the
rest of F, as cleanly as of any function, and the longest shows another. Curvature and kinks do that
too, but each leaves a trace that rounding does not:

* curvature falls with the square of the step: the next two steps show that much less of it;
* kinks that bend one way bend the slope at the end of the step further still: of a continuous
  function the slope of a chord lies between slopes along it (the mean value theorem), for which
  those at its ends stand;
* what kinks of both signs leave is bisected, of one output: between two points that close together
  a function with kinks differs by what they are apart, and one with treads by the height of one;
* one jump is one step up, and what lies on its two sides does not jump again: F may be meant to
  have it. Of one that is no higher than a rounding both sides may be treads, as wide as the step:
  more of them follow.

The narrow noise that `noise` finds at shorter steps is bisected likewise: where F does jump there,
it does along every direction, and on shorter ones it may not show.

On a tread the slope of F is one thing and over many of them another: arithmetic in few bits means
the latter, a rounding on purpose the former, and F does not say which. So F is as noisy as makes
the bars of the longest step hold both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from gradproof._data.settings import SINGLE
from gradproof._data.space import Array, namespace
from gradproof._data.vectors import KEPT, finite
from gradproof._measure import noise, steps
from gradproof._measure.noise import NARROW, Table
from gradproof._measure.richardson import doubted, parts
from gradproof._measure.sizes import ALIKE, ROUNDINGS, SMALL, TRIES

# Of F: a jump below is rounding of a sum, of as many terms as are kept, wherever it lies.
_DIGITS = KEPT * noise.UNIT
_UNEVEN = 2.0**10  # times its share that an interval may hold of what is no jump
# After which a jump of what single precision tells is all that is left.
_HALVINGS = round(math.log2(_UNEVEN / SINGLE))

Function = Callable[[float], Array]  # of a step along a line: F(x + h u)


@dataclass(frozen=True)
class Unseen:
    """What few of the steps see of F."""

    noise: Array | None  # of each output that stands on treads; None without any
    kinks: bool = False  # whether what looks like a part in few bits is what kinks leave


def seen_by_few(along: Function, table: Table) -> Unseen:
    """What the longest step, or the coarser ones, see of F along a line, and the finest do not.

    In double precision: in fewer bits all the steps are long. No run of a smooth function, two of
    most that have kinks.
    """
    if not table.is_double or len(table.steps) < 3 or not table.centre.shape[0]:
        return Unseen(None)
    xp, kinks = namespace(table.odd), False
    for k, found in enumerate((_of_longest(along, table), _of_shorter(table))):
        if not bool(xp.any(found > 0)):
            continue
        worst = int(xp.argmax(found / (finite(xp.abs(table.odd[k, :])) + xp.max(found))))
        if _jumps(along, table, (worst, k), SMALL * float(found[worst])):
            # Where the part of an output is at its crest, not even the longest step moves it.
            return Unseen(_alike(table, found))
        kinks = k == 1 and _settled(table, worst)
    return Unseen(None, kinks)


def _settled(table: Table, output: int) -> bool:
    """Whether the finest two steps agree on a slope; on treads that slope the last has any."""
    fine, next_ = (float(table.odd[k, output]) / table.steps[k] for k in (-1, -2))
    return abs(fine - next_) <= SMALL * abs(next_)


def _of_longest(along: Function, table: Table) -> Array:
    """How far F is, over the longest step, from what the others or curvature tell of it."""
    xp, h = namespace(table.odd), table.steps
    found = doubted(h, table.odd, table.even)
    if found is None:
        return xp.zeros_like(table.centre)
    loud = _alike(table, table.noise.bar) / h[1]
    louder = (loud, loud * h[0] / h[1])
    gap, bends = (
        xp.where(xp.abs(part) <= limit, 0.0, part)
        for part, limit in zip(found, louder, strict=True)
    )
    if not bool(xp.any((gap != 0) | (bends != 0))):
        return xp.zeros_like(table.centre)
    return h[0] * _unbent(along, table, (gap, bends))


def _alike(table: Table, found: Array) -> Array:
    """Noise of every output, at least the usual one."""
    xp = namespace(found)
    return xp.maximum(found, noise.usual(found, finite(xp.abs(table.centre))))


def _unbent(along: Function, table: Table, gaps: tuple[Array, Array]) -> Array:
    """The gaps of both parts that do not grow towards the end of the longest step; the larger."""
    xp, (top, next_, *_) = namespace(table.odd), table.steps
    near = steps.one_sided(table.resolution)
    ends = parts(table.centre, along(top - near), along(near - top))
    left = []
    for gap, part, end in zip(gaps, (table.odd, table.even), ends, strict=True):
        bent = (part[0, :] - end) / near - part[1, :] / next_
        grows = bent * xp.sign(gap) >= (1 - ALIKE) * xp.abs(gap)
        left.append(xp.where(grows, 0.0, xp.abs(gap)))
    return finite(xp.maximum(*left))


def _of_shorter(table: Table) -> Array:
    """The narrow noise of shorter steps, where it is no rounding of the last bits."""
    xp, found = namespace(table.odd), noise.narrow(table)
    return xp.where(found > ROUNDINGS * finite(table.ulps), found, 0.0)


def _jumps(along: Function, table: Table, where: tuple[int, int], least: float) -> bool:
    """Whether an output jumps within a step, by more than `least`; and not once in the longest.

    What is bisected is how far it is off the parabola that finer steps tell, on the side that is
    off more. `where` is the output, and the number of the step.
    """
    output, rung = where
    h, start = table.steps, float(table.centre[output])
    odd, even = (
        [float(part[k, output]) for k in range(len(h))] for part in (table.odd, table.even)
    )
    slope, near = odd[-1] / h[-1], h[-1] / _UNEVEN
    # Of a part in single precision the finest steps cross treads too, and disagree by more than
    # rounding of a sum.
    if least > SMALL * _DIGITS * abs(start) and not _settled(table, output):
        slope = float((along(near)[output] - along(-near)[output]) / (2 * near))
    # Where a step meets jumps its even part is much too large.
    bend = min((e / step**2 for e, step in zip(even[1:], h[1:], strict=True)), key=abs)
    seen = {0.0: 0.0}
    for k, step in enumerate(h[: rung + 1]):
        for way in (1, -1):
            seen[way * step] = even[k] + way * odd[k] - way * step * (slope + bend * way * step)

    def off(move: float) -> float:
        return float(along(move)[output]) - start - move * (slope + bend * move)

    high = max((h[rung], -h[rung]), key=lambda move: abs(seen[move]))
    bits = 2 * ROUNDINGS * table.resolution * (abs(start) + abs(even[rung]) + abs(odd[rung]))
    found = _bisected(off, seen, (0.0, high), max(bits, least))
    if found is None:
        return False
    height = abs(seen[found[1]] - seen[found[0]])
    if height <= _DIGITS * abs(start):
        return True
    if height <= NARROW * abs(start):
        # More treads would follow, of which a few times the longest step would meet some.
        far = [2.0**k * h[0] for k in range(1, 1 + TRIES)]
        seen |= {move: off(move) for each in far for move in (each, -each)}
    return not _once(off, seen, found)


def _bisected(
    off: Callable[[float], float],
    seen: dict[float, float],
    interval: tuple[float, float],
    least: float,
) -> tuple[float, float] | None:
    """Two moves between which lies a jump; what was asked on the way is added to what was seen.

    Each time the half is kept over which more changes. Kinks leave as much as it is long.
    """
    low, high = interval
    first = abs(seen[high] - seen[low])
    for k in range(1, _HALVINGS + 1):
        middle = (low + high) / 2
        seen[middle] = off(middle)
        halves = (low, middle), (middle, high)
        low, high = max(halves, key=lambda half: abs(seen[half[1]] - seen[half[0]]))
        left = abs(seen[high] - seen[low])
        first = max(first, left)  # which may have met again at the end
        if left <= max(_UNEVEN * 2.0**-_HALVINGS * first, least):
            return None
        if left > _UNEVEN * 2.0**-k * first:
            return low, high
    return None


def _once(
    off: Callable[[float], float], seen: dict[float, float], jump: tuple[float, float]
) -> bool:
    """Whether F jumps between two moves, and nowhere else between those that were seen.

    What F is on the other side may have any slope, as where another expert is chosen.
    """
    moves, least = sorted(seen), ALIKE * abs(seen[jump[1]] - seen[jump[0]])
    return all(map(math.isfinite, seen.values())) and all(
        abs(seen[high] - seen[low]) <= least or _bisected(off, seen, (low, high), least) is None
        for low, high in pairwise(moves)
        if {low, high} != set(jump)
    )
