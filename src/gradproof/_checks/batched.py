"""One vectorised call equals the loop: a probe, and the larger part of one (`_extremes`)."""

from __future__ import annotations

from gradproof._checks import _extremes
from gradproof._checks._claims import gradient, tangent
from gradproof._checks._gradients import differences, tangent_differences
from gradproof._checks._outcome import failed, passed
from gradproof._map import DifferentiableMap
from gradproof._numerics import probes
from gradproof._records import CheckResult, Finding
from gradproof._settings import Settings
from gradproof._space import namespace


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """A batched backward gives, row by row, what the backward gives."""
    xp, first = namespace(map_.point), gradient(map_, settings, 0)
    parts = _extremes.of_cotangents(map_, settings)
    vs = xp.stack([probes.cotangent(map_, settings.seed or 0, 0), parts.split.part(0)])
    got = map_.vjp_batch(vs)
    factors = (1.0, parts.split.factors[0])
    expected = (first, parts.of(0))
    findings: list[Finding] = []
    for number, gradient_ in enumerate(expected):
        findings += differences(
            "batched",
            map_,
            got[number, :] / factors[number],
            gradient_,
            kind="batched",
            what=f"row {number} of a batched backward against the backward of that cotangent",
            terms=(gradient_, first),
            atol=settings.atol,
            most=3,
        )
    if findings:
        return failed("batched", "a batched backward differs from the loop", tuple(findings))
    return passed("batched", "a batched backward equals the loop")


def check_forward(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """Batched forward mode gives, row by row, what forward mode gives."""
    name = "batched_forward"
    xp, first = namespace(map_.point), tangent(map_, settings, 0)
    parts = _extremes.of_tangents(map_, settings)
    us = xp.stack([probes.tangent(map_, settings.seed or 0, 0), parts.split.part(0)])
    got = map_.jvp_batch(us)
    factors = (1.0, parts.split.factors[0])
    findings: list[Finding] = []
    for number, expected in enumerate((first, parts.of(0))):
        findings += tangent_differences(
            name,
            map_,
            got[number, :] / factors[number],
            expected,
            kind="batched",
            what=f"row {number} of a batch",
        )
    if findings:
        return failed(name, "batched forward mode differs from the loop", tuple(findings))
    return passed(name, "batched forward mode equals the loop")
