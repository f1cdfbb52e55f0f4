"""Where exact derivatives come from, for a map in few bits: a map in double precision.

An oracle is believed on evidence only. That it computes in more bits shows in its measured noise;
that it is the same function, in its value; that its own derivative is right is the check's to
verify, by differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from gradproof._checks._unit_shown import unit_shown
from gradproof._map import DifferentiableMap, Unsupported
from gradproof._numerics import measure
from gradproof._numerics.compare import rms
from gradproof._settings import Settings
from gradproof._space import Array, Grain, namespace, positions

DERIVED = ("is a derivative",)  # key of the memo of a map that is
_FINER = 256.0  # how much finer than the claims an oracle must compute
_FEWER = 16.0  # times the unit round-off of the dtype: that is no rounding to its numbers
# Values may differ by rounding that the function magnifies, not by a tenth of their size.
_SAME_VALUE = 0.1
_BARS = 4.0
_ROUNDINGS = 2.0**14  # of its size that may lie between two ways to compute one value


@dataclass(frozen=True)
class Oracle:
    """A map whose derivative the claims of another are held against.

    Attributes:
        name: for the report.
        own: it is the function under test itself, so that a wrong derivative of it is a finding.
        map: at the same point; its `resolution` is what its noise shows.
        settings: with tolerances that it can meet.
        note: that its value, of another function, is not quite the same; "" where it is.
    """

    name: str
    own: bool
    map: DifferentiableMap
    settings: Settings
    note: str = ""


@dataclass(frozen=True)
class Oracles:
    """The trusted ones, in the order asked for, and why others are not.

    Attributes:
        unheard: why the reference that the user gave has not been asked; "" where it has.
    """

    trusted: tuple[Oracle, ...]
    refused: tuple[str, ...]
    unheard: str = ""


def of(map_: DifferentiableMap, settings: Settings) -> Oracles:
    """The oracles of a map beside differences in its own precision; worked out once."""
    key = ("oracles",)
    if key not in map_.memo:
        map_.memo[key] = _find(map_, settings)
    found: Oracles = map_.memo[key]
    return found


def known(map_: DifferentiableMap) -> list[DifferentiableMap]:
    """The maps of a map's oracles; none where it has not been asked for any."""
    if ("oracles",) not in map_.memo:
        return []
    return [oracle.map for oracle in map_.memo[("oracles",)].trusted]


def unheard(map_: DifferentiableMap) -> str:
    """Why the user's reference of a map has not been asked; "" where it has, or none was given."""
    found: Oracles | None = map_.memo.get(("oracles",))
    return found.unheard if found else ""


def forget(map_: DifferentiableMap) -> None:
    """Drop the measurements of a map's oracles."""
    for oracle in known(map_):
        measure.forget(oracle)


Derivative = Callable[[DifferentiableMap], DifferentiableMap]


def derivative(
    map_: DifferentiableMap, settings: Settings, differentiate: Derivative
) -> DifferentiableMap:
    """A derivative of the map that is a map, whose oracles are those of the map's own oracles."""
    made = differentiate(map_)
    made.memo[DERIVED] = True
    if map_.resolution <= measure.DOUBLE and settings.reference is None:
        return made
    found, refused, trusted = of(map_, settings), [], []
    for oracle in found.trusted:
        try:
            exact = differentiate(oracle.map)
        except Unsupported as missing:
            refused.append(f"{oracle.name}: {missing.reason}")
            continue
        exact.resolution = oracle.map.resolution
        trusted.append(replace(oracle, map=exact))
    made.memo[("oracles",)] = Oracles(tuple(trusted), (*found.refused, *refused), found.unheard)
    return made


def fewer_bits(map_: DifferentiableMap, oracle: Oracle, settings: Settings, grain: Grain) -> bool:
    """Whether the function computes in fewer bits than this grain; its resolution then says so.

    Two things must show it. Noise alone might be rounding that cancellation magnifies; then honest
    runs of the oracle in the same precision would be as far from its value as the function is. And
    distance alone might be another function.
    """
    measure.along(map_, settings, 0)
    exact, seed = measure.centre(oracle.map).value, settings.seed or 0
    try:
        rounded = [oracle.map.rounded(grain.unit, grain.tiny, seed + k) for k in range(2)]
    except Unsupported:
        return False
    honest = max(_distance(run.value(run.point), exact) for run in rounded)
    gap = _distance(measure.centre(map_).value, exact)
    unit = min(measure.resolution(map_), grain.unit * gap / honest if honest else 1.0)
    if unit <= _FEWER * grain.unit:
        return False
    measure.begin_again(map_, unit)
    return True


def in_fewer_bits(unit: float) -> str:
    """A note on a function that has shown this unit round-off."""
    return f"the function computes in {bits_of(unit)}, whatever the dtype of its arrays says"


def _distance(value: Array, exact: Array) -> float:
    """Root mean square of the difference, where both are finite."""
    xp = namespace(exact)
    return rms(xp.where(xp.isfinite(value) & xp.isfinite(exact), value - exact, 0.0))


