"""One vectorised call equals the loop: of a random probe, and of a constant one."""

from __future__ import annotations

from functools import partial

import numpy as np

from gradproof._checks.agreement import vector_findings
from gradproof._checks.outcome import failed_check, passed_check
from gradproof._data.records import CheckResult, Finding
from gradproof._data.space import Values
from gradproof._maps.contract import Unsupported
from gradproof._measurements import ClaimedProducts, Measurements


def check(measurements: Measurements) -> CheckResult:
    """A batched backward gives, row by row, what the backward gives, in every way of batching."""
    name, map_ = "batched", measurements.map
    wrong: dict[str, tuple[Finding, ...]] = {}
    right, refused = list[str](), list[Unsupported]()
    loop = _Loop(name, measurements.backward)
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
    loop = _Loop(name, measurements.forward)
    got = measurements.map.jvp_batch(loop.probes)
    if findings := loop.findings(got, "a batch"):
        return failed_check(name, "batched forward mode differs from the loop", findings)
    return passed_check(name, "batched forward mode equals the loop")


class _Loop:
    """A random probe and a constant one, each asked by itself, to compare batches of both with.

    Attributes:
        probes: (2, k).
    """

    def __init__(self, check: str, products: ClaimedProducts) -> None:
        self._check, self._products = check, products
        self.probes: Values = np.stack([products.probe, products.constant_probe])
        self._expected = products.product, products.constant_product

    def findings(self, got: Values, what: str) -> tuple[Finding, ...]:
        """Where the rows of a batch are not the products of each probe by itself."""
        found: tuple[Finding, ...] = ()
        for number, (probe, expected) in enumerate(zip(self.probes, self._expected, strict=True)):
            found += vector_findings(
                self._check,
                self._products,
                got[number],
                expected,
                f"row {number} of {what}",
                terms=self._expected,
                kind="batched",
                rounding=partial(self._products.rounding_of, probe, expected),
            )
        return found
