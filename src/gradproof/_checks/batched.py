"""One vectorised call equals the loop."""

from __future__ import annotations

from gradproof._checks import _magnified
from gradproof._checks._claims import constant_gradient, gradient, tangent
from gradproof._checks._gradients import differences, relative
from gradproof._checks._outcome import failed, passed
from gradproof._map import DifferentiableMap
from gradproof._numerics import probes
from gradproof._numerics.compare import rms, within
from gradproof._records import CheckResult, Finding
from gradproof._settings import Settings
from gradproof._space import namespace, positions


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """A batched backward gives, row by row, what the backward gives."""
    seed = settings.seed or 0
    xp = namespace(map_.point)
    vs = xp.stack([probes.cotangent(map_, seed, 0), probes.constant_cotangent(map_, seed)])
    got = map_.vjp_batch(vs)
    expected = (gradient(map_, settings, 0), constant_gradient(map_, settings))
    findings: list[Finding] = []
    for number, gradient_ in enumerate(expected):
        what = f"row {number} of a batched backward against the backward of that cotangent"
        findings += differences(
            "batched",
            map_,
            got[number, :],
            gradient_,
            kind="batched",
            what=what,
            terms=(gradient_, expected[0]),
            atol=settings.atol,
            most=3,
        )
    if findings:
        return failed("batched", "a batched backward differs from the loop", tuple(findings))
    return passed("batched", "a batched backward equals the loop")


def check_forward(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """Batched forward mode gives, row by row, what forward mode gives."""
    name = "batched_forward"
    seed = settings.seed or 0
    xp = namespace(map_.point)
    us = xp.stack([probes.tangent(map_, seed, number) for number in (0, 1)])
    got = map_.jvp_batch(us)
    findings = []
    for number in (0, 1):
        expected = tangent(map_, settings, number)
        allowed = relative(map_) * (xp.abs(expected) + rms(expected))
        gap = xp.abs(got[number, :] - expected)
        wrong = xp.isfinite(expected) & ~within(gap, allowed)
        if bool(xp.any(wrong)):
            allowed = allowed + _magnified.tangents(map_)
            wrong = wrong & ~within(gap, allowed)
        for i in positions(wrong)[:3]:
            place = map_.codomain.locate(i)
            numbers = (float(got[number, i]), float(expected[i]), float(allowed[i]))
            message = (
                f"tangent of {place}: row {number} of a batch: got {numbers[0]:.6g}, "
                f"expected {numbers[1]:.6g}; the gap is {float(gap[i]):.3g}, "
                f"allowed {numbers[2]:.2g}"
            )
            findings.append(
                Finding(name, message, "batched", None, place, *numbers[:2], 0.0, numbers[2])
            )
    if findings:
        return failed(name, "batched forward mode differs from the loop", tuple(findings))
    return passed(name, "batched forward mode equals the loop")
