"""The same derivative where the function is smooth: at two neighbours of the point.

What may be claimed at a kink is a range, and at a jump anything: such a point certifies little.
A function is differentiable nearly everywhere beside it (Rademacher), and there a claim is right
or wrong. A neighbour is x (1 + 2^-6 xi), with |xi| between 1/2 and 3/2 and of random sign, and
x + 2^-6 s xi where x is zero in inputs of size s: far enough to leave ties behind, near enough to
stay in the region that the point was chosen for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from gradproof._data.records import CheckResult, Finding, Kink, Verdict
from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace
from gradproof._data.vectors import finite, rms
from gradproof._judge.claims import Backward, Claim, Forward
from gradproof._judge.found import count
from gradproof._judge.limiting_slopes import BESIDE
from gradproof._judge.outcome import inconclusive, passed
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import evaluate, probes, steps
from gradproof.errors import UsageError

_COUNT = 2
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
    move = probes.nearby(map_, settings.seed or 0, number, steps.SMOOTH) - map_.point
    known = xp.isfinite(evaluate.centre(map_).value)
    # Where F has no value on one side of an input, the neighbour lies on the other.
    away = {kink.input: kink for kink in kinks if kink.input is not None}
    for j in range(move.shape[0]) if _one_sided(kinks) else ():
        kink = away.get(map_.domain.locate(j))
        if kink is not None and math.isnan(kink.left) != math.isnan(kink.right):
            way = -1.0 if math.isnan(kink.right) else 1.0
            move = xp.where(xp.arange(move.shape[0]) == j, way * xp.abs(move), move)
    for attempt in range(_TRIES):
        x = map_.point + (move if attempt % 2 == 0 else -move) * 2.0 ** -(attempt // 2)
        if bool(xp.all(xp.isfinite(evaluate.value_at(map_, x)) | ~known)):
            return _marked(map_, x)
    raise Unsupported("the function has no value at the neighbours tried")


def _marked(map_: DifferentiableMap, x: Array) -> DifferentiableMap:
    """The map at a neighbour, with the size of F on both sides of the point in its memo."""
    beside = map_.at(x)
    values = [
        evaluate.centre(map_).value,
        evaluate.value_at(map_, x),
        evaluate.value_at(map_, 2 * map_.point - x),
    ]
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
        evidence=beside.evidence,
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


# A derivative of zero, of a function that stands still: looked for where it does not.
#
# Where a function does not vary at all as far as the steps reach, zero is measured and zero is
# claimed, and nothing was tested: relu of negative numbers, a clamp beyond its bounds, a floor.
# So it is asked again at two points further away, which differ from this one in the value or,
# better, in the slope. A claim that is right there too has been tested; that one is wrong there
# is said, and refutes nothing, for the function may not be made for such inputs.


# In the memo of a map that stands still: the reason given, and the error bar of its derivative.
_FLAT = ("flat",)

_FLAT_FIRST = 8  # number of the first nearby point used here
_NUDGES = 2.0**-4, 2.0**-10  # by which such a point is moved; where it slopes, F follows both
_FLAT_COUNT, _MOST = 2, 4  # points wanted, points asked

Verify = Callable[[DifferentiableMap, Settings], CheckResult]


@dataclass(frozen=True)
class _Elsewhere:
    """A point at which the function is not what it is at the one asked for.

    Attributes:
        x: the point.
        slope: by how much F changes there for a move of the size of the inputs; 0 where F stands
            still there as well.
        change: of F from one point to the other.
    """

    x: Array
    slope: float
    change: float


def standing_still(
    map_: DifferentiableMap, settings: Settings, check: str, bar: float
) -> CheckResult:
    """Nothing was tested, and the memo says so: other points may tell more.

    But for a derivative that is itself seen, and measured not to vary: that of a linear function.
    """
    first = rms(evaluate.centre(map_).value) if map_.derived else 0.0
    if first and bar <= settings.resolution * first:
        summary = f"zero to {bar:.0e}, claimed and measured, where the derivative is {first:.2g}"
        return passed(check, summary, resolution=bar / first)
    reason = (
        f"nothing was tested: claimed and measured are both zero to {bar:.0e} and the function "
        "does not vary"
    )
    map_.memo[_FLAT] = reason, bar
    return inconclusive(check, f"{reason}; choose a point where it does")


def elsewhere(
    map_: DifferentiableMap,
    settings: Settings,
    result: CheckResult,
    maps: Sequence[DifferentiableMap],
    verify: Verify,
) -> CheckResult:
    """The result, or what two other points say if nothing was tested at this one.

    Args:
        map_: under test.
        settings: of the run.
        result: of a check at the point.
        maps: the map and its oracles, one of which may have found that it stands still.
        verify: the same check at another point.
    """
    known = [one.memo[_FLAT] for one in maps if _FLAT in one.memo]
    told = [bar for reason, bar in known if reason in result.summary]
    if result.verdict is not Verdict.INCONCLUSIVE or not told or not map_.domain.size:
        return result
    points = [
        point
        for point in _points(map_, settings)
        if told[0] <= settings.resolution * (point.slope or point.change)
    ]
    found: list[CheckResult] = []
    for point in points[:_MOST]:
        try:
            found.append(verify(_there(map_, point), settings))
        except (Unsupported, UsageError):
            continue
        right = [one for one in found if one.verdict is Verdict.PASSED]
        if len(right) == _FLAT_COUNT or found[-1].verdict is Verdict.FAILED:
            break
    if not found and map_.derived and not rms(evaluate.centre(map_).value):
        summary = f"zero to {told[0]:.0e}, claimed and measured, here and at the other points tried"
        return passed(result.name, f"{summary}, as the derivative is")
    if not found:
        return replace(result, summary=f"{result.summary}, here or at the other points tried")
    return _concluded_elsewhere(result, found, told[0], slopes=bool(points[0].slope))


def _points(map_: DifferentiableMap, settings: Settings) -> list[_Elsewhere]:
    """Points where the function differs: those at which it has a slope, or else any."""
    xp, start = namespace(map_.point), evaluate.centre(map_)
    sloping: list[_Elsewhere] = []
    moved: list[_Elsewhere] = []
    nudges = [max(size, 16 * map_.resolution) for size in _NUDGES]
    for x, way in _tried(map_, settings):
        value = evaluate.value_at(map_, x)
        bends = [
            evaluate.value_at(map_, probes.on_grid(map_.domain, x + size * way)) - value
            for size in nudges
        ]
        if not all(bool(xp.all(xp.isfinite(each))) for each in (value, *bends)):
            continue
        noise = 4 * map_.resolution * xp.maximum(xp.abs(value), xp.abs(start.value)) + start.noise
        change = finite(value - start.value)
        if all(bool(xp.any(xp.abs(bend) > noise)) for bend in bends):
            sloping.append(_Elsewhere(x, rms(bends[0]) / nudges[0], rms(change)))
        elif bool(xp.any(xp.abs(change) > noise)):
            moved.append(_Elsewhere(x, 0.0, rms(change)))
        if len(sloping) == _MOST:
            break
    return sloping or moved


def _tried(map_: DifferentiableMap, settings: Settings) -> Iterator[tuple[Array, Array]]:
    """Points further and further away, then small ones; and a move from each."""
    seed = settings.seed or 0
    for number, far in enumerate(steps.FAR, start=_FLAT_FIRST):
        for radius in (far, -far):
            x = probes.nearby(map_, seed, number, radius)
            yield x, probes.scales(map_.domain, x)
    for number, size in enumerate(steps.SMALL, start=_FLAT_FIRST + len(steps.FAR)):
        x = probes.nearby(map_, seed, number, size, of_zero=True)
        yield x, probes.scales(map_.domain, x)


def _there(map_: DifferentiableMap, point: _Elsewhere) -> DifferentiableMap:
    """The map at the other point. Should it stand still there as well, it has been seen to vary."""
    beside = map_.at(point.x)
    beside.derived = map_.derived
    if point.change:
        beside.memo[BESIDE] = point.change
    return beside


def _concluded_elsewhere(
    result: CheckResult, found: list[CheckResult], bar: float, *, slopes: bool
) -> CheckResult:
    where = "where it varies" if slopes else "that it reaches by jumps, where it stands still too"
    right = [one for one in found if one.verdict is Verdict.PASSED]
    wrong = [one for one in found if one.verdict is Verdict.FAILED]
    if wrong or not right:
        first = (wrong or found)[0]
        seen = first.findings[0].message if first.findings else first.summary
        word = "is wrong there" if wrong else "is not decided there"
        summary = f"{result.summary}; at a point {where}, the derivative {word}: {seen}"
        return replace(result, summary=summary)
    places = "a point" if len(right) == 1 else f"{len(right)} points"
    summary = (
        f"zero to {bar:.0e}, claimed and measured, and the function stands still; at {places} "
        f"{where}: {right[0].summary}"
    )
    worst = max((one.resolution for one in right if one.resolution == one.resolution), default=0.0)
    return replace(right[0], summary=summary, resolution=worst)
