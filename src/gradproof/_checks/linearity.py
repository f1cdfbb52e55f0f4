"""J^T is linear in its cotangent, and J in its tangent, whatever their sizes and zeros.

J^T (2 v - w + 3 q + 5 z + 4 e) is asked in two parts, 2^20 times as large and as small, each with
about half of its entries exactly zero, and what comes of them must add up to what is claimed of
each of the five cotangents by itself (`_checks/special_probes.py`). A backward fails that ignores
its cotangent, or flushes, clamps or rounds it, or skips its zeros. What rounding does to the parts
and to the terms is measured, and allowed, where they seem not to add up.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import reduce

import numpy as np

from gradproof._checks.agreement import vector_findings
from gradproof._checks.outcome import failed_check, inconclusive_check, passed_check, skipped_check
from gradproof._checks.special_probes import split_probe
from gradproof._data.formats import DOUBLE, SINGLE
from gradproof._data.records import CheckResult, Finding, Verdict
from gradproof._data.space import Values
from gradproof._maps.contract import Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._measurements import ClaimedProducts, Measurements

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


def check(measurements: Measurements) -> CheckResult:
    """What is claimed of two parts of a probe adds up to what is claimed of its terms.

    Of forward mode it is asked too, where that is asked for: unit tangents do not tell a square
    from its root.
    """
    results, refusals = list[CheckResult](), list[Unsupported]()
    for products in measurements.modes:
        try:
            results.append(_mode_result(products))
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


def _mode_result(products: ClaimedProducts) -> CheckResult:
    """Whether one mode is linear in its probe."""
    measurements, total = products.measurements, _SplitSum(products)
    split, findings = total.split, total.findings()
    is_formula_linear = bool(findings) and _is_linear_in_double(products)
    if is_formula_linear and (few := measurements.in_few_bits) is not None:
        total = _SplitSum(few.forward if products.is_forward else few.backward)
        split, findings = total.split, total.findings()
    name, probe = products.mode_name, products.probe_name
    if not findings:
        single = " and of one entry" if split.terms[-1].kind == "single" else ""
        text = f"{name} is linear in {probe}s of {split.sizes_text}, with zeros{single}"
        refused = f"forward mode: {total.refused}" if products.is_forward else total.refused
        return passed_check(_NAME, text, notes=(refused,) if total.refused else ())
    is_single = DOUBLE <= measurements.arithmetic_unit <= SINGLE
    is_open = is_single and all(each.gap <= _OPEN_UP_TO * each.allowed for each in findings)
    if is_open or is_formula_linear:
        text = f"{name} is not linear in the {probe}, which its few bits may explain"
        return inconclusive_check(_NAME, text)
    known = products.product
    off = np.linalg.norm(total.parts[0] * split.factors[0] - known)
    is_ignored = bool(off <= math.sqrt(measurements.arithmetic_unit) * np.linalg.norm(known))
    unit = min((slot.grain.unit for slot in measurements.map.domain.slots), default=1.0)
    summary = f"{name} {'ignores' if is_ignored else 'is not linear in'} the {probe}"
    evidence = NotLinear(is_ignored, known, unit, products.is_forward)
    return failed_check(_NAME, summary, findings, evidence=evidence)


def _is_linear_in_double(products: ClaimedProducts) -> bool:
    """Whether the same function is linear in float64, where it runs there.

    In few bits a right rule may lose digits in a large probe, as that of a matrix exponential.
    """
    here = products.measurements
    few = here.in_few_bits if here.is_double else here
    if few is None:
        return False
    try:
        with users_errors():
            exact = few.double
            return not _SplitSum(
                exact.forward if products.is_forward else exact.backward
            ).findings()
    except (Unsupported, UsersError):
        return False


class _SplitSum:
    """What a mode claims of a probe in two parts, and of the terms that it is the sum of.

    A rule may refuse a probe for its size, as PyTorch's of eigenvectors do, which test it with an
    absolute tolerance; or a format of a small range may not hold what it adds up. It claims nothing
    wrong then, and is asked for parts of the usual size.

    Attributes:
        split: the probe.
        parts: products of its two parts, over their factors.
        terms: products of the terms, times their weights.
        refused: why parts of other sizes than usual were refused; "" where they were not.
    """

    def __init__(self, products: ClaimedProducts) -> None:
        self._products, self.refused = products, ""
        self.split = split_probe(products)
        spaces = products.probe_space, products.space
        slots = [slot for space in spaces for slot in space.slots if slot.size]
        has_small_range = any(slot.grain.largest < _SMALL_RANGE for slot in slots)
        try:
            with users_errors():
                self.parts, self.terms = self._ask_for_parts_and_terms()
            if has_small_range and not np.isfinite([*self.parts, *self.terms]).all():
                self.refused = f"the sizes {self.split.sizes_text} overflow"
        except UsersError as error:
            self.refused = f"the sizes {self.split.sizes_text} were refused: {error}"
        if self.refused:
            self.split = self.split.probe_of_usual_size()
            self.parts, self.terms = self._ask_for_parts_and_terms()

    def _ask_for_parts_and_terms(self) -> tuple[list[Values], list[Values]]:
        """The products; that of a single entry for one as large as the large part is.

        Where that overflows it is known for an entry of the usual size alone.
        """
        products, factors = self._products, self.split.factors
        parts = [
            products.ask(self.split.scaled_part(number)) / factors[number] for number in (0, 1)
        ]
        large, terms = 2.0 ** math.floor(math.log2(abs(factors[0]))), []
        for term in self.split.terms:
            if term.kind == "dense":
                product = products.product
            elif term.kind == "constant":
                product = products.constant_product
            else:
                size = large if term.kind == "single" else 1.0
                product = products.ask(size * term.probe) / size
                if not np.isfinite(product).all():
                    product = products.ask(term.probe)
            terms.append(term.weight * product)
        return parts, terms

    def findings(self) -> tuple[Finding, ...]:
        """Entries in which the two parts do not add up to the terms.

        Terms of large weights are as large as they were claimed: so large is their rounding.
        """
        got, expected = self.parts[0] + self.parts[1], reduce(np.add, self.terms)
        if self.refused:  # what overflows at the usual size too is for the checks of the modes
            got = np.where(np.isfinite(got), got, expected)
        pairs = zip(self.terms, self.split.terms, strict=True)
        sizes = (product / max(1.0, abs(term.weight)) for product, term in pairs)
        probe, sizes_text = self._products.probe_name, self.split.sizes_text
        what = f"two parts of a {probe}, of {sizes_text}, against the whole"
        found = vector_findings(
            _NAME,
            self._products,
            got,
            expected,
            what,
            terms=itertools.chain(sizes, self.parts),
            rounding=self._rounding,
        )
        return found or self._findings_by_size()

    def _findings_by_size(self) -> tuple[Finding, ...]:
        """Entries of a part that is not what it is at the usual size, in 16 bits.

        There the rounding of the terms hides a part in the sum; but a power of two changes no digit
        of a probe, nor of what is linear in it.
        """
        products, findings = self._products, list[Finding]()
        if products.measurements.arithmetic_unit <= SINGLE or self.refused:
            return ()
        for number, factor in enumerate(self.split.factors):
            size = 2.0 ** (math.frexp(factor)[1] - 1)
            usual = products.ask(self.split.scaled_part(number) / size) * (size / factor)
            findings += vector_findings(
                _NAME,
                products,
                self.parts[number],
                usual,
                f"a {products.probe_name} of 2^{math.log2(size):.0f} against one of the usual size",
                rounding=lambda: np.asarray(self.split.lost),
            )
        return tuple(findings)

    def _rounding(self) -> Values:
        """What rounding and underflow do to the sum of both parts, and rounding to the terms."""
        weights = sum(abs(term.weight) for term in self.split.terms)
        total = self.split.lost + self._products.rounding * (weights - 1)
        for number, factor in enumerate(self.split.factors):
            total += self._products.rounding_of(self.split.scaled_part(number)) / abs(factor)
        return total
