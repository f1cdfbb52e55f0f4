"""The museum: wrong derivatives that must be caught, and right ones that must not be accused.

Nearly every exhibit re-creates a mistake that reached the users of a published library; `source`
names the row of field/complaints.md (M..) or field/peers.md (W.., J.., C..) with the references.
All run on the CPU, in float64 or complex128 unless the exhibit is about precision.
"""

from __future__ import annotations

from exhibits import (
    branches,
    bug_reports,
    causes,
    corners,
    cotangents,
    definitions,
    elsewhere,
    entries,
    in_torch,
    innocents,
    low_precision,
    modes,
    modules,
    scales,
    second_point,
    solvers,
    subsets,
    ties,
)
from exhibits.frame import Exhibit

EXHIBITS: tuple[Exhibit, ...] = (
    *entries.EXHIBITS,
    *branches.EXHIBITS,
    *causes.EXHIBITS,
    *corners.EXHIBITS,
    *cotangents.EXHIBITS,
    *definitions.EXHIBITS,
    *modes.EXHIBITS,
    *modules.EXHIBITS,
    *innocents.EXHIBITS,
    *scales.EXHIBITS,
    *in_torch.EXHIBITS,
    *subsets.EXHIBITS,
    *low_precision.EXHIBITS,
    *solvers.EXHIBITS,
    *second_point.EXHIBITS,
    *ties.EXHIBITS,
    *elsewhere.EXHIBITS,
    *bug_reports.EXHIBITS,
)

# Rows that no function on a CPU in float64 can re-create, and why.
NOT_HERE = {
    "W9": "field/peers.md has no such row",
}

__all__ = ["EXHIBITS", "NOT_HERE", "Exhibit"]
