"""A claimed derivative in few bits against the exact one of an oracle, by statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradproof._checks._oracle import Oracle
from gradproof._map import DifferentiableMap, Unsupported
from gradproof._numerics import probes
from gradproof._numerics.statistics import (
    RUNS,
    Measured,
    Samples,
    refuted,
    statistics,
)
from gradproof._records import Finding, Statistic
from gradproof._settings import Settings
from gradproof._space import Array, Grain, Space, namespace

_ENTRIES = 256  # of each array, over the probes, where they are cheap
_MOST_PROBES = 4
_LONG = 1 << 16  # coordinates from which one probe and a few runs must do
_NEAR = 2.0**-6  # of a move: a smooth derivative changes by as much less
_LINEAR = 8.0  # times as much as that is no smooth change
_UNRESOLVED = 0.25  # of the derivative: more than that in doubt tells nothing

Pull = Callable[[DifferentiableMap, Array], Array]


@dataclass(frozen=True)
class Precision:
    """What the comparison says.

    Attributes:
        statistics: a table, for the report.
        findings: one per array that is off by more than rounding explains.
        resolution: largest factor on a whole array that would have been accepted.
        unresolved: why the precision tells too little; "" where it does not.
    """

    statistics: tuple[Statistic, ...]
    findings: tuple[Finding, ...]
    resolution: float
    unresolved: str


@dataclass(frozen=True)
class Mode:
    """One mode of differentiation: what it is asked at, and in which space it answers."""

    check: str
    what: str  # "gradient of" or "tangent of"
    pull: Pull
    probes: list[Array]
    space: Space


def backward(map_: DifferentiableMap, settings: Settings) -> Mode:
    """J^T v for a few cotangents that the precision can represent."""
    seed = settings.seed or 0
    made = [
        _on_grid(map_.codomain, probes.cotangent(map_, seed, number))
        for number in range(_count(map_.domain))
    ]
    return Mode("backward", "gradient of", lambda m, v: m.vjp(v), made, map_.domain)


def forward(map_: DifferentiableMap, settings: Settings) -> Mode:
    """J u for a few tangents, likewise."""
    seed = settings.seed or 0
    made = [_on_grid(map_.domain, probes.tangent(map_, seed, number)) for number in (0, 1)]
    return Mode("forward", "tangent of", lambda m, u: m.jvp(u), made, map_.codomain)


def _count(space: Space) -> int:
    """So many probes that the smallest array has enough entries to average over."""
    if space.size > _LONG:
        return 1
    smallest = min((slot.size for slot in space.slots if slot.size), default=1)
    return max(2, min(_MOST_PROBES, _ENTRIES // smallest))


def _on_grid(space: Space, values: Array) -> Array:
    """The values, rounded to numbers of each array's own precision."""
    xp = namespace(values)
    pieces = []
    for position, slot in enumerate(space.slots):
        piece = values[space.span(position)]
        safe = xp.where(piece == 0, 1.0, piece)
        spacing = 2 * slot.grain.unit * 2.0 ** xp.floor(xp.log2(xp.abs(safe)))
        pieces.append(xp.round(piece / spacing) * spacing)
    return xp.concat(pieces) if pieces else values


def compare(map_: DifferentiableMap, oracle: Oracle, settings: Settings, mode: Mode) -> Precision:
    """The claims of the map beside those of the oracle, array by array.

    The claims of both are for the same probes, which both can represent.
    """
    xp = namespace(map_.point)
    got = xp.stack([mode.pull(map_, probe) for probe in mode.probes])
    exact = xp.stack([mode.pull(oracle.map, probe) for probe in mode.probes])
    grain = _coarsest(map_)
    honest = _honest(map_, oracle, settings, mode, exact)
    honest = xp.concat([honest, _noise(map_, mode, got, honest.shape[0] + 1)])
    found: list[tuple[int, list[Measured]]] = []
    for position, slot in enumerate(mode.space.slots):
        span = mode.space.span(position)
        eps = 2 * max(slot.grain.unit, grain.unit)
        known = xp.isfinite(exact[:, span])
        samples = Samples(
            gap=xp.where(known, got[:, span] - exact[:, span], 0.0),
            exact=xp.where(known, exact[:, span], 0.0),
            honest=xp.where(known[None, :, :], honest[:, :, span], 0.0),
            shape=slot.shape,
            eps=eps,
            tiny=grain.tiny,
        )
        found.append((position, statistics(samples)))
    return _concluded(oracle, mode, found, grain, (got, exact))


def _coarsest(map_: DifferentiableMap) -> Grain:
    slots = (*map_.domain.slots, *map_.codomain.slots)
    grains = [slot.grain for slot in slots if slot.size]
    return max(grains, key=lambda grain: grain.unit, default=Grain())


