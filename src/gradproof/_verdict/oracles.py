"""Whether a second map has the value of the first, up to what honest arithmetic would explain."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from gradproof._data.frames import raised
from gradproof._data.settings import Settings
from gradproof._data.space import Array, Grain, namespace, positions
from gradproof._data.vectors import finite, rms, sampled
from gradproof._judge.decide import BARS, half_the_digits
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import directional, evaluate, noise, probes, steps
from gradproof._measure.rounding import ROUNDABLE
from gradproof._measure.sizes import FEW_ULPS, MANY, ROUNDINGS, TRIES
from gradproof._measure.statistics import RUNS
from gradproof.errors import UsageError

# Values may differ by rounding that the function magnifies, not by a tenth of their size.
_SAME = 0.1


def distance(value: Array, exact: Array) -> float:
    """Root mean square of the difference, where both are finite."""
    xp = namespace(exact)
    return rms(xp.where(xp.isfinite(value) & xp.isfinite(exact), value - exact, 0.0))


def coarsest_dtype(map_: DifferentiableMap) -> Grain:
    """How coarsely the arrays of a function lie."""
    slots = (*map_.domain.slots, *map_.codomain.slots)
    grains = [slot.grain for slot in slots if slot.size]
    return max(grains, key=lambda grain: grain.unit, default=Grain())


def error_of_run(
    exact: DifferentiableMap,
    grain: Grain,
    seed: int | None,
    read: Callable[[DifferentiableMap], Array],
    expected: Array,
) -> Array:
    """What is read of a map, of which that is expected, errs by where each operation is rounded.

    The rounding is at random, or to nearest without a seed, in arithmetic of this grain.
    Unsupported where it cannot be asked.
    """
    unit = max(grain.unit, ROUNDABLE)
    run = exact.rounded(unit, grain.tiny, seed)
    return (read(run) - expected) * (grain.unit / unit)


def error_of_value(
    exact: DifferentiableMap,
    grain: Grain,
    settings: Settings,
    outputs: slice = slice(None),
    runs: int = 2,
) -> float | None:
    """How far so many honest runs move the value of a map; None where operations cannot be rounded.

    All of it, where sin(300 x) is asked in 8 bits.
    """
    value, seed = evaluate.centre(exact).value, settings.seed
    try:
        found = [
            error_of_run(exact, grain, seed + number, evaluate.call_again, value)[outputs]
            for number in range(runs)
        ]
    except Unsupported:
        return None
    return max(rms(finite(each)) for each in found)


def require_finite(map_: DifferentiableMap, candidate: DifferentiableMap) -> None:
    """Unsupported where a reference has no value, and the function under test has one."""
    ours, theirs = evaluate.centre(map_).value, evaluate.centre(candidate).value
    xp = namespace(ours)
    if missing := positions(xp.isfinite(ours) & ~xp.isfinite(theirs)):
        place, got = map_.codomain.locate(missing[0]), float(theirs[missing[0]])
        raise Unsupported(f"it returns another value: {place} is {got}")


def require_same(map_: DifferentiableMap, settings: Settings, candidate: DifferentiableMap) -> None:
    """Unsupported where the value of a candidate is off by more than a tenth of its size."""
    ours, theirs = evaluate.centre(map_).value, evaluate.centre(candidate).value
    xp = namespace(ours)
    usable = xp.isfinite(ours) & xp.isfinite(theirs)
    ours, theirs = xp.where(usable, ours, 0.0), xp.where(usable, theirs, 0.0)
    for position in range(len(map_.codomain.slots)):
        span = map_.codomain.span(position)
        gap, size = rms(ours[span] - theirs[span]), max(rms(ours[span]), rms(theirs[span]))
        if gap <= _SAME * size:
            continue
        # Where it jumps, as of x * x >= 2 a rounding below the root of 2, some runs alone do so.
        grain = coarsest_dtype(map_)
        if gap > BARS * (error_of_value(candidate, grain, settings, span, RUNS) or 0.0):
            raise Unsupported(f"it returns another value: off by {gap / size:.2g} of its size")


def off(name: str, finest: DifferentiableMap, found: DifferentiableMap, settings: Settings) -> str:
    """That a reference returns another value, by more than rounding explains; "" where it does.

    Or by more than the user accepts of a derivative.
    """
    ours, theirs = evaluate.centre(finest).value, evaluate.centre(found).value
    gap, size = distance(ours, theirs), rms(theirs)
    usual = max(map(half_the_digits, (finest, found)))
    if gap <= max(usual, settings.slack) * size:
        return ""
    return f"the value of {name} is another, by {gap / size if size else gap:.2g} of its size"


# In how many bits a function computes, whatever its arrays say: by its noise and its values.


def unit_shown(candidate: DifferentiableMap, settings: Settings, enough: float = math.inf) -> float:
    """Unit round-off that a function in double precision shows at its point.

    Where its values are numbers of a format with more than is `enough`, that one: noise could only
    say more.

    What the steps of one derivative tell of noise errs to the coarse side, by much where the
    function jumps or has few outputs, or where many numbers are tied: kinks look like noise. The
    finest of several estimates is believed, one of them a little beside the point, but none that is
    finer than the numbers that are its values.
    """
    known = max(candidate.resolution, directional.format_shown(candidate, settings))
    if known > enough:
        return known
    directional.along(candidate, settings, 0)
    found = max(directional.resolution(candidate), known)
    if found <= directional.DOUBLE:
        return found
    try:
        beside = candidate.at(probes.nearby(candidate, settings.seed, 0, steps.SMOOTH))
        directional.along(beside, settings, 0)
        found = min(found, max(known, directional.resolution(beside)))
    except (Unsupported, UsageError):  # there is no such point
        pass
    return min(found, max(known, _of_tables(candidate, settings)))


def _of_tables(candidate: DifferentiableMap, settings: Settings) -> float:
    """The largest that tables of differences tell; infinite where the function stands still.

    Stairs may fit the spacing of one table, and then look smooth in it; not of many outputs. A loss
    in 16 bits that is summed in float32 is for some seeds an oracle by this only.
    """
    count = TRIES if candidate.codomain.size <= MANY else 1
    tangents = [probes.tangent(candidate, settings.seed, k) for k in range(count)]
    tables = [noise.along(evaluate.function_of(candidate), candidate.point, u) for u in tangents]
    found = max(directional.typical_noise(candidate, sampled(table)) for table in tables)
    return found or math.inf


# Where exact derivatives come from, for a map in few bits: a map in double precision.
#
# An oracle is believed on evidence only. That it computes in more bits shows in its measured
# noise; that it is the same function, in its value; that its own derivative is right is the
# check's to verify, by differences.


@dataclass(frozen=True)
class Oracle:
    """A map whose derivative the claims of another are held against."""

    name: str  # for the report
    own: bool  # it is the function under test itself, so that a wrong derivative of it is a finding
    map: DifferentiableMap  # at the same point; its `resolution` is what its noise shows
    settings: Settings  # with tolerances that it can meet


@dataclass(frozen=True)
class Oracles:
    """The trusted ones, in the order asked for, and why others are not."""

    trusted: tuple[Oracle, ...]
    refused: tuple[str, ...]
    unheard: str = ""  # why the reference that the user gave has not been asked; "" where it has


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
    return f"{oracle.name}: its derivative raised {raised(error)}"


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
            return off(oracle.name, finest, oracle.map, settings)
        finest = oracle.map
    return ""


def reference(map_: DifferentiableMap, settings: Settings) -> Oracle:
    """The user's reference as it is, believed or not. Unsupported where it cannot be asked."""
    for oracle in of(map_, settings).trusted:
        if not oracle.own:
            return oracle
    named = _candidate(map_, settings, "reference")
    assert named is not None  # one was given
    name, candidate = named
    made = candidate()
    made.derived = map_.derived
    return Oracle(name, False, made, settings.at_precision(made.resolution))


