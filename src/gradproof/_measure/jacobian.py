"""Columns of the Jacobian, one by one or all of them, each with error bars."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace, on_host, positions
from gradproof._data.vectors import BLOCK, KEPT, finite, largest_size
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional, evaluate, noise, probes, steps
from gradproof._measure.ladder import Ladder, Line, Rungs, known
from gradproof._measure.one_sided import ONCE, SMOOTH, UNRESOLVED, Kinks, jumping
from gradproof._measure.richardson import Estimate
from gradproof._measure.sizes import MANY, SMALL, TRIES

_WIDE = Settings.resolution  # part of a column's largest entry that a bar in it may be
_GROUPS = ("columns",)  # in the memo
_SIDES = ("sides",)  # likewise, along the first tangent: of which outputs, and what they are


@dataclass(frozen=True)
class Climbed:
    """One column with the evaluations it was read from."""

    ladder: Ladder  # along `scale` times the unit vector of the column
    scale: float  # of the ladder's steps, in units of the input
    estimate: Estimate  # in output per input, its steps in units of the input


def climbed(
    map_: DifferentiableMap,
    settings: Settings,
    coordinate: int,
    rungs: Rungs | None = None,
    *,
    lean: bool = False,
) -> Climbed:
    """Column `coordinate` of the Jacobian, in output per input; `rungs` are not evaluated again.

    A `lean` one begins with fewer of them. Steps have the size of the coordinate. Where that is
    tiny beside those around it, rounding hides what it does to other outputs: each output then
    takes the sharper of that ladder and of one with the steps of its array.
    """
    scales = _column_scales(map_, coordinate)
    if len(scales) > 1 and scales[0] < directional.near_zero(map_):
        u = unit(map_.point, coordinate, scales[0])
        directional.raise_noise(map_, noise.of_jumps(evaluate.function_of(map_), map_.point, u))
    given, found = [_shared(map_, coordinate) if rungs is None else rungs, None], []
    for scale, made in zip(scales, given, strict=False):
        direction = unit(map_.point, coordinate, scale)
        along = directional.direction_of(map_, settings, direction, rungs=made, lean=lean)
        along = _sharpened(along)
        assert along.ladder is not None  # kept, since nothing was said against it
        found.append(Climbed(along.ladder, scale, _per_input(along.estimate, scale)))
    own, *others = found
    return replace(own, estimate=_sharper(own.estimate, others[0].estimate)) if others else own


def _sharper(one: Estimate, other: Estimate) -> Estimate:
    """For each output the one of two estimates that has the smaller bar.

    Bars that do not meet refute one of the two, and which is not known: the bar then reaches to
    the other value. Of (1 - cos x)/x short steps see the slope of one tread of the cosine's
    rounding, as clean as that of any function; longer ones see F.
    """
    xp = namespace(one.value)
    first = ~(other.error < one.error)
    found = one.each(lambda a, b: xp.where(first, a, b), other)
    apart = xp.abs(one.value - other.value)
    return replace(found, error=xp.where(apart > one.error + other.error, apart, found.error))


def _sharpened(along: directional.Measurement) -> directional.Measurement:
    """The derivative along a direction, with more steps for outputs whose bars are wide."""
    assert along.ladder is not None  # kept, since nothing was said against it
    wide = _wide(along.estimate)
    if not bool(namespace(wide).any(wide)):
        return along
    found = along.ladder.solve(namespace(wide).nonzero(wide)[0], _WIDE)
    return replace(along, estimate=found)


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
    error = found.error / scale
    return Estimate(
        value=found.value / scale,
        error=error,
        kink=found.kink / scale if bool(namespace(error).any(found.kink)) else found.kink,
        step=found.step * scale,
        step_error=error if found.step_error is found.error else found.step_error / scale,
        noise=found.noise,
    )


def columns(
    map_: DifferentiableMap,
    settings: Settings,
    rows: Array | None = None,
    *,
    claimed: Array | None = None,
    known: Mapping[int, Estimate] | None = None,
) -> Estimate:
    """Every column of the Jacobian, or some rows of each: output per input, (m, n).

    The ladders of many columns are read together; a column whose bars come out wide gets a
    ladder of its own, which may grow. Where the Jacobian is `claimed`, which suggests groups of
    columns that act on different outputs, those that do are evaluated together. Columns that are
    `known` are not measured.
    """
    n, m = map_.domain.size, map_.codomain.size
    if claimed is not None and _GROUPS not in map_.memo:
        map_.memo[_GROUPS] = _grouped(map_, settings, claimed)
    block = max(1, BLOCK // max(m, 1))
    found = dict(known or {})
    rest = [j for j in range(n) if j not in found]
    for start in range(0, len(rest), block):
        chosen = rest[start : start + block]
        found |= zip(chosen, _block(map_, settings, chosen, rows), strict=True)
    first, *others = (found[j] for j in range(n))
    return first.each(lambda *each: namespace(map_.point).stack(each, axis=1), *others)


def smooth_along(
    map_: DifferentiableMap, settings: Settings, direction: Array, size: float
) -> directional.Measurement | None:
    """J u, if two steps show no kink, jump or noise along u beside slopes of a size; else None."""
    plan = directional.plan(map_, settings, largest_size(direction))
    two = _of_two(plan)
    rungs = {h: evaluate.values_beside(map_, direction, h) for h in two.steps()}
    found = Ladder(directional.line(map_, direction, rungs=rungs), two).estimate()
    if bool(namespace(direction).any(_bent(found, least=size))):
        return None
    return directional.direction_of(map_, settings, direction, rungs=rungs)


def _of_two(plan: steps.Plan) -> steps.Plan:
    """The two steps that tell what is smooth."""
    return replace(plan, top=plan.top * plan.ratio, rungs=2)


def _block(
    map_: DifferentiableMap, settings: Settings, chosen: Sequence[int], rows: Array | None
) -> list[Estimate]:
    xp = namespace(map_.point)
    sizes = [_column_scales(map_, j) for j in chosen]
    scales = [own for own, *_ in sizes]
    plan = directional.plan(map_, settings, max(scales))
    if directional.is_smooth(map_):
        plan = _of_two(plan)  # of a column with a wide bar the others are asked
    start, used = evaluate.centre(map_), plan.steps()
    rungs = [{step: beside(map_, j, step) for step in used} for j in chosen]
    joined = {}
    for step in used:
        plus, minus = zip(*[each[step] for each in rungs], strict=True)
        joined[step] = xp.concat(plus), xp.concat(minus)
    line = replace(
        directional.line(map_, xp.asarray(scales), rungs=joined),
        centre=xp.concat([start.value] * len(chosen)),
        noise=start.noise
        if isinstance(start.noise, float)
        else xp.concat([start.noise] * len(chosen)),
    )
    whole = Ladder(line, plan).estimate()
    m = map_.codomain.size
    pieces = []
    for k, (j, scale) in enumerate(zip(chosen, scales, strict=True)):
        piece = _per_input(whole.span(slice(k * m, (k + 1) * m)), scale)
        if len(sizes[k]) > 1 or _open(start.value, piece):
            piece = _closer(map_, settings, j, rungs[k], piece)
        pieces.append(piece if rows is None else piece.of(rows))
    return pieces


def _open(centre: Array, piece: Estimate) -> bool:
    """Whether a closer look at a column may tell more."""
    wide = _wide(piece) | _lost(centre, piece)
    return not known(piece) or bool(namespace(wide).any(wide))


def _closer(
    map_: DifferentiableMap, settings: Settings, j: int, rungs: Rungs, piece: Estimate
) -> Estimate:
    """A column read from steps that are chosen for its group or, where they must, for it alone.

    They need not be where all that is open has no derivative: no step would tell more.
    """
    group = _group_of(map_, j)
    if group is None or group.alone:
        if _jumps(map_, rungs, _bent(piece)):
            return piece
        return climbed(map_, settings, j, rungs).estimate
    found = _per_input(group.slopes(settings).only(group.moved_by(j)), own_scale(map_, j))
    if not _open(evaluate.centre(map_).value, found):
        return found
    kind, xp = sides(map_, settings, j).kind, namespace(found.value)
    smooth = (kind == SMOOTH) | (kind == ONCE) | (kind == UNRESOLVED)
    open_ = _wide(found) | _lost(evaluate.centre(map_).value, found)
    return climbed(map_, settings, j).estimate if bool(xp.any(open_ & smooth)) else found


def _jumps(map_: DifferentiableMap, rungs: Rungs, outputs: Array) -> bool:
    """Whether these outputs, if there are any, are as far from F(x) at all fine steps of a side."""
    start, xp = evaluate.centre(map_), namespace(map_.point)
    unit = noise.units(map_.resolution, xp.abs(start.value))
    found, loud = outputs & ~outputs, xp.maximum(unit, unit * 0 + start.noise)
    for way in (0, 1):
        rise = xp.stack([rungs[step][way] for step in sorted(rungs, reverse=True)]) - start.value
        found = found | jumping(rise, loud)
    return bool(xp.any(outputs)) and bool(xp.all(found | ~outputs))


def _wide(found: Estimate) -> Array:
    """Outputs whose bar is wide beside the column's largest entry, and not because of a kink."""
    return namespace(found.error).isfinite(found.error) & _bent(found, found.kink)


