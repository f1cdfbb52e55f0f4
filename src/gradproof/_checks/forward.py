"""Forward mode against differences."""

from __future__ import annotations

from gradproof._checks import _modes
from gradproof._checks._claims import Forward
from gradproof._checks._verify import verify
from gradproof._map import DifferentiableMap
from gradproof._records import CheckResult
from gradproof._settings import Settings


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """J u as claimed by forward mode has the entries that differences measure."""
    return verify(map_, settings, Forward, _modes.forward)
