"""Screen, localise, confirm: one claimed Jacobian against one measured.

The screen compares along a random tangent, as tightly as the error bars allow. Only what it
suspects, or cannot resolve, is looked at entry by entry, and only entries are judged by the
user's tolerances: the verdict means what the full Jacobian compared entry by entry would mean.
"""

from __future__ import annotations

from dataclasses import replace

from gradproof._checks import _entries, _neighbours, _search
from gradproof._checks import _faint_columns as _faint
from gradproof._checks._claims import Claim, gradient
from gradproof._checks._flat import standing_still
from gradproof._checks._gradients import differences as gradient_findings
from gradproof._checks._kinks import BESIDE
from gradproof._checks._outcome import failed, inconclusive, passed
from gradproof._checks._projected import projected
from gradproof._checks._screen import (
    COARSE,
    MOST,
    ROUNDING,
    UNRESOLVED,
    Screen,
    empty,
    rows_of,
    sharp,
)
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure, probes
from gradproof._numerics.compare import rms, within
from gradproof._numerics.packing import unpacked
from gradproof._numerics.robust import median_of_positive
from gradproof._records import CheckResult
from gradproof._settings import Settings
from gradproof._space import Array, namespace, on_host, positions

_FURTHER = (1, 2)  # tangents


def judge(map_: DifferentiableMap, settings: Settings, claim: Claim) -> CheckResult:
    """Verdict on the Jacobian that `claim` claims."""
    if map_.domain.size == 0 or map_.codomain.size == 0:
        return _without_entries(map_, settings, claim)
    screen = look(map_, settings, claim)
    if screen.hints is not None and not screen.suspicious:
        hinted = _search.hinted(map_, settings, claim, screen)
        if hinted is not None:
            return _neighbours.confirm(map_, settings, hinted, judge)
    if screen.blurred and not screen.suspicious:
        measure.sharpen(map_, settings, screen.blurred)
        screen = look(map_, settings, claim)
    if screen.blurred and not screen.suspicious and not settings.classic_step:
        screen = _again(map_, settings, claim, screen)
    # Beside a jump F has been seen to vary: there, a derivative of zero is one like any other.
    beside = BESIDE in map_.memo
    if screen.empty and not settings.classic_step and not beside:
        return standing_still(map_, settings, claim.check, screen.bar)
    if screen.suspicious or screen.blurred:
        found = _located(map_, settings, claim, screen)
        return _neighbours.confirm(map_, settings, found, judge)
    if screen.unresolved and not settings.classic_step:
        return inconclusive(claim.check, screen.unresolved, resolution=screen.resolution)
    faint = _faint.columns(map_, settings, claim)
    if faint.wrong is not None:
        with measure.first_tangent(map_, settings, *faint.wrong):
            found = _located(map_, settings, claim, look(map_, settings, claim))
        return _neighbours.confirm(map_, settings, found, judge)
    seen = max(screen.resolution, faint.resolution)
    return passed(
        claim.check,
        f"{map_.codomain.size:,} x {map_.domain.size:,} Jacobian verified to {seen:.0e}",
        resolution=seen,
        notes=_unseen(map_, settings) or faint.notes,
    )


def _located(
    map_: DifferentiableMap, settings: Settings, claim: Claim, screen: Screen
) -> CheckResult:
    """Verdict from the entries of what a screen suspects or could not see."""
    if map_.domain.size <= _most_measured(settings, screen):
        return _entries.settle(map_, settings, claim, screen.suspects + screen.blurred)
    return _search.locate(map_, settings, claim, screen)


def _most_measured(settings: Settings, screen: Screen) -> int:
    """Inputs up to which every entry is measured; beyond, rows under suspicion are searched."""
    full = settings.full_jacobian
    surely = screen.suspects and not screen.blurred
    return min(full, settings.every_entry) if surely else full


def _unseen(map_: DifferentiableMap, settings: Settings) -> tuple[str, ...]:
    """A note on outputs whose derivative drowns in their rounding, beside much larger ones."""
    found = measure.along(map_, settings, 0).estimate
    xp = namespace(found.value)
    size = xp.abs(found.value)
    small = (size > 0) & ~within(found.error, settings.resolution * size)
    # What was blurred has been asked for along other tangents.
    blurred = ~within(found.error, sharp(map_, settings, found.value, rms(found.value)))
    for number in _FURTHER:
        other = map_.memo.get(("along", number))
        if other is not None and bool(xp.any(blurred)):
            there = other.estimate
            seen = within(there.error, settings.resolution * xp.abs(there.value))
            small = small & ~(blurred & seen)
    rows = _where(small)
    if not rows:
        return ()
    first = map_.codomain.locate(rows[0])
    what = (
        f"the derivative of {first} is"
        if len(rows) == 1
        else f"the derivatives of {len(rows):,} outputs, {first} first, are"
    )
    return (f"{what} too small to be told from rounding: not tested",)


