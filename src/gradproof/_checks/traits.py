"""Each gradient has its input's dtype, device, shape and layout, and does not mind the others."""

from __future__ import annotations

from gradproof._checks._outcome import failed, passed
from gradproof._checks._subsets import Subsets
from gradproof._map import DifferentiableMap, Unsupported
from gradproof._numerics import probes
from gradproof._records import CheckResult, Finding, Place
from gradproof._settings import Settings

_NAME = "traits"


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """A gradient is the same kind of array as its input, whichever other inputs need one."""
    v = probes.short_cotangent(map_, settings.seed or 0, 0)
    findings = []
    for trait in map_.gradient_traits(v):
        name = map_.domain.slots[trait.slot].name
        message = (
            f"gradient of {name}: its {trait.what} is {trait.claimed}, "
            f"the input's is {trait.expected}"
        )
        findings.append(Finding(_NAME, message, trait.what, Place(name, trait.slot, ())))
    if findings:
        return failed(
            _NAME, "a gradient is not the kind of array that its input is", tuple(findings)
        )
    summary = "gradients have dtype, device, shape and layout of their inputs"
    if not settings.other_inputs:
        return passed(_NAME, summary)
    try:
        subsets = Subsets(map_, settings)
    except Unsupported:
        return passed(_NAME, summary)
    if subsets.findings:
        summary = "a gradient depends on which other inputs need one"
        return failed(_NAME, summary, subsets.findings, notes=subsets.notes)
    asked = f", {subsets.said}" if subsets.said else ""
    return passed(_NAME, summary + asked, notes=subsets.notes)
