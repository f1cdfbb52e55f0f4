"""Each gradient is the same kind of array as its input, whichever other inputs need one.

A backward sees of each input whether it needs a gradient. With each input alone and each left out,
beside all of them, every mistake is seen that hangs on three inputs or fewer, or on an input being
the only one, or the only one without. Of more inputs than 18 random halves are asked for, which
show whatever hangs on one input needing a gradient where another one does not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradproof._checks.agreement import vector_findings
from gradproof._checks.groups import (
    LISTED,
    Group,
    binary_halves,
    listed_names,
    narrowed_group,
    share_of_subsets,
    singles_and_rests,
)
from gradproof._checks.outcome import failed_check, passed_check
from gradproof._checks.users_code import UsersError, users_errors
from gradproof._data.formats import SINGLE
from gradproof._data.records import CheckResult, Finding, Place, Verdict
from gradproof._maps.contract import DifferentiableMap, Refused, Unsupported
from gradproof._measurements import Measurements

_NAME = "grad_metadata"
_ALIKE = "gradients have dtype, device, shape and layout of their inputs"
_MOST_SINGLES = 18  # inputs that are asked for one by one
_MOST_FINDINGS = 8


def check(measurements: Measurements) -> CheckResult:
    """A gradient is the same kind of array as its input, whichever other inputs need one."""
    map_ = measurements.map
    findings = tuple(
        Finding(
            _NAME,
            f"gradient of {map_.domain.slots[trait.slot].name}: its {trait.what} is "
            f"{trait.claimed}, the input's is {trait.expected}",
            trait.what,
            Place(map_.domain.slots[trait.slot].name, trait.slot, ()),
        )
        for trait in map_.gradient_traits(measurements.cotangent(0))
    )
    if findings:
        return failed_check(
            _NAME, "a gradient is not the kind of array that its input is", findings
        )
    if not measurements.settings.other_inputs or len(map_.domain.slots) < 2:
        return passed_check(_NAME, _ALIKE)
    try:
        found = _subsets_result(measurements)
    except Unsupported:
        return passed_check(_NAME, _ALIKE)
    in_few_bits = measurements.unit > SINGLE and not measurements.settings.trusted
    if in_few_bits and found.verdict is Verdict.PASSED:
        return _result_in_double(measurements) or found
    return found


def _result_in_double(measurements: Measurements) -> CheckResult | None:
    """The failure of the same function in float64, where rounding excuses less; else None."""
    try:
        with users_errors():
            exact = measurements.double.with_claims_in_single()
            found = _subsets_result(exact)
    except (Unsupported, UsersError):  # it does not run there
        return None
    if found.verdict is not Verdict.FAILED or exact.randomness:
        return None
    return replace(found, summary=f"{found.summary}, as the same function in float64 shows")


def _subsets_result(measurements: Measurements) -> CheckResult:
    """What is found of J^T v with some of the inputs marked as differentiable."""
    map_ = measurements.map
    count = len(map_.domain.slots)
    subsets = _subsets(map_, measurements.settings.seed)
    found: dict[str, Finding] = {}
    refused: list[str] = []
    for subset in subsets:
        try:
            findings = _subset_findings(measurements, subset)
            if findings:
                findings = _findings_of_smallest_omission(measurements, subset, findings)
        except Refused as refusal:
            where = _needed_inputs_text(map_, subset)
            refused.append(f"the function does not run {where}: {refusal.reason}")
            continue
        found |= {finding.message: finding for finding in findings}
        if len(found) >= _MOST_FINDINGS:
            break
    more = f", and for {len(refused) - 1} more such subsets" if refused[1:] else ""
    notes = (refused[0] + more,) if refused else ()
    if found:
        summary = "a gradient depends on which other inputs need one"
        return failed_check(_NAME, summary, tuple(found.values()), notes=notes)
    share = ""
    if len(subsets) < 2**count - 2:
        share = f": {share_of_subsets(len(subsets), count)}"
    return passed_check(_NAME, f"{_ALIKE}, whichever of the inputs need one{share}", notes=notes)


def _subsets(map_: DifferentiableMap, seed: int) -> list[Group]:
    """The sets of inputs that are asked for."""
    count = len(map_.domain.slots)
    if count <= _MOST_SINGLES:
        return singles_and_rests(count)
    every = frozenset(range(count))
    halves = binary_halves(count, seed)
    single = frozenset({int(np.random.default_rng([seed, count]).integers(count))})
    return [subset for half in (*halves, single) for subset in (half, every - half)]


def _subset_findings(measurements: Measurements, subset: Group) -> tuple[Finding, ...]:
    """Where J^T v with only these inputs marked is not that part of the whole."""
    map_, whole = measurements.map, measurements.gradient(0)
    where = _needed_inputs_text(map_, subset)
    try:
        with users_errors():
            got = map_.vjp_wrt(measurements.cotangent(0), subset)
    except UsersError as error:
        return (Finding(_NAME, f"it raised {where}: {error}", "subset"),)
    expected = np.zeros_like(whole)
    for slot in subset:
        span = map_.domain.span(slot)
        expected[span] = whole[span]
    what = f"{where}, against all that need one"
    return vector_findings(_NAME, measurements, got, expected, what, kind="subset", most=2)


def _findings_of_smallest_omission(
    measurements: Measurements, subset: Group, findings: tuple[Finding, ...]
) -> tuple[Finding, ...]:
    """The findings with as few inputs left out as still show them: a message names these."""
    every = frozenset(range(len(measurements.map.domain.slots)))
    left_out = every - subset
    if min(len(subset), len(left_out)) <= LISTED:
        return findings
    fewer = narrowed_group(left_out, lambda part: _subset_findings(measurements, every - part))
    return findings if fewer == left_out else _subset_findings(measurements, every - fewer)


def _needed_inputs_text(map_: DifferentiableMap, subset: Group) -> str:
    names = [slot.name for place, slot in enumerate(map_.domain.slots) if place in subset]
    others = [slot.name for place, slot in enumerate(map_.domain.slots) if place not in subset]
    if len(others) < len(names) and len(names) > LISTED:
        return f"where {listed_names(others)} {'needs' if len(others) == 1 else 'need'} none"
    verb = "needs" if len(names) == 1 else "need"
    return f"where only {listed_names(names)} {verb} a gradient"
