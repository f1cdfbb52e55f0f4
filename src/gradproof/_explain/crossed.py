"""Causes that one check alone cannot name: what several of them say together.

A backward that is not linear in its cotangent, or gives another gradient every time, has no
Jacobian: what is read off its rows says nothing. Such causes come before those of the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gradproof._data.evidence import Cause
from gradproof._data.records import CheckResult, Verdict
from gradproof._explain.diagnose import ranked

# Checks whose causes explain the failures of the others, the strongest first.
_DEEPER = ("hygiene", "determinism", "linearity")
_SHARED = ("backward", "linearity", "layout", "undefined", "determinism", "adjoint", "batched")
# What a Jacobian read off a non-linear backward row by row still shows.
_OF_NUMBERS = frozenset(
    {"cotangent ignored", "offset", "absolute value", "one cotangent for all", "zero"}
)


def crossed(results: Iterable[CheckResult]) -> tuple[CheckResult, ...]:
    """The results; failed ones with the causes that the others name."""
    results = tuple(results)
    failed = {result.name: result for result in results if result.verdict is Verdict.FAILED}
    deeper = [one for name in _DEEPER if name in failed for one in failed[name].causes]
    if not deeper:
        return results
    backward = failed["backward"].causes if "backward" in failed else ()
    special = [one for one in backward if one.name in _OF_NUMBERS and one.score == 1]
    order = [*special, *deeper]
    return tuple(
        replace(result, causes=_joined(order, result.causes))
        if result.name in failed and result.name in _SHARED
        else result
        for result in results
    )


def _joined(first: Iterable[Cause], causes: Iterable[Cause]) -> tuple[Cause, ...]:
    return ranked((*first, *causes))