def _bent(found: Estimate, kink: Array | float = 0.0, *, least: float = 0.0) -> Array:
    """Outputs whose bar, but for `kink`, is wide beside the largest entry, or beside `least`."""
    xp = namespace(found.value)
    size = max(least, float(xp.max(finite(xp.abs(found.value)))))
    return ~(found.error - kink <= _WIDE * size)


def _lost(centre: Array, found: Estimate) -> Array:
    """Outputs without a bar though F has a value: the noise may be another column's jump."""
    xp = namespace(centre)
    return xp.isfinite(centre) & xp.isfinite(found.value) & ~xp.isfinite(found.error)


def unit(like: Array, coordinate: int, size: float = 1.0, count: int | None = None) -> Array:
    """A vector of the library of `like`, as long or of `count` entries, zero but for one."""
    vector = namespace(like).zeros(like.shape[0] if count is None else count)
    vector[coordinate] = size
    return vector


def own_scale(map_: DifferentiableMap, coordinate: int) -> float:
    """By how much a step of 1 moves an input along its column."""
    return _column_scales(map_, coordinate)[0]


def beside(map_: DifferentiableMap, coordinate: int, step: float) -> tuple[Array, Array]:
    """F at both ends of a step along a column, in units of `own_scale`."""
    shared = _shared(map_, coordinate)
    if shared is not None:
        return shared[step]
    direction = unit(map_.point, coordinate, own_scale(map_, coordinate))
    return evaluate.values_beside(map_, direction, step)


