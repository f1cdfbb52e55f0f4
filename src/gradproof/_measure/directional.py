"""Measurements of a map, shared by the checks through its memo."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradproof._data import vectors
from gradproof._data.settings import DOUBLE as DOUBLE  # others ask for it here
from gradproof._data.settings import Settings
from gradproof._data.space import FORMATS, Array, namespace
from gradproof._data.vectors import KEPT as KEPT  # likewise
from gradproof._data.vectors import largest_size, median_of_positive, sampled
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import noise, probes, steps, unseen
from gradproof._measure.evaluate import (
    Centre,
    centre,
    function_of,
    same_values,
    value_at,
    value_beside,
    values_at,
)
from gradproof._measure.ladder import Ladder, Line, Rungs
from gradproof._measure.richardson import Estimate, doubted, parts, smooth
from gradproof._measure.sizes import DRAWS, ROUNDINGS

_SMOOTH, _UNSEEN, _KINKS = ("smooth",), ("unseen",), ("kinks",)  # keys of the memo
LIMITS = ("limits",)  # likewise, of what F slopes by beside the point along the first tangent
_LARGER = 1048573.0  # times all inputs, or some; prime: products have many digits
_UNITS = [grain.unit for grain in FORMATS.values()]  # that of TF32 is that of half precision
_STEP = ("usual step",)  # in the memo
# Likewise: first words of keys of measurements.
_VECTORS = ("along", "rungs", "sides", "columns", "faint")


@dataclass(frozen=True)
class Measurement:
    """The derivative measured along one tangent."""

    direction: Array  # u
    # The evaluations, from which any functional of F can be had for free; None where they were too
    # large to be kept.
    ladder: Ladder | None
    estimate: Estimate  # J u with error bars
    varies: bool  # whether F differs from F(x) anywhere along u


def plan(
    map_: DifferentiableMap, settings: Settings, reach: float = 1.5, *, lean: bool = False
) -> steps.Plan:
    """Steps for the map's precision; `reach` is the largest entry of the direction."""
    limit = settings.largest_step
    return steps.slope(map_.resolution, limit and limit / (reach or 1.0), lean=lean)


def along(
    map_: DifferentiableMap, settings: Settings, number: int = 0, *, keep: bool | None = None
) -> Measurement:
    """J u for the tangent `number`, measured once.

    The first has the full ladder; the others, which only sums over outputs are read from, three
    rungs around the best step of a large sum.
    """
    key = ("along", number)
    if key not in map_.memo:
        measure = _further if number > 0 else _first
        made = measure(map_, settings, probes.tangent(map_, settings.seed, number))
        keep = map_.codomain.size <= KEPT if keep is None else keep
        map_.memo[key] = made if keep else replace(made, ladder=None)
    found: Measurement = map_.memo[key]
    return found


def plainly(map_: DifferentiableMap, settings: Settings) -> Estimate | None:
    """J u for the first tangent, of a map that is plainly smooth; None where it is not.

    In double precision, and of vectors of NumPy's. `along` reads the same evaluations, where it is
    asked afterwards.
    """
    u = probes.tangent(map_, settings.seed, 0)
    chosen = plan(map_, settings, largest_size(u))
    start, rungs = centre(map_).value, chosen.steps()
    sides = _both_sides(map_, map_.point, u, rungs)
    odd, even = parts(start, *sides)
    found = smooth(rungs, (start, odd, even), map_.resolution)
    if ("raised",) not in map_.memo:
        map_.memo["rungs", 0] = dict(zip(rungs, zip(*sides, strict=True), strict=True))
    # What the longest step may see alone is a question of a whole ladder.
    if found is not None and doubted(rungs, odd, even) is not None:
        found = None
    # What stands still may be a staircase, or what underflows.
    map_.memo[_SMOOTH] = found is not None and bool(namespace(found.value).all(found.value))
    return found


def plainly_at(
    map_: DifferentiableMap, settings: Settings, x: Array, value: Array, direction: Array
) -> Measurement | None:
    """J(x) u at another point x, of three rungs around the usual step; likewise.

    `value` is F(x), `direction` u.
    """
    if map_.memo.get(_UNSEEN):
        return None
    chosen = steps.short(plan(map_, settings, largest_size(direction)), usual_step(map_))
    rungs = chosen.steps()
    sides = _both_sides(map_, x, direction, rungs)
    found = smooth(rungs, (value, *parts(value, *sides)), map_.resolution)
    return None if found is None else Measurement(direction, None, found, varies=True)


