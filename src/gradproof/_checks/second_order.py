"""The derivative of the backward: the backward is itself a map, judged like any other."""

from __future__ import annotations

from dataclasses import replace

from gradproof._checks import _oracle, _precision
from gradproof._checks._claims import Backward
from gradproof._checks._outcome import skipped
from gradproof._checks._verify import verify
from gradproof._map import DifferentiableMap
from gradproof._numerics import probes
from gradproof._records import CheckResult
from gradproof._settings import Settings

_NAME = "second_order"


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """The double backward has the entries that differences of the backward measure."""
    if settings.order < 2:
        return skipped(_NAME, "not asked for; order=2 asks for it")
    v = _precision.on_grid(map_.codomain, probes.cotangent(map_, settings.seed or 0, 0))
    derivative = _oracle.derivative(map_, settings, v)
    result = verify(derivative, settings, Backward, _precision.backward)
    findings = tuple(replace(finding, check=_NAME) for finding in result.findings)
    return replace(result, name=_NAME, findings=findings)
