"""A failure with what explains it: where, why, and what pictures are drawn from.

An explanation may cost a few calls. It changes no verdict: where it cannot be had, there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gradproof._checks import _pictures
from gradproof._checks._claims import Claim
from gradproof._checks._found import ranked
from gradproof._checks._gallery import Gallery
from gradproof._explain import where
from gradproof._map import BudgetSpent, DifferentiableMap
from gradproof._numerics import measure
from gradproof._numerics.compare import Comparison
from gradproof._records import CheckResult
from gradproof._settings import Settings
from gradproof._space import Array, on_host


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
        result = quietly(result, partial(_where, map_, rows, comparison, wrong))
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


def _where(
    map_: DifferentiableMap,
    rows: Sequence[int] | None,
    comparison: Comparison,
    wrong: Array,
    result: CheckResult,
) -> CheckResult:
    claimed, measured, allowed, mask = map(
        on_host, (comparison.claimed, comparison.measured, comparison.allowed, wrong)
    )
    care = where.telling(claimed, measured, allowed, mask)
    live = mask | (np.maximum(np.abs(claimed), np.abs(measured)) > allowed)
    told = where.described(mask, care, live, _described_by(map_, rows, result.name))
    return replace(result, where=told)


def _described_by(map_: DifferentiableMap, rows: Sequence[int] | None, check: str) -> where.Map:
    return where.Map(
        domain=map_.domain,
        codomain=map_.codomain,
        rows=None if rows is None else np.asarray(list(rows)),
        point=on_host(map_.point),
        value=on_host(measure.centre(map_).value),
        transposed=check == "forward",
    )


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
