"""What one look at the claims of a mode shows, at one point. Only `_verdict/conclude` judges."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradproof._data.records import Finding, Kink, Statistic


@dataclass(frozen=True)
class Opinion:
    """Claims are refuted by findings, left open where `open` says so, and else verified."""

    check: str  # whose claims
    summary: str  # one line: what was seen, what is wrong, or why something is left open
    findings: tuple[Finding, ...] = ()  # disagreements, largest first
    open: bool = False  # whether something that had to be decided is not
    # Outputs whose derivative is left open, and no other is; none where that is not known.
    outputs: tuple[int, ...] = ()
    # The error bar of a derivative of zero, claimed and measured, of a function, or of its outputs
    # that are open, that does not vary: nothing was tested; None elsewhere.
    flat: float | None = None
    # Largest error bar relative to the derivative's size; NaN where none is known.
    resolution: float = math.nan
    notes: tuple[str, ...] = ()  # remarks that decide nothing
    kinks: tuple[Kink, ...] = ()  # entries at which the function is not differentiable
    oracle: str = ""  # what the claims were held against
    statistics: tuple[Statistic, ...] = ()  # of a derivative in few bits
    evidence: object = None  # of the findings, for their explanation

    @property
    def verified(self) -> bool:
        return not self.findings and not self.open