def _both_sides(
    map_: DifferentiableMap, x: Array, u: Array, rungs: Sequence[float]
) -> tuple[Array, Array]:
    """F at both ends of each rung, a row for each; all calls are made at once."""
    moves = np.asarray(rungs)[:, None] * u
    values = values_at(map_, np.concatenate((x + moves, x - moves)))
    return values[: len(rungs)], values[len(rungs) :]


def is_smooth(map_: DifferentiableMap) -> bool:
    """Whether F is known to be plainly smooth along the first tangent, and so in every column.

    A random tangent meets the kinks, stairs and narrow parts of all columns.
    """
    return bool(map_.memo.get(_SMOOTH))


@contextlib.contextmanager
def first_tangent(
    map_: DifferentiableMap, settings: Settings, direction: Array, found: Measurement
) -> Iterator[None]:
    """While this lasts, another tangent is the first one, and measured already."""
    mine = {("tangent probe", settings.seed, 0): direction, ("along", 0): found}
    of_first = [*mine, LIMITS, ("sides",)]
    kept = {key: map_.memo.pop(key) for key in of_first if key in map_.memo}
    map_.memo.update(mine)
    try:
        yield
    finally:
        for key in of_first:
            map_.memo.pop(key, None)
        map_.memo.update(kept)


def at_another(
    map_: DifferentiableMap, settings: Settings, x: Array, start: Centre, direction: Array
) -> Measurement:
    """J(x) u along a direction u at another point x, where F is `start`, by few evaluations.

    In double precision these are two steps, the best one of a large sum at the map's own point and
    a smaller one.
    """
    chosen = plan(map_, settings, largest_size(direction))
    if map_.resolution < DOUBLE and settings.largest_step is None:
        chosen = steps.two(chosen, usual_step(map_))
    return read(Ladder(line(map_, direction, x, start), chosen))


def line(
    map_: DifferentiableMap,
    direction: Array,
    x: Array | None = None,
    start: Centre | None = None,
    rungs: Rungs | None = None,
) -> Line:
    """F along a direction through its point or another x; `rungs` were evaluated before."""
    start = centre(map_) if start is None else start
    at, of = map_.point if x is None else x, (map_.resolution, start.noise)
    narrow, known = not map_.memo.get(_KINKS), {} if rungs is None else rungs
    return Line(function_of(map_), at, start.value, direction, *of, narrow, known)


def ladder(map_: DifferentiableMap, settings: Settings, number: int) -> Ladder:
    """The evaluations along the tangent `number`; made again where they were not kept."""
    found = along(map_, settings, number)
    if found.ladder is None:
        again = (_further if number > 0 else direction_of)(map_, settings, found.direction)
        found = map_.memo[("along", number)] = again
    assert found.ladder is not None  # kept, since nothing was said against it
    return found.ladder


def drop_ladder(map_: DifferentiableMap, number: int) -> None:
    """Forget the evaluations along a tangent, not what they said."""
    key = ("along", number)
    map_.memo[key] = replace(map_.memo[key], ladder=None)


def resolution(map_: DifferentiableMap) -> float:
    """Unit round-off that the function shows: its dtype's, or more if its noise says so.

    Known only after the first measurement; the dtype's before.
    """
    key = ("resolution",)
    if key not in map_.memo:
        found = map_.memo.get(("along", 0))
        if found is None:
            return map_.resolution
        noise = typical_noise(map_, sampled(found.estimate.noise))
        # The jumps of a count look like noise, and are none.
        counted = noise > map_.resolution and counts(map_)
        map_.memo[key] = map_.resolution if counted else max(map_.resolution, noise)
    return float(map_.memo[key])


def format_shown(map_: DifferentiableMap, settings: Settings) -> float:
    """Unit round-off of a coarser format to which all values of F are rounded; 0 without any.

    F(x) may be such a number by chance, where x is; F(x + h u) with a small h is not.
    """
    coarser = [unit for unit in _UNITS[1:4] if unit > 2 * map_.resolution]
    value = centre(map_).value
    # A few outputs mostly settle it.
    if not coarser or not all(vectors.all_of(some, coarser[0]) for some in (sampled(value), value)):
        return 0.0
    step = steps.one_sided(map_.resolution)
    move = probes.tangent(map_, settings.seed, 0)
    beside = value_beside(map_, move, step)
    if same_values(beside, value) and same_values(value_beside(map_, move, steps.FAR[0]), value):
        return 0.0  # a constant, as the gradient of a linear function, is a number by chance
    shown = [unit for unit in coarser if vectors.all_of(beside, unit)]
    if not shown or vectors.all_of(beside, 2 * shown[-1]):
        return 0.0
    return 0.0 if counts(map_) else shown[-1]


