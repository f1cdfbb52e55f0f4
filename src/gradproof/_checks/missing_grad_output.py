"""A cotangent or tangent that is not there behaves like zero.

J^T v without the cotangents of some outputs, and without those of all others, add up to J^T v: two
runs for each way to split the outputs in two, and no reference. With about log2 k random halves of
k outputs, any two outputs are split. Of tangents and J u the same is true. Where a sum is wrong,
each side is compared with zeros; where both are what zeros give, these do not add up either.
"""

from __future__ import annotations

import contextlib

import numpy as np

from gradproof._checks.agreement import gradient_repeats, vector_findings
from gradproof._checks.groups import Group, share_of_subsets, splits_in_two
from gradproof._checks.outcome import failed_check, inconclusive_check, passed_check, skipped_check
from gradproof._data.records import CheckResult, Finding, Place
from gradproof._data.space import Values
from gradproof._data.visible import short_list
from gradproof._maps.contract import Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._measurements import ClaimedProducts, Measurements

_NAME = "missing_grad_output"


def check(measurements: Measurements) -> CheckResult:
    """Undefined cotangents give the gradient of zero ones; missing tangents likewise."""
    findings: tuple[Finding, ...] = ()
    tried: list[_MissingSlots] = []
    for products in measurements.modes:
        if not products.is_forward:
            tried.append(_MissingSlots(products))
            findings += tried[0].findings_without_any() + tried[0].findings()
            if findings and not gradient_repeats(measurements):
                text = "the gradient does not repeat, with every cotangent defined"
                return inconclusive_check(_NAME, text)
        elif len(products.probe_space.slots) > 1:
            with contextlib.suppress(Unsupported):  # the forward check says why there is none
                tangents = _MissingSlots(products)
                findings += tangents.findings()
                tried.append(tangents)
    if findings:
        summary = "an undefined cotangent or tangent is not treated as zero"
        return failed_check(_NAME, summary, findings)
    if not tried:
        return skipped_check(_NAME, "one input only: without its tangent there is none")
    names = " and ".join(f"{mode.noun}s" for mode in tried)
    notes = tuple(note for mode in tried if (note := mode.note()))
    return passed_check(_NAME, f"undefined {names} behave like zero", notes=notes)


class _MissingSlots:
    """Products of the random probe of one mode where some of its slots are missing.

    Attributes:
        noun: "cotangent" or "tangent".
        splits: groups of slots that are missing together, and then all others.
    """

    def __init__(self, products: ClaimedProducts) -> None:
        self._products, self._space, self.noun = products, products.probe_space, products.probe_name
        self._whole = products.product
        slots = [k for k, slot in enumerate(self._space.slots) if not slot.detached]
        self._every, self._count = frozenset(slots), len(slots)
        groups = splits_in_two(self._count, products.measurements.settings.seed)
        self.splits = [frozenset(slots[k] for k in group) for group in groups]

    def note(self) -> str:
        """That there are more combinations than were tried; "" where there are none."""
        tried = 2 * len(self.splits)
        if self._count < 2 or tried == 2**self._count - 2:
            return ""
        return f"undefined {self.noun}s: {share_of_subsets(tried, self._count)} were tried"

    def findings_without_any(self) -> tuple[Finding, ...]:
        """What is wrong where the whole probe is missing."""
        got = self._product_without(frozenset(range(len(self._space.slots))))
        if isinstance(got, Finding):
            return (got,)
        what = "all cotangents undefined"
        # Zero, whatever is tolerated: a tolerance is for measured numbers.
        return self._disagreements(got, np.zeros_like(got), (), what, is_tolerant=False)

    def findings(self) -> tuple[Finding, ...]:
        """What is wrong where a group of slots is missing; of the first such split."""
        for group in self.splits:
            sides = group, self._every - group
            products, raised = list[Values](), list[Finding]()
            for missing in sides:
                got = self._product_without(missing)
                if isinstance(got, Finding):
                    raised.append(got)
                else:
                    products.append(got)
            if raised:
                return tuple(raised)
            total, terms = products[0] + products[1], (self._whole, *products)
            # What the findings say where neither side differs from one with zeros.
            what = f"{self.noun}s of some slots with zeros for the others, added up"
            if wrong := self._disagreements(total, self._whole, terms, what):
                one, other = map(self._findings_against_zero, sides, products)
                return one + other or wrong
        return ()

    def _findings_against_zero(self, missing: Group, got: Values) -> tuple[Finding, ...]:
        """Slots that are missing, compared with slots that are zero."""
        probe = self._products.probe.copy()
        for slot in missing:
            probe[self._space.span(slot)] = 0.0
        expected = self._products.ask(probe)
        what = f"{self._names(missing)} undefined against zero"
        return self._disagreements(got, expected, (expected,), what)

    def _disagreements(
        self,
        got: Values,
        expected: Values,
        terms: tuple[Values, ...],
        what: str,
        *,
        is_tolerant: bool = True,
    ) -> tuple[Finding, ...]:
        # A claim of NaN or infinity is for the check of its mode, which says so once.
        got = np.where(np.isfinite(self._whole), got, expected)
        kind = "undefined tangent" if self._products.is_forward else ""
        if self._products.is_forward:  # what is missing was a part of the whole: rounded by it
            terms = (*terms, self._whole)
        return vector_findings(
            _NAME,
            self._products,
            got,
            expected,
            what,
            terms=terms,
            kind=kind,
            is_tolerant=is_tolerant,
        )

    def _product_without(self, missing: Group) -> Values | Finding:
        """The product for a probe of which some slots are missing; a finding where that raises."""
        products, map_ = self._products, self._products.measurements.map
        ask = map_.jvp_undefined if products.is_forward else map_.vjp_undefined
        try:
            with users_errors():
                return np.asarray(ask(products.probe, missing))
        except UsersError as error:
            message = f"{self._names(missing)} undefined: it raised {error}"
            place = None
            if not products.is_forward and len(missing) == 1:
                (slot,) = missing
                place = Place(self._space.slots[slot].name, slot, ())
            return Finding(_NAME, message, "undefined: raised", output=place)

    def _names(self, missing: Group) -> str:
        names = [self._space.slots[slot].name for slot in sorted(missing)]
        return f"{self.noun}{'s' * (len(names) > 1)} of {short_list(names)}"
