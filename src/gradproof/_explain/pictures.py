"""What a picture of a failure is drawn from: a patch of the Jacobian, and how steps matter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gradproof._data.records import Curve, Patch
from gradproof._data.settings import Settings
from gradproof._data.space import Values
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import evaluate, jacobian
from gradproof._measure.sizes import TRIES

SIDE = 12  # rows and columns of a patch at most
CURVES = 2  # findings that get one


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


def curve(
    map_: DifferentiableMap, settings: Settings, entry: tuple[int, int], claimed: float
) -> Curve:
    """How a wrong entry, (row, column), depends on the step: a ladder, with rungs in between."""
    column = jacobian.climbed(map_, settings, entry[1])
    column.ladder.refine(TRIES)
    return of_steps(map_, column.entry(entry[0]), entry, claimed)


def of_steps(
    map_: DifferentiableMap, found: jacobian.Stepped, entry: tuple[int, int], claimed: float
) -> Curve:
    """The curve of one entry, from the evaluations along its column; at no call."""
    start = float(evaluate.centre(map_).value[entry[0]])
    return Curve(
        output=str(map_.codomain.locate(entry[0])),
        input=str(map_.domain.locate(entry[1])),
        steps=tuple(h for h, _, _ in found.rungs),
        values=tuple((p - m) / (2 * h) for h, p, m in found.rungs),
        forward=tuple((p - start) / h for h, p, _ in found.rungs),
        backward=tuple((start - m) / h for h, _, m in found.rungs),
        claimed=claimed,
        chosen=found.step,
        value=found.value,
        error=found.error,
    )
