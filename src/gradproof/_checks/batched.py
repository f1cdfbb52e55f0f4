"""One vectorised call equals the loop: a probe, and the larger part of one (`_extremes`)."""

from __future__ import annotations

from gradproof._checks import extremes
from gradproof._data.records import CheckResult, Finding
from gradproof._data.settings import Settings
from gradproof._data.space import namespace
from gradproof._judge.claims import gradient, tangent
from gradproof._judge.decide import of_claims
from gradproof._judge.outcome import failed, passed
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import probes
from gradproof._verdict.agree import Pair, differences


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """A batched backward gives, row by row, what the backward gives, in every way of batching."""
    asked: dict[str, tuple[Finding, ...]] = {}
    refused = []
    for batching in settings.batchings or map_.batchings():
        try:
            asked[batching] = _differences(map_, settings, batching)
        except Unsupported as missing:
            refused.append(missing)
    if not asked:
        raise refused[0]
    wrong = [batching for batching, findings in asked.items() if findings]
    if not wrong:
        return passed("batched", f"a batched backward equals the loop: {', '.join(asked)}")
    summary = f"a batched backward differs from the loop: {', '.join(wrong)}"
    if right := [batching for batching in asked if batching not in wrong]:
        summary += f"; {', '.join(right)} equals it"
    return failed("batched", summary, sum(asked.values(), ()))


def _differences(map_: DifferentiableMap, settings: Settings, batching: str) -> tuple[Finding, ...]:
    xp, first = namespace(map_.point), gradient(map_, settings, 0)
    parts = extremes.of_cotangents(map_, settings)
    vs = xp.stack([probes.cotangent(map_, settings.seed or 0, 0), parts.split.part(0)])
    got = map_.vjp_batch(vs, batching)
    factors = (1.0, parts.split.factors[0])
    findings: list[Finding] = []
    for number, expected in enumerate((first, parts.of(0))):
        findings += differences(
            "batched",
            map_,
            Pair(
                got[number, :] / factors[number],
                expected,
                f"row {number} of a backward batched by {batching} against that cotangent's own",
                terms=(expected, first),
                excuse=lambda: parts.rounding(0),
            ),
            of_claims(settings),
            most=3,
        )
    return tuple(findings)


def check_forward(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """Batched forward mode gives, row by row, what forward mode gives."""
    name = "batched_forward"
    xp, first = namespace(map_.point), tangent(map_, settings, 0)
    parts = extremes.of_tangents(map_, settings)
    us = xp.stack([probes.tangent(map_, settings.seed or 0, 0), parts.split.part(0)])
    got = map_.jvp_batch(us)
    factors = (1.0, parts.split.factors[0])
    findings: list[Finding] = []
    for number, expected in enumerate((first, parts.of(0))):
        pair = Pair(
            got[number, :] / factors[number],
            expected,
            f"row {number} of a batch",
            forward=True,
            excuse=lambda: parts.rounding(0),
        )
        findings += differences(name, map_, pair, of_claims(settings), kind="batched", most=3)
    if findings:
        return failed(name, "batched forward mode differs from the loop", tuple(findings))
    return passed(name, "batched forward mode equals the loop")