def counts(map_: DifferentiableMap) -> bool:
    """Whether F takes whole numbers, as floor does, and not those of a coarse format.

    It takes them beside the point too: differences of equal numbers are 0 at the point only. Of
    inputs a million times as large whole numbers need more bits, which the format has not. Of
    a quotient that takes some of the inputs to be as large: which ones is drawn.
    """
    key = ("counts",)
    if key not in map_.memo:
        map_.memo[key] = (
            _whole(centre(map_).value)
            and _whole(value_at(map_, probes.nearby(map_, 0, 0, steps.SMOOTH)))
            and any(
                vectors.need_more(value_at(map_, times * map_.point), FORMATS["float16"].unit)
                for times in _far(map_)
            )
        )
    return bool(map_.memo[key])


def _whole(values: Array) -> bool:
    xp = namespace(values)  # a few mostly settle it
    some = (sampled(values), values)
    return all(bool(xp.all((each == xp.round(each)) | ~xp.isfinite(each))) for each in some)


def _far(map_: DifferentiableMap) -> Iterator[Array | float]:
    """Factors of the inputs, each drawn only when it is asked for."""
    xp = namespace(map_.point)
    yield _LARGER
    for k in range(DRAWS):
        yield xp.where(probes.tangent(map_, 0, k) > 0, _LARGER, 1.0)


def typical_noise(map_: DifferentiableMap, noise: Array) -> float:
    """Median noise of a few outputs in parts of them; 0 where it is within a few ulp."""
    value = abs(sampled(centre(map_).value))
    xp = namespace(value)
    usable = xp.isfinite(value) & (value > 0)
    median = median_of_positive(xp.where(usable, noise / xp.where(usable, value, 1.0), 0.0))
    return median if median > ROUNDINGS * map_.resolution else 0.0


def begin_again(map_: DifferentiableMap, unit: float) -> None:
    """Take the map for one that computes in the format nearest to a measured unit round-off.

    Its differences need other steps than those made so far, which are dropped.
    """
    map_.resolution = min(_UNITS, key=lambda known: abs(math.log2(known / unit)))
    forget(map_)
    for key in (("resolution",), _STEP):
        map_.memo.pop(key, None)


def forget(map_: DifferentiableMap) -> None:
    """Drop what `along` keeps, many vectors of the size of the output, but for the usual step."""
    usual_step(map_)
    for key in [key for key in map_.memo if key[0] in _VECTORS]:
        del map_.memo[key]


def direction_of(
    map_: DifferentiableMap,
    settings: Settings,
    direction: Array,
    *,
    lean: bool = False,
    rungs: Rungs | None = None,
) -> Measurement:
    """J u along any direction, not remembered; `rungs` are evaluations that were made before.

    A `lean` one has three rungs where there would be four, or four where there would be six.
    """
    _hear_near_zero(map_, settings)
    chosen = plan(map_, settings, largest_size(direction), lean=lean)
    return read(Ladder(line(map_, direction, rungs=rungs), chosen), solve=True)


def read(ladder: Ladder, *, solve: bool = False) -> Measurement:
    """What a ladder says as it is, or with the steps that it asks for."""
    varies = ladder.varies()  # by the steps that are planned
    found = ladder.solve() if solve else ladder.estimate()
    return Measurement(ladder.line.direction, ladder, found, varies)


def _first(map_: DifferentiableMap, settings: Settings, direction: Array) -> Measurement:
    """J u along the first direction, of which is asked what its longest step alone sees."""
    rungs = map_.memo.pop(("rungs", 0), None)
    if not large(map_):
        _hear_near_zero(map_, settings)
        chosen = plan(map_, settings, largest_size(direction))
        ladder = Ladder(line(map_, direction, rungs=rungs), chosen)
        asked = _UNSEEN in map_.memo or settings.largest_step is not None
        if asked or not _heard_unseen(map_, direction, ladder):
            return read(ladder, solve=True)
        rungs = ladder.rungs
    return direction_of(map_, settings, direction, lean=large(map_), rungs=rungs)


