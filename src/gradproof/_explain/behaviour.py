"""Causes that a check has found by what it asks for: the kind of its findings, or its evidence."""

from __future__ import annotations

import numpy as np

from gradproof._checks.determinism import NotRepeated
from gradproof._checks.linearity import NotLinear
from gradproof._checks.memory_layout import WrongLayouts
from gradproof._data.records import Cause, CheckResult
from gradproof._explain.causes import named_cause

_SAME = 1e-6  # of a gradient: two that differ by less are one

# Kind of a finding -> the cause that it is, and its message.
_OF_KINDS = {
    "detached": ("output detached", "{} has a derivative and claims to have none"),
    "kink": (
        "not differentiable",
        "the function has no derivative here, and the claim is no slope between its two",
    ),
    "cotangent": ("in place", "the backward writes into grad_output"),
    "input": ("in place", "an input is written into"),
    "saved": ("in place", "a saved array is changed after it was saved"),
    "missing_grad_output": ("undefined cotangent", "a missing grad_output is not taken for zero"),
    "undefined: raised": ("undefined cotangent", "a missing grad_output is not taken for zero"),
    "undefined tangent": ("undefined cotangent", "a missing tangent is not taken for zero"),
    "last call": ("stale", "the gradient depends on a call made after this one"),
    "first call": ("stale", "at another point the gradient is that of the first"),
    "first point": ("stale", "at another point the gradient is that of the first"),
}


def causes_of_kinds(result: CheckResult) -> list[Cause]:
    """Causes that the kinds of findings name, weighed by how many findings are of them."""
    messages: dict[str, list[str]] = {}
    for finding in result.findings:
        if finding.kind in _OF_KINDS:
            name, message = _OF_KINDS[finding.kind]
            messages.setdefault(name, []).append(message.format(finding.output_name or "an output"))
    return [
        named_cause(name, "; ".join(sorted(set(each))[:3]), score=len(each) / len(result.findings))
        for name, each in messages.items()
    ]


def causes_of_behaviour(evidence: object) -> tuple[Cause, ...]:
    """The cause that the evidence of a check shows; () where none does."""
    if isinstance(evidence, NotLinear):
        if evidence.is_ignored:
            message = "the gradient is the same whatever the cotangent"
            return (named_cause("cotangent ignored", message),)
        return (named_cause("non-linear", "the backward is not linear in the cotangent"),)
    if isinstance(evidence, NotRepeated):
        return (_cause_of_unsteady(evidence),)
    if isinstance(evidence, WrongLayouts):
        return (named_cause("layout ignored", _message_of_layouts(evidence)),)
    return ()


def _cause_of_unsteady(evidence: NotRepeated) -> Cause:
    """Whether a backward that gives another gradient every time adds up, or is noise."""
    first, *later = evidence.gradients
    steps = np.diff(np.stack(later), axis=0)  # others were asked for after the first
    sizes = np.linalg.norm(steps, axis=1)
    spread = np.linalg.norm(steps - steps[:1], axis=1)
    if steps.shape[0] > 1 and sizes.all() and (spread <= _SAME * sizes).all():
        message = "every backward adds to what the ones before it left"
        return named_cause("not repeatable", message, f"{steps.shape[0]} runs add the same")
    gap = max(float(np.linalg.norm(each - first)) for each in later)
    part = gap / (float(np.linalg.norm(first)) or 1.0)
    message = "the backward gives another gradient in some runs"
    return named_cause("not repeatable", message, f"runs differ by {part:.1g} of the gradient")


def _message_of_layouts(evidence: WrongLayouts) -> str:
    """Which arrays are read as if they were contiguous."""
    if evidence.inputs:
        return "an input is read as if it lay in memory contiguously"
    if evidence.cotangent <= {"negative", "conjugate"}:
        return "the memory of the cotangent is read without the bit that negates or conjugates it"
    if evidence.cotangent == {"expanded"}:
        return "a cotangent of stride 0 is read as if each of its entries were in memory"
    return "the cotangent is read as if it lay in memory contiguously"
