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
    name, map_, products = "batched", measurements.map, measurements.backward
    wrong: dict[str, tuple[Finding, ...]] = {}
    right, refused = list[str](), list[Unsupported]()
    probes = np.stack([probe for probe, _ in _probes_with_products(products)])
    for batching in measurements.settings.batchings or map_.batchings():
        try:
            got = map_.vjp_batch(probes, batching)
        except Unsupported as missing:
            refused.append(missing)
            continue
        what = f"a backward batched by {batching} against that cotangent's own"
        if findings := _findings(name, products, got, what):
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
    name, products = "batched_forward", measurements.forward
    probes = np.stack([probe for probe, _ in _probes_with_products(products)])
    got = measurements.map.jvp_batch(probes)
    if findings := _findings(name, products, got, "a batch"):
        return failed_check(name, "batched forward mode differs from the loop", findings)
    return passed_check(name, "batched forward mode equals the loop")


def _probes_with_products(products: ClaimedProducts) -> list[tuple[Values, Values]]:
    """A random probe and a constant one, each with its own product."""
    random = products.probe, products.product
    return [random, (products.constant_probe, products.constant_product)]


def _findings(check: str, products: ClaimedProducts, got: Values, what: str) -> tuple[Finding, ...]:
    """Where the rows of a batch are not the products of each probe by itself."""
    found: tuple[Finding, ...] = ()
    for number, (probe, expected) in enumerate(_probes_with_products(products)):
        found += vector_findings(
            check,
            products,
            got[number],
            expected,
            f"row {number} of {what}",
            terms=(expected, products.product),  # rows of a batch are rounded by each other
            rounding=partial(products.rounding_of, probe),
        )
    return found
