"""Results about the claims of one mode at one point, with the measured numbers behind them.

A check turns it into a `CheckResult`; the blocks are the evidence that places and causes come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gradproof._data.records import Finding, Kink, Statistic, Verdict
from gradproof._data.space import Indices, Mask, Space, Values


@dataclass(frozen=True)
class MeasuredBlock:
    """Entries of a Jacobian that were measured: the evidence for places and causes.

    Attributes:
        rows, columns: outputs and inputs, (r,) and (k,).
        claimed, measured, error, allowed: of each entry, (r, k).
        wrong: which entries are refuted, (r, k).
        whole: whether it is the whole Jacobian.
    """

    rows: Indices
    columns: Indices
    claimed: Values
    measured: Values
    error: Values
    allowed: Values
    wrong: Mask
    whole: bool


@dataclass(frozen=True)
class JacobianEvidence(MeasuredBlock):
    """Measured entries, and the map whose they are: of the function, or of a derivative of it.

    Attributes:
        domain, codomain: of the map.
        point: values of its inputs, (n,).
        value: values of its outputs, (m,).
    """

    domain: Space
    codomain: Space
    point: Values
    value: Values

    @property
    def wrong_rows(self) -> Mask:
        return np.asarray(self.wrong.any(axis=1))

    @property
    def wrong_columns(self) -> Mask:
        return np.asarray(self.wrong.any(axis=0))


@dataclass(frozen=True)
class PointResult:
    """The verdict on the claims of one mode at one point.

    Attributes:
        verdict: PASSED, FAILED or INCONCLUSIVE.
        summary: what was seen, what is wrong, or why something is open, in one line.
        findings: disagreements, largest gap first.
        bound: the largest error that could have passed, in parts of the largest entry of its row
            or column; NaN where nothing was measured.
        kinks: entries at which F is not differentiable.
        notes: remarks that do not change the verdict.
        block: measured entries, for places and causes; None where there are none.
        statistics: of a derivative in few bits.
        reference: what the claims were held against, if it is not F itself.
        refused: references that could not be used, each with the reason.
    """

    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()
    bound: float = math.nan
    kinks: tuple[Kink, ...] = ()
    notes: tuple[str, ...] = ()
    block: MeasuredBlock | None = None
    statistics: tuple[Statistic, ...] = ()
    reference: str = ""
    refused: tuple[str, ...] = ()

    def with_notes(self, *notes: str) -> PointResult:
        added = tuple(filter(None, notes))
        return replace(self, notes=(*self.notes, *added)) if added else self


def passed_point(summary: str, bound: float = math.nan) -> PointResult:
    return PointResult(Verdict.PASSED, summary, bound=bound)


def inconclusive_point(summary: str) -> PointResult:
    return PointResult(Verdict.INCONCLUSIVE, summary)


def count_of(number: int, singular: str = "entry", plural: str = "entries") -> str:
    """A number with its noun: "1 wrong entry" or "2 wrong entries"."""
    return f"{number:,} {singular if number == 1 else plural}"
