"""One vectorised call equals the loop: of a random probe, and of a large one with zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gradproof._checks.agreement import vector_findings
from gradproof._checks.outcome import failed_check, passed_check
from gradproof._checks.split_probes import SplitProbe, split_cotangent, split_tangent
from gradproof._data.records import CheckResult, Finding
from gradproof._data.space import Values
from gradproof._maps.contract import Unsupported
from gradproof._measurements import Measurements, rounding_by_factors
from gradproof.errors import UsageError


@dataclass(frozen=True)
class _SingleProducts:
    """Probes and their products, each asked by itself.

    Attributes:
        ask: the product of one probe.
        probes: (2, k): random; the large part of a sum of special ones.
        products: of each, as vectors.
        factors: by which each is larger than usual.
    """

    ask: Callable[[Values], Values]
    probes: Values
    products: tuple[Values, Values]
    factors: tuple[float, float]


def check(measurements: Measurements) -> CheckResult:
    """A batched backward gives, row by row, what the backward gives, in every way of batching."""
    name, map_ = "batched", measurements.map
    wrong: dict[str, tuple[Finding, ...]] = {}
    right, refused = list[str](), list[Unsupported]()
    v, gradient = measurements.cotangent(0), measurements.gradient(0)
    loop = _single_products(map_.vjp, v, gradient, split_cotangent(measurements))
    for batching in measurements.settings.batchings or map_.batchings():
        try:
            got = map_.vjp_batch(loop.probes, batching)
        except Unsupported as missing:
            refused.append(missing)
            continue
        what = f"a backward batched by {batching} against that cotangent's own"
        if findings := _findings(name, measurements, loop, got, what, forward=False):
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
    name, map_ = "batched_forward", measurements.map
    u, image = measurements.tangent(0), measurements.pushforward(0)
    loop = _single_products(map_.jvp, u, image, split_tangent(measurements))
    got = map_.jvp_batch(loop.probes)
    if findings := _findings(name, measurements, loop, got, "a batch", forward=True):
        return failed_check(name, "batched forward mode differs from the loop", findings)
    return passed_check(name, "batched forward mode equals the loop")


def _single_products(
    ask: Callable[[Values], Values], probe: Values, known: Values, split: SplitProbe
) -> _SingleProducts:
    """The products of both probes by themselves; of the usual size where large ones are refused."""
    large, factor = split.part(0), split.factors[0]
    try:
        product = ask(large)
    except (Unsupported, UsageError, MemoryError):
        raise
    except Exception:  # a rule may refuse a probe for its size, and claims nothing wrong then
        large, factor = large / factor, 1.0
        product = ask(large)
    return _SingleProducts(ask, np.stack([probe, large]), (known, product), (1.0, factor))


def _findings(
    name: str,
    measurements: Measurements,
    loop: _SingleProducts,
    got: Values,
    what: str,
    *,
    forward: bool,
) -> tuple[Finding, ...]:
    """Where the rows of a batch are not the products of each probe by itself."""
    found = list[Finding]()
    for number in (0, 1):
        factor, product = loop.factors[number], loop.products[number]
        usual = product / factor
        tolerance: Values | float = 0.0
        for _ in range(2):  # what rounding does is measured, and allowed, only where there is a gap
            findings = vector_findings(
                name,
                measurements,
                got[number] / factor,
                usual,
                f"row {number} of {what}",
                terms=(usual,) if forward else (usual, loop.products[0]),
                forward=forward,
                kind="batched",
                tolerance=tolerance,
                most=3,
            )
            if not findings:
                break
            unit, probe = measurements.unit, loop.probes[number]
            tolerance = rounding_by_factors(loop.ask, probe, product, unit) / abs(factor)
        found += findings
    return tuple(found)
