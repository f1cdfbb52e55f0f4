"""A cotangent or tangent that is not there behaves like zero.

J^T v without the cotangents of some outputs, and without those of all others, add up to J^T v: two
runs for each way to split the outputs in two, and no reference. With about log2 k random halves of
k outputs, any two outputs are split. Of tangents and J u the same is true. Single outputs are asked
only where a sum is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gradproof._checks.agreement import gradient_repeats, vector_findings
from gradproof._checks.groups import (
    Group,
    listed_names,
    narrowed_group,
    share_of_subsets,
    splits,
)
from gradproof._checks.outcome import failed_check, inconclusive_check, passed_check, skipped_check
from gradproof._checks.users_code import UsersError, users_errors
from gradproof._data.records import CheckResult, Finding, Place
from gradproof._data.space import Space, Values
from gradproof._maps.contract import Unsupported
from gradproof._measurements import Measurements

_NAME = "missing_grad_output"


def check(measurements: Measurements) -> CheckResult:
    """Undefined cotangents give the gradient of zero ones; missing tangents likewise."""
    settings = measurements.settings
    forward = settings.measures("forward")
    findings: tuple[Finding, ...] = ()
    modes: list[_Mode] = []
    has_reverse = not forward or settings.measures("reverse")
    if has_reverse:
        modes.append(_cotangents(measurements))
        findings += _all_missing_findings(modes[-1]) + _findings(modes[-1])
    if forward and len(measurements.map.domain.slots) > 1:
        try:
            tangents = _tangents(measurements)
            findings += _findings(tangents)
            modes.append(tangents)
        except Unsupported:
            pass  # the forward check says why there is no forward mode
    if findings and has_reverse and not gradient_repeats(measurements):
        return inconclusive_check(
            _NAME, "the gradient does not repeat, with every cotangent defined"
        )
    if findings:
        summary = "an undefined cotangent or tangent is not treated as zero"
        return failed_check(_NAME, summary, findings)
    if not modes:
        return skipped_check(_NAME, "one input only: without its tangent there is none")
    names = " and ".join(f"{mode.noun}s" for mode in modes)
    notes = tuple(note for mode in modes if (note := _note(mode)))
    return passed_check(_NAME, f"undefined {names} behave like zero", notes=notes)


@dataclass(frozen=True)
class _Mode:
    """A mode of differentiation, of whose probe some slots may be missing.

    Attributes:
        measurements: of the map.
        noun: "cotangent" or "tangent".
        forward: whether it is forward mode.
        space: of the probe.
        slots: of the probe, that may be missing.
        probe, whole: the probe and its product with the Jacobian.
        ask: the product for any probe.
        ask_without: the product for a probe of which some slots are missing.
        groups: of slots, that are missing together: those and all others.
    """

    measurements: Measurements
    noun: str
    forward: bool
    space: Space
    slots: Group
    probe: Values
    whole: Values
    ask: Callable[[Values], Values]
    ask_without: Callable[[Values, Group], Values]
    groups: tuple[Group, ...]


def _cotangents(measurements: Measurements) -> _Mode:
    map_ = measurements.map
    slots = [k for k, slot in enumerate(map_.codomain.slots) if not slot.detached]
    return _Mode(
        measurements,
        "cotangent",
        False,
        map_.codomain,
        frozenset(slots),
        measurements.cotangent(0),
        measurements.gradient(0),
        map_.vjp,
        map_.vjp_undefined,
        _groups_of(slots, measurements.settings.seed),
    )


def _tangents(measurements: Measurements) -> _Mode:
    map_ = measurements.map
    slots = list(range(len(map_.domain.slots)))
    return _Mode(
        measurements,
        "tangent",
        True,
        map_.domain,
        frozenset(slots),
        measurements.tangent(0),
        measurements.pushforward(0),
        map_.jvp,
        map_.jvp_undefined,
        _groups_of(slots, measurements.settings.seed),
    )


def _groups_of(slots: list[int], seed: int) -> tuple[Group, ...]:
    if len(slots) < 2:
        return ()
    return tuple(frozenset(slots[k] for k in group) for group in splits(len(slots), seed))


def _note(mode: _Mode) -> str:
    """That there are more combinations than were tried; "" where there are none."""
    count, asked = len(mode.slots), 2 * len(mode.groups)
    if count < 2 or asked == 2**count - 2:
        return ""
    return f"undefined {mode.noun}s: {share_of_subsets(asked, count)} were tried"


def _all_missing_findings(mode: _Mode) -> tuple[Finding, ...]:
    """What is wrong where the whole cotangent is missing."""
    got = _product_without(mode, frozenset(range(len(mode.space.slots))))
    if isinstance(got, Finding):
        return (got,)
    what, expected = "all cotangents undefined", np.zeros_like(got)
    return vector_findings(_NAME, mode.measurements, got, expected, what)


def _findings(mode: _Mode) -> tuple[Finding, ...]:
    """What is wrong where a group of slots is missing; of the first such split."""
    for group in mode.groups:
        pair = group, mode.slots - group
        parts = [_product_without(mode, missing) for missing in pair]
        products = [part for part in parts if not isinstance(part, Finding)]
        if len(products) == 2:
            total, terms = products[0] + products[1], (mode.whole, *products)
            if not _disagreements(mode, total, mode.whole, terms, ""):
                continue
        found = tuple(finding for missing in pair for finding in _group_findings(mode, missing))
        return found or _sum_findings(mode, pair)
    return ()


def _group_findings(mode: _Mode, missing: Group) -> tuple[Finding, ...]:
    """What is wrong where these slots are missing, or as few of them as show it."""
    if not _against_zero(mode, missing):
        return ()
    return _against_zero(mode, narrowed_group(missing, lambda part: _against_zero(mode, part)))


def _against_zero(mode: _Mode, missing: Group) -> tuple[Finding, ...]:
    """Slots that are missing, compared with slots that are zero."""
    got = _product_without(mode, missing)
    if isinstance(got, Finding):
        return (got,)
    expected = mode.ask(_probe_with_zeros(mode, missing))
    what = f"{_names(mode, missing)} undefined against zero"
    return _disagreements(mode, got, expected, (expected,), what)


def _sum_findings(mode: _Mode, pair: tuple[Group, Group]) -> tuple[Finding, ...]:
    """What is wrong where zeros are treated as what is missing is, and wrongly."""
    parts = [mode.ask(_probe_with_zeros(mode, missing)) for missing in pair]
    what = f"{mode.noun}s of some slots with zeros for the others, added up, against the whole"
    return _disagreements(mode, parts[0] + parts[1], mode.whole, (mode.whole, *parts), what)


def _disagreements(
    mode: _Mode, got: Values, expected: Values, terms: tuple[Values, ...], what: str
) -> tuple[Finding, ...]:
    if mode.forward:  # what is missing was a part of the whole, and is rounded by it
        terms = (*terms, mode.whole)
    return vector_findings(
        _NAME,
        mode.measurements,
        got,
        expected,
        what,
        terms=terms,
        forward=mode.forward,
        kind="undefined tangent" if mode.forward else "",
        most=4 if mode.forward else 2,
    )


def _product_without(mode: _Mode, missing: Group) -> Values | Finding:
    """The product for a probe of which some slots are missing; a finding where that raises."""
    try:
        with users_errors():
            product: Values = mode.ask_without(mode.probe, missing)
            return product
    except UsersError as error:
        message = f"{_names(mode, missing)} undefined: it raised {error}"
        place = None
        if not mode.forward and len(missing) == 1:
            (slot,) = missing
            place = Place(mode.space.slots[slot].name, slot, ())
        return Finding(_NAME, message, "undefined: raised", output=place)


def _probe_with_zeros(mode: _Mode, missing: Group) -> Values:
    """The probe with zeros in some slots."""
    probe: Values = mode.probe.copy()
    for slot in missing:
        probe[mode.space.span(slot)] = 0.0
    return probe


def _names(mode: _Mode, missing: Group) -> str:
    names = [mode.space.slots[slot].name for slot in sorted(missing)]
    return f"{mode.noun}{'s' * (len(names) > 1)} of {listed_names(names)}"