def classic_column(map_: DifferentiableMap, step: float, coordinate: int) -> Array:
    """Column by a central difference with one absolute step: two evaluations, no error bar."""
    group = _group_of(map_, coordinate)
    if group is None:
        plus, minus = evaluate.values_beside(map_, unit(map_.point, coordinate), step)
        return (plus - minus) / (2 * step)
    plus, minus = group.at(step, plain=True)
    return namespace(plus).where(group.moved_by(coordinate), (plus - minus) / (2 * step), 0.0)


def sides_along(
    map_: DifferentiableMap,
    settings: Settings,
    direction: Array,
    rungs: Rungs | None = None,
    outputs: Array | None = None,
) -> Kinks:
    """What outputs are along a direction, smooth or not, and their slopes on both sides.

    `rungs` are evaluations that need not be made; `outputs` are positions of some, whose kinks are
    looked for more closely.
    """
    line = directional.line(map_, direction, rungs=rungs)
    return either_side(line, settings, outputs).kinks()


def either_side(line: Line, settings: Settings, outputs: Array | None) -> Ladder:
    """The steps by which outputs are told on each side of the point, finer ones of some outputs."""
    limit, fine = settings.largest_step, outputs is not None
    limit = limit and limit / largest_size(line.direction)
    plan = steps.sides(line.resolution, limit, fine=fine)
    return Ladder(line if outputs is None else line.of(outputs), plan)


