"""A failure with what explains it: where, why, and what pictures are drawn from.

An explanation may cost a few calls. It changes no verdict: where it cannot be had, there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gradproof._checks import _pictures
from gradproof._checks._claims import Claim
from gradproof._checks._found import ranked
from gradproof._checks._gallery import Gallery
from gradproof._map import BudgetSpent, DifferentiableMap
from gradproof._numerics.compare import Comparison
from gradproof._records import CheckResult
from gradproof._settings import Settings
from gradproof._space import Array


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
        order = ranked(comparison, wrong)
        lines = range(map_.codomain.size) if rows is None else rows, range(map_.domain.size)
        spaces = map_.domain, map_.codomain
        result = replace(result, patch=_pictures.patch(spaces, lines, comparison, wrong, order[0]))
        shown = [
            _pictures.Claimed(lines[0][i], j, float(comparison.claimed[i, j]))
            for i, j in order[: _pictures.CURVES]
        ]
        return quietly(
            result, lambda known: replace(known, curves=_pictures.curves(map_, settings, shown))
        )

    return quietly(result, explain)


def located(
    map_: DifferentiableMap,
    settings: Settings,
    claim: Claim,
    gallery: Gallery,
    result: CheckResult,
) -> CheckResult:
    """The failure of a Jacobian of which only the columns found wrong were measured."""
    result = replace(result, curves=gallery.shown())
    return quietly(result, lambda known: replace(known, patch=gallery.patch(map_, settings, claim)))