def _without_entries(map_: DifferentiableMap, settings: Settings, claim: Claim) -> CheckResult:
    """No output has an entry, or no input: every gradient of these outputs is zero."""
    if map_.domain.size and claim.check == "backward":
        got = gradient(map_, settings, 0)
        xp = namespace(got)
        what = "gradient of an output without entries"
        findings = gradient_findings(
            claim.check, map_, got, xp.zeros_like(got), kind="entry", what=what
        )
        if findings:
            return failed(claim.check, "outputs without entries have a gradient", findings)
    if not map_.codomain.slots:
        return inconclusive(
            claim.check, "nothing was tested: the function has no output with a derivative"
        )
    return passed(claim.check, "nothing to check: no input or no output has an entry")


def look(map_: DifferentiableMap, settings: Settings, claim: Claim) -> Screen:
    """The screen: one ladder, and the claimed derivative along its tangent."""
    direction = probes.short_tangent(map_, settings.seed or 0, 0)
    # Of a large map the claim comes first: its graph would stand beside a ladder in memory.
    early = claim.along(direction) if map_.codomain.size > measure.KEPT else None
    # Sums over the outputs are read from the evaluations themselves.
    keep = True if early is None and measure.large(map_) else None
    first = measure.along(map_, settings, 0, keep=keep)
    claimed = claim.along(direction) if early is None else early
    if claimed is None:
        return projected(map_, settings, claim)
    found = first.estimate
    rows = rows_of(map_, settings, found, claimed)
    at = namespace(claimed).nonzero(rows.suspect)[0]
    if at.shape[0] and not rows.evident:
        at = _beyond_rounding(claim, (direction, claimed), found.value, at)
    return Screen(
        suspects=_strongest(at, claimed, found.value),
        blurred=_where(rows.blurred),
        projected=None,
        resolution=rows.resolution,
        bar=rows.bar,
        empty=empty(claimed, first),
        count=int(at.shape[0]),
        mask=_mask(rows.suspect, at),
        unresolved=_hidden(map_, rows.resolution),
    )


def _again(map_: DifferentiableMap, settings: Settings, claim: Claim, screen: Screen) -> Screen:
    """The screen after further tangents: along one, a row's derivative may be small by chance."""
    left, worst = screen.blurred, screen.resolution
    if map_.domain.size <= settings.full_jacobian or measure.large(map_):
        return screen
    for number in _FURTHER:
        claimed = claim.along(probes.short_tangent(map_, settings.seed or 0, number))
        if claimed is None:
            return screen
        found = measure.along(map_, settings, number).estimate
        rows = rows_of(map_, settings, found, claimed)
        if any(bool(rows.suspect[i]) for i in left):
            return screen
        left = tuple(i for i in left if bool(rows.blurred[i]))
        worst = max(worst, rows.resolution)
        if not left:
            break
    return replace(screen, blurred=left, resolution=worst, unresolved=_hidden(map_, worst))


def _hidden(map_: DifferentiableMap, part: float) -> str:
    """Why a part in doubt of an output's derivative is too large a one; "" where it is not.

    In 16 bits an entry of the usual size, one in sqrt(n) of a row, must not hide in it.
    """
    usual = map_.domain.size**-0.5 if map_.resolution > COARSE else 1.0
    told = f"a random direction resolves an output to {part:.0%} of its derivative only"
    return f"{told}: give a reference" if part > min(UNRESOLVED, usual) else ""


def _beyond_rounding(claim: Claim, along: tuple[Array, Array], measured: Array, at: Array) -> Array:
    """Which of the rows under suspicion have a gap that rounding does not explain.

    Where a backward mixes rows, the largest rounds all of them; where it does not, a row of any
    size is as exact as the others. J u - J u' - J u'', with u = u' + u'' split in two, is such
    rounding and nothing else.
    """
    xp = namespace(measured)
    direction, whole = unpacked(along[0]), xp.take(along[1], at)
    index = xp.arange(direction.shape[0])
    rounding = xp.zeros_like(whole)
    for mask in (index % 2 == 0, 2 * index < direction.shape[0]):  # one might be exact by chance
        left = whole
        for half in (mask, ~mask):
            part = claim.along(xp.where(half, direction, 0.0))
            if part is None:
                return at
            left = left - xp.take(part, at)
        rounding = xp.maximum(rounding, xp.abs(left))
    gap = xp.abs(whole - xp.take(measured, at))
    least = xp.asarray(median_of_positive(rounding))
    return at[~within(gap, ROUNDING * xp.maximum(rounding, least))]


def _where(mask: Array) -> tuple[int, ...]:
    return tuple(positions(mask))


def _mask(like: Array, at: Array) -> Array:
    """A mask that is true at some places."""
    mask = namespace(like).zeros_like(like)
    mask[at] = True
    return mask


def _strongest(at: Array, claimed: Array, measured: Array) -> tuple[int, ...]:
    """The rows under suspicion, largest gap first, NaN before all."""
    xp = namespace(at)
    gaps = xp.abs(xp.take(claimed, at) - xp.take(measured, at))
    gaps = xp.where(xp.isnan(gaps), xp.inf, gaps)
    order = xp.argsort(-gaps, stable=True)[:MOST]
    return tuple(on_host(xp.take(at, order)).tolist())
