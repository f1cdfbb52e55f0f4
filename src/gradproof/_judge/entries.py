"""Entry by entry: every column measured with its own ladder, judged by the user's tolerances."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from gradproof._data.space import Array, namespace, positions
from gradproof._data.vectors import finite, rms
from gradproof._judge import claim_error, limiting_slopes
from gradproof._judge import decide as law
from gradproof._judge.claims import Claim
from gradproof._judge.decide import Bar, Decision, decide, resolved
from gradproof._judge.found import Entries, count, refuted, taken, unresolved
from gradproof._judge.opinion import Opinion
from gradproof._judge.quantised import drowned, standing, treads, underflown
from gradproof._judge.screen import FAINT, Screen, of_rows, sharp
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional, evaluate, jacobian, probes
from gradproof._measure.richardson import Estimate
from gradproof._measure.sizes import MANY, SMALL, UNDERFLOW

_MOST_ENTRIES = 4_000_000
BETWEEN = "not differentiable here: the claimed derivative lies between the one-sided slopes"


def settle(claim: Claim, screen: Screen) -> Opinion:
    """What the full Jacobian shows, or as many rows of it as fit in memory."""
    map_, settings = claim.map, claim.settings
    entries = measured_entries(claim, screen)
    comparison = replace(entries.comparison, small=_small(entries, varies := _varies(entries)))
    xp, wrong, blurred = namespace(comparison.gap), comparison.wrong, ~comparison.sharp
    comparison = comparison.plus(claim_error.of_wrong(entries, wrong))
    # What the claim's own rounding explains is right where that is small beside the row.
    doubtful = wrong & comparison.close & ~resolved(comparison.gap, _part(entries))
    wrong = comparison.wrong
    flat, more = treads(entries, wrong | blurred)
    doubtful = doubtful | more | underflown(entries, wrong) | drowned(entries, wrong)
    wrong, blurred = wrong & ~flat & ~doubtful, (blurred | doubtful) & ~flat
    notes: list[str] = []
    if settings.classic_step and bool(xp.any(blurred & ~wrong)):
        wrong, blurred, notes, comparison = _classic(entries, wrong, blurred)
    kinks = limiting_slopes.examine(entries, blurred, wrong)
    notes = [note for note in notes if note != BETWEEN or not kinks.number]
    wrong = (wrong & ~kinks.named & ~kinks.spoilt) | kinks.outside
    seen = blurred & ~doubtful & ~kinks.named & _seen(entries, screen)
    blurred = blurred & ~kinks.named & ~seen
    if bool(xp.any(wrong)):
        found = replace(entries, comparison=comparison)
        return limiting_slopes.told(refuted(found, wrong, notes), kinks)
    if excused := _excused(entries):
        if not settings.classic_step:
            return Opinion(claim.check, excused, open=True)
        notes.append(excused)
    entries = replace(entries, comparison=comparison)
    worst, unseen = _resolved(entries, flat | blurred | seen | kinks.named, varies)
    notes += unseen
    if bool(xp.any(seen)):
        worst = max(worst, law.rounded_up(screen.bound))
    if bool(xp.any(blurred)):
        opened = unresolved(entries, blurred, worst, told=not bool(xp.any(blurred & doubtful)))
        return replace(opened, kinks=kinks.records)
    told = _told(map_, seen) + (kinks.summary or f", verified to {worst:.0e}")
    finely = worst if not bool(xp.all(kinks.named)) else float("nan")
    said = Opinion(claim.check, told, resolution=finely, notes=tuple(notes), kinks=kinks.records)
    return said if entries.rows is None else _of_some(said, len(entries.rows), screen)


def _told(map_: DifferentiableMap, seen: Array) -> str:
    """What was measured, but for entries that are only seen with their rows."""
    number = int(namespace(seen).sum(namespace(seen).astype(seen, namespace(seen).int64)))
    but = f" but {number:,}, each in a row that is right as a whole" if number else ""
    return f"{map_.codomain.size:,} x {map_.domain.size:,} Jacobian, every entry measured{but}"


def _seen(entries: Entries, screen: Screen) -> Array:
    """Rows, (m, 1), that a screen has seen to be right: no wide bar of an entry unsays that.

    Of a softmax of numbers of 100 an input moves one output alone. That the others stand still may
    be what they do, or be rounded away beside the largest; along a tangent all of them move.
    """
    xp = namespace(entries.size)
    seen = xp.ones_like(entries.values) > 0
    if screen.suspicious or entries.rows is not None:
        return (~seen)[:, None]
    for i in screen.blurred:
        seen[i] = False
    return seen[:, None]


def _of_some(said: Opinion, number: int, screen: Screen) -> Opinion:
    """What so many rows say, of those in doubt: the others may hide anything."""
    doubted = len(screen.suspects) + len(screen.blurred)
    told = f"{number:,} of {doubted:,} outputs in doubt fit in memory: none of them is wrong"
    return said if number == doubted else replace(said, summary=told, open=True)


def _part(entries: Entries) -> Array:
    """What is small beside the largest entry of its row, or what the user lets pass."""
    settings = entries.settings
    return settings.resolution * entries.size + 0.25 * settings.atol


def _resolved(entries: Entries, left_out: Array, varies: float) -> tuple[float, list[str]]:
    """To what the other entries are verified; and a note.

    The largest bar, or gap that rounding or a tolerance let pass, in parts of the entry, or of the
    largest of its row where it is less than a thousandth of that. The rows that are too small for
    their bars, which are small beside other rows, are told in the note.
    """
    xp, comparison = namespace(left_out), entries.comparison
    size = xp.maximum(entries.size, varies / probes.scales_of(entries.map)[None, :])
    entries = replace(entries, size=size)
    own = xp.abs(comparison.measured)
    size = xp.where(own >= SMALL * entries.size, own, entries.size)
    unseen = ~left_out & ~resolved(comparison.error, _part(entries))
    seen = xp.maximum(comparison.error, xp.where(comparison.close, comparison.gap, 0.0))
    relative = xp.where(size > 0, seen / size, 0.0)
    worst = law.rounded_up(float(xp.max(xp.where(left_out | unseen, 0.0, relative))))
    number = int(xp.sum(xp.astype(unseen & (entries.size > 0), xp.int64)))
    if not number:
        return worst, []
    told = "1 entry is" if number == 1 else f"{number:,} entries are"
    return worst, [f"{told} too small to be told from rounding beside others: not tested"]


def _small(entries: Entries, varies: float) -> Array:
    """The widest error bar of each entry that tells something."""
    map_ = entries.map
    scale = probes.scales_of(map_)[None, :]
    largest = float(namespace(scale).max(entries.size * scale))
    beside = max(varies, float(map_.memo.get(limiting_slopes.BESIDE, 0.0)))
    beside *= max(1.0, law.half_the_digits(map_) / FAINT)
    faint = FAINT * max(largest, beside) / scale
    # An output that is zero everywhere has a bar as well: without it the other entries of
    # sqrt([0, 0, 0, 0]), of which none has a size, stay open.
    return _part(entries) + faint + UNDERFLOW + standing(entries) * largest / scale


def _varies(entries: Entries) -> float:
    """The slope of F over the longest step, where no entry is told from zero; 0 where one is.

    At a minimum, as beside a jump, the derivative may be zero throughout, and has no size that
    error bars could be held against. F does not stand still there.
    """
    map_, settings, found = entries.map, entries.settings, entries.comparison
    xp, along = namespace(found.error), directional.along(map_, settings, 0)
    if not along.varies or bool(xp.any(xp.abs(found.measured) > found.error)):
        return 0.0
    start, step = evaluate.centre(map_), directional.plan(map_, settings).top
    sides = evaluate.values_beside(map_, along.direction, step)
    moved = (finite(xp.abs(side - start.value) - start.noise) for side in sides)
    return max(0.0, *(float(xp.max(each)) for each in moved)) / step


def measured_entries(claim: Claim, screen: Screen) -> Entries:
    """Claimed and measured entries, of all rows if they fit, or of those that a screen doubts.

    Where it suspects none, columns that are right together need not be measured one by one.
    """
    map_, settings = claim.map, claim.settings
    n, m = map_.domain.size, map_.codomain.size
    rows = screen.suspects + screen.blurred
    chosen = None if n * m <= _MOST_ENTRIES or not rows else rows[: max(1, _MOST_ENTRIES // n)]
    claimed = claim.matrix(chosen, (m, n), map_.point)
    if chosen is None:
        known = {} if screen.suspicious else _right_together(claim, claimed)
        found = jacobian.columns(map_, settings, claimed=claimed, known=known)
    else:
        found = jacobian.columns(map_, settings, _index(map_.point, chosen))
    entries = _held_against(claim, chosen, claimed, found)
    if jacobian.regrouped(map_, entries.comparison.wrong):
        return measured_entries(claim, screen)
    return entries


def _held_against(
    claim: Claim, chosen: Sequence[int] | None, claimed: Array, found: Estimate
) -> Entries:
    """The claims, of all rows or those chosen, beside what was measured."""
    map_, settings, xp = claim.map, claim.settings, namespace(claimed)
    scale = probes.scales_of(map_)[None, :]
    moved = xp.max(finite(xp.abs(found.value)) * scale, axis=1, keepdims=True)
    # Over a small scale a size may be beyond the largest number, where a bound is a bound still.
    size, typical = (_clipped(each / scale) for each in (moved, float(xp.max(moved))))
    rounding = law.of_entries(map_, (found.value, found.error), size, typical)
    bar, tolerance = Bar(found.error, found.kink), law.of_user(settings)
    comparison = decide(claimed, found.value, bar, rounding, tolerance)
    return Entries(claim, chosen, comparison, size, found.kink)


def _clipped(sizes: Array) -> Array:
    return namespace(sizes).minimum(sizes, sys.float_info.max)


# Columns that meet in one output cannot be told apart when they are moved together. But what they
# add up to can be held against what is claimed of them, as the screen does with all: only those
# beside a kink, a jump or a mistake have to be measured alone. They are looked for by halves.


def _right_together(claim: Claim, claimed: Array) -> dict[int, Estimate]:
    """Columns of parts of the inputs that are right along a random tangent of each part.

    The columns of a part are measured as what is claimed and, each, all of the part's gap: no other
    is further off, unless two wrong ones cancel along a tangent that was drawn.
    """
    map_ = claim.map
    if map_.resolution >= directional.DOUBLE or not jacobian.meet(claimed):
        return {}
    known: dict[int, Estimate] = {}
    parts = _first_parts(map_, claimed)
    left = len(parts) + map_.domain.size // MANY
    while left > 0 and parts:
        parts.sort(key=len)
        part = parts.pop()
        found, middle = _of_part(claim, claimed, part), len(part) // 2
        known |= found
        left += len(part) // MANY - 1 if found else -1
        parts += [each for each in (part[:middle], part[middle:]) if not found and len(each) > 1]
    return known


def _first_parts(map_: DifferentiableMap, claimed: Array) -> list[list[int]]:
    """The inputs of each array of which something is claimed, and the others, as ties and kinks."""
    xp, parts = namespace(claimed), []
    something = xp.any(claimed != 0, axis=0)
    for k in range(len(map_.domain.slots)):
        span = map_.domain.span(k)
        for mask in (something[span], ~something[span]):
            parts.append([span.start + j for j in positions(mask)])
    return [part for part in parts if len(part) > 1]


def _of_part(claim: Claim, claimed: Array, part: Sequence[int]) -> dict[int, Estimate]:
    """The columns of a part as they are measured together; empty if that tells too little."""
    map_, settings = claim.map, claim.settings
    xp, at = namespace(claimed), _index(claimed, part)
    tangent, u = probes.tangent(map_, settings.seed, 0), xp.zeros_like(map_.point)
    u[part] = tangent[part]
    sums, typical = claimed @ u, rms(claimed @ tangent)
    along = jacobian.smooth_along(map_, settings, u, typical)
    if along is None:
        return {}
    found = along.estimate
    decided = of_rows(map_, found, sums, 0.0, typical)
    faint = xp.abs(claimed * u)[:, at] * settings.resolution
    hidden = (faint > 0) & (faint < decided.allowed[:, None])
    seen = resolved(found.error, sharp(map_, settings, found.value, typical))
    gap = found.value - sums
    explained = law.explained(xp.abs(gap), found.error)
    if bool(xp.any(~explained | ~seen)) or bool(xp.any(hidden)):
        return {}
    return {
        j: replace(
            found,
            value=claimed[:, j] + gap / u[j],
            error=found.error / abs(u[j]),
            kink=found.kink / abs(u[j]),
        )
        for j in part
    }


def _index(like: Array, rows: Sequence[int]) -> Array:
    return namespace(like).asarray(list(rows))


def _excused(entries: Entries) -> str:
    """Why nothing was tested where only the absolute tolerance accepts a gap; "" if not so."""
    settings = entries.settings
    if not settings.atol:
        return ""
    found = entries.comparison
    xp = namespace(found.gap)
    excused = found.close & ~found.plus(-settings.atol).close
    below = xp.maximum(xp.abs(found.claimed), xp.abs(found.measured)) <= settings.atol
    number = int(xp.sum(xp.astype(excused & below, xp.int64)))
    if not number:
        return ""
    return (
        f"{count(number, 'entry')} not tested: claimed and measured differ but are both below "
        f"atol={settings.atol:g}; scale the function or lower atol"
    )


def settle_classic(claim: Claim, rows: tuple[int, ...]) -> Opinion | None:
    """What plain central differences of every input refute in a few rows, if anything."""
    map_, settings = claim.map, claim.settings
    n, m = map_.domain.size, map_.codomain.size
    chosen = rows[: max(1, _MOST_ENTRIES // n)]
    xp = namespace(map_.point)
    step = settings.classic_step
    assert step is not None  # or it would not be asked
    columns = [taken(jacobian.classic_column(map_, step, j), chosen) for j in range(n)]
    measured = xp.stack(columns, axis=1)
    claimed = claim.matrix(chosen, (m, n), map_.point)
    found = decide(claimed, measured, Bar(xp.zeros_like(measured)), 0.0, law.of_user(settings))
    if bool(xp.all(found.close)):
        return None
    none = xp.zeros_like(measured)
    return refuted(Entries(claim, chosen, found, none, none), ~found.close)


def _classic(
    entries: Entries, wrong: Array, blurred: Array
) -> tuple[Array, Array, list[str], Decision]:
    """Let a plain central difference decide the entries that the error bars leave open."""
    map_, settings, found = entries.map, entries.settings, entries.comparison
    xp = namespace(wrong)
    step = settings.classic_step
    assert step is not None  # or it would not be asked
    boundless = _boundless(entries)
    open_, notes = _open_entries(entries, blurred & ~wrong & ~boundless, step)
    measured = 1.0 * found.measured
    for j in positions(xp.any(open_, axis=0)):
        column = entries.chosen(jacobian.classic_column(map_, step, j))
        measured[:, j] = xp.where(open_[:, j], column, measured[:, j])
    none = xp.zeros_like(measured)
    plain = decide(found.claimed, measured, Bar(none), 0.0, law.of_user(settings))
    merged = replace(
        found,
        measured=measured,
        error=xp.where(open_, xp.nan, found.error),
        allowed=xp.where(open_, plain.allowed, found.allowed),
    )
    return wrong | (open_ & ~plain.close), blurred & boundless, notes, merged


def _boundless(entries: Entries) -> Array:
    """Rows, (m, 1), that are infinite because inputs are: no difference tells of them."""
    map_ = entries.map
    xp = namespace(map_.point)
    held = bool(xp.any(map_.given != map_.point))
    return (xp.isinf(entries.values) & held)[:, None]


def _open_entries(entries: Entries, blurred: Array, step: float) -> tuple[Array, list[str]]:
    """The blurred entries that a plain difference is asked about, and remarks on the others.

    A gap within the half-gap of the one-sided slopes of a kink is a valid subgradient.
    """
    found = entries.comparison
    xp = namespace(blurred)
    kink = blurred & (entries.kink >= 0.5 * found.error) & xp.isfinite(found.error)
    open_ = blurred & ~kink
    remarks = {
        BETWEEN: kink,
        f"some entries were judged by a plain central difference of step {step:g}": open_,
    }
    return open_, [remark for remark, where in remarks.items() if bool(xp.any(where))]
