"""Measurements of a map, shared by the checks through its memo."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradproof._map import DifferentiableMap
from gradproof._numerics import coarse, probes
from gradproof._numerics.differences import Ladder, Plan, known
from gradproof._numerics.richardson import Estimate, estimate, largest, median_of_positive
from gradproof._settings import Settings
from gradproof._space import Array, namespace

_BLOCK = 1 << 14  # entries of columns that are read together
DOUBLE = coarse.DOUBLE
KEPT = 1 << 17  # outputs up to which the evaluations of a ladder stay in memory
# Of evaluations that are not kept three rungs must do: of smooth outputs they leave bars a few
# times wider, at three quarters of the calls, memory and time.
_LEAN = Plan(top=2.0**-8, ratio=2.0**-7, rungs=3)


@dataclass(frozen=True)
class Centre:
    """F at the point.

    Attributes:
        value: F(x).
        noise: by how much a repetition differs, per output; 0.0 where it is the same bits.
    """

    value: Array
    noise: Array | float

    @property
    def repeats(self) -> bool:
        return isinstance(self.noise, float)


@dataclass(frozen=True)
class Measurement:
    """The derivative measured along one tangent.

    Attributes:
        direction: u.
        ladder: the evaluations, from which any functional of F can be had for free; None where
            they were too large to be kept.
        estimate: J u with error bars.
        varies: whether F differs from F(x) anywhere along u.
    """

    direction: Array
    ladder: Ladder | None
    estimate: Estimate
    varies: bool


def centre(map_: DifferentiableMap) -> Centre:
    """F(x), evaluated twice."""
    key = ("centre",)
    if key not in map_.memo:
        value, again = map_.value(map_.point), map_.value(map_.point)
        xp = namespace(value)
        gap = xp.abs(value - again)
        gap = xp.where(xp.isnan(gap), xp.zeros_like(gap), gap)
        differs = gap.shape[0] > 0 and float(xp.max(gap)) > 0
        map_.memo[key] = Centre(value, _spread(value, gap) if differs else 0.0)
    found: Centre = map_.memo[key]
    return found


def _spread(value: Array, gap: Array) -> Array:
    """Twice the standard deviation of one evaluation, pooled over the outputs.

    Two runs give one difference per output, of standard deviation sqrt(2) s; their mean square in
    parts of the output is a better estimate than any one of them.
    """
    xp = namespace(value)
    size = xp.abs(value)
    parts = xp.where(size > 0, gap / xp.where(size > 0, size, xp.ones_like(size)), 0.0)
    pooled = float(xp.mean(parts**2)) ** 0.5 * size
    return 2 * xp.maximum(pooled, gap) / math.sqrt(2)


def plan(
    map_: DifferentiableMap, settings: Settings, reach: float = 1.5, *, lean: bool = False
) -> Plan:
    """Steps for the map's precision; `reach` is the largest entry of the direction."""
    double = map_.resolution < DOUBLE
    chosen = _LEAN if lean and double else Plan.of(map_.resolution)
    if settings.largest_step is None:
        return chosen
    top = 2.0 ** math.floor(math.log2(settings.largest_step / reach))
    if not double:
        return replace(chosen, top=min(top, 1.0), largest=top)
    top = max(min(top, 1.0), 2.0**-30)
    ratio = 2.0 ** -min(8, max(2, int((38 + math.log2(top)) / 3)))
    return replace(chosen, top=top, ratio=ratio, largest=top)


def along(map_: DifferentiableMap, settings: Settings, number: int = 0) -> Measurement:
    """J u for the tangent `number`, measured once.

    The first has the full ladder; the others, which only sums over outputs are read from, three
    rungs around the best step of a large sum.
    """
    key = ("along", number)
    if key not in map_.memo:
        direction = probes.tangent(map_, settings.seed or 0, number)
        keep = map_.codomain.size <= KEPT
        map_.memo[key] = direction_of(map_, settings, direction, short=number > 0, keep=keep)
    found: Measurement = map_.memo[key]
    return found


def sharpen(map_: DifferentiableMap, settings: Settings, outputs: Sequence[int]) -> None:
    """Spend a few calls more on the first tangent, for outputs whose error bars are too wide."""
    if outputs:
        rows = namespace(map_.point).asarray(list(outputs))
        sharper = ladder(map_, settings, 0).sharpen(rows)
        map_.memo[("along", 0)] = replace(along(map_, settings, 0), estimate=sharper)


def ladder(map_: DifferentiableMap, settings: Settings, number: int) -> Ladder:
    """The evaluations along the tangent `number`; made again where they were not kept."""
    found = along(map_, settings, number)
    if found.ladder is None:
        again = direction_of(map_, settings, found.direction, short=number > 0)
        found = map_.memo[("along", number)] = again
    assert found.ladder is not None  # kept, since nothing was said against it
    return found.ladder


def resolution(map_: DifferentiableMap) -> float:
    """Unit round-off that the function shows: its dtype's, or more if its noise says so.

    Known only after the first measurement; the dtype's before.
    """
    key = ("resolution",)
    if key not in map_.memo:
        found = map_.memo.get(("along", 0))
        if found is None:
            return map_.resolution
        map_.memo[key] = max(map_.resolution, _typical_noise(map_, found.estimate.noise))
    return float(map_.memo[key])


def _typical_noise(map_: DifferentiableMap, noise: Array) -> float:
    """Median noise of an output in parts of the output; 0 where it is within a few ulp."""
    value = abs(centre(map_).value)
    xp = namespace(value)
    usable = xp.isfinite(value) & (value > 0)
    median = median_of_positive(xp.where(usable, noise / xp.where(usable, value, 1.0), 0.0))
    return median if median > 64 * map_.resolution else 0.0


