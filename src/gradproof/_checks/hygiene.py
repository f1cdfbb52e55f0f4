"""The function and its backward change nothing that is not theirs."""

from __future__ import annotations

from gradproof._checks import _behaviour
from gradproof._checks._outcome import failed, passed
from gradproof._map import DifferentiableMap
from gradproof._numerics import probes
from gradproof._records import CheckResult, Finding
from gradproof._settings import Settings

_NAME = "hygiene"


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """Cotangent, inputs, saved arrays, stored gradients and global state stay as they were."""
    v = probes.short_cotangent(map_, settings.seed or 0, 0)
    findings = tuple(Finding(_NAME, sentence, kind) for kind, sentence in map_.side_effects(v))
    if findings:
        result = failed(_NAME, "something was changed that should not be", findings)
        return _behaviour.of_writes(result)
    return passed(_NAME, "inputs, cotangent, saved arrays and global state are left as they were")
