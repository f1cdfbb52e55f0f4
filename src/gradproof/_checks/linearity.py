"""J^T is linear in its cotangent, and J in its tangent, whatever their sizes and zeros.

J^T (2 v - w + 3 q + 5 z + 4 e) is asked in two parts, 2^20 times as large and as small, each with
about half of its entries exactly zero, and what comes of them must add up to what is claimed of
each of the five cotangents by itself (`_checks/special_probes.py`). A backward fails that ignores
its cotangent, or flushes, clamps or rounds it, or skips its zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gradproof._checks.agreement import vector_findings
from gradproof._checks.outcome import failed, passed
from gradproof._checks.special_probes import (
    SplitProbe,
    Term,
    largest_entry,
    special_cotangents,
    special_tangents,
    split_probe,
    split_shares,
)
from gradproof._data.formats import DOUBLE
from gradproof._data.frames import raised
from gradproof._data.records import CheckResult, Finding, Verdict
from gradproof._data.space import Values
from gradproof._maps.contract import DifferentiableMap, Raised, Unsupported
from gradproof._measurements import Measurements, rounding_by_factors
from gradproof.errors import UsageError

_NAME = "linearity"
_LESS = (1.0, 8.0, 64.0, 512.0)  # how much smaller a large part is asked again
_ALIKE = 32.0  # times as large may be the rounding of one of two probes
_ROUNDINGS = 256.0  # of a product, that what it is made of may add up to
_SMALL_RANGE = 1e6  # largest number of a format, as of float16, that honest sums may exceed
_SQUARE = 0.25  # of a product of the usual size: what a square of the probe adds is more


@dataclass(frozen=True)
class NotLinear:
    """Evidence: a backward whose gradients of the parts of a cotangent do not add up.

    Attributes:
        is_ignored: whether the gradient is the same whatever the cotangent.
    """

    is_ignored: bool


@dataclass(frozen=True)
class _Products:
    """What a mode claims of a split probe.

    Attributes:
        split: the probe.
        parts: of its two parts, over their factors.
        terms: of every term, times its weight.
        refused: why parts of other sizes than usual were refused; "" where they were not.
    """

    split: SplitProbe
    parts: tuple[Values, Values]
    terms: tuple[Values, ...]
    refused: str

    @property
    def sizes_of_terms(self) -> list[Values]:
        """The terms, those of large weights as they were claimed: so large rounding is of them."""
        pairs = zip(self.terms, self.split.terms, strict=True)
        return [product / max(1.0, abs(term.weight)) for product, term in pairs]

    @property
    def is_single_asked(self) -> bool:
        return any(term.kind == "single" for term in self.split.terms)


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
    return _joined(backward, _forward_result(measurements)) if has_forward else backward


def _has_forward(measurements: Measurements) -> bool:
    try:
        measurements.pushforward(0)
    except Unsupported:
        return False
    return True


def _backward_result(measurements: Measurements) -> CheckResult:
    products = _products(measurements, forward=False)
    findings = _findings(measurements, products, forward=False)
    if findings and _is_rounding(measurements, products):
        return passed(_NAME, "the backward is nothing but rounding")
    split = products.split
    if not findings:
        single = " and of one entry" if products.is_single_asked else ""
        text = f"the backward is linear in cotangents of {split.sizes}, with zeros{single}"
        notes = (products.refused,) if products.refused else ()
        return passed(_NAME, text, notes=notes)
    known = measurements.gradient(0)
    off = np.linalg.norm(products.parts[0] * split.factors[0] - known)
    is_ignored = bool(off <= math.sqrt(measurements.arithmetic_unit) * np.linalg.norm(known))
    summary = f"the backward {'ignores' if is_ignored else 'is not linear in'} the cotangent"
    return failed(_NAME, summary, findings, evidence=NotLinear(is_ignored))


def _forward_result(measurements: Measurements) -> CheckResult:
    """J (2 u - s w + 4 e), in two parts, against 2 J u - s J w + 4 J e."""
    products = _products(measurements, forward=True)
    findings = _findings(measurements, products, forward=True)
    if findings and _is_below_bars(measurements, products):
        findings = ()
    if findings:
        return failed(_NAME, "forward mode is not linear in the tangent", findings)
    notes = (f"forward mode: {products.refused}",) if products.refused else ()
    return passed(_NAME, "forward mode is linear in the tangent", notes=notes)


def _joined(backward: CheckResult, forward: CheckResult) -> CheckResult:
    """One result of both modes."""
    if backward.verdict is Verdict.PASSED and forward.verdict is Verdict.PASSED:
        summary = f"{backward.summary}; forward mode likewise"
        return passed(_NAME, summary, notes=(*backward.notes, *forward.notes))
    if backward.verdict is Verdict.PASSED:
        return forward
    if forward.verdict is Verdict.PASSED:
        return backward
    summary = f"{backward.summary}; {forward.summary}"
    return replace(backward, summary=summary, findings=backward.findings + forward.findings)


# What is claimed.


def split_cotangent(measurements: Measurements) -> SplitProbe:
    """The sum of special cotangents, in two parts."""
    map_ = measurements.map
    shares = split_shares(map_.codomain, measurements.settings.seed, 0)
    terms = special_cotangents(
        map_.codomain, measurements.cotangent(0), shares, measurements.settings.seed
    )
    spaces, size = (map_.codomain, map_.domain), largest_entry(measurements.gradient(0))
    return split_probe(spaces, terms, shares, size, measurements.arithmetic_unit)


def split_tangent(measurements: Measurements) -> SplitProbe:
    """The sum of special tangents, in two parts."""
    map_ = measurements.map
    shares = split_shares(map_.domain, measurements.settings.seed, 1)
    terms = special_tangents(
        map_.domain,
        measurements.tangent(0),
        shares,
        measurements.scales,
        measurements.settings.seed,
    )
    spaces, size = (map_.domain, map_.codomain), largest_entry(measurements.pushforward(0))
    return split_probe(spaces, terms, shares, size, measurements.arithmetic_unit)


def _products(measurements: Measurements, *, forward: bool) -> _Products:
    """What is claimed of both parts, and of the terms.

    A rule may refuse a probe for its size, as PyTorch's of eigenvectors do, which test it with an
    absolute tolerance; or a format of a small range may not hold what it adds up. It claims nothing
    wrong then, and is asked parts of the usual size.
    """
    map_, refused = measurements.map, ""
    ask = map_.jvp if forward else map_.vjp
    if forward:
        split = split_tangent(measurements)
        known = {"dense": measurements.pushforward(0)}
    else:
        split = split_cotangent(measurements)
        known = {"dense": measurements.gradient(0)}
        if len(split.terms) > 1:
            known["constant"] = measurements.constant_gradient
    try:
        parts = _products_of_parts(ask, split)
        if _has_small_range(map_) and not np.isfinite(parts).all():
            refused = f"the sizes {split.sizes} overflow"
    except (Unsupported, UsageError, MemoryError):
        raise
    except Exception as error:  # whatever the user's rule raises
        refused = f"the sizes {split.sizes} were refused: {raised(error)}"
    if refused:
        split = split.of_usual_size()
        parts = _products_of_parts(ask, split)
    terms = []
    for term in split.terms:
        product = known.get(term.kind)
        if product is None:
            product = _product_of_term(ask, term, abs(split.factors[0]))
        terms.append(term.weight * product)
    return _Products(split, parts, tuple(terms), refused)


def _products_of_parts(ask: Callable[[Values], Values], split: SplitProbe) -> tuple[Values, Values]:
    large, small = (ask(split.part(number)) / split.factors[number] for number in (0, 1))
    return large, small


def _product_of_term(ask: Callable[[Values], Values], term: Term, factor: float) -> Values:
    """What is claimed of a term; of a single entry, as large as the large part is.

    Of the usual size where that is refused for its size, or overflows: the parts show that.
    """
    large = 2.0 ** math.floor(math.log2(factor))
    if term.kind == "single" and large > 1:
        try:
            product = ask(large * term.probe) / large
        except (Unsupported, UsageError, MemoryError):
            raise
        except Exception:  # whatever the user's rule raises
            return ask(term.probe)
        if np.isfinite(product).all():
            return product
    return ask(term.probe)


def _has_small_range(map_: DifferentiableMap) -> bool:
    """Whether an array is in a format whose numbers end below what is added up here."""
    slots = (*map_.domain.slots, *map_.codomain.slots)
    return any(slot.size and slot.grain.largest < _SMALL_RANGE for slot in slots)


# Whether it adds up.


def _findings(
    measurements: Measurements, products: _Products, *, forward: bool
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


def _rounding(measurements: Measurements, products: _Products, *, forward: bool) -> Values:
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


def _is_rounding(measurements: Measurements, products: _Products) -> bool:
    """Whether all that is claimed is below what the best measurement tells from zero."""
    bars = _noise_bars(measurements)
    u = np.abs(measurements.tangent(0))
    sizes = np.abs(measurements.cotangent(0)) + np.abs(measurements.constant_cotangent)
    gradients = (measurements.gradient(0), *products.parts)
    return all(float(np.abs(each) @ u) <= float(sizes @ bars) for each in gradients)


def _is_below_bars(measurements: Measurements, products: _Products) -> bool:
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
