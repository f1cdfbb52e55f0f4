"""The museum: wrong derivatives that must be caught, and right ones that must not be accused.

Nearly every exhibit re-creates a mistake that reached the users of a published library, or one that
other tools miss; `source` is its number in lists that were made before this library was. All run on
the CPU, in float64 or complex128 unless the exhibit is about precision.
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

TOPICS = (entries, branches, causes, corners, cotangents, definitions, modes, modules, innocents)
TOPICS += (scales, in_torch, subsets, low_precision, solvers, second_point, ties, elsewhere)
TOPICS += (bug_reports,)
EXHIBITS = tuple(exhibit for topic in TOPICS for exhibit in topic.EXHIBITS)

__all__ = ["EXHIBITS", "Exhibit"]
