"""What a picture of a failure is drawn from: a patch of the Jacobian, and how steps matter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gradproof._data.records import Curve, Patch
from gradproof._data.settings import Settings
from gradproof._explain.case import Values
from gradproof._maps.contract import DifferentiableMap
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
    map_: DifferentiableMap, rows: Iterable[int], columns: Iterable[int], table: Values
) -> Patch:
    """Some rows and columns of a Jacobian; `table` holds claimed, measured, error, wrong."""
    claimed, measured, error = (tuple(map(tuple, values.tolist())) for values in table[:3])
    return Patch(
        outputs=tuple(str(map_.codomain.locate(int(i))) for i in rows),
        inputs=tuple(str(map_.domain.locate(int(j))) for j in columns),
        claimed=claimed,
        measured=measured,
        error=error,
        wrong=tuple(tuple(one > 0 for one in row) for row in table[3].tolist()),
    )


def around(line: Sequence[int], middle: int) -> list[int]:
    """Positions of the coordinates nearest to one of them, in the order of the coordinates."""
    nearest = sorted(range(len(line)), key=lambda k: (abs(line[k] - line[middle]), line[k]))[:SIDE]
    return sorted(nearest, key=lambda k: line[k])


def curves(
    map_: DifferentiableMap, settings: Settings, entries: Sequence[Claimed]
) -> tuple[Curve, ...]:
    """How the first wrong entries depend on the step: a ladder each, with rungs in between."""
    found = []
    for entry in entries[:CURVES]:
        column = jacobian.climbed(map_, settings, entry.column)
        column.ladder.refine(_BETWEEN)
        found.append(of_steps(map_, column.entry(entry.row), entry))
    return tuple(found)


def of_steps(map_: DifferentiableMap, found: jacobian.Stepped, entry: Claimed) -> Curve:
    """The curve of one entry, from the evaluations along its column; at no call."""
    start = float(evaluate.centre(map_).value[entry.row])
    return Curve(
        output=str(map_.codomain.locate(entry.row)),
        input=str(map_.domain.locate(entry.column)),
        steps=tuple(h for h, _, _ in found.rungs),
        values=tuple((p - m) / (2 * h) for h, p, m in found.rungs),
        forward=tuple((p - start) / h for h, p, _ in found.rungs),
        backward=tuple((start - m) / h for h, _, m in found.rungs),
        claimed=entry.value,
        chosen=found.step,
        value=found.value,
        error=found.error,
    )
