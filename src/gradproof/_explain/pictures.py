"""What a picture of a failure is drawn from: a patch of the Jacobian."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gradproof._data.records import Patch
from gradproof._data.space import Values
from gradproof._maps.contract import DifferentiableMap

SIDE = 12  # rows and columns of a patch at most


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
