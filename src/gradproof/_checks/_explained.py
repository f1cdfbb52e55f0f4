"""A failure with what explains it: where, why, and what pictures are drawn from.

An explanation may cost a few calls. It changes no verdict: where it cannot be had, there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gradproof._checks import _pictures
from gradproof._checks._found import ranked
from gradproof._evidence import Cause
from gradproof._explain import diagnose, where
from gradproof._explain.case import Case
from gradproof._explain.diagnose import cause, diagnosed
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
        result = quietly(result, partial(_why, map_, rows, comparison, wrong))
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


_MOST = 1 << 18  # entries that are looked at for a cause
_HUGE = 1e100  # what is allowed where nothing was measured


def _why(
    map_: DifferentiableMap,
    rows: Sequence[int] | None,
    comparison: Comparison,
    wrong: Array,
    result: CheckResult,
) -> CheckResult:
    claimed, measured, allowed, mask = map(
        on_host, (comparison.claimed, comparison.measured, comparison.allowed, wrong)
    )
    blank = ~(np.isfinite(measured) & np.isfinite(allowed))
    whole = rows is None and mask.size <= _MOST
    kept = np.arange(mask.shape[0])
    if not whole:
        kept = np.argsort(~mask.any(axis=1), kind="stable")[: max(1, _MOST // mask.shape[1])]
    case = Case(
        claimed=np.where(blank, 0.0, claimed)[kept, :],
        measured=np.where(blank, 0.0, measured)[kept, :],
        allowed=np.where(blank, _HUGE, allowed)[kept, :],
        wrong=mask[kept, :],
        domain=map_.domain,
        codomain=map_.codomain,
        point=on_host(map_.point),
        value=on_host(measure.centre(map_).value),
        outputs=whole,
    )
    causes = (*_of_findings(result), *diagnosed(case))
    return replace(result, causes=diagnose.ranked(causes))


def _of_findings(result: CheckResult) -> tuple[Cause, ...]:
    """Causes that the findings name themselves."""
    detached = [finding for finding in result.findings if finding.kind == "detached"]
    if detached and len(detached) == len(result.findings):
        names = ", ".join(dict.fromkeys(f.output_name or "" for f in detached))
        return (cause("output detached", f"{names} has a derivative and claims to have none"),)
    return ()


def _described_by(map_: DifferentiableMap, rows: Sequence[int] | None, check: str) -> where.Map:
    return where.Map(
        domain=map_.domain,
        codomain=map_.codomain,
        rows=None if rows is None else np.asarray(list(rows)),
        point=on_host(map_.given),
        value=on_host(measure.centre(map_).value),
        transposed=check == "forward",
    )
