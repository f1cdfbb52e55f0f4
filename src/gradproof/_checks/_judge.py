"""Screen, localise, confirm: one claimed Jacobian against one measured.

The screen compares along a random tangent, as tightly as the error bars allow. Only what it
suspects, or cannot resolve, is looked at entry by entry, and only entries are judged by the
user's tolerances: the verdict means what the full Jacobian compared entry by entry would mean.
"""

from __future__ import annotations

from dataclasses import dataclass

from array_api_compat import array_namespace

from gradproof._checks import _entries, _search
from gradproof._checks._claims import Claim, gradient
from gradproof._checks._outcome import inconclusive, passed
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure, probes
from gradproof._numerics.compare import rms, within
from gradproof._records import CheckResult
from gradproof._settings import Settings
from gradproof._space import Array

# A gap this small beside the row's own derivative is never looked into: rounding of the backward.
_QUIET = 1e-9
_ROUNDING = 64.0  # likewise, in units of the resolution
_BARS = 4.0  # error bars of distance at which a suspicion is worth more calls
_SHARP = 1e-5  # a bar below this part of the derivative needs no second look
_FAINT = 1e-7  # nor one below this part of the size of all outputs' derivatives


@dataclass(frozen=True)
class Screen:
    """What one random tangent says of every row.

    Attributes:
        suspects: rows whose gap is worth a look, strongest first.
        blurred: rows whose error bar is too wide to see a wrong entry.
        projected: a projection, not a row, disagrees; `suspects` is then unknown.
        resolution: largest error bar in parts of the derivative, over the other rows.
        empty: neither claimed nor measured is above what can be resolved, anywhere.
    """

    suspects: tuple[int, ...]
    blurred: tuple[int, ...]
    projected: bool
    resolution: float
    empty: bool


def judge(map_: DifferentiableMap, settings: Settings, claim: Claim) -> CheckResult:
    """Verdict on the Jacobian that `claim` claims."""
    if map_.domain.size == 0 or map_.codomain.size == 0:
        return passed(claim.check, "nothing to check: no input or no output has an entry")
    screen = look(map_, settings, claim)
    if not (screen.suspects or screen.blurred or screen.projected):
        return _clean(map_, settings, claim, screen)
    if map_.domain.size <= settings.full_jacobian:
        return _entries.settle(map_, settings, claim, screen.suspects + screen.blurred)
    if screen.suspects or screen.projected:
        return _search.locate(map_, settings, claim, screen.suspects)
    return _blurred(map_, claim, screen)


def look(map_: DifferentiableMap, settings: Settings, claim: Claim) -> Screen:
    """The screen: one ladder, and the claimed derivative along its tangent."""
    first = measure.along(map_, settings, 0)
    found = first.estimate
    claimed = claim.along(first.direction)
    xp = array_namespace(found.value)
    size = rms(found.value)
    blurred = ~within(found.error, _sharp(map_, settings, found.value, size))
    if claimed is None:
        projected = _projections_disagree(map_, settings, claim, blurred)
        suspects: tuple[int, ...] = ()
        largest = size
    else:
        projected = False
        gap = xp.abs(claimed - found.value)
        quiet = max(_QUIET, _ROUNDING * map_.resolution) * xp.abs(found.value)
        quiet = quiet + _ROUNDING * map_.resolution * size
        suspects = _strongest(~within(gap, _BARS * found.error + quiet), gap)
        largest = max(size, rms(claimed))
    rows = tuple(int(i) for i in xp.nonzero(blurred)[0])
    scale = xp.maximum(xp.abs(found.value), xp.asarray(size if size else 1.0))
    sharp = xp.where(blurred, 0.0, found.error / scale)
    return Screen(suspects, rows, projected, float(xp.max(sharp)), largest == 0.0)


