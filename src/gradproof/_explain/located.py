"""Where and why a Jacobian is wrong of which only a few columns were measured."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from gradproof._data.records import Cause, CheckResult
from gradproof._data.space import Mask, on_host
from gradproof._explain import diagnose, pictures, words
from gradproof._explain.case import NOTHING, SLACK, common_ratio, told_ratio, weight
from gradproof._explain.diagnose import cause, quietly
from gradproof._explain.scaling import near_one
from gradproof._judge.decide import BARS
from gradproof._locate.hypotheses import Common
from gradproof._locate.search import Search
from gradproof._measure import directional
from gradproof._measure.sizes import SMALL

# Part of the wrong outputs that may be followed by others of which nothing can be told.
_BEYOND = 1 / 16


def explained(evidence: Search, result: CheckResult) -> CheckResult:
    """The failure with its places and causes, and with curves where it is not told in a text."""
    drawn = () if evidence.settings.brief else (_curves,)
    for explain in (*drawn, _why, _where):
        result = quietly(result, partial(explain, evidence))
    return result


def _curves(located: Search, result: CheckResult) -> CheckResult:
    """Curves, for a picture, of the largest wrong entries whose columns have a ladder."""
    found = []
    for j, column in located.columns.items():
        if column.wrong and column.first is not None:
            i = column.wrong[0]
            found.append(pictures.of_steps(located.map, column.first, (i, j), column.claimed))
    found.sort(key=lambda curve: -abs(curve.claimed - curve.value))
    return replace(result, curves=tuple(found[: pictures.CURVES]))


def _why(located: Search, result: CheckResult) -> CheckResult:
    """The cause that the residuals showed, or the common ratio of the entries found."""
    numbers = np.asarray([(f.claimed, f.measured, f.allowed) for f in result.findings])
    ratio, number, common = common_ratio(*numbers.T), len(numbers), located.common
    if common is not None:
        causes = _of_common(common, None if ratio is None else ratio[0])
    elif ratio is not None and _tells(*ratio, number):
        evidence = f"ratio {ratio[0]:.9g} +- {ratio[1]:.1g} over {number} entries measured"
        causes = (replace(_of_ratio(ratio[0], evidence), score=weight(number)),)
    else:
        causes = ()
    return replace(result, causes=diagnose.ranked(causes))


def _tells(ratio: float, bar: float, number: int) -> bool:
    """Whether a common ratio of so many entries explains them: 1 within its error does not."""
    if abs(ratio - 1) <= SLACK * bar:
        return False
    return number > 1 or abs(ratio) < NOTHING or near_one(abs(ratio))


def _of_common(common: Common, measured: float | None) -> tuple[Cause, ...]:
    """The cause of rows that are wrong in many columns; `measured`: the ratio of the entries."""
    if common.ratio is None:
        return ()
    ratio = common.ratio
    if measured is not None and abs(measured - ratio) <= SMALL * max(1.0, abs(ratio)):
        ratio = measured  # of entries it is known more sharply
    number = common.high - common.low if common.among is None else int(common.among.sum())
    return (_of_ratio(ratio, f"ratio {ratio:.9g} in {common.rows} rows, {number:,} columns"),)


def _of_ratio(ratio: float, evidence: str) -> Cause:
    """The cause that a common ratio of claimed to measured is."""
    if abs(ratio) <= NOTHING:
        return cause("zero", "the wrong entries are claimed to be 0", evidence)
    if abs(ratio + 1) <= NOTHING:
        return cause("sign", "the sign of the wrong entries is flipped", evidence)
    return cause("factor", f"the wrong entries are multiplied by {told_ratio(ratio)}", evidence)


def _where(located: Search, result: CheckResult) -> CheckResult:
    rows, sure = _rows(located)
    columns, exact = _columns(located, result)
    if rows is None or (rows.all() and not sure):
        outputs = ""
    else:
        outputs = words.described(rows, located.map.codomain)
        outputs = outputs if sure else _inside(outputs)
    every = rows is not None and bool(rows.all())
    if not columns:
        told = outputs
    elif every or not outputs or not exact:
        seen = rows is not None and int(rows.sum()) <= len(located.rows)
        told = columns if seen else f"{columns} (in the {len(located.rows)} outputs looked at)"
    else:
        told = f"{outputs} with respect to {columns}"
    return replace(result, where=told)


def _inside(told: str) -> str:
    """Words for a set of which it is known only that nothing outside is wrong."""
    return f"only inside {told.removeprefix('all of ')}" if told else ""


def _rows(located: Search) -> tuple[Mask | None, bool]:
    """The wrong outputs, and whether it is they and not only where they lie; None if unknown."""
    if located.gap is not None and located.screen.mask is not None:
        return _filled(located, on_host(located.screen.mask)), True
    if located.screen.suspects or not _alike(located):
        return None, False
    rows = np.zeros(located.map.codomain.size, dtype=bool)
    followed = located.rows
    if located.many:
        rows[min(followed) : max(followed) + 1] = True
        return rows, False
    rows[followed] = True
    return rows, True


def _filled(located: Search, rows: Mask) -> Mask:
    """The wrong outputs, and those between them, or beyond, of which nothing can be told.

    They are blurred, or have a derivative so small that a gap as large, for its size, as the others
    have would not be seen.
    """
    found = directional.along(located.map, located.settings, 0).estimate
    exact, gap = on_host(found.value), on_host(located.gap)
    allowed = BARS * on_host(found.error) + NOTHING * np.abs(exact)
    told = words.telling(exact + gap, exact, allowed, rows)
    told[list(located.screen.blurred)] = False
    first, last = int(np.argmax(rows)), rows.size - int(np.argmax(rows[::-1]))
    few = _BEYOND * (last - first)
    first = 0 if first <= few and not told[:first].any() else first
    last = rows.size if rows.size - last <= few and not told[last:].any() else last
    between = np.zeros_like(rows)
    between[first:last] = True
    return between if bool((rows | ~told)[between].all()) else rows


def _alike(located: Search) -> bool:
    """Whether other rows like these would have been seen by projections.

    A gap that is a small part of the row is seen only in the few rows whose bars are smallest:
    they are then alike in nothing but that.
    """
    along = located.along
    got, exact, allowed = (on_host(one) for one in (along.claimed, along.measured, along.allowed))
    plain = np.abs(got - exact) >= SMALL * np.abs(exact)  # as gradcheck sees
    alike = not located.many or common_ratio(got, exact, allowed) is not None
    return bool(plain.all()) and alike


def _columns(located: Search, result: CheckResult) -> tuple[str, bool]:
    """The wrong inputs, where they are the same for all rows looked at, and whether it is they.

    "" where they are not the same, or all.
    """
    common = located.common
    if common is not None:
        mask = np.zeros(located.map.domain.size, dtype=bool)
        mask[common.low : common.high] = (
            True if common.among is None else common.among[common.low : common.high]
        )
        told = "" if mask.all() else words.described(mask, located.map.domain)
        return (told if common.sure else _inside(told)), common.sure
    places = {str(finding.input) for finding in result.findings}
    alone = len(places) == 1 and located.complete and not located.crowded
    return (places.pop() if alone else ""), True
