"""One vectorised call equals the loop: a probe, and the larger part of one (`_extremes`)."""

from __future__ import annotations

from gradproof._checks import extremes
from gradproof._data.records import CheckResult, Finding
from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace
from gradproof._judge.claims import gradient, tangent
from gradproof._judge.decide import of_claims
from gradproof._judge.outcome import failed, passed
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import probes
from gradproof._verdict.agree import Pair, differences


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """A batched backward gives, row by row, what the backward gives, in every way of batching."""
    name = "batched"
    asked: dict[str, tuple[Finding, ...]] = {}
    refused = []
    first, parts = gradient(map_, settings, 0), extremes.parts_of(map_, settings)
    vs = _batch(probes.cotangent(map_, settings.seed, 0), parts)
    for batching in settings.batchings or map_.batchings():
        what = f"a backward batched by {batching} against that cotangent's own"
        try:
            got = map_.vjp_batch(vs, batching)
            asked[batching] = _differences(name, settings, parts, first, got, what)
        except Unsupported as missing:
            refused.append(missing)
    if not asked:
        raise refused[0]
    wrong = [batching for batching, findings in asked.items() if findings]
    if not wrong:
        return passed(name, f"a batched backward equals the loop: {', '.join(asked)}")
    summary = f"a batched backward differs from the loop: {', '.join(wrong)}"
    if right := [batching for batching in asked if batching not in wrong]:
        summary += f"; {', '.join(right)} equals it"
    return failed(name, summary, sum(asked.values(), ()))


def check_forward(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """Batched forward mode gives, row by row, what forward mode gives."""
    name = "batched_forward"
    first, parts = tangent(map_, settings, 0), extremes.parts_of(map_, settings, tangents=True)
    got = map_.jvp_batch(_batch(probes.tangent(map_, settings.seed, 0), parts))
    if findings := _differences(name, settings, parts, first, got, "a batch"):
        return failed(name, "batched forward mode differs from the loop", findings)
    return passed(name, "batched forward mode equals the loop")


def _batch(probe: Array, parts: extremes.Parts) -> Array:
    """A probe, and the larger part of one."""
    return namespace(probe).stack([probe, parts.split.part(0)])


def _differences(
    name: str, settings: Settings, parts: extremes.Parts, first: Array, got: Array, what: str
) -> tuple[Finding, ...]:
    """Where the rows of a batch are not what is claimed of each probe by itself."""
    forward, findings = parts.split.tangents, list[Finding]()
    for number, expected in enumerate((first, parts.of(0))):
        pair = Pair(
            got[number, :] / (1.0, parts.split.factors[0])[number],
            expected,
            f"row {number} of {what}",
            terms=(expected,) if forward else (expected, first),
            forward=forward,
            excuse=lambda: parts.rounding(0),
        )
        findings += differences(name, parts.map_, pair, of_claims(settings), kind="batched", most=3)
    return tuple(findings)
