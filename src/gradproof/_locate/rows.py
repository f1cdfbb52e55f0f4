"""Wrong rows from projections on ranges of outputs, halved until one output is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace, norm
from gradproof._judge.claims import Claim
from gradproof._judge.decide import Bar, decide, dot_and_rounding, of_sum, signs_count
from gradproof._judge.screen import Screen
from gradproof._locate.decode import MANY
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import directional

_PROOF = 256  # parts of the outputs, of which a projection shows hundredths of rows surely


def suspect_rows(
    map_: DifferentiableMap, settings: Settings, claim: Claim, screen: Screen
) -> tuple[tuple[int, ...], bool]:
    """Wrong rows in order, and whether all: by projections on ranges of outputs, one VJP each."""
    assert screen.projected is not None  # no row is under suspicion, so a projection is
    number, v = screen.projected
    ladder = directional.ladder(map_, settings, number)
    along = directional.along(map_, settings, number)
    xp = namespace(map_.point)
    hinted_above = map_.codomain.size // _PROOF

    def residual(low: int, high: int) -> tuple[float, float]:
        span = slice(low, high)
        rows = along.estimate.span(span)
        usable = xp.isfinite(rows.error)
        part = xp.where(usable, v[span], 0.0)
        gradient = claim.project(_only(map_.codomain.size, span, part))
        assert gradient is not None  # only a mode that projects is searched this way
        claimed, rounding = dot_and_rounding(map_, gradient, along.direction)
        sums = ladder.of_functionals(part[None, :], span, signs=signs_count(map_))
        quiet = of_sum(norm(part * xp.where(usable, rows.value, 0.0)))
        bar = Bar(float(sums.error[0]))
        found = decide(claimed, float(sums.value[0]), bar, quiet + rounding, small=0.0)
        # Of a long range a gap is a hint, if that is what led here, and no more.
        hint = screen.hints and span.stop - span.start > hinted_above
        return found.gap, found.allowed if hint else found.further

    start = [(span.start, span.stop) for span in screen.hints[1]] if screen.hints else []
    return rows_by_splitting(residual, map_.codomain.size, start)


def _only(size: int, span: slice, values: Array) -> Array:
    """A vector that is zero outside a span."""
    vector = namespace(values).zeros(size)
    vector[span] = values
    return vector


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
