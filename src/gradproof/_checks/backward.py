"""The backward against differences."""

from __future__ import annotations

from gradproof._checks._claims import Backward
from gradproof._checks._judge import judge
from gradproof._map import DifferentiableMap
from gradproof._records import CheckResult
from gradproof._settings import Settings


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """J^T v as claimed by the backward has the entries that differences measure."""
    return judge(map_, settings, Backward(map_, settings))
