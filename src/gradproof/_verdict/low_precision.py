"""A claimed derivative in few bits against the exact one of an oracle, by statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradproof._data.records import Finding, Statistic
from gradproof._data.settings import Settings
from gradproof._data.space import FORMATS, Array, Space, namespace
from gradproof._data.vectors import BLOCK
from gradproof._judge.claim_error import HONEST
from gradproof._judge.claims import Mode
from gradproof._judge.screen import UNRESOLVED
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import evaluate, probes, steps
from gradproof._measure.sizes import MANY
from gradproof._measure.statistics import (
    Measured,
    Samples,
    refuted,
    statistics,
    well_conditioned,
)
from gradproof._verdict import oracles
from gradproof._verdict import stochastic as honest
from gradproof._verdict.oracles import Oracle, coarsest_dtype
from gradproof._verdict.stochastic import coarsest
from gradproof.errors import UsageError

# Of the value, that may be left where all terms of a derivative cancel.
_LEFT = HONEST * FORMATS["float32"].unit
_ASIDE = 2 / 3  # of an array's entries: more than that left aside leaves too few


@dataclass(frozen=True)
class FewBits:
    """Evidence of a failure: a derivative in few bits beside the exact one, for several probes."""

    space: Space  # of the gradients, or of the tangents
    claimed: Array  # by the map, (P, N)
    exact: Array  # of the oracle, likewise
    sizes: Sequence[Array]  # of honest errors, for each array of the space, (N,) or (P, N) of it
    wrong: tuple[int, ...]  # which arrays are, by position
    unit: float  # round-off of the arithmetic


@dataclass(frozen=True)
class Precision:
    """What the comparison says."""

    statistics: tuple[Statistic, ...]  # a table, for the report
    findings: tuple[Finding, ...]  # one per array that is off by more than rounding explains
    resolution: float  # largest factor on a whole array that would have been accepted
    unresolved: str  # why the precision tells too little; "" where it does not
    # That the function computes in fewer bits than its arrays have, or which entries were left
    # aside; "" where neither.
    note: str = ""
    evidence: FewBits | None = None  # of the findings; None where there are none

    @property
    def count(self) -> str:
        """How many arrays are off, in words."""
        return f"{len(self.findings)} array{'' if len(self.findings) == 1 else 's'}"


def compare(map_: DifferentiableMap, oracle: Oracle, settings: Settings, mode: Mode) -> Precision:
    """The claims of the map beside those of the oracle, array by array.

    The claims of both are for the same probes, which both can represent. Where the function shows
    fewer bits inside than its arrays have, as with TF32, those are what explains a gap.
    """
    found = _compared(map_, oracle, settings, mode)
    # What is said of its arithmetic is so; and what jumps by definition shows none.
    shows = found.findings and not (settings.accumulate or settings.trusted)
    if shows and oracles.fewer_bits(map_, oracle, settings, coarsest(map_)):
        found = _compared(map_, oracle, settings, mode)
    if map_.resolution > coarsest_dtype(map_).unit:
        note = oracles.in_fewer_bits(map_.resolution)
        return replace(found, note="; ".join(filter(None, (note, found.note))))
    return found


def _compared(map_: DifferentiableMap, oracle: Oracle, settings: Settings, mode: Mode) -> Precision:
    sides = _sides(map_, oracle, settings, mode)
    runs = honest.Runs(sides)
    every = _every(sides, runs)
    runs.remember()
    found: list[tuple[int, list[Measured]]] = []
    notes: list[str] = []
    left: list[str] = []
    for position, (slot, each) in enumerate(zip(mode.space.slots, every, strict=True)):
        if each.off and all(_drowned(sides, position, part) for part in each.off):
            left.append(slot.name)
            continue
        found.append((position, each.rows))
        if each.aside:
            notes.append(
                f"{each.aside} of the {slot.size} entries of the {mode.what} {slot.name} were not "
                "tested in this precision, for honest arithmetic misses them as well"
            )
    notes += _not_rounded(sides)
    if found and left:  # as of a bias before a normalisation, which takes it out again
        notes.append(f"{_told_of(mode, left)}: not tested")
    concluded = _concluded(sides, found)
    if left and not found:
        told = f"{_told_of(mode, left)}: nothing could be told"
        concluded = replace(concluded, unresolved=told)
    wrong = tuple(position for position, rows in found if refuted(rows))
    evidence = None
    if wrong:
        sizes = [honest.sizes(each.samples.honest) for each in every]
        evidence = FewBits(mode.space, sides.got, sides.exact, sizes, wrong, coarsest(map_).unit)
    return replace(concluded, note="; ".join(notes), evidence=evidence)


def _every(sides: honest.Sides, runs: honest.Runs) -> list[_Judged]:
    """Every array, by a few honest runs where these settle it, or all.

    What is allowed grows with mean squares over all runs, and those of a few, over as many as all
    are, are never larger: what is within that would be within the allowance of all of them. Only
    what they could not tell, that honest runs miss everything, must be known from the few: their
    slope is at most their root mean square, which one run shows of many entries, and of which
    those of a few count as the root of their part of all.
    """

    def judged(count: int, times: float = 1.0, nearest: Array = sides.exact) -> list[_Judged]:
        samples = _samples(sides, nearest, runs.errors(count))
        return [_judged(each, times * sides.mode.slack, sides.settings) for each in samples]

    every = judged(runs.few)
    known = UNRESOLVED * (runs.few / runs.most) ** 0.5
    if all(each.settled(known) for each in every):
        return every
    every = judged(runs.most)
    if not any(refuted(each.rows) for each in every):
        return every
    times = runs.coarser_inside()
    every = judged(runs.most, times)
    if not any(refuted(each.rows) for each in every):
        return every
    runs.add_nearest()
    every = judged(runs.most, times)
    if not any(refuted(each.rows) for each in every):
        return every
    return judged(runs.most, times, runs.nearest())


@dataclass(frozen=True)
class _Judged:
    """One array: its gradients beside the exact ones, statistics, and entries left aside."""

    samples: Samples
    rows: list[Measured]
    aside: int

    def settled(self, most: float) -> bool:
        """Whether a few runs do: nothing is off, and of the size of all gaps no more is allowed."""
        known = all(row.allowed <= most for row in self.rows if row.name == "rms")
        return known and not self.aside and not refuted(self.rows)

    @property
    def off(self) -> tuple[Array, ...]:
        """What may be less than rounding explains: none of an array that is right, and known.

        That of which honest runs miss so much that nothing smaller could be told is left aside
        where it is so small itself; what is refuted, where its gap is too.
        """
        if refuted(self.rows):
            return self.samples.exact, self.samples.gap
        return (self.samples.exact,) if _lost(self.rows) else ()


def _judged(samples: Samples, times: float, settings: Settings) -> _Judged:
    # In single precision all of a sum is rounded; in less, sums are kept in single precision.
    slack = times * (1.0 if samples.eps > 2 * steps.SINGLE else honest.INSIDE)
    return _Judged(samples, *_measured(samples, slack, settings.slack))


def _lost(rows: list[Measured]) -> bool:
    return any(row.name == "slope" and row.allowed > UNRESOLVED for row in rows)


def _samples(sides: honest.Sides, nearest: Array, errors: Sequence[Array]) -> list[Samples]:
    """What is claimed of each array, beside its exact gradients, where they are representable.

    The gap is that to the nearest of the gradients which are right.
    """
    grain, space, found = coarsest(sides.map), sides.mode.space, []
    for position, slot in enumerate(space.slots):
        every = (sides.got, sides.exact, nearest)
        got, exact, near = (each[:, space.span(position)] for each in every)
        xp, known = namespace(got), honest.known(exact, slot)
        claimed = honest.saturated(got, exact, errors[position], slot)
        samples = Samples(
            gap=xp.where(known, claimed - near, 0.0),
            exact=xp.where(known, exact, 0.0),
            honest=errors[position],
            shape=slot.shape,
            eps=2 * max(slot.grain.unit, grain.unit),
            tiny=grain.tiny,
            points=len(sides.points),
            cut=grain.unit > coarsest_dtype(sides.map).unit,
        )
        found.append(samples)
    return found


def _not_rounded(sides: honest.Sides) -> list[str]:
    reason = sides.map.memo.get(honest.NOT_ROUNDED)
    told = (
        f"no honest runs of the {sides.mode.check} mode could be made ({reason}): what is allowed "
        "is the rounding of inputs and of single operations"
    )
    return [told] if reason else []


def _told_of(mode: Mode, names: list[str]) -> str:
    more = f" and {len(names) - 1} more" if names[1:] else ""
    return (
        f"the {mode.what} {names[0]}{more} is what is left where larger terms cancel, less than "
        "rounding of the value"
    )


def _drowned(sides: honest.Sides, position: int, exact: Array) -> bool:
    """Whether all that an array does to the outputs is less than rounding of their value.

    Where all terms of a derivative cancel, as in a softmax that is saturated, what is left depends
    on the order of a few operations inside a kernel, which sums in single precision: rounding from
    outside, operation by operation, does not show it.
    """
    xp, mode, oracle = namespace(exact), sides.mode, sides.oracle
    span, value = mode.space.span(position), xp.abs(evaluate.centre(oracle.map).value)
    value = xp.where(xp.isfinite(value), value, 0.0)
    if mode.columnwise:
        return float(xp.max(xp.sum(xp.abs(exact), axis=1))) <= _LEFT * float(xp.sum(value[span]))
    sizes = xp.sum(xp.abs(exact) * probes.scales_of(oracle.map)[span][None, :], axis=1)
    values = xp.stack([xp.sum(xp.abs(probe) * value) for probe in mode.probes])
    values = xp.take(values, xp.arange(sizes.shape[0]) % len(mode.probes))
    return bool(xp.all(sizes <= _LEFT * values))


def _measured(samples: Samples, slack: float, chosen: float) -> tuple[list[Measured], int]:
    """The statistics of one array, and how many entries they leave aside.

    Where a few entries that nobody can tell would drown all the others, these are taken alone, and
    of all together only what is wrong even so. Beside what rounding explains is allowed what the
    user chose to.
    """

    def allowing(rows: list[Measured]) -> list[Measured]:
        return [replace(row, allowed=slack * row.allowed + chosen) for row in rows]

    rows = allowing(statistics(samples))
    if not _lost(rows):
        return rows, 0
    kept, aside = well_conditioned(samples)
    if not 0 < aside <= _ASIDE * samples.gap.shape[1]:
        return rows, 0
    return [*allowing(statistics(kept)), *refuted(rows)], aside


def _sides(map_: DifferentiableMap, oracle: Oracle, settings: Settings, mode: Mode) -> honest.Sides:
    """What the map and the oracle claim.

    Few entries in few bits tell little at one point. Each neighbour, whose every entry is one or
    two numbers of the format away, is rounded afresh; a wrong formula is wrong at all of them.
    """
    xp = namespace(map_.point)
    claims = [(oracle.map, mode.pulled(map_), mode.pulled(oracle.map))]
    if map_.resolution > steps.SINGLE and mode.space.size <= BLOCK:
        for number in range(MANY - 1):
            move = 3 * honest.roundings(map_, settings, MANY + number)
            x = probes.on_grid(map_.domain, map_.point * (1 + move))
            try:
                maps = [honest.beside(one, x, number) for one in (oracle.map, map_)]
                there = maps[0], mode.pulled(maps[1]), mode.pulled(maps[0])
            except (Unsupported, UsageError):
                continue
            if bool(xp.all(there[1] == claims[0][1])):
                break  # a linear function: its derivative is rounded as it was
            if bool(xp.all(xp.isfinite(there[1]) & xp.isfinite(there[2]))):
                claims.append(there)
    got, exact = (xp.concat([claim[k] for claim in claims]) for k in (1, 2))
    points = [beside for beside, _, _ in claims]
    return honest.Sides(map_, oracle, settings, mode, got, exact, points)


def _concluded(sides: honest.Sides, found: list[tuple[int, list[Measured]]]) -> Precision:
    eps, mode, oracle = 2 * coarsest(sides.map).unit, sides.mode, sides.oracle
    table, findings, slopes = [], [], []
    for position, measured in found:
        slot = mode.space.slots[position]
        table += [
            Statistic(oracle.name, slot.name, one.name, one.value / eps, one.allowed / eps, eps)
            for one in measured
        ]
        slopes += [(one.allowed, slot.name) for one in measured if one.name == "slope"]
        if wrong := refuted(measured):
            findings.append(_finding(sides, position, wrong))
    worst, name = max(slopes, default=(0.0, ""))
    part = f"by up to {worst:.0%}" if worst < 1 else "by all of it, or more,"
    unresolved = (
        f"honest arithmetic of this precision errs {part} in the {mode.what} {name}: nothing "
        "smaller could be told"
        if worst > UNRESOLVED
        else ""
    )
    return Precision(tuple(table), tuple(findings), worst, unresolved)


def _finding(sides: honest.Sides, position: int, wrong: list[Measured]) -> Finding:
    """What is off most in one array, in words."""
    mode, oracle = sides.mode, sides.oracle
    slot = mode.space.slots[position]
    first = wrong[0]
    got, exact = (value[:, mode.space.span(position)] for value in (sides.got, sides.exact))
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
        None if mode.columnwise else where,
        where if mode.columnwise else None,
        claimed,
        measured,
        0.0,
        first.allowed,
    )
