"""Wrong rows from projections on ranges of outputs, halved until one output is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradproof._explain.localise import MANY


def rows_by_splitting(
    residual: Callable[[int, int], tuple[float, float]],
    size: int,
    start: Sequence[tuple[int, int]] = (),
) -> tuple[tuple[int, ...], bool]:
    """Wrong rows where only projections can be claimed, in order, and whether all.

    Where there are many only the first, the last and two strong ones between them are followed:
    the first and the last of all wrong rows.

    Args:
        residual: (low, high) -> residual and threshold of a cotangent supported on [low, high).
        size: m.
        start: ranges that all wrong rows lie in; of all rows where empty.
    """
    live = list(start) or [(0, size)]
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