def beside_kinks(
    ladder: Ladder, settings: Settings, known: Estimate, outputs: Array, scale: float = 1.0
) -> tuple[Estimate, Kinks]:
    """What is known of a derivative, of some outputs by their steps to `either_side`.

    A kink beside the point, not in it, spoils every step that crosses it. Where the shorter ones
    tell a slope (`one_sided`) that is what is measured, if it is sharper than what is known, or
    sharp enough. `scale` is that of the line in what is known. With it, what the outputs are.
    """
    found, table, here, xp = ladder.kinks(), ladder.table(), known.of(outputs), namespace(outputs)
    middle, bar = (found.left + found.right) / 2, found.error + abs(found.right - found.left) / 2
    # The step whose plain difference comes nearest to it, and what that is off by.
    every = xp.asarray(table.steps)
    h = xp.reshape(every, (-1, 1))
    off = finite(abs(table.odd / h - middle)) + noise.FACTOR * finite(table.ulps) / h
    step, step_error = xp.take(every, xp.argmin(off, axis=0)), bar + xp.min(off, axis=0)
    sharp = (bar < here.error * scale) | (bar <= settings.resolution * abs(middle))
    better = ((found.kind == SMOOTH) | (found.kind == ONCE)) & sharp
    learnt = replace(
        here,
        value=xp.where(better, middle / scale, here.value),
        error=xp.where(better, bar / scale, here.error),
        kink=xp.where(better, 0.0, here.kink),
        step=xp.where(better, step * scale, here.step),
        step_error=xp.where(better, step_error / scale, here.step_error),
    )
    return known.put(outputs, learnt), found


def leave_kinks(map_: DifferentiableMap, settings: Settings, outputs: Array) -> bool:
    """Measure outputs `beside_kinks` along the first tangent; False where nothing is learnt."""
    known = directional.along(map_, settings, 0)
    rungs = None if known.ladder is None else known.ladder.rungs
    line = directional.line(map_, known.direction, rungs=rungs)
    ladder = either_side(line, settings, outputs)
    learnt, found = beside_kinks(ladder, settings, known.estimate, outputs)
    map_.memo["along", 0] = replace(known, estimate=learnt)
    map_.memo[_SIDES] = outputs, found
    return bool(namespace(outputs).any(learnt.error != known.estimate.error))


def first_sides(map_: DifferentiableMap, settings: Settings, outputs: Array) -> Kinks:
    """`sides_along` of the first tangent, of some outputs: measured once."""
    xp, (at, found) = namespace(outputs), map_.memo.get(_SIDES, (None, None))
    if found is not None and at.shape[0]:
        order = xp.argsort(at)
        place = xp.clip(xp.searchsorted(xp.take(at, order), outputs), None, at.shape[0] - 1)
        place = xp.take(order, place)
        if bool(xp.all(xp.take(at, place) == outputs)):
            known: Kinks = found.of(place)
            return known
    direction = directional.along(map_, settings, 0).direction
    return sides_along(map_, settings, direction, outputs=outputs)


def sides(map_: DifferentiableMap, settings: Settings, coordinate: int) -> Kinks:
    """What every output is along an input, and its slopes per unit of input on both sides."""
    scale, group = own_scale(map_, coordinate), _group_of(map_, coordinate)
    if group is None:
        found = sides_along(map_, settings, unit(map_.point, coordinate, scale))
    else:
        found = group.sides(settings).only(group.moved_by(coordinate))
    return Kinks(found.kind, found.left / scale, found.right / scale, found.error / scale)


# Columns that act on different outputs are moved together, and F at a move of one is read from it.
#
# Which do is asked of F. For every binary digit of the places in a group, the columns with that
# digit and those without it are moved by themselves, one way and the other: an output that changes
# with only one half of each pair changes with one column, whose place the halves spell (Dorfman,
# The detection of defective members of large populations, 1943). One that changes with both
# halves of a pair refuses the group. Which groups are asked about is a guess: columns without a
# common row in what is claimed (Curtis, Powell and Reid, On the estimation of sparse Jacobian
# matrices, 1974), and those of which nothing is claimed, as of ties and kinks.


