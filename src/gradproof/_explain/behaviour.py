"""Causes of how a backward behaves: what is no matter of single numbers."""

from __future__ import annotations

from dataclasses import replace

from gradproof._checks.state import SUMMARIES, OfAnotherCall
from gradproof._data.records import CheckResult
from gradproof._explain.diagnose import cause


def of_another_call(evidence: OfAnotherCall, result: CheckResult) -> CheckResult:
    """What was kept from one call is used for another."""
    same = "the gradient there is that of the first point"
    told = same if evidence.same else SUMMARIES[evidence.kind]
    return replace(result, causes=(cause(evidence.kind, told),))
