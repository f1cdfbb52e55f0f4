"""One vectorised call equals the loop: of a random probe, and of a large one with zeros."""

from __future__ import annotations

import numpy as np

from gradproof._checks.agreement import vector_findings
from gradproof._checks.outcome import failed_check, passed_check
from gradproof._data.records import CheckResult, Finding
from gradproof._data.space import Values
from gradproof._maps.contract import Unsupported
from gradproof._measurements import Measurements, rounding_by_factors
from gradproof.errors import UsageError


def check(measurements: Measurements) -> CheckResult:
    """A batched backward gives, row by row, what the backward gives, in every way of batching."""
    name, map_ = "batched", measurements.map
    wrong: dict[str, tuple[Finding, ...]] = {}
    right, refused = list[str](), list[Unsupported]()
    loop = _Loop(name, measurements, forward=False)
    for batching in measurements.settings.batchings or map_.batchings():
        try:
            got = map_.vjp_batch(loop.probes, batching)
        except Unsupported as missing:
            refused.append(missing)
            continue
        what = f"a backward batched by {batching} against that cotangent's own"
        if findings := loop.findings(got, what):
            wrong[batching] = findings
        else:
            right.append(batching)
    if not (wrong or right):
        raise refused[0]
    if not wrong:
        return passed_check(name, f"a batched backward equals the loop: {', '.join(right)}")
    summary = f"a batched backward differs from the loop: {', '.join(wrong)}"
    if right:
        summary += f"; {', '.join(right)} equals it"
    return failed_check(name, summary, sum(wrong.values(), ()))


def check_forward(measurements: Measurements) -> CheckResult:
    """Batched forward mode gives, row by row, what forward mode gives."""
    name = "batched_forward"
    loop = _Loop(name, measurements, forward=True)
    got = measurements.map.jvp_batch(loop.probes)
    if findings := loop.findings(got, "a batch"):
        return failed_check(name, "batched forward mode differs from the loop", findings)
    return passed_check(name, "batched forward mode equals the loop")


class _Loop:
    """Two probes, each asked by itself: a random one, and the large part of special ones.

    Attributes:
        probes: (2, k).
    """

    def __init__(self, check: str, measurements: Measurements, *, forward: bool) -> None:
        self._check, self._measurements, self._forward = check, measurements, forward
        map_ = measurements.map
        self._ask = map_.jvp if forward else map_.vjp
        probe = measurements.tangent if forward else measurements.cotangent
        known = measurements.pushforward if forward else measurements.gradient
        split = measurements.split_tangent if forward else measurements.split_cotangent
        large, factor = split.scaled_part(0), split.factors[0]
        try:
            product = measurements.large_pushforward if forward else measurements.large_gradient
        except (Unsupported, UsageError, MemoryError):
            raise
        except Exception:  # a rule may refuse a probe for its size, and claims nothing wrong then
            large, factor = large / factor, 1.0
            product = self._ask(large)
        self.probes: Values = np.stack([probe, large])
        self._products, self._factors = (known, product), (1.0, factor)

    def findings(self, got: Values, what: str) -> tuple[Finding, ...]:
        """Where the rows of a batch are not the products of each probe by itself.

        What rounding does is measured, and allowed, only where there is a gap.
        """
        return self._findings_of_row(0, got[0], what) + self._findings_of_row(1, got[1], what)

    def _findings_of_row(self, number: int, got: Values, what: str) -> tuple[Finding, ...]:
        factor, product = self._factors[number], self._products[number]
        usual = product / factor
        tolerance: Values | float = 0.0
        findings: tuple[Finding, ...] = ()
        for is_measured in (False, True):
            if is_measured:
                unit, probe = self._measurements.unit, self.probes[number]
                tolerance = rounding_by_factors(self._ask, probe, product, unit) / abs(factor)
            findings = vector_findings(
                self._check,
                self._measurements,
                got / factor,
                usual,
                f"row {number} of {what}",
                terms=(usual,) if self._forward else (usual, self._products[0]),
                forward=self._forward,
                kind="batched",
                tolerance=tolerance,
                most=3,
            )
            if not findings:
                break
        return findings
