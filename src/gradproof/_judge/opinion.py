"""What one look at the claims of a mode shows, at one point. Only `_verdict/conclude` judges."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradproof._data.records import Finding, Kink, Statistic


@dataclass(frozen=True)
class Opinion:
    """Claims are refuted by findings, left open where `open` says so, and else verified.

    Attributes:
        check: whose claims.
        summary: one line: what was seen, what is wrong, or why something is left open.
        findings: disagreements, largest first.
        open: whether something that had to be decided is not.
        flat: the error bar of a derivative of zero, claimed and measured, of a function that does
            not vary: nothing was tested; None elsewhere.
        resolution: largest error bar relative to the derivative's size; NaN where none is known.
        notes: remarks that decide nothing.
        kinks: entries at which the function is not differentiable.
        oracle: what the claims were held against.
        statistics: of a derivative in few bits.
        evidence: of the findings, for their explanation.
    """

    check: str
    summary: str
    findings: tuple[Finding, ...] = ()
    open: bool = False
    flat: float | None = None
    resolution: float = math.nan
    notes: tuple[str, ...] = ()
    kinks: tuple[Kink, ...] = ()
    oracle: str = ""
    statistics: tuple[Statistic, ...] = ()
    evidence: object = None

    @property
    def verified(self) -> bool:
        return not self.findings and not self.open
