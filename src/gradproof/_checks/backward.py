"""The backward against differences."""

from __future__ import annotations

from gradproof._checks import _modes
from gradproof._checks._claims import Backward
from gradproof._checks._verify import verify
from gradproof._map import DifferentiableMap
from gradproof._records import CheckResult
from gradproof._settings import Settings


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """J^T v as claimed by the backward has the entries that differences measure."""
    return verify(map_, settings, Backward, _modes.backward)