def _honest(
    map_: DifferentiableMap, oracle: Oracle, settings: Settings, mode: Mode, exact: Array
) -> Array:
    """Errors of honest runs of the oracle, (K, V, N).

    Every operation is rounded at random; and what is one operation to the oracle may be stable in
    the backward sense only, exact for an input that is off by a rounding.
    """
    xp, grain = namespace(exact), _coarsest(map_)
    runs = RUNS if exact.shape[1] <= _LONG else RUNS // 2
    moved = [_moved(map_, oracle, settings, mode, exact, number) for number in range(runs // 3)]
    errors = []
    for number in range(runs):
        try:
            rounded = oracle.map.rounded(grain.unit, grain.tiny, (settings.seed or 0) + number)
            error = xp.stack([mode.pull(rounded, probe) for probe in mode.probes]) - exact
        except Unsupported:
            error = xp.zeros_like(exact)
        error = error + moved[number % len(moved)]
        # A run that leaves the domain tells nothing: as if the whole derivative were in doubt.
        errors.append(xp.where(xp.isfinite(error), error, xp.abs(exact)))
    return xp.stack(errors)


def _moved(
    map_: DifferentiableMap,
    oracle: Oracle,
    settings: Settings,
    mode: Mode,
    exact: Array,
    number: int,
) -> Array:
    """Change of the exact derivative where every input moves by up to a rounding.

    At a tie or a jump the derivative changes as much for a far smaller move; that is no
    sensitivity, and not counted.
    """
    xp = namespace(exact)
    xi = _roundings(map_, settings, number)
    far: list[Array] = []
    near: list[Array] = []
    try:
        for part, found in ((1.0, far), (_NEAR, near)):
            there = oracle.map.at(oracle.map.point * (1 + part * xi))
            found += [mode.pull(there, probe) for probe in mode.probes]
    except Unsupported:
        return xp.zeros_like(exact)
    change, close = xp.stack(far) - exact, xp.stack(near) - exact
    smooth = xp.isfinite(change) & (xp.abs(close) <= _LINEAR * _NEAR * xp.abs(change))
    return xp.where(smooth, change, 0.0)


def _roundings(map_: DifferentiableMap, settings: Settings, number: int) -> Array:
    """A relative move of each input: random, up to the unit round-off of its array."""
    xi = probes.tangent(map_, settings.seed or 0, 16 + number) / probes.scales_of(map_) / 1.5
    xp = namespace(xi)
    units = [
        xp.full_like(xi[map_.domain.span(k)], slot.grain.unit)
        for k, slot in enumerate(map_.domain.slots)
    ]
    return xi * xp.concat(units)


def _noise(map_: DifferentiableMap, mode: Mode, got: Array, runs: int) -> Array:
    """How far a second run of the claims lies from the first, weighed like all honest runs."""
    xp = namespace(got)
    gap = mode.pull(map_, mode.probes[0]) - got[0, :]
    gap = xp.where(xp.isfinite(gap), gap, 0.0) * runs**0.5
    return xp.stack([xp.stack([gap] * got.shape[0])])


def _concluded(
    oracle: Oracle,
    mode: Mode,
    found: list[tuple[int, list[Measured]]],
    grain: Grain,
    values: tuple[Array, Array],
) -> Precision:
    eps = 2 * grain.unit
    table, findings, slopes = [], [], []
    for position, measured in found:
        slot = mode.space.slots[position]
        table += [
            Statistic(oracle.name, slot.name, one.name, one.value / eps, one.allowed / eps, eps)
            for one in measured
        ]
        slopes += [(one.allowed, slot.name) for one in measured if one.name == "slope"]
        if wrong := refuted(measured):
            findings.append(_finding(oracle, mode, position, wrong, values))
    worst, name = max(slopes, default=(0.0, ""))
    unresolved = (
        f"honest arithmetic of this precision errs by up to {worst:.0%} in the "
        f"{mode.what} {name}: nothing smaller could be told"
        if worst > _UNRESOLVED
        else ""
    )
    return Precision(tuple(table), tuple(findings), worst, unresolved)


def _finding(
    oracle: Oracle, mode: Mode, position: int, wrong: list[Measured], values: tuple[Array, Array]
) -> Finding:
    """What is off most in one array, in words."""
    slot = mode.space.slots[position]
    first = wrong[0]
    got, exact = (value[:, mode.space.span(position)] for value in values)
    place = None if first.where is None else slot.place(first.where, position)
    xp = namespace(got)
    at = slice(None) if first.where is None else slice(first.where, first.where + 1)
    probe = int(xp.argmax(xp.sum(xp.abs(got[:, at] - exact[:, at]), axis=1)))
    column = first.where
    if column is None:
        column = int(xp.argmax(xp.abs(got[probe, :] - exact[probe, :])))
    claimed, measured = float(got[probe, column]), float(exact[probe, column])
    others = ", ".join(one.name for one in wrong[1:])
    message = (
        f"{mode.what} {place or slot.name} against {oracle.name}: {first.name} off by "
        f"{first.value:.3g}, rounding explains {first.allowed:.2g}"
        + (f"; also {others}" if others else "")
        + f"; {slot.place(column, position)} claimed {claimed:.6g}, exact {measured:.6g}"
    )
    where = slot.place(column, position)
    return Finding(
        mode.check,
        message,
        "precision",
        where if mode.check == "backward" else None,
        where if mode.check == "forward" else None,
        claimed,
        measured,
        0.0,
        first.allowed,
    )
