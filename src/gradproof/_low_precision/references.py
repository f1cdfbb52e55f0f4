"""Functions in double precision against whose derivative claims are held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gradproof._compare.tolerances import root_mean_square
from gradproof._data.exceptions import exception_line
from gradproof._data.settings import RunSettings
from gradproof._data.space import Values
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._numdiff.values import FunctionValues
from gradproof.errors import UsageError

_SAME_VALUE = 0.1  # of its size: rounding that the function magnifies, not another function
_HONEST = 16.0  # times the error of honest runs
_ULPS = 64.0  # of the value: a sum in another order, an approximation of exp
USERS_REFERENCE = "the reference"


@dataclass(frozen=True)
class Reference:
    """A map against whose derivative claims are held.

    Attributes:
        name: for the report.
        is_own: whether it is the function under test, run in double precision: that its derivative
            is wrong is then a finding.
        map: at the same point.
        function: its values.
    """

    name: str
    is_own: bool
    map: DifferentiableMap
    function: FunctionValues


def find_references(
    map_: DifferentiableMap,
    settings: RunSettings,
    is_double: bool,
    users: Callable[[], DifferentiableMap] | None,
) -> tuple[list[Reference], list[str]]:
    """The references of a map in the order of `settings.references`, and why others are refused.

    Args:
        map_: the function under test.
        settings: with the order of references.
        is_double: whether the function is in double precision itself.
        users: makes the map of the user's reference, in double precision; None without one.
    """
    usable, refused = [], []
    make: Callable[[], DifferentiableMap]
    kinds = ("reference",) if settings.asks_reference_only else settings.references
    for kind in kinds:
        if kind == "double" and not is_double:
            name, make = "the same function in float64", map_.map_in_double
        elif kind == "reference" and users is not None:
            name, make = USERS_REFERENCE, users
        else:
            continue
        try:
            candidate = make()
            candidate.derived = map_.derived
            function = FunctionValues(candidate)
        except (UsageError, MemoryError):
            raise
        except Unsupported as missing:
            refused.append(f"{name}: {missing.reason}")
            continue
        except Exception as error:  # a function may not run in double precision
            refused.append(f"{name}: it raised {exception_line(error)}")
            continue
        if reason := _missing_value_text(map_, function):
            refused.append(f"{name}: {reason}")
            continue
        usable.append(Reference(name, kind == "double", candidate, function))
    return usable, refused


def _missing_value_text(map_: DifferentiableMap, function: FunctionValues) -> str:
    """Why a reference has no value where the function under test has one; "" if it has."""
    ours = np.asarray(map_.kept_value(), float)
    missing = np.flatnonzero(np.isfinite(ours) & ~np.isfinite(function.centre))
    if not missing.size:
        return ""
    place = map_.codomain.locate(int(missing[0]))
    return f"it returns another value: {place} is {function.centre[missing[0]]}"


def different_value_text(
    map_: DifferentiableMap, exact: Values, honest_errors: Values, *, is_own: bool
) -> str:
    """That a reference's value is another than the function's; "" where rounding explains it.

    Args:
        map_: the function under test.
        exact: value of the reference, (m,).
        honest_errors: of honest runs of the reference, (R, m).
        is_own: whether it is the function itself on float64 arrays. It may still be another one
            there, as where an epsilon depends on the dtype: then rounding alone must explain the
            difference. A user's reference may differ by a tenth.
    """
    got = np.asarray(map_.kept_value(), float)
    good = np.isfinite(got) & np.isfinite(exact)
    for position, slot in enumerate(map_.codomain.slots):
        span = map_.codomain.span(position)
        here = good[span]
        gap = root_mean_square((got - exact)[span][here])
        size = root_mean_square(exact[span][here])
        honest = max((root_mean_square(run[span][here]) for run in honest_errors), default=0.0)
        part = _SAME_VALUE
        if is_own and len(honest_errors):
            part = min(part, _ULPS * slot.grain.unit)
        if gap > max(part * size, _HONEST * honest):
            return f"it returns another value: off by {gap / max(size, 1e-300):.2g} of its size"
    return ""
