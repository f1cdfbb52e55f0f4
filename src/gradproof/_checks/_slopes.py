"""Slopes on both sides of the point: along a direction, along an input, and who bends a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gradproof._explain.localise import Residual, columns_of_rows
from gradproof._map import DifferentiableMap
from gradproof._numerics import jacobian, measure, probes
from gradproof._numerics.differences import Ladder, Plan
from gradproof._numerics.kinks import Kinks
from gradproof._settings import Settings
from gradproof._space import Array, namespace

# More rungs than a derivative needs, closer together: the finest tell a kink in the point from
# one beside it.
_DOUBLE = Plan(top=2.0**-6, ratio=2.0**-5, rungs=7)
_SINGLE = Plan(top=2.0**-3, ratio=2.0**-2, rungs=8)
_HALF = Plan(top=2.0**-1, ratio=2.0**-1, rungs=6)
_STEP = 2.0**-20  # at which the even part shows which inputs bend a row


def along(map_: DifferentiableMap, settings: Settings, direction: Array) -> Kinks:
    """What every output is along a direction, smooth or not, and its slopes on both sides."""
    xp = namespace(direction)
    plan = _DOUBLE if map_.resolution < measure.DOUBLE else _SINGLE
    plan = _HALF if map_.resolution > 2.0**-20 else plan
    if settings.largest_step is not None:
        reach = float(xp.max(xp.abs(direction)))
        top = 2.0 ** math.floor(math.log2(settings.largest_step / reach))
        plan = replace(plan, top=min(top, plan.top))
    start = measure.centre(map_)
    made = Ladder(
        map_.value,
        map_.point,
        start.value,
        direction,
        resolution=map_.resolution,
        plan=plan,
        noise=start.noise,
    )
    return made.kinks()


def column(map_: DifferentiableMap, settings: Settings, coordinate: int) -> Kinks:
    """The same along input `coordinate`, with slopes in output per unit of input."""
    scale = probes.own_scale(map_, coordinate)
    found = along(map_, settings, jacobian.unit(map_.point, coordinate, scale))
    return Kinks(found.kind, found.left / scale, found.right / scale, found.error / scale)


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
    start = xp.take(measure.centre(map_).value, at)

    def residual(mask: Array) -> Residual:
        move = _STEP * direction * mask
        plus, minus = (xp.take(map_.value(map_.point + way * move), at) for way in (1, -1))
        even = (plus + minus) / 2 - start
        return Residual(even, 64 * map_.resolution * xp.abs(start))

    total = residual(xp.ones_like(direction))
    seen = [bool(one) for one in abs(total.value) > total.threshold]
    if not any(seen):
        return [None for _ in rows]
    found = columns_of_rows(residual, total, direction.shape[0], direction)
    return [
        columns[0] if columns is not None and len(columns) == 1 and seen[k] else None
        for k, columns in enumerate(found)
    ]