def _find(map_: DifferentiableMap, settings: Settings) -> Oracles:
    trusted: list[Oracle] = []
    refused: list[str] = []
    unheard = ""
    for kind in settings.oracles:
        named = _candidate(map_, settings, kind)
        if named is None:
            continue
        name, candidate = named
        try:
            made = candidate()
            if kind == "reference":
                _require_finite(map_, made)
            found = _believed(map_, settings, made)
        except Unsupported as missing:
            refused.append(f"{name}: {missing.reason}")
            unheard = refused[-1] if kind == "reference" else unheard
            continue
        bits = "" if found.resolution < measure.DOUBLE else f", in {bits_of(found.resolution)}"
        own = kind == "double"
        finest = next((oracle.map for oracle in trusted), map_)
        note = "" if own else _value_off(name, finest, found)
        precision = settings.at_precision(found.resolution)
        trusted.append(Oracle(name + bits, own, found, precision, note))
    full = [oracle for oracle in trusted if oracle.map.resolution <= measure.DOUBLE]
    for oracle in trusted if full else ():
        if oracle not in full:  # its own differences resolve little, and cost much
            refused.append(f"{oracle.name}: another computes in more")
    return Oracles(tuple(full or trusted), tuple(refused), unheard)


def _candidate(
    map_: DifferentiableMap, settings: Settings, kind: str
) -> tuple[str, Callable[[], DifferentiableMap]] | None:
    if kind == "double" and map_.resolution > measure.DOUBLE:
        return "the same function in float64", map_.in_double
    if kind == "reference" and settings.reference is not None:
        reference = settings.reference
        written_in = getattr(reference, "framework", "")
        name = " ".join(filter(None, ("the", written_in, "reference in float64")))
        return name, lambda: map_.in_double(reference)
    return None


def bits_of(unit: float) -> str:
    """A unit round-off in words: 2^-53 is "about 53 bits"."""
    return f"about {max(1, round(-math.log2(unit)))} bits"


def _believed(
    map_: DifferentiableMap, settings: Settings, candidate: DifferentiableMap
) -> DifferentiableMap:
    """The candidate, with the resolution it shows. Unsupported where it cannot be trusted."""
    _require_same_value(map_, settings, candidate)
    unit = unit_shown(candidate, settings)
    if unit <= measure.DOUBLE:
        return candidate
    if unit > max(map_.resolution, measure.DOUBLE) / _FINER:
        raise Unsupported(f"it computes in {bits_of(unit)} inside")
    measure.begin_again(candidate, unit)
    return candidate


def _require_finite(map_: DifferentiableMap, candidate: DifferentiableMap) -> None:
    """Unsupported where a reference has no value, and the function under test has one."""
    ours, theirs = measure.centre(map_).value, measure.centre(candidate).value
    xp = namespace(ours)
    if missing := positions(xp.isfinite(ours) & ~xp.isfinite(theirs)):
        place, got = map_.codomain.locate(missing[0]), float(theirs[missing[0]])
        raise Unsupported(f"it returns another value: {place} is {got}")


def _require_same_value(
    map_: DifferentiableMap, settings: Settings, candidate: DifferentiableMap
) -> None:
    ours, theirs = measure.centre(map_).value, measure.centre(candidate).value
    xp = namespace(ours)
    usable = xp.isfinite(ours) & xp.isfinite(theirs)
    ours, theirs = xp.where(usable, ours, 0.0), xp.where(usable, theirs, 0.0)
    for position in range(len(map_.codomain.slots)):
        span = map_.codomain.span(position)
        gap, size = rms(ours[span] - theirs[span]), max(rms(ours[span]), rms(theirs[span]))
        if gap <= _SAME_VALUE * size:
            continue
        if gap > _BARS * _rounded_away(map_, settings, candidate, span):
            raise Unsupported(f"it returns another value: off by {gap / size:.2g} of its size")


def _value_off(name: str, finest: DifferentiableMap, found: DifferentiableMap) -> str:
    """A note where a reference returns another value by far more than either is rounded."""
    ours, theirs = measure.centre(finest).value, measure.centre(found).value
    gap, size = _distance(ours, theirs), rms(theirs)
    if gap <= _ROUNDINGS * max(finest.resolution, found.resolution) * size:
        return ""
    return f"the value of {name} is another, by {gap / size if size else gap:.2g} of its size"


def _rounded_away(
    map_: DifferentiableMap, settings: Settings, candidate: DifferentiableMap, span: slice
) -> float:
    """How far honest rounding moves the value: all of it where sin(300 x) is asked in 8 bits."""
    grains = [slot.grain for slot in (*map_.domain.slots, *map_.codomain.slots) if slot.size]
    grain = max(grains, key=lambda grain: grain.unit)
    exact = measure.centre(candidate).value
    try:
        rounded = candidate.rounded(grain.unit, grain.tiny, settings.seed or 0)
        return rms((rounded.value(candidate.point) - exact)[span])
    except Unsupported:
        return 0.0
