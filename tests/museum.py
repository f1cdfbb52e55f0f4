"""The museum: wrong derivatives that must be caught, and right ones that must not be accused.

Nearly every exhibit re-creates a mistake that reached the users of a published library; `source`
names the row of field/complaints.md (M..) or field/peers.md (W.., J.., C..) with the references.
All run on the CPU, in float64 or complex128 unless the exhibit is about precision.
"""

from __future__ import annotations

from exhibits import (
    branches,
    corners,
    cotangents,
    entries,
    innocents,
    low_precision,
    modes,
    scales,
)
from exhibits.frame import Exhibit

EXHIBITS: tuple[Exhibit, ...] = (
    *entries.EXHIBITS,
    *branches.EXHIBITS,
    *corners.EXHIBITS,
    *cotangents.EXHIBITS,
    *modes.EXHIBITS,
    *innocents.EXHIBITS,
    *scales.EXHIBITS,
    *low_precision.EXHIBITS,
)

# Rows that no function on a CPU in float64 can re-create, and why.
NOT_HERE = {
    "W9": "field/peers.md has no such row",
    "M19": "a miscompiled kernel of one GPU; the same code is right on another",
    "M20": "bfloat16 attention on a GPU, and only with the activations of a real training run",
    "M35": "the eager function is right; only its compiled version is wrong",
    "M36": "the backward is dropped by a compiler or by function transforms, not by the function",
    "M37": "needs tensors of more than 2**32 elements on Apple hardware",
}

__all__ = ["EXHIBITS", "NOT_HERE", "Exhibit"]
