"""The derivative of the backward: the backward is itself a map, judged like any other."""

from __future__ import annotations

from dataclasses import replace

from gradproof._checks._claims import Backward
from gradproof._checks._judge import judge
from gradproof._checks._outcome import skipped
from gradproof._map import DifferentiableMap
from gradproof._numerics import probes
from gradproof._records import CheckResult
from gradproof._settings import Settings

_NAME = "second_order"


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """The double backward has the entries that differences of the backward measure."""
    if settings.order < 2:
        return skipped(_NAME, "not asked for; order=2 asks for it")
    derivative = map_.derivative(probes.cotangent(map_, settings.seed or 0, 0))
    result = judge(derivative, settings, Backward(derivative, settings))
    findings = tuple(replace(finding, check=_NAME) for finding in result.findings)
    return replace(result, name=_NAME, findings=findings)