def _sharp(map_: DifferentiableMap, settings: Settings, value: Array, size: float) -> Array:
    """Error bars up to which a row counts as seen.

    In parts of the row's derivative; a row whose derivative is nothing beside the others' counts
    as seen when its bar is small beside theirs. With an absolute tolerance the bar has to show a gap of that size
    in any single entry, the smallest tangent entry included.
    """
    xp = array_namespace(value)
    if map_.domain.size > settings.full_jacobian:  # no second look at every entry
        return settings.resolution * xp.abs(value) + _FAINT * size
    sharp = _SHARP if map_.resolution < measure.DOUBLE else 0.5 * settings.rtol
    bar = sharp * xp.abs(value) + max(_FAINT, 4 * map_.resolution) * size
    if settings.atol and settings.classic_step:
        smallest = 0.5 * float(xp.min(probes.scales_of(map_)))
        bar = xp.minimum(bar, 0.5 * (settings.atol * smallest + settings.rtol * xp.abs(value)))
        bar = xp.maximum(bar, xp.full_like(bar, 0.25 * settings.atol * smallest))
    return bar


def _strongest(suspect: Array, gap: Array) -> tuple[int, ...]:
    xp = array_namespace(gap)
    rows = [int(i) for i in xp.nonzero(suspect)[0]]
    sizes = {i: float(gap[i]) for i in rows[:100_000]}
    # NaN first: it is the worst gap there is.
    return tuple(
        sorted(
            rows,
            key=lambda i: (
                (-1.0, 0.0) if sizes.get(i, 0.0) != sizes.get(i, 0.0) else (0.0, -sizes.get(i, 0.0))
            ),
        )
    )


def _projections_disagree(
    map_: DifferentiableMap, settings: Settings, claim: Claim, blurred: Array
) -> bool:
    """Whether v.(J u) measured and (J^T v).u claimed differ for any of two v and two u.

    One cotangent weighs every output by one over its derivative, so that small rows count.
    """
    xp = array_namespace(blurred)
    seed = settings.seed or 0
    first = measure.along(map_, settings, 0)
    size = xp.abs(first.estimate.value)
    typical = rms(first.estimate.value) or 1.0
    weight = 2.0 ** -xp.round(xp.log2(xp.maximum(size, xp.asarray(1e-3 * typical))))
    vs = [probes.cotangent(map_, seed, 0), probes.cotangent(map_, seed, 1) * weight]
    vs = [xp.where(blurred, 0.0, v) for v in vs]
    shared = not bool(xp.any(blurred))
    gradients = [gradient(map_, settings, 0) if shared else claim.project(vs[0])]
    gradients.append(claim.project(vs[1]))
    for number in (0, 1):
        tangent = measure.along(map_, settings, number)
        found = tangent.ladder.estimate(xp.stack(vs))
        for k, (v, pulled) in enumerate(zip(vs, gradients, strict=True)):
            assert pulled is not None  # only a mode that projects lacks whole tangents
            claimed = (pulled * tangent.direction).sum()
            spread = float(((v * tangent.estimate.value) ** 2).sum()) ** 0.5
            total = float(abs(pulled * tangent.direction).sum())
            quiet = 1e-10 * spread + _ROUNDING * map_.resolution * total
            if not within(abs(claimed - found.value[k]), _BARS * found.error[k] + quiet):
                return True
    return False


def _clean(
    map_: DifferentiableMap, settings: Settings, claim: Claim, screen: Screen
) -> CheckResult:
    if screen.empty and not settings.classic_step:
        return inconclusive(
            claim.check,
            "nothing was tested: claimed and measured are both zero everywhere; "
            "choose a point where the function varies",
        )
    return passed(
        claim.check,
        f"{map_.codomain.size:,} x {map_.domain.size:,} Jacobian verified to {screen.resolution:.0e}",
        resolution=screen.resolution,
    )


def _blurred(map_: DifferentiableMap, claim: Claim, screen: Screen) -> CheckResult:
    place = map_.codomain.locate(screen.blurred[0])
    return inconclusive(
        claim.check,
        f"{len(screen.blurred):,} of {map_.codomain.size:,} outputs could not be resolved, "
        f"{place} first; the others agree to {screen.resolution:.0e}",
        resolution=screen.resolution,
    )
