"""Where exact derivatives come from, for a map in few bits: a map in double precision.

An oracle is believed on evidence only. That it computes in more bits shows in its measured noise;
that it is the same function, in its value; that its own derivative is right is the check's to
verify, by differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from gradproof._checks import _values
from gradproof._checks._outcome import first_line
from gradproof._checks._unit_shown import unit_shown
from gradproof._checks._values import distance
from gradproof._map import DifferentiableMap, Unsupported
from gradproof._numerics import measure
from gradproof._settings import Settings
from gradproof._space import Grain
from gradproof.errors import UsageError

_FINER = 256.0  # how much finer than the claims an oracle must compute
_FEWER = 16.0  # times the unit round-off of the dtype: that is no rounding to its numbers


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


def answering(
    map_: DifferentiableMap, settings: Settings, ask: Callable[[Oracle], object]
) -> Oracles:
    """Those that have a derivative to ask for; one that raises is not trusted any more.

    A function may run in double precision where its derivative does not, having fixed the dtype
    of an argument. Where the function itself is Unsupported there, no precision has this
    derivative; what a reference lacks, the function need not.
    """
    found = of(map_, settings)
    lacking: dict[Oracle, str] = {}
    for oracle in found.trusted:
        try:
            ask(oracle)
        except (UsageError, MemoryError):
            raise
        except Unsupported as missing:
            if oracle.own:
                raise
            lacking[oracle] = f"{oracle.name}: {missing.reason}"
        except Exception as error:  # of the user's code, which may raise anything
            reason = _raised(oracle, error)
            trusted = tuple(one for one in found.trusted if one is not oracle)
            unheard = found.unheard if oracle.own else reason
            found = Oracles(trusted, (*found.refused, reason), unheard)
    map_.memo[("oracles",)] = found  # with those that lack this mode: they may have others
    trusted = tuple(oracle for oracle in found.trusted if oracle not in lacking)
    return Oracles(trusted, (*found.refused, *lacking.values()), found.unheard)


def _raised(oracle: Oracle, error: Exception) -> str:
    said = first_line(f"{type(error).__name__}: {error}")
    return f"{oracle.name}: its derivative raised {said}"


def known(map_: DifferentiableMap) -> list[DifferentiableMap]:
    """The maps of a map's oracles; none where it has not been asked for any."""
    if ("oracles",) not in map_.memo:
        return []
    return [oracle.map for oracle in map_.memo[("oracles",)].trusted]


def unheard(map_: DifferentiableMap) -> str:
    """Why the user's reference of a map has not been asked; "" where it has, or none was given."""
    found: Oracles | None = map_.memo.get(("oracles",))
    return found.unheard if found else ""


def another(map_: DifferentiableMap, settings: Settings) -> str:
    """That the value of the user's reference is another than the function's; "" where it is not.

    Asked once the claims were held against it: by then the function has shown in how many bits it
    computes.
    """
    finest = map_
    for oracle in of(map_, settings).trusted if settings.reference is not None else ():
        if not oracle.own:
            return _values.off(oracle.name, finest, oracle.map, settings)
        finest = oracle.map
    return ""


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
    made.derived = True
    if map_.resolution <= measure.DOUBLE and settings.reference is None:
        return made
    found, refused, trusted = of(map_, settings), [], []
    for oracle in found.trusted:
        try:
            exact = differentiate(oracle.map)
        except Unsupported as missing:
            refused.append(f"{oracle.name}: {missing.reason}")
            continue
        except (UsageError, MemoryError):
            raise
        except Exception as error:
            refused.append(_raised(oracle, error))
            continue
        exact.resolution, exact.derived = oracle.map.resolution, True
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
    honest = max(distance(run.value(run.point), exact) for run in rounded)
    gap = distance(measure.centre(map_).value, exact)
    unit = min(measure.resolution(map_), grain.unit * gap / honest if honest else 1.0)
    if unit <= _FEWER * grain.unit:
        return False
    measure.begin_again(map_, unit)
    return True


def in_fewer_bits(unit: float) -> str:
    """A note on a function that has shown this unit round-off."""
    return f"the function computes in {bits_of(unit)}, whatever the dtype of its arrays says"


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
                _values.require_finite(map_, made)
            found = _believed(map_, settings, made)
        except Unsupported as missing:
            refused.append(f"{name}: {missing.reason}")
            unheard = refused[-1] if kind == "reference" else unheard
            continue
        bits = "" if found.resolution < measure.DOUBLE else f", in {bits_of(found.resolution)}"
        own = kind == "double"
        precision = settings.at_precision(found.resolution)
        trusted.append(Oracle(name + bits, own, found, precision))
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
    candidate.derived = map_.derived
    _values.require_same(map_, settings, candidate)
    unit = unit_shown(candidate, settings)
    if unit <= measure.DOUBLE:
        return candidate
    if unit > max(map_.resolution, measure.DOUBLE) / _FINER:
        raise Unsupported(f"it computes in {bits_of(unit)} inside")
    measure.begin_again(candidate, unit)
    return candidate
