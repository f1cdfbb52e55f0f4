"""Screen, localise, confirm: one claimed Jacobian against one measured.

The screen compares along a random tangent, as tightly as the error bars allow. Only what it
suspects, or cannot resolve, is looked at entry by entry, and only entries are judged by the
user's tolerances: the verdict means what the full Jacobian compared entry by entry would mean.
"""

from __future__ import annotations

from gradproof._checks import _entries, _neighbours, _search
from gradproof._checks._claims import Claim, gradient
from gradproof._checks._flat import standing_still
from gradproof._checks._found import BARS
from gradproof._checks._gradients import differences as gradient_findings
from gradproof._checks._kinks import BESIDE
from gradproof._checks._outcome import failed, passed
from gradproof._checks._screen import ROUNDING, Screen, allowance, empty, rows_of, summed
from gradproof._explain.localise import MANY
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure, probes
from gradproof._numerics.compare import rms, within
from gradproof._numerics.packing import unpacked
from gradproof._numerics.robust import median_of_positive
from gradproof._records import CheckResult
from gradproof._settings import Settings
from gradproof._space import Array, dot, namespace

_SEEN = 1e-5  # bar of a row, in parts of its derivative, above which it is given less weight
_LEAST = 1e-250  # derivative of a row, in parts of the typical one, that is weighed by itself
_LEAST_OF_FEW_BITS = 1e-3


def judge(map_: DifferentiableMap, settings: Settings, claim: Claim) -> CheckResult:
    """Verdict on the Jacobian that `claim` claims."""
    if map_.domain.size == 0 or map_.codomain.size == 0:
        return _without_entries(map_, settings, claim)
    screen = look(map_, settings, claim)
    if screen.blurred and not screen.suspicious:
        measure.sharpen(map_, settings, screen.blurred)
        screen = look(map_, settings, claim)
    # Beside a jump F has been seen to vary: there, a derivative of zero is one like any other.
    beside = BESIDE in map_.memo
    if screen.empty and not settings.classic_step and not beside:
        return standing_still(map_, claim.check, screen.bar)
    if screen.suspicious or screen.blurred:
        if map_.domain.size <= settings.full_jacobian:
            found = _entries.settle(map_, settings, claim, screen.suspects + screen.blurred)
        else:
            found = _search.locate(map_, settings, claim, screen)
        return _neighbours.confirm(map_, settings, found, judge)
    return passed(
        claim.check,
        f"{map_.codomain.size:,} x {map_.domain.size:,} Jacobian verified to "
        f"{screen.resolution:.0e}",
        resolution=screen.resolution,
        notes=_unseen(map_, settings),
    )


def _unseen(map_: DifferentiableMap, settings: Settings) -> tuple[str, ...]:
    """A note on outputs whose derivative drowns in their rounding, beside much larger ones."""
    found = measure.along(map_, settings, 0).estimate
    xp = namespace(found.value)
    size = xp.abs(found.value)
    rows = _where((size > 0) & ~within(found.error, settings.resolution * size))
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
    return passed(claim.check, "nothing to check: no input or no output has an entry")


def look(map_: DifferentiableMap, settings: Settings, claim: Claim) -> Screen:
    """The screen: one ladder, and the claimed derivative along its tangent."""
    direction = probes.short_tangent(map_, settings.seed or 0, 0)
    # Of a large map the claim comes first: its graph would stand beside a ladder in memory.
    early = claim.along(direction) if map_.codomain.size > measure.KEPT else None
    first = measure.along(map_, settings, 0)
    claimed = claim.along(direction) if early is None else early
    if claimed is None:
        return _projected(map_, settings, claim)
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
    )


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


def _projected(map_: DifferentiableMap, settings: Settings, claim: Claim) -> Screen:
    """The screen where only v.(J u) and (J^T v).u can be compared: two v and two u."""
    first = measure.along(map_, settings, 0)
    found = first.estimate
    pulled = gradient(map_, settings, 0) * first.direction
    # v.(J u) of m outputs of one size is sqrt(m) of it, and so is (J^T v).u.
    size = max(rms(found.value), rms(pulled) * (pulled.shape[0] / found.value.shape[0]) ** 0.5)
    rows = rows_of(map_, settings, found, None)
    blurred = rows.blurred
    projected, bar = _projections(map_, settings, claim, blurred)
    return Screen(
        suspects=_blurred_suspects(map_, settings, claim, _where(blurred), size),
        blurred=_where(blurred),
        projected=projected,
        resolution=max(rows.resolution, bar),
        bar=rows.bar,
        empty=projected is None and empty(pulled, first),
    )


