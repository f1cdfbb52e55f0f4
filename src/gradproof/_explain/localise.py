"""Where a wrong Jacobian is wrong: group testing on its rows and columns.

Both searches halve the support of a probe (binary splitting, Hwang 1972). A residual is
claimed minus measured, along a masked probe; entries outside the mask contribute nothing to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradproof._space import Array, namespace, on_host

MANY = 8  # pieces that may be wrong at once before a row, or a set of rows, counts as "many"


@dataclass(frozen=True)
class Residual:
    """Claimed minus measured for a few rows, and below which size it means nothing.

    Both as numbers of the host, whatever they are made from: they are read one by one.
    """

    value: Array
    threshold: Array

    def __post_init__(self) -> None:
        for name in ("value", "threshold"):
            object.__setattr__(self, name, on_host(getattr(self, name)))


def columns_of_rows(
    residual: Callable[[Array], Residual], whole: Residual, size: int, like: Array
) -> list[tuple[int, ...] | None]:
    """For every row, its wrong columns; None where there are many.

    A row with one wrong column is read off by bits: the residual of the probe masked to the
    columns whose bit b is set is either 0 or all of it. All rows share the masks, so this costs
    ceil(log2 n) residuals. Rows with several wrong columns are split adaptively after that.

    Args:
        residual: mask (size n, 0 or 1) -> residual of the rows for the masked probe.
        whole: residual of the unmasked probe.
        size: n.
        like: an array whose library the masks are made with.
    """
    single = columns_by_bits(residual, whole, size, like)
    rest = [row for row, column in enumerate(single) if column is None]
    found: list[tuple[int, ...] | None] = [
        None if column is None else (column,) for column in single
    ]
    if rest:
        for row, columns in zip(
            rest, columns_by_splitting(residual, size, like, rest), strict=True
        ):
            found[row] = columns
    return found


def columns_by_bits(
    residual: Callable[[Array], Residual], whole: Residual, size: int, like: Array
) -> list[int | None]:
    """The wrong column of every row that has one; None for the others."""
    xp = namespace(like)
    index = xp.arange(size)
    rows = range(whole.value.shape[0])
    columns: list[int | None] = [0 for _ in rows]
    for bit in range(max(1, (size - 1).bit_length())):
        if all(column is None for column in columns):
            break
        mask = xp.astype((index >> bit) & 1, xp.float64)
        part = residual(mask)
        for row in rows:
            column = columns[row]
            total = float(whole.value[row])
            if column is None:
                continue
            ratio = float(part.value[row]) / total if total else float("nan")
            slack = min(0.3, max(1e-4, 10 * float(part.threshold[row]) / abs(total or 1.0)))
            if abs(ratio) <= slack:
                continue
            columns[row] = column | (1 << bit) if abs(ratio - 1) <= slack else None
    return [column if column is not None and column < size else None for column in columns]


def columns_by_splitting(
    residual: Callable[[Array], Residual], size: int, like: Array, rows: list[int]
) -> list[tuple[int, ...] | None]:
    """Breadth first, one level at a time; a row with more than MANY live pieces is given up."""
    xp = namespace(like)
    index = xp.arange(size)
    live = {row: [(0, size)] for row in rows}
    given_up: set[int] = set()
    while any(high - low > 1 for row in live for low, high in live[row]):
        pieces = {piece for row in live for piece in live[row] if piece[1] - piece[0] > 1}
        halves: dict[tuple[int, int], Residual] = {}
        for low, high in pieces:
            for half in ((low, (low + high) // 2), ((low + high) // 2, high)):
                mask = xp.astype((index >= half[0]) & (index < half[1]), xp.float64)
                halves[half] = residual(mask)
        for row in list(live):
            live[row] = _live_halves(live[row], halves, row)
            if len(live[row]) > MANY:
                given_up.add(row)
                del live[row]
    return [None if row in given_up else tuple(low for low, _ in live[row]) for row in rows]


def _live_halves(
    pieces: list[tuple[int, int]], halves: dict[tuple[int, int], Residual], row: int
) -> list[tuple[int, int]]:
    kept = []
    for low, high in pieces:
        if high - low == 1:
            kept.append((low, high))
            continue
        for half in ((low, (low + high) // 2), ((low + high) // 2, high)):
            part = halves[half]
            if not abs(float(part.value[row])) <= float(part.threshold[row]):
                kept.append(half)
    return kept


def rows_by_splitting(
    residual: Callable[[int, int], tuple[float, float]], size: int
) -> tuple[tuple[int, ...], bool]:
    """Wrong rows where only projections can be claimed, in order, and whether all.

    Where there are many only the first, the last and two strong ones between them are followed:
    the first and the last of all wrong rows.

    Args:
        residual: (low, high) -> residual and threshold of a cotangent supported on [low, high).
        size: m.
    """
    live = [(0, size)]
    complete = True
    while any(high - low > 1 for low, high in live):
        weighed: list[tuple[float, tuple[int, int]]] = []
        for low, high in live:
            if high - low == 1:
                weighed.append((float("inf"), (low, high)))
                continue
            middle = (low + high) // 2
            for half in ((low, middle), (middle, high)):
                value, threshold = residual(*half)
                if not abs(value) <= threshold:
                    weighed.append((abs(value) / threshold if threshold else 1.0, half))
        complete = complete and len(weighed) <= MANY
        if not complete and len(weighed) > 2:
            weighed.sort(key=lambda item: item[1])
            weighed = [weighed[0], *sorted(weighed[1:-1])[-2:], weighed[-1]]
        live = [half for _, half in weighed]
    return tuple(sorted(low for low, _ in live)), complete
