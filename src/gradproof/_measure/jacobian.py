"""Columns of the Jacobian, one by one or all of them, each with error bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional, evaluate, noise, probes
from gradproof._measure.ladder import Ladder, Rungs, known
from gradproof._measure.richardson import Estimate, estimate, largest, parts, shown, units

_WIDE = 1e-2  # part of a column's largest entry that a bar in it may be
_BLOCK = 1 << 14  # entries of columns that are read together


def column(map_: DifferentiableMap, settings: Settings, coordinate: int) -> Estimate:
    """Column `coordinate` of the Jacobian, in output per input, with error bars."""
    return climbed(map_, settings, coordinate).estimate


@dataclass(frozen=True)
class Climbed:
    """One column with the evaluations it was read from.

    Attributes:
        ladder: along `scale` times the unit vector of the column.
        scale: of the ladder's steps, in units of the input.
        estimate: in output per input, its steps in units of the input.
    """

    ladder: Ladder
    scale: float
    estimate: Estimate


def climbed(
    map_: DifferentiableMap,
    settings: Settings,
    coordinate: int,
    rungs: Rungs | None = None,
    *,
    lean: bool = False,
) -> Climbed:
    """The same with its ladder, which may be asked for more; `rungs` are not evaluated again.

    A `lean` one begins with fewer of them. Steps have the size of the coordinate. Where that is
    tiny beside those around it, rounding hides what it does to other outputs: each output then
    takes the sharper of that ladder and of one with the steps of its array.
    """
    scales = _column_scales(map_, coordinate)
    if len(scales) > 1 and scales[0] < directional.near_zero(map_):
        u = unit(map_.point, coordinate, scales[0])
        directional.raise_noise(map_, noise.of_jumps(evaluate.function_of(map_), map_.point, u))
    found = _climbed(map_, settings, coordinate, scales[0], rungs, lean)
    for scale in scales[1:]:
        other = _climbed(map_, settings, coordinate, scale, None, lean).estimate
        found = replace(found, estimate=_sharper(found.estimate, other))
    return found


def _sharper(one: Estimate, other: Estimate) -> Estimate:
    """Of two estimates of the same derivatives each output's with the smaller bar.

    Bars that do not meet refute one of the two, and which is not known: the bar then reaches to
    the other value. Of (1 - cos x)/x short steps see the slope of one tread of the cosine's
    rounding, as clean as that of any function; longer ones see F.
    """
    xp = namespace(one.value)
    first = ~(other.error < one.error)
    names = Estimate.__dataclass_fields__
    found = Estimate(
        **{name: xp.where(first, getattr(one, name), getattr(other, name)) for name in names}
    )
    apart = xp.abs(one.value - other.value)
    return replace(found, error=xp.where(apart > one.error + other.error, apart, found.error))


def _climbed(
    map_: DifferentiableMap,
    settings: Settings,
    coordinate: int,
    scale: float,
    rungs: Rungs | None,
    lean: bool,
) -> Climbed:
    direction = unit(map_.point, coordinate, scale)
    along = directional.direction_of(map_, settings, direction, rungs=rungs, lean=lean)
    assert along.ladder is not None  # kept, since nothing was said against it
    found, wide = along.estimate, _wide(along.estimate)
    if bool(namespace(wide).any(wide)):
        found = along.ladder.sharpen(namespace(wide).nonzero(wide)[0], target=_WIDE)
    return Climbed(along.ladder, scale, _per_input(found, scale))


def _column_scales(map_: DifferentiableMap, coordinate: int) -> list[float]:
    """Sizes of a column's direction: the coordinate's own scale, then that of its array.

    Neither is a power of two.

    Rounding inside F may fall on a grid of powers of two (of 1 + x, for a small x). Steps on that
    grid meet it alike at every rung, and its rounding passes for a part of the slope.
    """
    off_grid = 1 + 361 / 1024 if map_.resolution < directional.DOUBLE else 1.25
    own, usual = probes.own_scale(map_, coordinate), float(probes.scales_of(map_)[coordinate])
    return [off_grid * scale for scale in dict.fromkeys((own, usual))]


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
    sizes = [_column_scales(map_, j) for j in chosen]
    scales = [own for own, *_ in sizes]
    steps = directional.plan(map_, settings, max(scales)).steps()
    if directional.is_smooth(map_):
        steps = steps[
            1:3
        ]  # which tell a smooth column; of one with a wide bar the others are asked
    start = evaluate.centre(map_)
    rungs = [_rungs(map_, steps, unit(map_.point, *at)) for at in zip(chosen, scales, strict=True)]
    sides = ([xp.concat([each[step][way] for each in rungs]) for step in steps] for way in (0, 1))
    plus, minus = map(xp.stack, sides)
    middle = xp.concat([start.value] * len(chosen))
    odd, even = parts(middle, plus, minus)
    ends = shown(largest(middle, odd, even), xp.asarray(scales), map_.resolution)
    noise = (
        start.noise if isinstance(start.noise, float) else xp.concat([start.noise] * len(chosen))
    )
    rounding = 2 * map_.resolution * xp.abs(middle), units(map_.resolution, ends), noise
    whole = estimate(steps, (middle, odd, even), rounding, map_.resolution)
    m = map_.codomain.size
    pieces = []
    for k, (j, scale) in enumerate(zip(chosen, scales, strict=True)):
        piece = _per_input(whole.span(slice(k * m, (k + 1) * m)), scale)
        several = len(sizes[k]) > 1
        if several or not known(piece) or bool(xp.any(_wide(piece) | _lost(start.value, piece))):
            piece = climbed(map_, settings, j, rungs[k]).estimate
        pieces.append(piece if rows is None else piece.of(rows))
    return pieces


def _rungs(map_: DifferentiableMap, steps: Sequence[float], direction: Array) -> Rungs:
    """F at both ends of every step along a direction."""
    return {step: evaluate.values_beside(map_, direction, step) for step in steps}


def _wide(found: Estimate) -> Array:
    """Outputs whose bar is wide beside the column's largest entry, and not because of a kink."""
    xp = namespace(found.value)
    size = float(xp.max(xp.where(xp.isfinite(found.value), xp.abs(found.value), 0.0)))
    return xp.isfinite(found.error) & (found.error - found.kink > _WIDE * size)


def _lost(centre: Array, found: Estimate) -> Array:
    """Outputs without a bar though F has a value: the noise may be another column's jump."""
    xp = namespace(centre)
    return xp.isfinite(centre) & xp.isfinite(found.value) & ~xp.isfinite(found.error)


def unit(like: Array, coordinate: int, size: float = 1.0, count: int | None = None) -> Array:
    """A vector of the library of `like`, as long or of `count` entries, zero but for one."""
    vector = namespace(like).zeros(like.shape[0] if count is None else count)
    vector[coordinate] = size
    return vector


def classic_column(map_: DifferentiableMap, step: float, coordinate: int) -> Array:
    """Column by a central difference with one absolute step: two evaluations, no error bar."""
    plus, minus = evaluate.values_beside(map_, unit(map_.point, coordinate), step)
    return (plus - minus) / (2 * step)
