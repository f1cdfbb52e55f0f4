"""J^T is linear in its cotangent, and J in its tangent, whatever their sizes and zeros.

J^T (2 v - w + 3 q + 5 z + 4 e) is asked in two parts, 2^20 times as large and as small, each with
about half of its entries exactly zero, and what comes of them must add up to what is claimed of
each of the five cotangents by itself (`_numdiff/special_probes.py`). A backward fails that ignores
its cotangent, or flushes, clamps or rounds it, or skips its zeros. What rounding does to the parts
and to the terms is measured, and allowed, where they seem not to add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gradproof._checks.agreement import vector_findings
from gradproof._checks.outcome import failed_check, inconclusive_check, passed_check, skipped_check
from gradproof._checks.users_code import UsersError, users_errors
from gradproof._data.formats import DOUBLE, SINGLE
from gradproof._data.records import CheckResult, Finding, Verdict
from gradproof._data.space import Values
from gradproof._maps.contract import DifferentiableMap, Raised, Unsupported
from gradproof._measurements import Measurements, rounding_by_factors
from gradproof._numdiff.special_probes import SplitProbe, split_probe

_NAME = "linearity"
_SMALL_RANGE = 1e6  # largest number of a format, as of float16, that honest sums may exceed
_OPEN_UP_TO = 3.0  # times what is allowed, in float32, where roundings that cancel may be alike


@dataclass(frozen=True)
class NotLinear:
    """Evidence: products of the parts of a cotangent, or of a tangent, do not add up.

    Attributes:
        is_ignored: whether the product is the same whatever it is asked for.
        product: J^T v, or J u, of the usual probe.
        unit: unit round-off of the finest input.
        is_forward: whether it is forward mode.
    """

    is_ignored: bool
    product: Values
    unit: float
    is_forward: bool = False


@dataclass(frozen=True)
class _Products:
    """What a mode claims of a split probe.

    Attributes:
        ask: the product that the mode claims of a probe.
        split: the probe.
        parts: of its two parts, over their factors.
        terms: of every term, times its weight.
        refused: why parts of other sizes than usual were refused; "" where they were not.
    """

    ask: Callable[[Values], Values]
    split: SplitProbe
    parts: list[Values]
    terms: list[Values]
    refused: str


def check(measurements: Measurements) -> CheckResult:
    """What is claimed of two parts of a probe adds up to what is claimed of its terms.

    Of forward mode it is asked too, where that is asked for: unit tangents do not tell a square
    from its root.
    """
    checks = measurements.settings.checks
    forward_only = "forward" in checks and "backward" not in checks
    modes = ["forward"] if forward_only else ["backward", *({"forward"} & set(checks))]
    results, refusals = list[CheckResult](), list[Unsupported]()
    for mode in modes:
        try:
            results.append(_mode_result(measurements, forward=mode == "forward"))
        except Unsupported as refusal:
            if mode == "backward" and isinstance(refusal, Raised):
                raise
            refusals.append(refusal)
    if not results:
        raise refusals[0]
    failed = [result for result in results if result.verdict is Verdict.FAILED]
    if failed and measurements.settings.trusted:
        return skipped_check(_NAME, "the reference is a definition, which need not be linear")
    for result in [*failed, *results]:
        if result.verdict is not Verdict.PASSED:
            return result
    summary = results[0].summary + "; forward mode likewise" * (len(results) - 1)
    return passed_check(_NAME, summary, notes=sum((result.notes for result in results), ()))


def _mode_result(measurements: Measurements, *, forward: bool) -> CheckResult:
    """Whether one mode is linear in its probe."""
    products = _products(measurements, forward=forward)
    split, mode = products.split, "forward mode" if forward else "the backward"
    probe = "tangent" if forward else "cotangent"
    findings = _findings(measurements, products, forward=forward)
    if not findings:
        single = " and of one entry" if split.terms[-1].kind == "single" else ""
        text = f"{mode} is linear in {probe}s of {split.sizes}, with zeros{single}"
        refused = f"forward mode: {products.refused}" if forward else products.refused
        return passed_check(_NAME, text, notes=(refused,) if products.refused else ())
    is_single = DOUBLE <= measurements.arithmetic_unit <= SINGLE
    if is_single:
        findings = _findings(measurements, products, forward=forward, times=_OPEN_UP_TO)
    if not findings or _is_linear_in_double(measurements, forward=forward):
        text = f"{mode} is not linear in the {probe}, which its few bits may explain"
        return inconclusive_check(_NAME, text)
    known = measurements.pushforward if forward else measurements.gradient
    off = np.linalg.norm(products.parts[0] * split.factors[0] - known)
    is_ignored = bool(off <= math.sqrt(measurements.arithmetic_unit) * np.linalg.norm(known))
    unit = min((slot.grain.unit for slot in measurements.map.domain.slots), default=1.0)
    summary = f"{mode} {'ignores' if is_ignored else 'is not linear in'} the {probe}"
    evidence = NotLinear(is_ignored, known, unit, is_forward=forward)
    return failed_check(_NAME, summary, findings, evidence=evidence)


def _is_linear_in_double(measurements: Measurements, *, forward: bool) -> bool:
    """Whether the same function is linear in float64, where it runs there.

    In few bits a right rule may lose digits in a large probe, as that of a matrix exponential.
    """
    if measurements.is_double:
        return False
    try:
        with users_errors():
            exact = measurements.double
            return not _findings(exact, _products(exact, forward=forward), forward=forward)
    except (Unsupported, UsersError):
        return False


def _products(measurements: Measurements, *, forward: bool) -> _Products:
    """What is claimed of both parts, and of the terms.

    A rule may refuse a probe for its size, as PyTorch's of eigenvectors do, which test it with an
    absolute tolerance; or a format of a small range may not hold what it adds up. It claims nothing
    wrong then, and is asked for parts of the usual size.
    """
    map_, refused = measurements.map, ""
    spaces, unit = (map_.codomain, map_.domain), measurements.arithmetic_unit
    seed, scales = measurements.settings.seed, None
    ask: Callable[[Values], Values] = map_.jvp if forward else map_.vjp
    if forward:
        spaces, scales = spaces[::-1], measurements.scales
        probe, constant = measurements.tangent, measurements.constant_tangent
        known = {"dense": measurements.pushforward}
    else:
        probe, constant = measurements.cotangent, measurements.constant_cotangent
        known = {"dense": measurements.gradient}
    split = split_probe(spaces, probe, known["dense"], constant, unit, seed, scales)
    if len(split.terms) > 1:
        known["constant"] = (
            measurements.constant_pushforward if forward else measurements.constant_gradient
        )
    try:
        with users_errors():
            parts, terms = _products_of_sizes(ask, split, known)
        if _has_small_range(map_) and not np.isfinite([*parts, *terms]).all():
            refused = f"the sizes {split.sizes} overflow"
    except UsersError as error:
        refused = f"the sizes {split.sizes} were refused: {error}"
    if refused:
        split = split.probe_of_usual_size()
        parts, terms = _products_of_sizes(ask, split, known)
    return _Products(ask, split, parts, terms, refused)


def _products_of_sizes(
    ask: Callable[[Values], Values], split: SplitProbe, known: dict[str, Values]
) -> tuple[list[Values], list[Values]]:
    """What is claimed of both parts and of the terms; of a single entry as large as the large part.

    Args:
        ask: the product that is claimed of a probe.
        split: the probe.
        known: products of terms, by kind.
    """
    parts = [ask(split.scaled_part(number)) / split.factors[number] for number in (0, 1)]
    large, terms = 2.0 ** math.floor(math.log2(abs(split.factors[0]))), []
    for term in split.terms:
        if (product := known.get(term.kind)) is None:
            size = large if term.kind == "single" else 1.0
            product = ask(size * term.probe) / size
        terms.append(term.weight * product)
    return parts, terms


def _has_small_range(map_: DifferentiableMap) -> bool:
    """Whether an array is in a format whose numbers end below what is added up here."""
    slots = (*map_.domain.slots, *map_.codomain.slots)
    return any(slot.size and slot.grain.largest < _SMALL_RANGE for slot in slots)


def _findings(
    measurements: Measurements, products: _Products, *, forward: bool, times: float = 1.0
) -> tuple[Finding, ...]:
    """Entries in which the two parts do not add up to the terms, by more than `times` the allowed.

    Terms of large weights are as large as they were claimed: so large is their rounding.
    """
    split, probe = products.split, "tangent" if forward else "cotangent"
    got, expected = products.parts[0] + products.parts[1], np.sum(products.terms, axis=0)
    if products.refused:  # what overflows at the usual size too is for the checks of the modes
        got = np.where(np.isfinite(got), got, expected)
    sizes = [
        product / max(1.0, abs(term.weight))
        for product, term in zip(products.terms, split.terms, strict=True)
    ]
    return vector_findings(
        _NAME,
        measurements,
        got,
        expected,
        f"two parts of a {probe}, of {split.sizes}, against the whole",
        terms=[*sizes, *products.parts],
        forward=forward,
        kind="linearity of forward mode" if forward else "",
        lost=split.lost,
        rounding=lambda: _rounding(measurements, products, forward=forward),
        times=times,
        most=3 if forward else 8,
    )


def _rounding(measurements: Measurements, products: _Products, *, forward: bool) -> Values:
    """What rounding does to the sum of both parts, and in few bits to the terms."""
    split, unit = products.split, measurements.unit
    total = np.zeros_like(products.parts[0])
    for number, factor in enumerate(split.factors):
        part, known = split.scaled_part(number), factor * products.parts[number]
        off = rounding_by_factors(products.ask, part, known, unit)
        if unit >= DOUBLE:
            off = off + measurements.rounding_of_product(part, known, forward=forward)
        total += off / abs(factor)
    if unit >= DOUBLE:
        usual = measurements.pushforward_rounding if forward else measurements.gradient_rounding
        total += usual * (sum(abs(term.weight) for term in split.terms) - 1)
    return total
