"""Differences in the precision of the map itself, and what they cannot tell."""

from __future__ import annotations

from dataclasses import replace

from gradproof._checks._claims import Claim, gradient
from gradproof._checks._judge import judge
from gradproof._checks._oracle import bits_of, in_fewer_bits
from gradproof._checks._outcome import failed, inconclusive
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure, probes
from gradproof._numerics.compare import rms, within
from gradproof._records import CheckResult, Finding, Verdict
from gradproof._settings import Settings
from gradproof._space import dot, namespace

_COARSE = 1e-6  # unit round-off above which differences resolve no single entry
_RANDOM = 0.05  # of the value: runs that differ by more are no rounding
_NOISY = 64.0  # likewise, in units of the precision
_BARS = 4.0
_FEWER = ("computes in fewer bits",)  # key of the memo


def unsteady(map_: DifferentiableMap) -> str:
    """Why nothing can be measured of a function that changes its value at random; "" if not."""
    centre = measure.centre(map_)
    if centre.repeats:
        return ""
    size = rms(centre.value)
    part = rms(centre.noise) / size if size else float("inf")
    if part <= max(_RANDOM, _NOISY * map_.resolution):
        return ""
    return (
        f"the function returns another value every time: two runs at the same input differ by "
        f"{part:.0%}; fix its random state"
    )


def differences(map_: DifferentiableMap, settings: Settings, claim: Claim) -> CheckResult:
    """Verdict by differences, with what they cannot tell."""
    notes: tuple[str, ...] = ()
    if map_.domain.size and map_.codomain.size:
        unit = measure.format_shown(map_, settings)
        if unit > map_.resolution:
            measure.begin_again(map_, unit)
            map_.memo[_FEWER] = True
        if _FEWER in map_.memo:
            settings = settings.at_precision(map_.resolution)
            notes = (in_fewer_bits(map_.resolution),)
    result = judge(map_, settings, claim)
    if result.verdict is Verdict.INCONCLUSIVE and map_.resolution > _COARSE:
        result = _aligned(map_, settings, claim, result)
    result = replace(result, oracle=_named(map_), notes=(*result.notes, *notes))
    return tested(map_, settings, claim, result)


def _named(map_: DifferentiableMap) -> str:
    return f"differences in {bits_of(map_.resolution)}"


def _aligned(
    map_: DifferentiableMap, settings: Settings, claim: Claim, result: CheckResult
) -> CheckResult:
    """The one sum that few bits resolve best: along u = sign(J^T v), where all terms are positive.

    It shows an error that all entries have in common, and is blind to any other.
    """
    xp = namespace(map_.point)
    v = probes.cotangent(map_, settings.seed or 0, 0)
    claimed_gradient = gradient(map_, settings, 0)
    u = xp.sign(claimed_gradient) * probes.scales_of(map_)
    if not bool(xp.any(u != 0)):
        return result
    along = measure.direction_of(map_, settings, u)
    assert along.ladder is not None  # kept, since nothing was said against it
    found = along.ladder.of_functionals(v[None, :])
    claimed, value, bar = dot(claimed_gradient, u), float(found.value[0]), float(found.error[0])
    allowed = _BARS * (bar + map_.resolution * abs(claimed))
    if not bar < float("inf"):
        return result
    if not within(abs(claimed - value), allowed):
        message = (
            f"along the sign of the gradient the outputs change by {value:.4g} +- {bar:.1g}, "
            f"claimed is {claimed:.4g}; allowed {allowed:.2g}"
        )
        finding = Finding(claim.check, message, "aligned", None, None, claimed, value, bar, allowed)
        return failed(
            claim.check,
            "the sum of all entries is wrong",
            (finding,),
            notes=result.notes,
        )
    part = allowed / abs(claimed)
    reason = f"only the sum of all entries is resolved, to {part:.0%}: {result.summary}"
    return replace(result, summary=reason, resolution=part)


def tested(
    map_: DifferentiableMap, settings: Settings, claim: Claim, result: CheckResult
) -> CheckResult:
    """The result; inconclusive where it passed and an input has nothing to do with the outputs."""
    if result.verdict is not Verdict.PASSED or settings.classic_step:
        return result
    if claim.check != "backward" or map_.derived:
        return result
    for position in map_.unreached():
        slot = map_.domain.slots[position]
        if slot.size and not _varies(map_, settings, map_.domain.span(position)):
            reason = (
                f"nothing was tested of {slot.name}: no output depends on it; the rest: "
                f"{result.summary}"
            )
            return replace(inconclusive(claim.check, reason), oracle=result.oracle)
    return result


def _varies(map_: DifferentiableMap, settings: Settings, span: slice) -> bool:
    """Whether a large move of some inputs alone changes any output."""
    xp = namespace(map_.point)
    index = xp.arange(map_.domain.size)
    inside = (index >= span.start) & (index < span.stop)
    move = xp.where(inside, probes.tangent(map_, settings.seed or 0, 0), 0.0)
    start = measure.centre(map_)
    step = measure.plan(map_, settings).top
    for way in (step, -step):
        change = xp.abs(map_.value(map_.point + way * move) - start.value)
        if bool(xp.any(~(change <= start.noise))):
            return True
    return False
