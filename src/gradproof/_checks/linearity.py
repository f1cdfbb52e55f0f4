"""J^T is linear in its cotangent, and J in its tangent, whatever their sizes and zeros.

J^T (2 v - w + 3 q + 5 z + 4 e) is asked in two parts, 2^20 times as large and as small, each with
about half of its entries exactly zero, and what comes of them must add up to what is claimed of
each of the five cotangents by itself (`_checks/special_probes.py`). A backward fails that ignores
its cotangent, or flushes, clamps or rounds it, or skips its zeros. What rounding does to the parts
and to the terms is measured, and allowed, where they seem not to add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gradproof._checks.agreement import vector_findings
from gradproof._checks.outcome import failed_check, passed_check
from gradproof._checks.split_products import SplitProducts, products_of_split_probe
from gradproof._data.formats import DOUBLE
from gradproof._data.records import CheckResult, Finding, Verdict
from gradproof._data.space import Values
from gradproof._maps.contract import Raised, Unsupported
from gradproof._measurements import Measurements, rounding_by_factors

_NAME = "linearity"
_LESS = (1.0, 8.0, 64.0, 512.0)  # how much smaller a large part is asked again
_ALIKE = 32.0  # times as large may be the rounding of one of two probes
_ROUNDINGS = 256.0  # of a product, that what it is made of may add up to
_SQUARE = 0.25  # of a product of the usual size: what a square of the probe adds is more


@dataclass(frozen=True)
class NotLinear:
    """Evidence: products of the parts of a cotangent, or of a tangent, do not add up.

    Attributes:
        is_ignored: whether the product is the same whatever it is asked for.
        product: J^T v, or J u, of the usual probe.
        is_forward: whether it is forward mode.
    """

    is_ignored: bool
    product: Values
    is_forward: bool = False


def check(measurements: Measurements) -> CheckResult:
    """What is claimed of two parts of a probe adds up to what is claimed of its terms.

    Of forward mode it is asked too, where that is asked for: unit tangents do not tell a square
    from its root.
    """
    checks = measurements.settings.checks
    if "forward" in checks and "backward" not in checks:
        return _forward_result(measurements)
    has_forward = "forward" in checks and _has_forward(measurements)
    try:
        backward = _backward_result(measurements)
    except Raised:
        raise
    except Unsupported:
        if not has_forward:
            raise
        return _forward_result(measurements)
    return (
        _result_of_both_modes(backward, _forward_result(measurements)) if has_forward else backward
    )


def _has_forward(measurements: Measurements) -> bool:
    try:
        measurements.pushforward(0)
    except Unsupported:
        return False
    return True


def _backward_result(measurements: Measurements) -> CheckResult:
    products = products_of_split_probe(measurements, forward=False)
    findings = _findings(measurements, products, forward=False)
    if findings and _is_rounding(measurements, products):
        return passed_check(_NAME, "the backward is nothing but rounding")
    split = products.split
    if not findings:
        single = " and of one entry" if products.is_single_asked else ""
        text = f"the backward is linear in cotangents of {split.sizes}, with zeros{single}"
        notes = (products.refused,) if products.refused else ()
        return passed_check(_NAME, text, notes=notes)
    is_ignored = _is_ignored(measurements, products, measurements.gradient(0))
    evidence = NotLinear(is_ignored, measurements.gradient(0))
    summary = f"the backward {'ignores' if is_ignored else 'is not linear in'} the cotangent"
    return failed_check(_NAME, summary, findings, evidence=evidence)


def _forward_result(measurements: Measurements) -> CheckResult:
    """J (2 u - s w + 4 e), in two parts, against 2 J u - s J w + 4 J e."""
    products = products_of_split_probe(measurements, forward=True)
    findings = _findings(measurements, products, forward=True)
    if findings and _is_below_bars(measurements, products):
        findings = ()
    if findings:
        product = measurements.pushforward(0)
        is_ignored = _is_ignored(measurements, products, product)
        verb = "ignores" if is_ignored else "is not linear in"
        evidence = NotLinear(is_ignored, product, is_forward=True)
        return failed_check(_NAME, f"forward mode {verb} the tangent", findings, evidence=evidence)
    notes = (f"forward mode: {products.refused}",) if products.refused else ()
    return passed_check(_NAME, "forward mode is linear in the tangent", notes=notes)


def _is_ignored(measurements: Measurements, products: SplitProducts, usual: Values) -> bool:
    """Whether a probe that is much larger, and half zero, gives what the usual one gives."""
    off = np.linalg.norm(products.parts[0] * products.split.factors[0] - usual)
    return bool(off <= math.sqrt(measurements.arithmetic_unit) * np.linalg.norm(usual))


def _result_of_both_modes(backward: CheckResult, forward: CheckResult) -> CheckResult:
    """One result of both modes."""
    if backward.verdict is Verdict.PASSED and forward.verdict is Verdict.PASSED:
        summary = f"{backward.summary}; forward mode likewise"
        return passed_check(_NAME, summary, notes=(*backward.notes, *forward.notes))
    if backward.verdict is Verdict.PASSED:
        return forward
    if forward.verdict is Verdict.PASSED:
        return backward
    summary = f"{backward.summary}; {forward.summary}"
    return replace(backward, summary=summary, findings=backward.findings + forward.findings)


def _findings(
    measurements: Measurements, products: SplitProducts, *, forward: bool
) -> tuple[Finding, ...]:
    """Entries in which the two parts do not add up to the terms.

    Where they seem not to, what rounding does to both parts, and to each term, is measured and
    allowed as well.
    """
    split, probe = products.split, "tangent" if forward else "cotangent"
    got, expected = products.parts[0] + products.parts[1], np.sum(products.terms, axis=0)
    if products.refused:  # what overflows at the usual size too is for the checks of the modes
        got = np.where(np.isfinite(got), got, expected)

    def findings(tolerance: Values | float) -> tuple[Finding, ...]:
        return vector_findings(
            _NAME,
            measurements,
            got,
            expected,
            f"two parts of a {probe}, of {split.sizes}, against the whole",
            terms=[*products.sizes_of_terms, *products.parts],
            forward=forward,
            kind="linearity of forward mode" if forward else "",
            tolerance=tolerance,
            most=3 if forward else 8,
        )

    if not findings(split.lost):
        return ()
    return findings(split.lost + _rounding(measurements, products, forward=forward))


def _rounding(measurements: Measurements, products: SplitProducts, *, forward: bool) -> Values:
    """What rounding does to the sum of both parts, and in few bits to the terms."""
    map_, split = measurements.map, products.split
    ask, unit = map_.jvp if forward else map_.vjp, measurements.unit
    total = np.zeros_like(products.parts[0])
    for number, factor in enumerate(split.factors):
        part, known = split.part(number), factor * products.parts[number]
        off = rounding_by_factors(ask, part, known, unit)
        if unit >= DOUBLE:
            off = off + measurements.rounding_of_product(part, known, forward=forward)
        total += off / abs(factor)
    large = split.factors[0]
    total += _rounding_in_proportion(ask, split.part(0), large, unit)
    for term in split.terms:
        if term.kind == "single":
            probe = large * term.probe
            total += abs(term.weight) * _rounding_in_proportion(ask, probe, large, unit)
    if unit >= DOUBLE:
        usual = measurements.pushforward_rounding if forward else measurements.gradient_rounding
        total += usual * (sum(abs(term.weight) for term in split.terms) - 1)
    return total


def _rounding_in_proportion(
    ask: Callable[[Values], Values], large: Values, factor: float, unit: float
) -> Values:
    """What a probe that is `factor` times as large as usual loses, if one of an eighth an eighth.

    The derivative of the matrix exponential is an exponential in which the probe stands, the less
    exact the larger that is. A clamp, or a format that is too small, begins somewhere: below it
    nothing is lost, and above it nearly all. What a square of the probe adds is in proportion too;
    but of a probe of the usual size rounding loses a few units in the last place, and a square as
    much as there is.

    Returns:
        Twice the loss in each entry, over the factor; zeros where it is not in proportion.
    """
    usual = ask(large / factor)
    losses = [ask(large / less) * (less / factor) - usual for less in _LESS]
    sizes = [less * float(np.linalg.norm(loss)) for less, loss in zip(_LESS, losses, strict=True)]
    most = abs(factor) * min(_ROUNDINGS * unit, _SQUARE) * float(np.linalg.norm(usual))
    in_proportion = sizes[0] <= most and all(
        sizes[0] / _ALIKE <= size <= _ALIKE * sizes[0] for size in sizes
    )
    return 2.0 * np.abs(losses[0]) if in_proportion else np.zeros_like(usual)


def _is_rounding(measurements: Measurements, products: SplitProducts) -> bool:
    """Whether all that is claimed is below what the best measurement tells from zero."""
    bars = _noise_bars(measurements)
    u = np.abs(measurements.tangent(0))
    sizes = np.abs(measurements.cotangent(0)) + np.abs(measurements.constant_cotangent)
    gradients = (measurements.gradient(0), *products.parts)
    return all(float(np.abs(each) @ u) <= float(sizes @ bars) for each in gradients)


def _is_below_bars(measurements: Measurements, products: SplitProducts) -> bool:
    """Likewise of tangents."""
    bars = _noise_bars(measurements)
    claims = (*products.terms, *products.parts)
    return all(bool((np.abs(each) <= bars).all()) for each in claims)


def _noise_bars(measurements: Measurements) -> Values:
    """Error bars of the slopes along the first tangent, kinks apart, (m,).

    0 where nothing is known, and below double precision: differences in few bits see next to
    nothing, which excuses no claim.
    """
    bars = measurements.slopes.bar
    if not measurements.is_double:
        return np.zeros_like(bars)
    return np.where(np.isfinite(bars), bars, 0.0)