def _heard_unseen(map_: DifferentiableMap, direction: Array, ladder: Ladder) -> bool:
    """Raise the noise of F where the longest step alone shows that it stands on treads.

    Asked once per map: a random tangent meets the treads of all columns. Whether a ladder now says
    something else.
    """
    found = unseen.seen_by_few(lambda h: value_beside(map_, direction, h), ladder.table())
    heard = None if counts(map_) else found.noise  # the jumps of counts are no noise
    map_.memo[_UNSEEN], map_.memo[_KINKS] = heard is not None, found.kinks
    if heard is not None:
        raise_noise(map_, heard)
    return found.kinks or heard is not None


def _further(map_: DifferentiableMap, settings: Settings, direction: Array) -> Measurement:
    """J u along a further direction: in double precision three rungs around the first's best."""
    _hear_near_zero(map_, settings)
    chosen = plan(map_, settings, largest_size(direction))
    if map_.resolution < DOUBLE and settings.largest_step is None:
        chosen = steps.short(chosen, usual_step(map_))
    return read(Ladder(line(map_, direction), chosen))


def near_zero(map_: DifferentiableMap) -> float:
    """Size below which an input is near zero; no size is, in few bits.

    The treads of 1 - cos x are then 2^-12 of x wide and more, and the longest of the short steps,
    2^-6 of x, crosses few.
    """
    return 0.0 if map_.resolution > steps.SINGLE else ROUNDINGS * math.sqrt(map_.resolution)


def _hear_near_zero(map_: DifferentiableMap, settings: Settings) -> None:
    """Raise the noise of F where arrays are near zero, by what longer steps tell; once per map.

    Where F cancels beside numbers of size 1, as 1 - cos x does, it is piecewise constant, and
    (1 - cos x)/x^2 piecewise smooth. Its treads are eps/x wide: below sqrt(eps) steps in proportion
    to x do not leave one, and see its clean slope. So F is asked along a line as long as x, and
    along steps of the size of 1. Where the bars of the latter do not meet those of the short ones,
    F is off by their distance somewhere along the longest of these.
    """
    key = ("near zero",)
    if key in map_.memo:
        return
    map_.memo[key] = True
    tops, free = probes.largest_scales(map_), (-math.inf, math.inf)
    slots = [k for k, slot in enumerate(map_.domain.slots) if slot.size and slot.limits == free]
    near = [k for k in slots if tops[k] < near_zero(map_)]
    if not near:
        return
    xp, most, u = namespace(map_.point), max(tops[k] for k in near), 0.0 * map_.point
    for span in map(map_.domain.span, near):
        u[span] = probes.tangent(map_, settings.seed, 0)[span]
    here = direction_of(map_, settings, u).estimate
    far = direction_of(map_, settings, u / most).estimate
    apart = xp.abs(here.value - most * far.value)
    met = ~xp.isfinite(apart) | (apart <= here.error + most * far.error)
    raise_noise(map_, xp.where(met, 0.0, plan(map_, settings, largest_size(u)).top * apart))
    raise_noise(map_, noise.of_jumps(function_of(map_), map_.point, u))


def raise_noise(map_: DifferentiableMap, found: Array) -> None:
    """Take F for as noisy as was found, where less is known."""
    start = centre(map_)
    if bool(namespace(found).any(found > start.noise)):
        louder = namespace(found).maximum(found, found * 0 + start.noise)
        map_.memo[("centre",)] = replace(start, noise=louder)


def large(map_: DifferentiableMap) -> bool:
    """Whether vectors of the map's outputs are kept as few and as short as can be."""
    return map_.codomain.size > KEPT and map_.resolution < DOUBLE


def usual_step(map_: DifferentiableMap) -> float:
    """The best step of a plain difference along the first tangent; 2^-14 where none was made."""
    if ("along", 0) in map_.memo:
        map_.memo[_STEP] = _typical_step(map_.memo[("along", 0)].estimate)
    return float(map_.memo.get(_STEP, steps.USUAL))


def _typical_step(found: Estimate) -> float:
    """Median over the outputs of the best step of a plain difference."""
    xp, step, error = namespace(found.step), found.step, found.step_error
    if step.shape[0] > KEPT:
        step, error = sampled(step), sampled(error)
    usable = xp.sort(step[xp.isfinite(error)])
    return float(usable[usable.shape[0] // 2]) if usable.shape[0] else steps.USUAL
