"""The same derivative where the function is smooth: at two neighbours of the point.

What may be claimed at a kink is a range, and at a jump anything: such a point certifies little.
A function is differentiable nearly everywhere beside it (Rademacher), and there a claim is right
or wrong. A neighbour is x (1 + 2^-6 xi), with |xi| between 1/2 and 3/2 and of random sign, and
x + 2^-6 s xi where x is zero in inputs of size s: far enough to leave ties behind, near enough to
stay in the region that the point was chosen for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gradproof._data.records import Kink
from gradproof._data.settings import DOUBLE, Settings
from gradproof._data.space import Array, namespace
from gradproof._data.vectors import finite, rms
from gradproof._judge.claims import Claim
from gradproof._judge.limiting_slopes import BESIDE
from gradproof._judge.opinion import Opinion
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import evaluate, probes, steps
from gradproof._measure.sizes import DRAWS, MANY
from gradproof._verdict.conclude import NEIGHBOURS, Elsewhere, Evidence, merged
from gradproof.errors import UsageError


def neighbours(
    claim: Claim, kinks: tuple[Kink, ...], look: Callable[[Claim], Opinion]
) -> tuple[tuple[Opinion, ...], str]:
    """What is seen at neighbours of a point that is not smooth; and why at fewer of them.

    One that refutes the claims is enough, where steps too short to meet another kink do so too.
    """
    found: list[Opinion] = []
    map_, settings = claim.map, claim.settings
    for number in range(NEIGHBOURS):
        try:
            said = look(claim.of(_beside(map_, settings, kinks, number), settings))
            if said.findings:
                near = _beside(map_, settings, kinks, number)
                again = look(claim.of(near, _within_draws(near, settings)))
                said = said if again.findings else again
        except Unsupported as missing:
            return tuple(found), missing.reason
        found.append(said)
        if said.findings:
            break
    return tuple(found), ""


def _beside(
    map_: DifferentiableMap, settings: Settings, kinks: tuple[Kink, ...], number: int
) -> DifferentiableMap:
    """The map at one neighbour. Unsupported where there is none."""
    xp = namespace(map_.point)
    # Every second one lies opposite: of a hinge that two draws meet where it is flat nothing shows.
    radius = steps.SMOOTH * (-1) ** number
    move = probes.nearby(map_, settings.seed, number // 2, radius) - map_.point
    known = xp.isfinite(evaluate.centre(map_).value)
    # Where F has no value on one side of an input, the neighbour lies on the other: random moves
    # from several roots at zero would mostly leave the domain of one.
    away = {kink.input: kink for kink in kinks if kink.input is not None}
    for j in range(move.shape[0]) if _one_sided(kinks) else ():
        kink = away.get(map_.domain.locate(j))
        if kink is not None and math.isnan(kink.left) != math.isnan(kink.right):
            way = -1.0 if math.isnan(kink.right) else 1.0
            move = xp.where(xp.arange(move.shape[0]) == j, way * xp.abs(move), move)
    for attempt in range(DRAWS):
        x = map_.point + (move if attempt % 2 == 0 else -move) * 2.0 ** -(attempt // 2)
        if bool(xp.all(xp.isfinite(evaluate.value_at(map_, x)) | ~known)):
            return _marked(map_, x)
    raise Unsupported("the function has no value at the neighbours tried")


def _within_draws(beside: DifferentiableMap, settings: Settings) -> Settings:
    """Settings with steps shorter than the least distance of two draws, in double precision.

    Inputs that were tied lie that far apart at a neighbour, and F may have a kink between them.
    """
    if settings.largest_step is not None or beside.resolution > DOUBLE:
        return settings
    scale = float(namespace(beside.point).min(probes.scales_of(beside)))
    return replace(settings, largest_step=steps.SMOOTH * probes.GRAIN / 4 * scale)


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


# A derivative of zero, of a function that stands still: looked for where it does not.
#
# Where a function does not vary at all as far as the steps reach, zero is measured and zero is
# claimed, and nothing was tested: relu of negative numbers, a clamp beyond its bounds, a floor.
# So it is asked again at two points further away, which differ from this one in the value or,
# better, in the slope. A claim that is right there too has been tested; that one is wrong there
# is said, and refutes nothing, for the function may not be made for such inputs.


@dataclass(frozen=True)
class _Elsewhere:
    """A point at which the function is not what it is at the one asked for."""

    x: Array  # the point
    # By how much F changes there for a move of the size of the inputs; 0 where F stands still there
    # as well.
    slope: float
    change: float  # of F from one point to the other


def elsewhere(claim: Claim, here: Opinion, gather: Callable[[Claim], Evidence]) -> Elsewhere:
    """What two other points say of claims that are flat `here`, of all outputs or of some."""
    map_, settings = claim.map, claim.settings
    points = [
        point
        for point in _points(map_, settings, here)
        if (here.flat or 0.0) <= settings.resolution * (point.slope or point.change)
    ]
    found: list[Evidence] = []
    for point in points[:DRAWS]:
        try:
            found.append(gather(claim.of(_there(map_, point), settings)))
        except (Unsupported, UsageError):
            continue
        right = [one for one in found if merged(one).verified]
        if len(right) == NEIGHBOURS or merged(found[-1]).findings:
            break
    zero = map_.derived and not rms(evaluate.centre(map_).value)
    return Elsewhere(tuple(found), slopes=bool(points and points[0].slope), zero=zero)


def _points(map_: DifferentiableMap, settings: Settings, here: Opinion) -> list[_Elsewhere]:
    """Points where what is flat differs: those at which it has a slope, or else any."""
    xp, start = namespace(map_.point), evaluate.centre(map_)
    of = xp.asarray(list(here.outputs)) if here.outputs else slice(None)
    sloping: list[_Elsewhere] = []
    moved: list[_Elsewhere] = []
    # Where it slopes, F follows both.
    nudges = [max(size, 16 * map_.resolution) for size in (steps.SMOOTH, steps.TIE)]
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
        slope, jump = rms(bends[0][of]) / nudges[0], rms(change[of])
        if all(bool(xp.any((xp.abs(bend) > noise)[of])) for bend in bends):
            sloping.append(_Elsewhere(x, slope, jump))
        elif bool(xp.any((xp.abs(change) > noise)[of])):
            moved.append(_Elsewhere(x, 0.0, jump))
        if len(sloping) == DRAWS:
            break
    return sloping or moved


def _tried(map_: DifferentiableMap, settings: Settings) -> Iterator[tuple[Array, Array]]:
    """Points further and further away, then small ones; and a move from each."""
    seed = settings.seed
    for number, far in enumerate(steps.FAR, start=MANY):  # others are `neighbours`
        for radius in (far, -far):
            x = probes.nearby(map_, seed, number, radius)
            yield x, probes.scales(map_.domain, x)
    for number, size in enumerate(steps.SMALL, start=MANY + len(steps.FAR)):
        x = probes.nearby(map_, seed, number, size, of_zero=True)
        yield x, probes.scales(map_.domain, x)


def _there(map_: DifferentiableMap, point: _Elsewhere) -> DifferentiableMap:
    """The map at the other point. Should it stand still there as well, it has been seen to vary."""
    beside = map_.at(point.x)
    beside.derived = map_.derived
    if point.change:
        beside.memo[BESIDE] = point.change
    return beside
