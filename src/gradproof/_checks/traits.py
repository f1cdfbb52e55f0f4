"""Each gradient has its input's dtype, device, shape and layout, and does not mind the others."""

from __future__ import annotations

from gradproof._checks import _subsets
from gradproof._checks._outcome import failed, passed
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
    try:
        none: tuple[tuple[Finding, ...], str] = (), ""
        subsets, asked = _subsets.findings(map_, settings) if settings.other_inputs else none
    except Unsupported:
        subsets, asked = none
    if subsets:
        summary = "a gradient depends on which other inputs need one"
        return failed(_NAME, summary, subsets)
    summary = "gradients have dtype, device, shape and layout of their inputs"
    return passed(_NAME, f"{summary}, {asked}" if asked else summary)