@dataclass
class _Group:
    """Columns that act on different outputs, and F where they were moved together."""

    map_: DifferentiableMap  # whose columns they are
    columns: Sequence[int]  # which they are
    owners: Array  # of each output the column that acts on it; -1 where none does
    alone: bool = False  # whether it is one column, which may act on every output
    _made: dict[tuple[float, bool], tuple[Array, Array]] = field(default_factory=dict)
    _slopes: Estimate | None = None
    _sides: Kinks | None = None

    def moved_by(self, coordinate: int) -> Array:
        """The outputs that a column acts on."""
        return self.owners == coordinate

    @functools.cached_property
    def direction(self) -> Array:
        """How far a step of 1 moves each input: by its `own_scale`."""
        found = namespace(self.map_.point).zeros_like(self.map_.point)
        for j in self.columns:
            found[j] = own_scale(self.map_, j)
        return found

    def at(self, step: float, *, plain: bool = False) -> tuple[Array, Array]:
        """F at both ends of a step, by which each input moves where it is plain."""
        if (step, plain) not in self._made:
            found = self.direction
            direction = namespace(found).sign(found) if plain else found
            self._made[step, plain] = evaluate.values_beside(self.map_, direction, step)
        return self._made[step, plain]

    def slopes(self, settings: Settings) -> Estimate:
        """The derivative along the direction."""
        if self._slopes is None:
            every = _Alone(self, self.owners >= 0)
            along = directional.direction_of(self.map_, settings, self.direction, rungs=every)
            self._slopes = _sharpened(along).estimate
        return self._slopes

    def sides(self, settings: Settings) -> Kinks:
        """What every output is along the direction."""
        if self._sides is None:
            every = _Alone(self, self.owners >= 0)
            self._sides = sides_along(self.map_, settings, self.direction, every)
        return self._sides


class _Alone(Mapping[float, tuple[Array, Array]]):
    """F at both ends of any step along some columns of a group, from those of the whole group."""

    def __init__(self, group: _Group, mine: Array) -> None:
        self._group, self._mine = group, mine

    def __getitem__(self, step: float) -> tuple[Array, Array]:
        start, xp = evaluate.centre(self._group.map_).value, namespace(self._mine)
        plus, minus = self._group.at(step)
        return xp.where(self._mine, plus, start), xp.where(self._mine, minus, start)

    def __iter__(self) -> Iterator[float]:
        raise TypeError  # every step there is

    def __len__(self) -> int:
        raise TypeError


def _group_of(map_: DifferentiableMap, coordinate: int) -> _Group | None:
    found: _Group | None = map_.memo.get(_GROUPS, {}).get(coordinate)
    return found


def regrouped(map_: DifferentiableMap, wrong: Array) -> bool:
    """Whether a group gave way: where some of its columns that look wrong move F alone otherwise.

    `max(x, a, b)` of three equal numbers moves when `a` is moved by itself, and further when `b`
    moves with it: who acts on an output alone need not do what they do together.
    """
    xp, start, groups = namespace(wrong), evaluate.centre(map_), map_.memo.get(_GROUPS, {})
    doubted: dict[int, list[int]] = {}
    for j in positions(xp.any(wrong, axis=0)):
        if j in groups and not groups[j].alone:
            doubted.setdefault(id(groups[j]), []).append(j)
    broken = [each for each in doubted.values() if any(_moves_else(map_, j) for j in each[:TRIES])]
    for j in (j for each in broken for j in groups[each[0]].columns):
        groups[j] = _Group(map_, [j], xp.full(start.value.shape[0], j), alone=True)
    return bool(broken)


def _moves_else(map_: DifferentiableMap, coordinate: int) -> bool:
    """Whether F at a move of a column is not what is read of it where others move too."""
    start, shared = evaluate.centre(map_), _shared(map_, coordinate)
    assert shared is not None  # since it is in a group
    step, xp = steps.TIE, namespace(start.value)
    direction = unit(map_.point, coordinate, own_scale(map_, coordinate))
    for each, alone in zip(
        shared[step], evaluate.values_beside(map_, direction, step), strict=True
    ):
        bar = SMALL * xp.abs(each - start.value) + start.noise
        if bool(xp.any(xp.abs(each - alone) > bar)):
            return True
    return False


def _shared(map_: DifferentiableMap, coordinate: int) -> Rungs | None:
    """F at both ends of any step along a column that is moved with others; None of the rest."""
    group = _group_of(map_, coordinate)
    return None if group is None else _Alone(group, group.moved_by(coordinate))


