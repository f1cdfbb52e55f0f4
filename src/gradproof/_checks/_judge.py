"""Screen, localise, confirm: one claimed Jacobian against one measured.

The screen compares along a random tangent, as tightly as the error bars allow. Only what it
suspects, or cannot resolve, is looked at entry by entry, and only entries are judged by the
user's tolerances: the verdict means what the full Jacobian compared entry by entry would mean.
"""

from __future__ import annotations

from gradproof._checks import _entries, _search
from gradproof._checks._claims import Claim, gradient
from gradproof._checks._gradients import differences as gradient_findings
from gradproof._checks._outcome import failed, inconclusive, passed
from gradproof._checks._screen import Screen, allowance, sharp
from gradproof._explain.localise import MANY
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure, probes
from gradproof._numerics.compare import rms, within
from gradproof._records import CheckResult
from gradproof._settings import Settings
from gradproof._space import Array, dot, namespace


def judge(map_: DifferentiableMap, settings: Settings, claim: Claim) -> CheckResult:
    """Verdict on the Jacobian that `claim` claims."""
    if map_.domain.size == 0 or map_.codomain.size == 0:
        return _without_entries(map_, settings, claim)
    screen = look(map_, settings, claim)
    if screen.blurred and not screen.suspicious:
        measure.sharpen(map_, settings, screen.blurred)
        screen = look(map_, settings, claim)
    if screen.empty and not settings.classic_step:
        return inconclusive(
            claim.check,
            "nothing was tested: claimed and measured are both zero to "
            f"{screen.bar:.0e} and the function does not vary; choose a point where it does",
        )
    if screen.suspicious or screen.blurred:
        if map_.domain.size <= settings.full_jacobian:
            return _entries.settle(map_, settings, claim, screen.suspects + screen.blurred)
        return _search.locate(map_, settings, claim, screen)
    return passed(
        claim.check,
        f"{map_.codomain.size:,} x {map_.domain.size:,} Jacobian verified to "
        f"{screen.resolution:.0e}",
        resolution=screen.resolution,
    )


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
    direction = probes.tangent(map_, settings.seed or 0, 0)
    # Of a large map the claim comes first: its graph would stand beside a ladder in memory.
    early = claim.along(direction) if map_.codomain.size > measure.KEPT else None
    first = measure.along(map_, settings, 0)
    claimed = claim.along(direction) if early is None else early
    if claimed is None:
        return _projected(map_, settings, claim)
    found = first.estimate
    xp = namespace(found.value)
    size = max(rms(found.value), rms(claimed))
    blurred = ~within(found.error, sharp(map_, settings, found.value, size))
    gap = xp.abs(claimed - found.value)
    suspect = xp.isfinite(found.error) & ~within(gap, allowance(map_, found, size))
    return Screen(
        suspects=_strongest(suspect, gap),
        blurred=_where(blurred),
        projected=None,
        resolution=_resolution(found.error, found.value, blurred, size),
        bar=_largest(found.error),
        empty=_empty(claimed, first),
    )


def _projected(map_: DifferentiableMap, settings: Settings, claim: Claim) -> Screen:
    """The screen where only v.(J u) and (J^T v).u can be compared: two v and two u."""
    first = measure.along(map_, settings, 0)
    found = first.estimate
    pulled = gradient(map_, settings, 0) * first.direction
    # v.(J u) of m outputs of one size is sqrt(m) of it, and so is (J^T v).u.
    size = max(rms(found.value), rms(pulled) * (pulled.shape[0] / found.value.shape[0]) ** 0.5)
    blurred = ~within(found.error, sharp(map_, settings, found.value, size))
    projected, bar = _projections(map_, settings, claim, blurred)
    rows = _resolution(found.error, found.value, blurred, size)
    return Screen(
        suspects=_blurred_suspects(map_, settings, claim, _where(blurred), size),
        blurred=_where(blurred),
        projected=projected,
        resolution=max(rows, bar / size) if size else rows,
        bar=max(_largest(found.error), bar),
        empty=projected is None and _empty(pulled, first),
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
    allowed = allowance(map_, found, size)
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
) -> tuple[int | None, float]:
    """The tangent with which a projection disagrees, if any; and the smallest bar.

    A wrong entry shows in each of the four, so the sharpest one counts.

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
            claimed = dot(back, tangent.direction)
            size = rms(vs[k, :] * spread) * spread.shape[0] ** 0.5
            quiet = 1e-10 * size + 64 * map_.resolution * dot(abs(back), abs(tangent.direction))
            allowed = 4 * float(found.error[k]) + quiet
            bars.append(allowed)
            if not within(abs(claimed - float(found.value[k])), allowed):
                return number, min(bars)
    return None, min(bars)


def _cotangents(map_: DifferentiableMap, settings: Settings, blurred: Array) -> Array:
    xp = namespace(blurred)
    seed = settings.seed or 0
    found = measure.along(map_, settings, 0).estimate
    typical = rms(found.value) or 1.0
    size = xp.maximum(xp.abs(found.value), xp.asarray(1e-3 * typical))
    weight = 2.0 ** -xp.round(xp.log2(xp.where(xp.isfinite(size), size, typical)))
    vs = xp.stack([probes.cotangent(map_, seed, 0), probes.cotangent(map_, seed, 1) * weight])
    return xp.where(blurred[None, :], 0.0, vs)


def _where(mask: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in namespace(mask).nonzero(mask)[0])


def _strongest(suspect: Array, gap: Array) -> tuple[int, ...]:
    """The rows under suspicion, largest gap first, NaN before all."""
    rows = _where(suspect)
    sizes = {i: float(gap[i]) for i in rows}
    return tuple(sorted(rows, key=lambda i: -sizes[i] if sizes[i] == sizes[i] else -float("inf")))


def _largest(values: Array) -> float:
    xp = namespace(values)
    return float(xp.max(xp.where(xp.isfinite(values), values, 0.0)))


def _resolution(error: Array, value: Array, blurred: Array, size: float) -> float:
    """Largest error bar of the rows seen, in parts of their derivative."""
    xp = namespace(error)
    if not size:
        return 0.0
    scale = xp.maximum(xp.abs(value), xp.asarray(size))
    return float(xp.max(xp.where(blurred, 0.0, error / scale)))


def _empty(claimed: Array, measured: measure.Measurement) -> bool:
    """Whether neither claimed nor measured is above its error bar in any row.

    Where the function varies, a derivative of zero is one like any other: the point is stationary.
    At a kink the bar is the half-gap of two slopes, of which one may be zero: not nothing either.
    """
    found = measured.estimate
    xp = namespace(found.value)
    if measured.varies or not bool(xp.all(xp.isfinite(found.error))):
        return False
    bar = 4 * (found.error - xp.minimum(found.kink, found.error))
    if bool(xp.any(xp.abs(found.value) > bar)):
        return False
    if claimed.shape[0] != bar.shape[0]:
        return not bool(xp.any(claimed != 0))
    return bool(xp.all(xp.abs(claimed) <= bar))
