"""One column in which a row is wrong, where that is all there is to be told: halved for."""

from __future__ import annotations

from gradproof._checks._hunt import Hunt
from gradproof._checks._masked import Masked
from gradproof._space import Array, namespace

_SPREAD = 8  # columns tried at once for one in which a row is wrong


def instead(hunt: Hunt) -> list[int]:
    """A wrong column, halved for, where those that a pattern told are right.

    Of a pattern that only tells where nothing is wrong, within that; any other is refuted.
    """
    if hunt.masked is None or hunt.pattern is None:
        return []
    within = hunt.pattern.within
    hunt.pattern = hunt.pattern if within else None
    return [wrong_one(hunt.masked.of([hunt.crowd]), hunt.map.point, [], within)]


def wrong_one(
    part: Masked, like: Array, known: list[int], within: tuple[int, int] | None = None
) -> int:
    """A column in which the first row is wrong: one of a few, or else of all, or all `within`.

    Of two halves the one with the larger residual is followed.
    """
    xp = namespace(like)
    low, high = within or (0, like.shape[0])
    some = [*known, *(low + (2 * k + 1) * (high - low) // (2 * _SPREAD) for k in range(_SPREAD))]
    columns: Array = xp.asarray(sorted(set(some)))
    whole = _residual(part, like, columns)
    if abs(whole) <= float(part.whole.threshold[0]):
        columns = xp.arange(low, high)
        whole = float(part.whole.value[0])
    while columns.shape[0] > 1:
        middle = columns.shape[0] // 2
        found = _residual(part, like, columns[:middle])
        below = abs(found) >= abs(whole - found)
        columns = columns[:middle] if below else columns[middle:]
        whole = found if below else whole - found
    return int(columns[0])


def _residual(part: Masked, like: Array, columns: Array) -> float:
    weights = namespace(like).zeros(like.shape[0])
    weights[columns] = 1.0
    return float(part.residual(weights).value[0])
