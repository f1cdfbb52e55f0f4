"""Measured entries of a Jacobian as evidence, and what is said of the wrong and the open ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradproof._data.records import Finding
from gradproof._data.space import Array, namespace, on_host, positions
from gradproof._judge.claims import Claim, OfClaim
from gradproof._judge.decide import Decision
from gradproof._judge.opinion import Opinion
from gradproof._judge.outcome import entry
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure import evaluate
from gradproof._measure.sizes import MOST_FINDINGS


@dataclass(frozen=True)
class Entries(OfClaim):
    """Evidence: some rows of the Jacobian, or all, claimed, and measured in every column."""

    claim: Claim  # whose Jacobian it is
    rows: Sequence[int] | None  # which rows; None for all
    comparison: Decision  # entry by entry
    size: Array  # largest measured entry of each row, in units of the column
    kink: Array  # the part of the error bar that a kink makes
    wrong: Array | None = None  # which are refuted

    @property
    def values(self) -> Array:
        """F at the point, of these rows."""
        return self.chosen(evaluate.centre(self.claim.map).value)

    def chosen(self, values: Array) -> Array:
        """The values of these rows, out of those of all outputs."""
        return values if self.rows is None else taken(values, self.rows)

    def output(self, row: int) -> int:
        """The number of the output that a row is of."""
        return row if self.rows is None else self.rows[row]


def taken(values: Array, rows: Sequence[int]) -> Array:
    """The values at some positions."""
    xp = namespace(values)
    return xp.take(values, xp.asarray(list(rows)))


def count(number: int, noun: str = "entry") -> str:
    """A number with its noun: "1 wrong entry", "2 wrong entries"."""
    return f"{number:,} {noun if number == 1 else noun[:-1] + 'ies'}"


def sorted_findings(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Largest gap first, NaN before all, and no more than a report can hold."""
    ordered = sorted(findings, key=lambda f: -math.inf if math.isnan(f.gap) else -f.gap)
    return tuple(ordered[:MOST_FINDINGS])


def ranked(comparison: Decision, wrong: Array) -> list[tuple[int, int]]:
    """The wrong entries by row and column, largest gap first, NaN before all."""
    xp = namespace(wrong)
    gap = xp.where(xp.isnan(comparison.gap), xp.inf, comparison.gap)
    rows, columns = (on_host(at) for at in xp.nonzero(wrong))
    order = np.argsort(-on_host(gap)[rows, columns], kind="stable")
    return list(zip(rows[order].tolist(), columns[order].tolist(), strict=True))


def findings_of(
    check: str,
    map_: DifferentiableMap,
    comparison: Decision,
    wrong: Array,
    *,
    rows: Sequence[int] | None = None,
    columns: Sequence[int] | None = None,
) -> list[Finding]:
    """Findings for the wrong entries with the largest gaps, of some rows and columns, or all."""
    found, c = [], comparison
    tables = [on_host(each) for each in (c.claimed, c.measured, c.error, c.allowed)]
    for i, j in ranked(comparison, wrong)[:MOST_FINDINGS]:
        claimed, measured, error, allowed = (float(table[i, j]) for table in tables)
        at = (i if rows is None else rows[i], j if columns is None else columns[j])
        found.append(entry(check, map_, at, (claimed, measured, error, allowed)))
    return found


def refuted(entries: Entries, wrong: Array, notes: Sequence[str] = ()) -> Opinion:
    """The opinion that some entries of a measured Jacobian are wrong."""
    map_, check, xp = entries.map, entries.claim.check, namespace(wrong)
    findings = findings_of(check, map_, entries.comparison, wrong, rows=entries.rows)
    total = wrong.shape[0] * wrong.shape[1]
    number = int(xp.sum(xp.astype(wrong, xp.int64)))
    summary = f"{number:,} of {total:,} entries wrong" + pattern(wrong, map_)
    evidence = replace(entries, wrong=wrong)
    return Opinion(check, summary, tuple(findings), notes=tuple(notes), evidence=evidence)


def pattern(wrong: Array, map_: DifferentiableMap) -> str:
    """Which whole rows or columns are wrong, in words; empty where neither says it."""
    xp = namespace(wrong)
    if wrong.shape[0] < 2 or wrong.shape[1] < 2:
        return ""
    if bool(xp.all(wrong)):
        return ": all of them"
    number = xp.astype(wrong, xp.int64)
    in_row, in_column = xp.sum(number, axis=1), xp.sum(number, axis=0)
    whole = bool(xp.all((in_row == 0) | (in_row == wrong.shape[1])))
    if whole and wrong.shape[0] == map_.codomain.size:
        rows = positions(in_row)
        first = map_.codomain.locate(rows[0])
        return (
            f": every entry of {first}"
            if len(rows) == 1
            else (f": every entry of {len(rows):,} outputs, {first} first")
        )
    columns = positions(in_column)
    if len(columns) == 1:
        return f": all with respect to {map_.domain.locate(columns[0])}"
    return ""


def unresolved(entries: Entries, blurred: Array, worst: float, *, told: bool = True) -> Opinion:
    """That entries stay open, with the first of them and why; whose outputs are `told` or not."""
    map_, xp = entries.map, namespace(blurred)
    rows, columns = xp.nonzero(blurred)
    which = positions(xp.any(blurred, axis=1)) if told else []
    i, j = int(rows[0]), int(columns[0])
    comparison = entries.comparison
    value, error = float(comparison.measured[i, j]), float(comparison.error[i, j])
    if error < math.inf and float(entries.kink[i, j]) >= 0.5 * error:
        why = f"not differentiable: slopes between {value - error:.3g} and {value + error:.3g}"
    elif error < math.inf:
        why = f"measured {value:.3g} +- {error:.1g}"
    elif math.isinf(there := float(entries.values[i])):
        why = f"the output is {there:g} there"
    else:
        why = map_.memo.get(("raised",)) or "no step gives a stable difference"
    place = f"{map_.domain.locate(j)} -> {map_.codomain.locate(entries.output(i))}"
    return Opinion(
        entries.claim.check,
        f"{rows.shape[0]:,} of {blurred.shape[0] * blurred.shape[1]:,} entries could not be "
        f"resolved, {place} first: {why}",
        open=True,
        outputs=tuple(which if entries.rows is None else (entries.rows[k] for k in which)),
        resolution=worst,
    )
