"""Where the domain covers only some entries of an input, the others have gradient zero."""

from __future__ import annotations

from gradproof._checks._outcome import failed, passed
from gradproof._map import DifferentiableMap
from gradproof._numerics import probes
from gradproof._records import CheckResult, Finding, Place
from gradproof._settings import Settings

_NAME = "sparse"


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """No entry outside the domain has a gradient."""
    v = probes.short_cotangent(map_, settings.seed or 0, 0)
    findings = []
    for slot, index, value in map_.outside_domain(v):
        place = Place(map_.domain.slots[slot].name, slot, index)
        message = f"gradient of {place}: {value:.6g}, but the entry is unspecified: expected 0"
        findings.append(Finding(_NAME, message, "outside", place, None, value, 0.0, 0.0, 0.0))
    if findings:
        return failed(_NAME, "unspecified entries have a gradient", tuple(findings))
    return passed(_NAME, "unspecified entries have no gradient")
