"""One vectorised call equals the loop: of a random probe, and of a constant one."""

from __future__ import annotations

from functools import partial

import numpy as np

from gradproof._checks.agreement import vector_findings
from gradproof._checks.outcome import failed_check, passed_check
from gradproof._data.records import CheckResult, Finding
from gradproof._data.space import Values
from gradproof._maps.contract import Unsupported
from gradproof._measurements import Measurements, rounding_by_factors


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
    """Two probes, each asked by itself: a random one, and a constant one.

    Attributes:
        probes: (2, k).
    """

    def __init__(self, check: str, measurements: Measurements, *, forward: bool) -> None:
        self._check, self._measurements, self._forward = check, measurements, forward
        if forward:
            probes = [measurements.tangent, measurements.constant_tangent]
            self._products = [measurements.pushforward, measurements.constant_pushforward]
        else:
            probes = [measurements.cotangent, measurements.constant_cotangent]
            self._products = [measurements.gradient, measurements.constant_gradient]
        self.probes: Values = np.stack(probes)

    def findings(self, got: Values, what: str) -> tuple[Finding, ...]:
        """Where the rows of a batch are not the products of each probe by itself."""
        map_, unit = self._measurements.map, self._measurements.unit
        ask = map_.jvp if self._forward else map_.vjp
        found: tuple[Finding, ...] = ()
        for number, (probe, product) in enumerate(zip(self.probes, self._products, strict=True)):
            found += vector_findings(
                self._check,
                self._measurements,
                got[number],
                product,
                f"row {number} of {what}",
                terms=(product,) if self._forward else (product, self._products[0]),
                forward=self._forward,
                kind="batched",
                rounding=partial(rounding_by_factors, ask, probe, product, unit),
                most=3,
            )
        return found
