"""Columns that are lost beside larger ones along the first tangent, asked along their own.

An input beside a penalty of 1e8, or one of another unit, adds to a row less than its rounding. The
claimed gradient tells how much each input adds along a tangent. Those that add less than what is
allowed there, divided by what must be seen of them, are moved alone: their rows are then as small
as they are, and are compared as tightly. What is smaller still is asked again. Inputs of which zero
is claimed add nothing, whatever they do: they are moved alone as well where that moves F.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradproof._data.settings import Settings
from gradproof._data.space import Array, dot, namespace, positions
from gradproof._data.vectors import finite, largest_size, rms
from gradproof._judge.claims import Claim, gradient
from gradproof._judge.decide import of_largest, resolved
from gradproof._judge.projections import Projection, gap_of
from gradproof._judge.screen import SHARP, of_rows, rows_of
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional, evaluate, probes
from gradproof._measure.ladder import Ladder
from gradproof._measure.sizes import TRIES


@dataclass(frozen=True)
class Faint:
    """What the columns that are lost along the first tangent say by themselves."""

    # The tangent along which a gap shows, and what was measured there.
    wrong: tuple[Array, directional.Measurement] | None = None
    bound: float = 0.0  # as of `Screen`; 0 where none was asked
    notes: tuple[str, ...] = ()  # on columns that no tangent shows


@dataclass(frozen=True)
class _Alone:
    """What is claimed of some columns, beside what is measured of them alone."""

    found: directional.Measurement
    wrong: bool  # whether a gap is worth a look
    part: float  # the largest error bar of what was hidden, in parts of what is claimed
    seen: float  # the largest error bar or gap, likewise


def faint_columns(claim: Claim, first: directional.Measurement | None = None) -> Faint:
    """Ask the columns that add less to their rows than what is allowed along the first tangent."""
    map_, settings, worst = claim.map, claim.settings, 0.0
    if map_.resolution > directional.DOUBLE or directional.large(map_):
        return Faint()
    u, found = probes.tangent(map_, settings.seed, 0), first
    found = directional.along(map_, settings, 0) if found is None else found
    for level in range(TRIES):
        here, xp = found.estimate, namespace(u)
        allowed = of_rows(map_, here, here.value, 0.0, rms(here.value)).further
        lost, unseen = _lost(map_, settings, u, allowed)
        if level and bool(xp.any(unseen)):
            return Faint(bound=worst, notes=(_told(map_, unseen),))
        alone = None if lost is None else _asked_alone(claim, lost, level, allowed)
        if lost is None or alone is None:
            break
        u, found = lost, alone.found
        if alone.wrong:
            return Faint(wrong=(u, found))
        if not resolved(alone.part, settings.resolution):
            return Faint(bound=worst, notes=(_told(map_, u != 0),))
        worst = max(worst, of_largest(map_, alone.seen, _number(u)))
    return Faint(bound=worst)


def _lost(
    map_: DifferentiableMap, settings: Settings, u: Array, allowed: Array
) -> tuple[Array | None, Array]:
    """The tangent without what is seen along it, and which inputs are not seen at all.

    None where nothing is lost, or everything: there is nothing then that it would be larger than.
    """
    xp, most = namespace(u), float(namespace(u).max(allowed))
    nothing = u < u
    try:
        added = xp.abs(gradient(map_, settings, 0) * u)
    except Exception:  # a backward that raises is told in its own row; forward mode has no sizes
        return None, nothing
    lost = (u != 0) & (settings.resolution * added < most)
    if bool(xp.all(lost | (u == 0))):
        return None, (added > 0) & (added < most)
    alone = xp.where(lost, u, 0.0)
    if bool(xp.any(lost & (added > 0))) or _moves(map_, settings, alone, most):
        return alone, nothing
    return None, nothing


def _moves(map_: DifferentiableMap, settings: Settings, u: Array, most: float) -> bool:
    """Whether F moves with inputs of which zero is claimed, if the user lets that little not pass.

    One evaluation tells, as their value mostly stays the very same.
    """
    xp, step = namespace(u), directional.plan(map_, settings).top
    if not bool(xp.any(u != 0)):
        return False
    if most <= settings.atol * float(xp.min(xp.where(u != 0, xp.abs(u), xp.inf))):
        return False
    start = evaluate.centre(map_)
    moved = finite(xp.abs(evaluate.value_beside(map_, u, step) - start.value) - start.noise)
    return bool(xp.any(moved > 0))


def _asked_alone(claim: Claim, u: Array, level: int, allowed: Array) -> _Alone | None:
    """The columns along u against what is claimed of them; None where they are seen already."""
    map_, xp = claim.map, namespace(u)
    claimed = claim.along(u)
    if claimed is None:
        return _projected_alone(claim, u, level)
    # Of signs that are drawn, one column is as large as its row over the root of their number.
    one = xp.abs(claimed) / _number(u) ** 0.5
    hidden = (claim.settings.resolution * one < allowed) & ((one > 0) | ~xp.any(one > 0))
    if not bool(xp.any(hidden)):
        return None
    ladder = _ladder(claim, u, level)
    for _ in range(2):  # what is small beside F takes more steps; other rows may stand still
        ladder.solve(xp.nonzero(hidden)[0], SHARP / 10)
    found = directional.read(ladder)
    rows = rows_of(map_, claim.settings, found.estimate, claimed)
    part = found.estimate.error / xp.where(claimed == 0, xp.inf, xp.abs(claimed))
    return _Alone(found, bool(xp.any(rows.suspect)), float(xp.max(part)), rows.seen)


def _projected_alone(claim: Claim, u: Array, level: int) -> _Alone:
    """The sum of the rows along u, with the first cotangent, of a backward that tells no rows."""
    map_, settings, xp = claim.map, claim.settings, namespace(u)
    v, back = probes.cotangent(map_, settings.seed, 0), gradient(map_, settings, 0)
    ladder = _ladder(claim, u, level)
    found = directional.read(ladder, solve=True)
    sums = ladder.of_functionals(xp.reshape(v, (1, -1)))
    one = Projection(v, back, float(sums.value[0]), float(sums.error[0]), mixed=False)
    gap, size = gap_of(claim, found, one), abs(dot(back, u))
    part = float(sums.error[0]) / size if size else 0.0
    return _Alone(found, bool(gap.wrong), part, gap.further / size if size else 0.0)


def _number(u: Array) -> int:
    """How many columns are moved."""
    xp = namespace(u)
    return int(xp.sum(xp.astype(u != 0, xp.int64)))


def _ladder(claim: Claim, u: Array, level: int) -> Ladder:
    """F along the columns that are lost at a level, asked once: each mode reads them."""
    key, xp, memo = ("faint", level), namespace(u), claim.map.memo
    found: Ladder | None = memo.get(key)
    if found is None or not bool(xp.all(found.line.direction == u)):
        plan = directional.plan(claim.map, claim.settings, largest_size(u))
        found = memo[key] = Ladder(directional.line(claim.map, u), plan)
    return found


def _told(map_: DifferentiableMap, which: Array) -> str:
    at = positions(which)
    first = map_.domain.locate(at[0])
    told = f"{first} adds" if len(at) == 1 else f"{len(at):,} inputs, {first} first, add"
    return f"{told} too little beside larger ones: not tested"