def forget(map_: DifferentiableMap) -> None:
    """Drop the measurements of a map's oracles."""
    for oracle in known(map_):
        directional.forget(oracle)


Derivative = Callable[[DifferentiableMap], DifferentiableMap]


def derivative(
    map_: DifferentiableMap, settings: Settings, differentiate: Derivative
) -> DifferentiableMap:
    """A derivative of the map that is a map, whose oracles are those of the map's own oracles."""
    made = differentiate(map_)
    made.derived = True
    if map_.resolution <= directional.DOUBLE and settings.reference is None:
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
    directional.along(map_, settings, 0)
    honest = error_of_value(oracle.map, grain, settings)
    if honest is None:
        return False
    gap = distance(evaluate.centre(map_).value, evaluate.centre(oracle.map).value)
    unit = min(directional.resolution(map_), grain.unit * gap / honest if honest else 1.0)
    if unit <= ROUNDINGS * grain.unit:
        return False
    directional.begin_again(map_, unit)
    return True


def in_fewer_bits(unit: float) -> str:
    """A note on a function that has shown this unit round-off."""
    return f"the function computes in {bits_of(unit)}, whatever the dtype of its arrays says"


def _find(map_: DifferentiableMap, settings: Settings) -> Oracles:
    trusted: list[Oracle] = []
    refused: list[str] = []
    unheard = ""
    for kind in ("reference",) if settings.held_to_reference else settings.oracles:
        named = _candidate(map_, settings, kind)
        if named is None:
            continue
        name, candidate = named
        try:
            made = candidate()
            if kind == "reference":
                require_finite(map_, made)
            found = _believed(map_, settings, made)
        except Unsupported as missing:
            refused.append(f"{name}: {missing.reason}")
            unheard = refused[-1] if kind == "reference" else unheard
            continue
        bits = "" if found.resolution < directional.DOUBLE else f", in {bits_of(found.resolution)}"
        own = kind == "double"
        precision = settings.at_precision(found.resolution)
        trusted.append(Oracle(name + bits, own, found, precision))
    # The finest first: by it the others are measured.
    trusted.sort(key=lambda oracle: oracle.map.resolution > directional.DOUBLE)
    return Oracles(tuple(trusted), tuple(refused), unheard)


def _candidate(
    map_: DifferentiableMap, settings: Settings, kind: str
) -> tuple[str, Callable[[], DifferentiableMap]] | None:
    if kind == "double" and map_.resolution > directional.DOUBLE:
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
    candidate.derived = map_.derived
    require_same(map_, settings, candidate)
    if settings.trusted:
        return candidate
    # Its own roundings are then a part of one of the claims.
    enough = max(map_.resolution, directional.DOUBLE) / (ROUNDINGS * FEW_ULPS)
    unit = unit_shown(candidate, settings, enough)
    if unit <= directional.DOUBLE:
        return candidate
    if unit > enough:
        raise Unsupported(f"it computes in {bits_of(unit)} inside")
    directional.begin_again(candidate, unit)
    return candidate
