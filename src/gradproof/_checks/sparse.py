"""Where the domain covers only some entries of an input, the others have no gradient."""

from __future__ import annotations

from gradproof._checks.outcome import failed_check, passed_check
from gradproof._data.records import CheckResult, Finding, Place
from gradproof._measurements import Measurements

_NAME = "sparse"


def check(measurements: Measurements) -> CheckResult:
    """No entry outside the domain has a gradient.

    Raises:
        Unsupported: every entry of every input is in the domain.
    """
    map_ = measurements.map
    findings = []
    for slot, index, value in map_.outside_domain(measurements.cotangent):
        place = Place(map_.domain.slots[slot].name, slot, index)
        message = f"gradient of {place}: {value:.6g}, but the entry is unspecified: expected 0"
        findings.append(Finding(_NAME, message, "outside", place, None, value, 0.0, 0.0, 0.0))
    if findings:
        return failed_check(_NAME, "unspecified entries have a gradient", tuple(findings))
    return passed_check(_NAME, "unspecified entries have no gradient")
