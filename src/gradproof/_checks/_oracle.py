"""Where exact derivatives come from, for a map in few bits: a map in double precision.

An oracle is believed on evidence only. That it computes in more bits shows in its measured noise;
that it is the same function, in its value; that its own derivative is right is the check's to
verify, by differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gradproof._map import DifferentiableMap, Unsupported
from gradproof._numerics import measure
from gradproof._numerics.compare import rms
from gradproof._settings import Settings
from gradproof._space import namespace

_FINER = 256.0  # how much finer than the claims an oracle must compute
# Values may differ by rounding that the function magnifies, not by a tenth of their size.
_SAME_VALUE = 0.1


@dataclass(frozen=True)
class Oracle:
    """A map whose derivative the claims of another are held against.

    Attributes:
        name: for the report.
        own: it is the function under test itself, so that a wrong derivative of it is a finding.
        map: at the same point; its `resolution` is what its noise shows.
        settings: with tolerances that it can meet.
    """

    name: str
    own: bool
    map: DifferentiableMap
    settings: Settings


@dataclass(frozen=True)
class Oracles:
    """The trusted ones, in the order asked for, and why others are not."""

    trusted: tuple[Oracle, ...]
    refused: tuple[str, ...]


def of(map_: DifferentiableMap, settings: Settings) -> Oracles:
    """The oracles of a map beside differences in its own precision; worked out once."""
    key = ("oracles",)
    if key not in map_.memo:
        map_.memo[key] = _find(map_, settings)
    found: Oracles = map_.memo[key]
    return found


def forget(map_: DifferentiableMap) -> None:
    """Drop the measurements of a map's oracles."""
    if ("oracles",) in map_.memo:
        for oracle in map_.memo[("oracles",)].trusted:
            measure.forget(oracle.map)


def _find(map_: DifferentiableMap, settings: Settings) -> Oracles:
    trusted: list[Oracle] = []
    refused: list[str] = []
    for kind in settings.oracles:
        made = _candidate(map_, settings, kind)
        if made is None:
            continue
        name, candidate = made
        try:
            found = _believed(map_, settings, candidate())
        except Unsupported as missing:
            refused.append(f"{name}: {missing.reason}")
            continue
        bits = "" if found.resolution < measure.DOUBLE else f", in {bits_of(found.resolution)}"
        own = kind == "double"
        trusted.append(Oracle(name + bits, own, found, settings.at_precision(found.resolution)))
    return Oracles(tuple(trusted), tuple(refused))


def _candidate(
    map_: DifferentiableMap, settings: Settings, kind: str
) -> tuple[str, Callable[[], DifferentiableMap]] | None:
    if kind == "double" and map_.resolution > measure.DOUBLE:
        return "the same function in float64", map_.in_double
    if kind == "reference" and settings.reference is not None:
        reference = settings.reference
        return "the reference in float64", lambda: map_.in_double(reference)
    return None


def bits_of(unit: float) -> str:
    """A unit round-off in words: 2^-53 is "about 53 bits"."""
    return f"about {max(1, round(-math.log2(unit)))} bits"


def _believed(
    map_: DifferentiableMap, settings: Settings, candidate: DifferentiableMap
) -> DifferentiableMap:
    """The candidate, with the resolution it shows. Unsupported where it cannot be trusted."""
    _require_same_value(map_, candidate)
    measure.along(candidate, settings, 0)
    unit = measure.resolution(candidate)
    if unit <= measure.DOUBLE:
        return candidate
    if unit > max(map_.resolution, measure.DOUBLE) / _FINER:
        raise Unsupported(f"it computes in {bits_of(unit)} inside")
    # Its differences need the steps of that precision; those made before are of no use.
    candidate.resolution = unit
    measure.forget(candidate)
    candidate.memo.pop(("resolution",), None)
    return candidate


def _require_same_value(map_: DifferentiableMap, candidate: DifferentiableMap) -> None:
    ours, theirs = measure.centre(map_).value, measure.centre(candidate).value
    xp = namespace(ours)
    usable = xp.isfinite(ours) & xp.isfinite(theirs)
    gap = rms(xp.where(usable, ours - theirs, 0.0))
    size = max(rms(xp.where(usable, theirs, 0.0)), rms(xp.where(usable, ours, 0.0)))
    if gap > _SAME_VALUE * size:
        raise Unsupported(f"it returns another value: off by {gap / size:.2g} of its size")