def _blurred_suspects(
    map_: DifferentiableMap,
    settings: Settings,
    claim: Claim,
    blurred: tuple[int, ...],
    size: float,
) -> tuple[int, ...]:
    """Of the rows left out of the projections, the first few whose claim is beyond the bar."""
    first = measure.along(map_, settings, 0)
    found = first.estimate
    allowed = allowance(map_, found, size, rms(found.value))
    suspects = []
    for i in blurred[:MANY]:
        row = claim.row(i)
        assert row is not None  # only a mode that has rows is screened by projections
        gap = abs(dot(row, first.direction) - float(found.value[i]))
        if float(found.error[i]) < float("inf") and not within(gap, float(allowed[i])):
            suspects.append(i)
    return tuple(suspects)


def _projections(
    map_: DifferentiableMap, settings: Settings, claim: Claim, blurred: Array
) -> tuple[tuple[int, Array] | None, float]:
    """The tangent and cotangent whose projection disagrees, if any; and the smallest bar.

    A wrong entry shows in each of the four, so the sharpest one counts; a bar is told in parts of
    what one row adds.

    One cotangent weighs every output by one over its derivative, so that small rows count.
    """
    xp = namespace(blurred)
    vs = _cotangents(map_, settings, blurred)
    shared = not bool(xp.any(blurred))
    pulled = [gradient(map_, settings, 0) if shared else claim.project(vs[0, :])]
    pulled.append(claim.project(vs[1, :]))
    bars = []
    for number in (0, 1):
        tangent = measure.along(map_, settings, number)
        found = measure.ladder(map_, settings, number).of_functionals(vs)
        spread = xp.where(blurred, 0.0, tangent.estimate.value)
        for k, back in enumerate(pulled):
            assert back is not None  # only a mode that projects lacks whole tangents
            measured, error = summed(
                (float(found.value[k]), float(found.error[k])), vs[k, :], tangent.estimate
            )
            part = rms(vs[k, :] * spread)
            size = part * spread.shape[0] ** 0.5
            quiet = 1e-10 * size + 64 * map_.resolution * dot(abs(back), abs(tangent.direction))
            allowed = BARS * error + quiet
            bars.append(allowed / part if part else 0.0)
            gap = abs(dot(back, tangent.direction) - measured)
            if not within(gap, allowed) and not (
                k and within(gap, allowed + ROUNDING * _split(claim, vs[k, :], back, tangent))
            ):
                return (number, vs[k, :]), min(bars)
    return None, min(bars)


def _split(claim: Claim, v: Array, back: Array, tangent: measure.Measurement) -> float:
    """Rounding of a projection: (J^T v - J^T v' - J^T v'').u, with v = v' + v'' split in two.

    The entries of v may be of very different sizes, and a backward that mixes rows rounds all of
    them by the largest.
    """
    xp = namespace(v)
    index = xp.arange(v.shape[0])
    found = 0.0
    for mask in (index % 2 == 0, 2 * index < v.shape[0]):
        halves = [claim.project(xp.where(half, v, 0.0)) for half in (mask, ~mask)]
        assert halves[0] is not None
        assert halves[1] is not None
        found = max(found, abs(dot(back - halves[0] - halves[1], tangent.direction)))
    return found


def _cotangents(map_: DifferentiableMap, settings: Settings, blurred: Array) -> Array:
    """Two cotangents: one of entries of one size, one that gives every row the same weight.

    In the second a row counts as much as the largest, however small it is, unless its error bar
    would blind the sum: it is weighed by what it is known to.
    """
    xp = namespace(blurred)
    seed = settings.seed or 0
    found = measure.along(map_, settings, 0).estimate
    typical = rms(found.value) or 1.0
    # An output without derivative or bar gives nothing to weigh by, nor do few bits much room.
    least = _LEAST if map_.resolution < measure.DOUBLE else _LEAST_OF_FEW_BITS
    size = xp.maximum(xp.abs(found.value), found.error / _SEEN)
    size = xp.where(size > least * typical, size, _LEAST_OF_FEW_BITS * typical)
    weight = 2.0 ** -xp.round(xp.log2(xp.where(xp.isfinite(size), size, typical)))
    vs = xp.stack([probes.cotangent(map_, seed, 0), probes.cotangent(map_, seed, 1) * weight])
    return xp.where(blurred[None, :], 0.0, vs)


def _where(mask: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in namespace(mask).nonzero(mask)[0])


def _strongest(at: Array, claimed: Array, measured: Array) -> tuple[int, ...]:
    """The rows under suspicion, largest gap first, NaN before all."""
    take = namespace(at).take
    gaps = abs(take(claimed, at) - take(measured, at))
    sizes = {int(i): float(gap) for i, gap in zip(at, gaps, strict=True)}
    return tuple(sorted(sizes, key=lambda i: -sizes[i] if sizes[i] == sizes[i] else -float("inf")))
