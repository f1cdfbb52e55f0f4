"""Causes that one check alone cannot name: what several of them say together.

A backward that is not linear in its cotangent, or gives another gradient every time, has no
Jacobian: what is read off its rows says nothing. Such causes come before those of the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gradproof._data.checks import Check, row
from gradproof._data.records import CheckResult, Verdict
from gradproof._explain.diagnose import ranked

# What a Jacobian read off a non-linear backward row by row still shows.
_OF_NUMBERS = frozenset(
    {"cotangent ignored", "offset", "absolute value", "one cotangent for all", "zero"}
)


def crossed(results: Iterable[CheckResult]) -> tuple[CheckResult, ...]:
    """The results; failed ones with the causes that the others name."""
    results = tuple(results)
    failed = [(row, result) for result in results if (row := _failed(result)) is not None]
    deeper = sorted(failed, key=lambda pair: -pair[0].explains)
    causes = [one for row, result in deeper if row.explains for one in result.causes]
    if not causes:
        return results
    explained = {row.name for row, _ in failed if row.explained}
    matrix = [one for row, r in failed if row.derivative and row.explained for one in r.causes]
    special = [one for one in matrix if one.name in _OF_NUMBERS and one.score == 1]
    return tuple(
        replace(result, causes=ranked((*special, *causes, *result.causes)))
        if result.name in explained
        else result
        for result in results
    )


def _failed(result: CheckResult) -> Check | None:
    """The row of a check that failed."""
    return row(result.name) if result.verdict is Verdict.FAILED else None
