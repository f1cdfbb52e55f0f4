"""Each gradient is the same kind of array as its input, whichever other inputs need one.

A backward sees of each input whether it needs a gradient. With each input alone and each left out,
beside all of them, every mistake is seen that hangs on three inputs or fewer, or on an input being
the only one, or the only one without. Of more inputs than 6 random halves are asked for, which show
whatever hangs on one input needing a gradient where another one does not.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np

from gradproof._checks.agreement import vector_findings
from gradproof._checks.groups import Group, share_of_subsets, splits_in_two
from gradproof._checks.outcome import failed_check, passed_check
from gradproof._data.records import CheckResult, Finding, Place
from gradproof._data.visible import LISTED, short_list
from gradproof._maps.contract import DifferentiableMap, Refused, Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._measurements import Measurements

_NAME = "grad_metadata"
_ALIKE = "gradients have dtype, device, shape and layout of their inputs"
_MOST_SINGLES = 6  # inputs that are asked for one by one
_MOST_FINDINGS = 8


def check(measurements: Measurements) -> CheckResult:
    """A gradient is the same kind of array as its input, whichever other inputs need one."""
    map_, other_inputs = measurements.map, measurements.settings.other_inputs
    findings, notes = list[Finding](), list[str]()
    for trait in map_.gradient_traits(measurements.cotangent):
        place = Place(map_.domain.slots[trait.slot].name, trait.slot, ())
        if trait.what == "layout" and "strided" in trait.expected and other_inputs:
            # A sparse gradient of a dense table fits its optimiser, but not PyTorch's gradcheck.
            notes.append(f"the gradient of {place} is sparse, {trait.claimed}")
            continue
        text = f"its {trait.what} is {trait.claimed}, the input's is {trait.expected}"
        findings.append(Finding(_NAME, f"gradient of {place}: {text}", trait.what, place))
    if findings:
        summary = "a gradient is not the kind of array that its input is"
        return failed_check(_NAME, summary, tuple(findings))
    found = passed_check(_NAME, _ALIKE)
    if other_inputs and len(map_.domain.slots) > 1:
        with contextlib.suppress(Unsupported):
            found = _subsets_result(measurements)
    return replace(found, notes=(*notes, *found.notes))


def _subsets_result(measurements: Measurements) -> CheckResult:
    """What is found of J^T v with some of the inputs marked as differentiable."""
    map_, count = measurements.map, len(measurements.map.domain.slots)
    every = frozenset(range(count))
    parts = splits_in_two(count, measurements.settings.seed, _MOST_SINGLES)
    subsets = dict.fromkeys([*parts, *(every - part for part in parts)])
    findings, refused = list[Finding](), list[str]()
    for subset in subsets:
        try:
            findings += _subset_findings(measurements, subset)
        except Refused as refusal:
            where = _phrase_of_subset(map_, subset)
            refused.append(f"the function does not run {where}: {refusal.reason}")
        if len(findings) >= _MOST_FINDINGS:
            break
    more = f", and for {len(refused) - 1} more such subsets" if refused[1:] else ""
    notes = (refused[0] + more,) if refused else ()
    if findings:
        summary = "a gradient depends on which other inputs need one"
        return failed_check(_NAME, summary, tuple(findings), notes=notes)
    share = f": {share_of_subsets(len(subsets), count)}" if len(subsets) < 2**count - 2 else ""
    return passed_check(_NAME, f"{_ALIKE}, whichever of the inputs need one{share}", notes=notes)


def _subset_findings(measurements: Measurements, subset: Group) -> tuple[Finding, ...]:
    """Where J^T v with only these inputs marked is not that part of the whole."""
    map_, whole = measurements.map, measurements.gradient
    where = _phrase_of_subset(map_, subset)
    try:
        with users_errors():
            got = map_.vjp_wrt(measurements.cotangent, subset)
    except UsersError as error:
        return (Finding(_NAME, f"it raised {where}: {error}", "subset"),)
    expected = np.zeros_like(whole)
    for slot in subset:
        span = map_.domain.span(slot)
        expected[span] = whole[span]
    what = f"{where}, against all that need one"
    return vector_findings(_NAME, measurements.backward, got, expected, what, kind="subset")


def _phrase_of_subset(map_: DifferentiableMap, subset: Group) -> str:
    """Which inputs need a gradient, in words."""
    names = [slot.name for place, slot in enumerate(map_.domain.slots) if place in subset]
    others = [slot.name for place, slot in enumerate(map_.domain.slots) if place not in subset]
    if len(others) < len(names) and len(names) > LISTED:
        return f"where {short_list(others)} {'needs' if len(others) == 1 else 'need'} none"
    return f"where only {short_list(names)} {'needs' if len(names) == 1 else 'need'} a gradient"
