"""Causes of how a backward behaves: not linear, not repeatable, blind to memory layouts."""

from __future__ import annotations

import math

import numpy as np

from gradproof._checks.determinism import NotRepeated
from gradproof._checks.layout import WrongLayouts
from gradproof._checks.linearity import NotLinear
from gradproof._data.records import Cause, CheckResult
from gradproof._data.results import count_of
from gradproof._data.space import Values
from gradproof._explain.causes import cause
from gradproof._explain.numbers import CLOSE, tolerance_text
from gradproof._maps.contract import BudgetSpent

_SAME = 1e-6  # of a gradient: two that differ by less are one


def causes_of_behaviour(evidence: object, result: CheckResult) -> tuple[Cause, ...]:
    """The cause that the evidence of a check shows; () where none does, or it cannot be had.

    Whether a backward that is not linear has an offset, and whether one that does not repeat adds
    up, take two further backwards.
    """
    try:
        if isinstance(evidence, NotLinear):
            return _causes_of_nonlinear(evidence, result)
        if isinstance(evidence, NotRepeated):
            return (_cause_of_unsteady(evidence),)
        if isinstance(evidence, WrongLayouts):
            return (_cause_of_layouts(evidence),)
    except (Exception, BudgetSpent):  # the user's backward may raise; a cause is no verdict
        return ()
    return ()


def _causes_of_nonlinear(evidence: NotLinear, result: CheckResult) -> tuple[Cause, ...]:
    """In which way a backward is not linear in its cotangent."""
    v, gradient = np.asarray(evidence.probe), np.asarray(evidence.gradient)
    if not np.isfinite(gradient).all():
        count = count_of(int((~np.isfinite(gradient)).sum()))
        return (cause("not a number", "the gradient is not a number, or infinite", f"{count} so"),)
    size = float(np.linalg.norm(gradient)) or 1.0
    near = 4 * math.sqrt(max(evidence.map.resolution, 2.0**-53)) * size
    zero, twice = (np.asarray(evidence.map.vjp(factor * v)) for factor in (0.0, 2.0))
    if _norm(zero - gradient) <= near and _norm(twice - gradient) <= near:
        return (cause("cotangent ignored", "the gradient is the same whatever the cotangent"),)
    if _norm(zero) > near:
        text = "something is added to the gradient that does not depend on the cotangent"
        share = f"{_norm(zero) / size:.2g} of it for a cotangent of zeros"
        return (cause("missing term", text, share),)
    gaps = [f.gap / abs(f.measured) for f in result.findings if f.measured and f.gap == f.gap]
    if gaps and max(gaps) <= CLOSE:
        text, evidence_text = tolerance_text(max(gaps), "its entry"), f"{len(gaps):,} findings"
        return (cause("inexact", text, evidence_text, 0.3),)
    if _norm(twice - 2 * gradient) <= near:
        text = "right for cotangents of the size of 1, and not for all that are larger, smaller, "
        return (cause("non-linear", f"{text}have more digits or exact zeros"),)
    text = f"{_norm(twice) / size:.4g} times the gradient for twice the cotangent"
    return (cause("non-linear", "the backward is not linear in the cotangent", text),)


def _cause_of_unsteady(evidence: NotRepeated) -> Cause:
    """Whether a backward that gives another gradient every time adds up, or is noise."""
    first, second = np.asarray(evidence.first), np.asarray(evidence.second)
    third = np.asarray(evidence.map.vjp(evidence.probe))
    fourth = np.asarray(evidence.map.vjp(evidence.probe))
    grown, again = third - second, fourth - third  # others ran between the first two
    if _norm(grown) and _norm(grown - again) <= _SAME * _norm(grown):
        text = "every backward adds to what the ones before it left"
        return cause("accumulated", text, "two further runs differ by the same")
    if _norm(again) and _norm(third * third - second * fourth) <= _SAME * _norm(third * third):
        text = "every backward scales what the ones before it left"
        return cause("saved overwritten", text, "two further runs by the same")
    part = _norm(second - first) / (_norm(first) or 1.0)
    text = "the backward gives another gradient in some runs"
    return cause("noise", text, f"two runs differ by {part:.1g} of the gradient")


def _cause_of_layouts(evidence: WrongLayouts) -> Cause:
    """Which arrays are read as if they were contiguous."""
    contiguous = "is read as if it lay in memory contiguously"
    if evidence.inputs:
        return cause("layout ignored", f"an input {contiguous}")
    if evidence.cotangent <= {"negative", "conjugate"}:
        text = "the memory of the cotangent is read without the bit that negates or conjugates it"
        return cause("layout ignored", text)
    if evidence.cotangent == {"expanded"}:
        text = "a cotangent of stride 0 is read as if each of its entries were in memory"
        return cause("layout ignored", text)
    return cause("layout ignored", f"the cotangent {contiguous}")


def _norm(values: Values) -> float:
    return float(np.linalg.norm(values))
