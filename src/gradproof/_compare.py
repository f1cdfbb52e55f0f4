"""Whether two implementations are one function: its value and its derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gradproof._data.inputs import Reference
from gradproof._data.records import Report
from gradproof._engine import check

_CHECKS = ("value", "backward", "forward", "linearity", "state")
_SECOND = ("second_order",)


def compare(
    fused: Callable[..., Any] | str,
    eager: Callable[..., Any] | Reference,
    inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    order: int = 1,
    trusted: bool = False,
    accumulate: str | None = None,
    **options: Any,
) -> Report:
    """Hold one implementation against another: value, gradients, second order where asked.

    Both are run on the same numbers, `eager` in double precision. Each statistic of the difference
    stands beside what honest rounding explains: the same of runs of `eager` in which every
    operation is rounded at random to the precision of `fused`. These are the checks "value",
    "backward", "forward", "linearity" and "state" of `check`, with `eager` as the only oracle.

    Args:
        fused: function under test, as for `check`.
        eager: function with the same arguments and the same value, in plain operations, of this
            framework or of another. Its own derivative is first verified by differences.
        inputs: as for `check`.
        kwargs: as for `check`.
        order: 2 to compare the double backwards too.
        trusted: `eager` is a definition, and its derivative none of its value: it is believed
            as it is. For straight-through estimators, clipped and scaled gradients.
        accumulate: "float32" or "float64" where `fused` rounds only what it returns to the dtype
            of its arrays, and computes in this: honest runs then do so too.
        **options: as for `check`: `rtol`, `checks`, `wrt`, `seed`, `budget`, ...

    Returns:
        The report; `report.statistics` holds every statistic with what it was allowed.

    Raises:
        UsageError: a ValueError: the comparison cannot start with these arguments.
    """
    options.setdefault("checks", (*_CHECKS, *(_SECOND if order > 1 else ())))
    return check(
        fused, inputs, kwargs, reference=eager, oracles=("reference",), order=order,
        trusted=trusted, accumulate=accumulate, **options,
    )  # fmt: skip