def _grouped(map_: DifferentiableMap, settings: Settings, claimed: Array) -> dict[int, _Group]:
    """The groups of columns, each under every column that it has.

    What a column is alone is kept where that is little. A group that is refused costs as much as a
    column of its own, so that of a few columns not many are tried.
    """
    found: dict[int, _Group] = {}
    if map_.domain.size * map_.codomain.size <= KEPT:
        xp, every = namespace(map_.point), map_.codomain.size
        for j in range(map_.domain.size):
            found[j] = _Group(map_, [j], xp.full(every, j), alone=True)
    pattern = on_host(claimed) != 0
    asked, refused = _guessed(map_, pattern), 0
    while asked and refused < min(MANY, map_.domain.size / MANY):
        columns = asked.pop(0)
        owners = _owners(map_, settings, columns) if len(columns) > 1 else None
        if owners is not None:
            group = _Group(map_, columns, _or_claimed(owners, pattern, columns))
            found |= dict.fromkeys(columns, group)
        elif len(columns) > 1:
            refused += 1
            asked += [columns[::2], columns[1::2]]
    return found


def _or_claimed(owners: Array, pattern: np.ndarray[Any, Any], columns: Sequence[int]) -> Array:
    """The owners, and of an output that changes with none the column that claims it.

    Where less than a rounding of F is claimed F does not change: the entry has that for a bar.
    """
    xp, claims = namespace(owners), pattern[:, list(columns)]
    claimed = np.where(claims.any(1), np.asarray(columns)[claims.argmax(1)], -1)
    return xp.where(owners >= 0, owners, xp.asarray(claimed))


def meet(claimed: Array) -> bool:
    """Whether some output has entries in more than half of the columns, which then share it."""
    pattern = on_host(claimed) != 0
    most = int(pattern.sum(1).max(initial=0))
    return len(pattern) == 1 or 2 * most > pattern.shape[1]


def _guessed(map_: DifferentiableMap, pattern: np.ndarray[Any, Any]) -> list[list[int]]:
    """Columns without a common row, each in the first group that it fits in; the empty ones apart.

    Where most columns meet in one output little would be saved.
    """
    if meet(pattern):
        return []
    groups: list[tuple[list[int], np.ndarray[Any, Any]]] = []
    empty: list[int] = []
    for j in (j for j in range(pattern.shape[1]) if len(_column_scales(map_, j)) == 1):
        rows = np.flatnonzero(pattern[:, j])
        fitting = (group for group in groups if not group[1][rows].any())
        columns, taken = next(fitting, ([], np.zeros(pattern.shape[0], bool)))
        if not rows.size:
            columns = empty
        elif not columns:
            groups.append((columns, taken))
        columns.append(j)
        taken[rows] = True
    return [*(columns for columns, _ in groups), empty]


def _owners(map_: DifferentiableMap, settings: Settings, columns: Sequence[int]) -> Array | None:
    """The one column of a group that each output changes with; None of others.

    None too where an output has no finite value: that it changes would not be seen.
    """
    xp, start = namespace(map_.point), evaluate.centre(map_)
    if not bool(xp.all(xp.isfinite(start.value))):
        return None
    u = probes.tangent(map_, settings.seed, 0)
    step = directional.plan(map_, settings, largest_size(u)).top

    def changed(digit: int, value: int) -> Array:
        moved = xp.zeros_like(u)
        here = [j for place, j in enumerate(columns) if place >> digit & 1 == value]
        moved[here] = u[here]
        parts = []
        for side in evaluate.values_beside(map_, moved, step):
            same = (side == start.value) | (xp.abs(side - start.value) <= start.noise)
            parts.append(~same)
        return parts[0] | parts[1]

    place, acts = xp.zeros_like(start.value), None
    for digit in range((len(columns) - 1).bit_length()):
        without, with_ = changed(digit, 0), changed(digit, 1)
        acts = without | with_ if acts is None else acts
        if bool(xp.any((without & with_) | (acts != (without | with_)))):
            return None
        place = place + xp.where(with_, 2.0**digit, 0.0)
    named = xp.take(xp.asarray(list(columns)), xp.astype(place, xp.int64))
    return xp.where(acts, named, -1)
