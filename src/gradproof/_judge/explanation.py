"""What a picture of a failure is drawn from: a patch of the Jacobian, and how steps matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gradproof._data.evidence import Cause, Curve, Patch
from gradproof._data.records import CheckResult
from gradproof._data.settings import Settings
from gradproof._data.space import Array, Space, on_host
from gradproof._explain import diagnose, words
from gradproof._explain.case import Case
from gradproof._explain.diagnose import cause, diagnosed
from gradproof._judge.decide import Comparison
from gradproof._judge.found import ranked
from gradproof._maps.contract import BudgetSpent, DifferentiableMap
from gradproof._measure import evaluate, jacobian

SIDE = 12  # rows and columns of a patch at most
CURVES = 2  # findings that get one
_BETWEEN = 3  # rungs added to a ladder, between those that it has


@dataclass(frozen=True)
class Claimed:
    """A wrong entry: row, column, and what is claimed of it."""

    row: int
    column: int
    value: float


def patch(
    spaces: tuple[Space, Space],
    at: tuple[Sequence[int], Sequence[int]],
    comparison: Comparison,
    wrong: object,
    centre: tuple[int, int],
) -> Patch:
    """The part of some measured rows and columns that lies around one entry.

    Args:
        spaces: domain and codomain.
        at: which rows and which columns of the Jacobian were measured.
        comparison: of these.
        wrong: which of these entries are refuted.
        centre: position of the entry among these.
    """
    domain, codomain = spaces
    rows, columns = (_around(line, middle) for line, middle in zip(at, centre, strict=True))
    corner = np.ix_(rows, columns)
    found = {
        name: on_host(getattr(comparison, name))[corner]
        for name in ("claimed", "measured", "error")
    }
    return Patch(
        outputs=tuple(str(codomain.locate(at[0][k])) for k in rows),
        inputs=tuple(str(domain.locate(at[1][k])) for k in columns),
        wrong=tuple(tuple(bool(one) for one in row) for row in on_host(wrong)[corner]),
        **{name: table(values) for name, values in found.items()},
    )


def _around(line: Sequence[int], middle: int) -> list[int]:
    """Positions of the coordinates nearest to one of them, in the order of the coordinates."""
    nearest = sorted(range(len(line)), key=lambda k: (abs(line[k] - line[middle]), line[k]))[:SIDE]
    return sorted(nearest, key=lambda k: line[k])


def table(
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> tuple[tuple[float, ...], ...]:
    """An array of rows and columns as a record holds it."""
    return tuple(tuple(float(one) for one in row) for row in values)


def curves(
    map_: DifferentiableMap, settings: Settings, entries: Sequence[Claimed]
) -> tuple[Curve, ...]:
    """How the first wrong entries depend on the step: a ladder each, with rungs in between."""
    found = []
    for entry in entries[:CURVES]:
        column = jacobian.climbed(map_, settings, entry.column)
        column.ladder.refine(_BETWEEN)
        found.append(of_ladder(map_, column, entry))
    return tuple(found)


def of_ladder(map_: DifferentiableMap, climbed: jacobian.Climbed, entry: Claimed) -> Curve:
    """The curve of one entry, from the evaluations along its column; at no call."""
    start = float(evaluate.centre(map_).value[entry.row])
    rungs = climbed.ladder.rungs_of(entry.row)
    steps = [step * climbed.scale for step, _, _ in rungs]
    sides = [(plus, minus) for _, plus, minus in rungs]
    found = climbed.estimate
    return Curve(
        output=str(map_.codomain.locate(entry.row)),
        input=str(map_.domain.locate(entry.column)),
        steps=tuple(steps),
        values=tuple((p - m) / (2 * h) for h, (p, m) in zip(steps, sides, strict=True)),
        forward=tuple((p - start) / h for h, (p, _) in zip(steps, sides, strict=True)),
        backward=tuple((start - m) / h for h, (_, m) in zip(steps, sides, strict=True)),
        claimed=entry.value,
        chosen=float(found.step[entry.row]),
        value=float(found.value[entry.row]),
        error=float(found.error[entry.row]),
    )


# A failure with what explains it: where, why, and what pictures are drawn from.
#
# An explanation may cost a few calls. It changes no verdict: where it cannot be had, there is
# none.


def quietly(result: CheckResult, explain: Callable[[CheckResult], CheckResult]) -> CheckResult:
    """The result explained; as it is where that fails, for whatever reason."""
    try:
        return explain(result)
    except (Exception, BudgetSpent):
        return result


def entries(
    map_: DifferentiableMap,
    settings: Settings,
    rows: Sequence[int] | None,
    comparison: Comparison,
    wrong: Array,
    result: CheckResult,
) -> CheckResult:
    """The failure of a Jacobian of which these rows, or all, were measured in every column."""

    def explain(result: CheckResult) -> CheckResult:
        result = quietly(result, partial(_where, map_, rows, comparison, wrong))
        result = quietly(result, partial(_why, map_, rows, comparison, wrong))
        order = ranked(comparison, wrong)
        lines = range(map_.codomain.size) if rows is None else rows, range(map_.domain.size)
        spaces = map_.domain, map_.codomain
        result = replace(result, patch=patch(spaces, lines, comparison, wrong, order[0]))
        shown = [
            Claimed(lines[0][i], j, float(comparison.claimed[i, j])) for i, j in order[:CURVES]
        ]
        return quietly(result, lambda known: replace(known, curves=curves(map_, settings, shown)))

    return quietly(result, explain)


def _where(
    map_: DifferentiableMap,
    rows: Sequence[int] | None,
    comparison: Comparison,
    wrong: Array,
    result: CheckResult,
) -> CheckResult:
    claimed, measured, allowed, mask = map(
        on_host, (comparison.claimed, comparison.measured, comparison.allowed, wrong)
    )
    care = words.telling(claimed, measured, allowed, mask)
    live = mask | (np.maximum(np.abs(claimed), np.abs(measured)) > allowed)
    told = words.described_entries(mask, care, live, _described_by(map_, rows, result.name))
    return replace(result, where=told)


_MOST = 1 << 18  # entries that are looked at for a cause
_HUGE = 1e100  # what is allowed where nothing was measured


def _why(
    map_: DifferentiableMap,
    rows: Sequence[int] | None,
    comparison: Comparison,
    wrong: Array,
    result: CheckResult,
) -> CheckResult:
    claimed, measured, allowed, mask = map(
        on_host, (comparison.claimed, comparison.measured, comparison.allowed, wrong)
    )
    blank = ~(np.isfinite(measured) & np.isfinite(allowed))
    whole = rows is None and mask.size <= _MOST
    kept = np.arange(mask.shape[0])
    if not whole:
        kept = np.argsort(~mask.any(axis=1), kind="stable")[: max(1, _MOST // mask.shape[1])]
    case = Case(
        claimed=np.where(blank, 0.0, claimed)[kept, :],
        measured=np.where(blank, 0.0, measured)[kept, :],
        allowed=np.where(blank, _HUGE, allowed)[kept, :],
        wrong=mask[kept, :],
        domain=map_.domain,
        codomain=map_.codomain,
        point=on_host(map_.point),
        value=on_host(evaluate.centre(map_).value),
        outputs=whole,
    )
    causes = (*_of_findings(result), *diagnosed(case))
    return replace(result, causes=diagnose.ranked(causes))


def _of_findings(result: CheckResult) -> tuple[Cause, ...]:
    """Causes that the findings name themselves."""
    detached = [finding for finding in result.findings if finding.kind == "detached"]
    if detached and len(detached) == len(result.findings):
        names = ", ".join(dict.fromkeys(f.output_name or "" for f in detached))
        return (cause("output detached", f"{names} has a derivative and claims to have none"),)
    return ()


def _described_by(map_: DifferentiableMap, rows: Sequence[int] | None, check: str) -> words.Map:
    return words.Map(
        domain=map_.domain,
        codomain=map_.codomain,
        rows=None if rows is None else np.asarray(list(rows)),
        point=on_host(map_.given),
        value=on_host(evaluate.centre(map_).value),
        transposed=check == "forward",
    )