def forget(map_: DifferentiableMap) -> None:
    """Drop what `along` keeps: many vectors of the size of the output."""
    for key in [key for key in map_.memo if key[0] == "along"]:
        del map_.memo[key]


def direction_of(
    map_: DifferentiableMap,
    settings: Settings,
    direction: Array,
    *,
    short: bool = False,
    keep: bool = True,
) -> Measurement:
    """J u along any direction, not remembered."""
    xp = namespace(direction)
    reach = float(xp.max(xp.abs(direction))) if direction.shape[0] else 1.0
    start = centre(map_)
    steps = plan(map_, settings, reach, lean=not keep)
    if short and map_.resolution < DOUBLE and settings.largest_step is None:
        top = min(2.0**4 * _typical_step(along(map_, settings, 0).estimate), 2.0**-6)
        steps = replace(steps, top=max(top, 2.0**-32), ratio=2.0**-4, rungs=3)
    ladder = Ladder(
        map_.value,
        map_.point,
        start.value,
        direction,
        resolution=map_.resolution,
        plan=steps,
        noise=start.noise,
    )
    varies = ladder.varies()
    found = ladder.estimate() if short else ladder.solve(keep=keep)
    return Measurement(direction, ladder if keep else None, found, varies)


def _typical_step(found: Estimate) -> float:
    """Median over the outputs of the best step of a plain difference."""
    xp = namespace(found.step)
    usable = xp.sort(found.step[xp.isfinite(found.step_error)])
    return float(usable[usable.shape[0] // 2]) if usable.shape[0] else 2.0**-14


def column(map_: DifferentiableMap, settings: Settings, coordinate: int) -> Estimate:
    """Column `coordinate` of the Jacobian, in output per input, with error bars."""
    scale = _column_scale(map_, coordinate)
    direction = unit(map_.point, coordinate, scale)
    return _per_input(direction_of(map_, settings, direction).estimate, scale)


def _column_scale(map_: DifferentiableMap, coordinate: int) -> float:
    """Size of a column's direction: the coordinate's scale, but no power of two.

    Rounding inside F may fall on a grid of powers of two (of 1 + x, for a small x). Steps on that
    grid meet it alike at every rung, and its rounding passes for a part of the slope.
    """
    off_grid = 1 + 361 / 1024 if map_.resolution < DOUBLE else 1.25
    return off_grid * float(probes.scales_of(map_)[coordinate])


def _per_input(found: Estimate, scale: float) -> Estimate:
    """A derivative along scale * e_j in output per unit of input j."""
    return Estimate(
        value=found.value / scale,
        error=found.error / scale,
        kink=found.kink / scale,
        step=found.step * scale,
        step_error=found.step_error / scale,
        noise=found.noise,
    )


@dataclass(frozen=True)
class Columns:
    """Columns of the Jacobian, (m, k): output per input, with error bars and their kink part."""

    value: Array
    error: Array
    kink: Array


def columns(map_: DifferentiableMap, settings: Settings, rows: Array | None = None) -> Columns:
    """Every column of the Jacobian, or some rows of each.

    The ladders of many columns are read together; a column whose bars come out wide gets a
    ladder of its own, which may grow.
    """
    n, m = map_.domain.size, map_.codomain.size
    block = max(1, _BLOCK // max(m, 1))
    found = []
    for start in range(0, n, block):
        found += _block(map_, settings, range(start, min(start + block, n)), rows)
    xp = namespace(map_.point)
    names = Columns.__dataclass_fields__
    return Columns(**{name: xp.stack([getattr(c, name) for c in found], axis=1) for name in names})


def _block(
    map_: DifferentiableMap, settings: Settings, chosen: range, rows: Array | None
) -> list[Estimate]:
    xp = namespace(map_.point)
    scales = [_column_scale(map_, j) for j in chosen]
    steps = plan(map_, settings, max(scales)).steps()
    start = centre(map_)
    sides: list[list[Array]] = [[], []]
    for step in steps:
        for way, side in zip((1.0, -1.0), sides, strict=True):
            moves = [
                unit(map_.point, j, way * step * s) for j, s in zip(chosen, scales, strict=True)
            ]
            side.append(xp.concat([map_.value(map_.point + move) for move in moves]))
    plus, minus = xp.stack(sides[0]), xp.stack(sides[1])
    ulp = 2 * map_.resolution
    ulps = ulp * largest(plus, minus)
    middle = xp.concat([start.value] * len(chosen))
    noise = (
        start.noise if isinstance(start.noise, float) else xp.concat([start.noise] * len(chosen))
    )
    whole = estimate(steps, (middle, plus, minus), (ulp * xp.abs(middle), ulps, noise))
    m = map_.codomain.size
    pieces = []
    for k, (j, scale) in enumerate(zip(chosen, scales, strict=True)):
        piece = _per_input(_part(whole, slice(k * m, (k + 1) * m)), scale)
        if not known(piece):
            piece = column(map_, settings, j)
        pieces.append(piece if rows is None else piece.of(rows))
    return pieces


def _part(found: Estimate, span: slice) -> Estimate:
    return Estimate(**{name: getattr(found, name)[span] for name in Estimate.__dataclass_fields__})


def unit(like: Array, coordinate: int, size: float = 1.0) -> Array:
    """A vector shaped like `like`, zero but for one coordinate."""
    xp = namespace(like)
    return xp.astype(xp.arange(like.shape[0]) == coordinate, xp.float64) * size


def classic_column(map_: DifferentiableMap, step: float, coordinate: int) -> Array:
    """Column by a central difference with one absolute step: two evaluations, no error bar."""
    move = unit(map_.point, coordinate, step)
    return (map_.value(map_.point + move) - map_.value(map_.point - move)) / (2 * step)
