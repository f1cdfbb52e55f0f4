"""J^T is linear in its cotangent, and J in its tangent, whatever their sizes and zeros.

J^T (2 v - w + 3 q + 5 z + 4 e) is asked in two parts, 2^20 times as large and as small, each with
about half of its entries exactly zero, and what comes of them must add up to what is claimed of
each of the five cotangents by itself (`_numdiff/special_probes.py`). A backward fails that ignores
its cotangent, or flushes, clamps or rounds it, or skips its zeros. What rounding does to the parts
and to the terms is measured, and allowed, where they seem not to add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gradproof._checks.agreement import vector_findings
from gradproof._checks.outcome import failed_check, inconclusive_check, passed_check, skipped_check
from gradproof._checks.users_code import UsersError, users_errors
from gradproof._data.formats import DOUBLE, SINGLE
from gradproof._data.records import CheckResult, Finding, Verdict
from gradproof._data.space import Values
from gradproof._maps.contract import Unsupported
from gradproof._measurements import ClaimedProducts, Measurements
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
class _SplitProducts:
    """What a mode claims of a split probe.

    Attributes:
        split: the probe.
        parts: products of its two parts, over their factors.
        terms: of every term, times its weight.
        refused: why parts of other sizes than usual were refused; "" where they were not.
    """

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
    modes = [measurements.backward, measurements.forward]
    if "forward" not in checks:
        modes = modes[:1]
    elif "backward" not in checks:
        modes = modes[1:]
    results, refusals = list[CheckResult](), list[Unsupported]()
    for mode in modes:
        try:
            results.append(_mode_result(mode))
        except Unsupported as refusal:
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


def _mode_result(mode: ClaimedProducts) -> CheckResult:
    """Whether one mode is linear in its probe."""
    measurements, products = mode.measurements, _split_products(mode)
    split = products.split
    findings = _findings(mode, products)
    if not findings:
        single = " and of one entry" if split.terms[-1].kind == "single" else ""
        text = f"{mode.mode} is linear in {mode.probe_name}s of {split.sizes}, with zeros{single}"
        refused = f"forward mode: {products.refused}" if mode.is_forward else products.refused
        return passed_check(_NAME, text, notes=(refused,) if products.refused else ())
    is_single = DOUBLE <= measurements.arithmetic_unit <= SINGLE
    is_open = is_single and all(each.gap <= _OPEN_UP_TO * each.allowed for each in findings)
    if is_open or _is_linear_in_double(mode):
        text = f"{mode.mode} is not linear in the {mode.probe_name}, which its few bits may explain"
        return inconclusive_check(_NAME, text)
    known = mode.product
    off = np.linalg.norm(products.parts[0] * split.factors[0] - known)
    is_ignored = bool(off <= math.sqrt(measurements.arithmetic_unit) * np.linalg.norm(known))
    unit = min((slot.grain.unit for slot in measurements.map.domain.slots), default=1.0)
    summary = f"{mode.mode} {'ignores' if is_ignored else 'is not linear in'} the {mode.probe_name}"
    evidence = NotLinear(is_ignored, known, unit, mode.is_forward)
    return failed_check(_NAME, summary, findings, evidence=evidence)


def _is_linear_in_double(mode: ClaimedProducts) -> bool:
    """Whether the same function is linear in float64, where it runs there.

    In few bits a right rule may lose digits in a large probe, as that of a matrix exponential.
    """
    if mode.measurements.is_double:
        return False
    try:
        with users_errors():
            exact = mode.measurements.double
            exact_mode = exact.forward if mode.is_forward else exact.backward
            return not _findings(exact_mode, _split_products(exact_mode))
    except (Unsupported, UsersError):
        return False


def _split_products(mode: ClaimedProducts) -> _SplitProducts:
    """What is claimed of both parts, and of the terms.

    A rule may refuse a probe for its size, as PyTorch's of eigenvectors do, which test it with an
    absolute tolerance; or a format of a small range may not hold what it adds up. It claims nothing
    wrong then, and is asked for parts of the usual size.
    """
    measurements, refused = mode.measurements, ""
    spaces = mode.probe_space, mode.space
    split = split_probe(
        spaces,
        mode.probe,
        mode.product,
        mode.constant_probe,
        measurements.arithmetic_unit,
        measurements.settings.seed,
        measurements.scales if mode.is_forward else None,
    )
    # An array is in a format whose numbers end below what is added up here.
    slots = [slot for space in spaces for slot in space.slots if slot.size]
    has_small_range = any(slot.grain.largest < _SMALL_RANGE for slot in slots)
    try:
        with users_errors():
            parts, terms = _products_of_sizes(mode, split)
        if has_small_range and not np.isfinite([*parts, *terms]).all():
            refused = f"the sizes {split.sizes} overflow"
    except UsersError as error:
        refused = f"the sizes {split.sizes} were refused: {error}"
    if refused:
        split = split.probe_of_usual_size()
        parts, terms = _products_of_sizes(mode, split)
    return _SplitProducts(split, parts, terms, refused)


def _products_of_sizes(
    mode: ClaimedProducts, split: SplitProbe
) -> tuple[list[Values], list[Values]]:
    """What is claimed of both parts, over their factors, and of the terms, times their weights.

    A single entry is asked for as large as the large part is.
    """
    parts = [mode.ask(split.scaled_part(number)) / split.factors[number] for number in (0, 1)]
    large, terms = 2.0 ** math.floor(math.log2(abs(split.factors[0]))), []
    for term in split.terms:
        if term.kind == "dense":
            product = mode.product
        elif term.kind == "constant":
            product = mode.constant_product
        else:
            size = large if term.kind == "single" else 1.0
            product = mode.ask(size * term.probe) / size
        terms.append(term.weight * product)
    return parts, terms


def _findings(mode: ClaimedProducts, products: _SplitProducts) -> tuple[Finding, ...]:
    """Entries in which the two parts do not add up to the terms.

    Terms of large weights are as large as they were claimed: so large is their rounding.
    """
    split = products.split
    got, expected = products.parts[0] + products.parts[1], np.sum(products.terms, axis=0)
    if products.refused:  # what overflows at the usual size too is for the checks of the modes
        got = np.where(np.isfinite(got), got, expected)
    sizes = [
        product / max(1.0, abs(term.weight))
        for product, term in zip(products.terms, split.terms, strict=True)
    ]
    return vector_findings(
        _NAME,
        mode,
        got,
        expected,
        f"two parts of a {mode.probe_name}, of {split.sizes}, against the whole",
        terms=[*sizes, *products.parts],
        kind="linearity of forward mode" if mode.is_forward else "",
        lost=split.lost,
        rounding=lambda: _rounding(mode, products),
    )


def _rounding(mode: ClaimedProducts, products: _SplitProducts) -> Values:
    """What rounding does to the sum of both parts, and to the terms."""
    split = products.split
    total = mode.rounding * (sum(abs(term.weight) for term in split.terms) - 1)
    for number, factor in enumerate(split.factors):
        known = factor * products.parts[number]
        total += mode.rounding_of(split.scaled_part(number), known) / abs(factor)
    return total
