"""The same derivative where the function is smooth: at two neighbours of the point.

What may be claimed at a kink is a range, and at a jump anything: such a point certifies little.
A function is differentiable nearly everywhere beside it (Rademacher), and there a claim is right
or wrong. A neighbour is x (1 + 2^-6 xi), with |xi| between 1/2 and 3/2 and of random sign, and
x + 2^-6 s xi where x is zero in inputs of size s: far enough to leave ties behind, near enough to
stay in the region that the point was chosen for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from gradproof._checks._claims import Backward, Claim, Forward
from gradproof._checks._found import count
from gradproof._checks._kinks import BESIDE
from gradproof._map import DifferentiableMap, Unsupported
from gradproof._numerics import measure, probes
from gradproof._numerics.robust import finite
from gradproof._records import CheckResult, Finding, Kink, Verdict
from gradproof._settings import Settings
from gradproof._space import Array, namespace

_FAR = 2.0**-6
_COUNT = 2
_FIRST = 16  # number of the first tangent used here; the checks use the ones before
_TRIES = 4  # of a neighbour at which F has a value
_BETWEEN = "claims lie between the one-sided slopes; "

Judge = Callable[[DifferentiableMap, Settings, Claim], CheckResult]
_CLAIMS: dict[str, Callable[[DifferentiableMap, Settings], Claim]] = {
    "backward": Backward,
    "forward": Forward,
}


def confirm(
    map_: DifferentiableMap, settings: Settings, result: CheckResult, judge: Judge
) -> CheckResult:
    """The result at a point that is not smooth, as its neighbours confirm or refute it."""
    if not result.kinks or result.verdict is Verdict.FAILED or BESIDE in map_.memo:
        return result
    found: list[CheckResult] = []
    why = ""
    for number in range(_COUNT):
        try:
            beside = _beside(map_, settings, result.kinks, number)
        except Unsupported as missing:
            why = missing.reason
            break
        claim = _CLAIMS[result.name](beside, settings)
        found.append(judge(beside, settings, claim))
        if found[-1].verdict is Verdict.FAILED:
            return _refuted(result, found[-1])
    return _concluded(result, found, why)


def _beside(
    map_: DifferentiableMap, settings: Settings, kinks: tuple[Kink, ...], number: int
) -> DifferentiableMap:
    """The map at one neighbour. Unsupported where there is none."""
    xp = namespace(map_.point)
    move = _FAR * probes.tangent(map_, settings.seed or 0, _FIRST + number)
    known = xp.isfinite(measure.centre(map_).value)
    # Where F has no value on one side of an input, the neighbour lies on the other.
    away = {kink.input: kink for kink in kinks if kink.input is not None}
    for j in range(move.shape[0]) if _one_sided(kinks) else ():
        kink = away.get(map_.domain.locate(j))
        if kink is not None and math.isnan(kink.left) != math.isnan(kink.right):
            way = -1.0 if math.isnan(kink.right) else 1.0
            move = xp.where(xp.arange(move.shape[0]) == j, way * xp.abs(move), move)
    for attempt in range(_TRIES):
        x = map_.point + (move if attempt % 2 == 0 else -move) * 2.0 ** -(attempt // 2)
        if bool(xp.all(xp.isfinite(map_.value(x)) | ~known)):
            return _marked(map_, x)
    raise Unsupported("the function has no value at the neighbours tried")


def _marked(map_: DifferentiableMap, x: Array) -> DifferentiableMap:
    """The map at a neighbour, with the size of F on both sides of the point in its memo."""
    beside = map_.at(x)
    values = [measure.centre(map_).value, map_.value(x), map_.value(2 * map_.point - x)]
    beside.memo[BESIDE] = max(float(namespace(x).max(abs(finite(value)))) for value in values)
    return beside


def _one_sided(kinks: tuple[Kink, ...]) -> bool:
    return any(kink.kind in ("domain boundary", "infinite slope") for kink in kinks)


def _refuted(result: CheckResult, beside: CheckResult) -> CheckResult:
    findings: tuple[Finding, ...] = tuple(
        replace(finding, kind="neighbour", message=f"at a smooth neighbour: {finding.message}")
        for finding in beside.findings
    )
    return replace(
        result,
        verdict=Verdict.FAILED,
        summary=f"wrong at a smooth neighbour of the point: {beside.summary}",
        findings=findings,
        where=beside.where,
        causes=beside.causes,
        patch=beside.patch,
        curves=beside.curves,
    )


def _concluded(result: CheckResult, found: list[CheckResult], why: str) -> CheckResult:
    """What two neighbours that are not wrong leave of the result."""
    smooth = [one for one in found if one.verdict is Verdict.PASSED and not one.kinks]
    bare = f"not differentiable at {count(len(result.kinks), 'entry')}"
    if len(smooth) == _COUNT:
        known = [r for r in (result.resolution, *(one.resolution for one in smooth)) if r == r]
        bar = max(known, default=math.nan)
        between = "" if any(map(_is_convention, result.kinks)) else _BETWEEN
        note = f"{bare}; {between}verified at a smooth neighbour"
        summary = result.summary
        if result.verdict is Verdict.PASSED:
            there = "" if math.isnan(result.resolution) else "there and "
            finely = f"to {bar:.0e} " if bar > 0 else ""
            summary = f"{summary}; verified {finely}{there}at smooth neighbours"
        return replace(result, summary=summary, resolution=bar, notes=(*result.notes, note))
    if not why:
        doubtful = next(one for one in found if one not in smooth)
        why = doubtful.summary if not doubtful.kinks else "neither is a neighbour smooth"
    note = f"{bare}; not verified at a smooth neighbour: {why}"
    result = replace(result, notes=(*result.notes, note))
    if result.verdict is Verdict.PASSED and any(map(_is_convention, result.kinks)):
        summary = f"a claim where there is no slope is a convention, and {note}"
        return replace(result, verdict=Verdict.INCONCLUSIVE, summary=summary)
    return result


def _is_convention(kink: Kink) -> bool:
    """Whether the slopes at the point say nothing of the claim."""
    return kink.kind in ("jump", "infinite slope") or not kink.within
