"""Where and why, for a Jacobian of which only a few columns were measured."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from gradproof._checks._explained import quietly
from gradproof._checks._found import BARS
from gradproof._checks._hunt import Hunt, claimed
from gradproof._checks._patterns import named
from gradproof._checks._picked import SomeOf
from gradproof._checks._screen import Screen
from gradproof._explain import diagnose, sets
from gradproof._explain.scaling import common_ratio, near_one
from gradproof._numerics import measure
from gradproof._records import CheckResult, Finding
from gradproof._space import on_host

_PLAIN = 1e-3  # of a row's derivative
_NEAR = 1e-6  # likewise
_SEEN = 1e-7  # likewise: a gap below it may not be looked into
_FEW = 16  # parts of the wrong outputs that may be followed by others of which nothing can be told
_ENOUGH = 4  # entries from which a common factor is no accident


def explained(hunt: Hunt, screen: Screen, result: CheckResult) -> CheckResult:
    """The failure with what explains it."""
    result = replace(result, curves=hunt.gallery.shown())
    for explain in (_patch, _why, partial(_where, screen=screen)):
        result = quietly(result, partial(explain, hunt))
    return result


def _patch(hunt: Hunt, result: CheckResult) -> CheckResult:
    crowded = bool(hunt.crowded or hunt.grouped)
    found = hunt.gallery.patch(hunt.map, hunt.settings, hunt.claim, crowded=crowded)
    return replace(result, patch=found)


def _why(hunt: Hunt, result: CheckResult) -> CheckResult:
    """The cause that the probes showed, or the common ratio of the entries found."""
    causes = list(hunt.pattern.causes) if hunt.pattern is not None else []
    numbers = np.asarray([(f.claimed, f.measured, f.allowed) for f in result.findings])
    ratio = common_ratio(*numbers.T)
    number = len(numbers)
    told = ratio is not None and (number > 1 or abs(ratio[0]) < 1e-6 or near_one(abs(ratio[0])))
    if ratio is not None and told and not causes:
        evidence = f"ratio {ratio[0]:.9g} +- {ratio[1]:.1g} over {number} entries measured"
        score = 1.0 if number >= _ENOUGH else 0.8 if number > 1 else 0.5
        causes.append(replace(named(ratio[0], evidence), score=score))
    return replace(result, causes=diagnose.ranked(causes))


def _where(hunt: Hunt, result: CheckResult, screen: Screen) -> CheckResult:
    rows, sure = _rows(hunt, screen)
    columns = _columns(hunt, result.findings)
    if rows is None or (rows.all() and not sure):
        outputs = ""
    else:
        outputs = sets.described(rows, hunt.whole)
        outputs = outputs if sure or not outputs else f"only inside {outputs}"
    every = rows is not None and bool(rows.all())
    if not columns:
        told = outputs
    elif every or not outputs or columns.startswith("only inside"):
        seen = rows is not None and int(rows.sum()) <= len(hunt.rows)
        told = columns if seen else f"{columns} (in the {len(hunt.rows)} outputs looked at)"
    else:
        told = f"{outputs} with respect to {columns}"
    return replace(result, where=told)


def _rows(hunt: Hunt, screen: Screen) -> tuple[sets.Mask | None, bool]:
    """The wrong outputs, and whether it is they and not only where they lie; None if unknown."""
    if hunt.gap is not None and screen.mask is not None:
        rows = on_host(screen.mask)
        # Of a large map it is no longer known what lies between them.
        large = hunt.whole is not hunt.map.codomain
        return (rows if large else _filled(hunt, screen, rows)), True
    if screen.suspects or not _alike(hunt):
        return None, False
    rows = np.zeros(hunt.whole.size, dtype=bool)
    followed = hunt.rows
    if isinstance(hunt.map.codomain, SomeOf):
        followed = [int(hunt.map.codomain.rows[i]) for i in followed]
    if hunt.many_rows:
        rows[min(followed) : max(followed) + 1] = True
        return rows, False
    rows[followed] = True
    return rows, True


def _filled(hunt: Hunt, screen: Screen, rows: sets.Mask) -> sets.Mask:
    """The wrong outputs, and those between them of which nothing can be told.

    A few before the first and after the last are filled in, too. They are blurred, or have a
    derivative so small that a gap as large, for its size, as the others have would not be seen.
    """
    found = measure.along(hunt.map, hunt.settings, 0).estimate
    exact, error = on_host(found.value), on_host(found.error)
    part = float(
        np.median(np.abs(on_host(hunt.gap)[rows]) / np.maximum(np.abs(exact[rows]), 1e-300))
    )
    with np.errstate(all="ignore"):
        unseen = 0.5 * part * np.abs(exact) <= BARS * error + _SEEN * np.abs(exact)
    unseen[list(screen.blurred)] = True
    between = np.zeros_like(rows)
    first, last = int(np.argmax(rows)), rows.size - int(np.argmax(rows[::-1]))
    few = (last - first) // _FEW  # unseen ones before the first or after the last
    first = 0 if first <= few and unseen[:first].all() else first
    last = rows.size if rows.size - last <= few and unseen[last:].all() else last
    between[first:last] = True
    return between if bool((rows | unseen)[between].all()) else rows


def _alike(hunt: Hunt) -> bool:
    """Whether other rows like these would have been seen by projections.

    A gap that is a small part of the row is seen only in the few rows whose bars are smallest:
    they are then alike in nothing but that.
    """
    first = measure.along(hunt.map, hunt.settings, 0)
    exact, error = (
        on_host(values)[hunt.rows] for values in (first.estimate.value, first.estimate.error)
    )
    got = on_host(claimed(hunt, first.direction))
    ratio = common_ratio(got, exact, BARS * error + _NEAR * np.abs(exact))
    plain = np.abs(got - exact) >= _PLAIN * np.abs(exact)
    return bool(plain.all()) and (ratio is not None or not hunt.many_rows)


def _columns(hunt: Hunt, findings: tuple[Finding, ...]) -> str:
    """The wrong inputs, where they are the same for all rows looked at; "" where not, or all."""
    if hunt.pattern is not None:
        return hunt.pattern.words
    if hunt.unexplained:  # by the columns that were found: there are others
        return ""
    single = set(hunt.single.values())
    if len(single) == 1 and not hunt.crowded:
        return str(hunt.map.domain.locate(single.pop()))
    places = {str(finding.input) for finding in findings}
    return places.pop() if len(places) == 1 and not hunt.crowded else ""
