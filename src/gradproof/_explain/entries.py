"""Where and why a Jacobian is wrong of which rows, or all, were measured in every column."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from gradproof._data.records import CheckResult
from gradproof._data.space import on_host
from gradproof._explain import pictures, words
from gradproof._explain.case import Case, Mask, Values
from gradproof._explain.diagnose import diagnosed, quietly
from gradproof._explain.pictures import CURVES, Claimed
from gradproof._judge.found import WrongEntries, ranked
from gradproof._measure import evaluate

_MOST = 1 << 18  # entries that are looked at for a cause
_HUGE = 1e100  # what is allowed where nothing was measured


def explained(evidence: WrongEntries, result: CheckResult) -> CheckResult:
    """The failure with its places, causes and pictures; these cost a few calls."""
    drawn = (_patch,) if evidence.settings.brief else (_patch, _curves)
    for explain in (_where, _why, *drawn):
        result = quietly(result, partial(explain, evidence))
    return result


def _numbers(evidence: WrongEntries) -> tuple[Values, Values, Values, Mask]:
    """Claimed, measured, allowed and wrong."""
    found = evidence.comparison
    claimed, measured, allowed, wrong = map(
        on_host, (found.claimed, found.measured, found.allowed, evidence.wrong)
    )
    return claimed, measured, allowed, wrong


def _where(evidence: WrongEntries, result: CheckResult) -> CheckResult:
    claimed, measured, allowed, mask = _numbers(evidence)
    care = words.telling(claimed, measured, allowed, mask)
    live = mask | (np.maximum(np.abs(claimed), np.abs(measured)) > allowed)
    told = words.described_entries(mask, care, live, _described_by(evidence))
    return replace(result, where=told)


def _described_by(evidence: WrongEntries) -> words.Map:
    map_, rows = evidence.map, evidence.rows
    return words.Map(
        domain=map_.domain,
        codomain=map_.codomain,
        rows=None if rows is None else np.asarray(list(rows)),
        point=on_host(map_.given),
        value=on_host(evaluate.centre(map_).value),
        transposed=evidence.columnwise,
    )


def _why(evidence: WrongEntries, result: CheckResult) -> CheckResult:
    map_ = evidence.map
    claimed, measured, allowed, mask = _numbers(evidence)
    blank = ~(np.isfinite(measured) & np.isfinite(allowed))
    whole = evidence.rows is None and mask.size <= _MOST
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
        value=on_host(evaluate.centre(map_).value),
        outputs=whole,
    )
    return replace(result, causes=diagnosed(case))


def _lines(evidence: WrongEntries) -> tuple[range | list[int], range]:
    """Which rows and which columns were measured."""
    map_, rows = evidence.map, evidence.rows
    return range(map_.codomain.size) if rows is None else list(rows), range(map_.domain.size)


def _patch(evidence: WrongEntries, result: CheckResult) -> CheckResult:
    lines, first = _lines(evidence), ranked(evidence.comparison, evidence.wrong)[0]
    at = [pictures.around(line, middle) for line, middle in zip(lines, first, strict=True)]
    rows, columns = ([line[k] for k in near] for line, near in zip(lines, at, strict=True))
    found = evidence.comparison
    parts = (found.claimed, found.measured, found.error, evidence.wrong)
    table = np.stack([on_host(part)[np.ix_(*at)] for part in parts])
    return replace(result, patch=pictures.patch(evidence.map, rows, columns, table))


def _curves(evidence: WrongEntries, result: CheckResult) -> CheckResult:
    rows, claimed = _lines(evidence)[0], evidence.comparison.claimed
    order = ranked(evidence.comparison, evidence.wrong)[:CURVES]
    shown = [Claimed(rows[i], j, float(claimed[i, j])) for i, j in order]
    return replace(result, curves=pictures.curves(evidence.map, evidence.settings, shown))
