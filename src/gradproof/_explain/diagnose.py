"""What kind of mistake explains a refuted Jacobian: small recognisers, ranked, silent in doubt.

A recogniser names a mistake only where it predicts every claimed number of the blocks that it is
about, to the error bars. Several may: names of one and the same matrix. Then the more special one
comes first, and the order of the tables below says which that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from gradproof._data.records import Cause, CheckResult
from gradproof._explain import order, scaling, sums, terms
from gradproof._explain.advice import advice
from gradproof._explain.case import Block, Case, Match
from gradproof._maps.contract import BudgetSpent

MOST = 4  # causes that are told

OfBlock = Callable[[Block], "Match | list[Match] | None"]
OfCase = Callable[[Case], "Match | list[Match] | None"]

_CASES: tuple[OfCase, ...] = (
    sums.of_cotangent,
    order.swapped,
    order.moved_cotangent,
    scaling.inexact,
)
_BLOCKS: tuple[OfBlock, ...] = (
    sums.broadcast,
    scaling.of_parts,
    scaling.absolute,
    scaling.not_a_number,
    terms.own_entry_only,
    scaling.zero,
    scaling.factor,
    scaling.phase,
    order.moved,
    sums.over_axes,
    scaling.bits,
    scaling.added,
    order.leaking,
    terms.other_function,
    terms.missing_factor,  # it has no coefficient, a term has one for each slice
    terms.missing_term,
    scaling.straight_through,
    terms.missing_term_of_each,
)


def diagnosed(case: Case) -> tuple[Cause, ...]:
    """Causes of a refuted Jacobian, the likeliest first; empty where nothing fits."""
    if not case.wrong.any() or not np.isfinite(case.measured).all():
        return ()
    found = [_cause(match) for recognise in _CASES for match in _listed(recognise(case))]
    blocks = list(case.blocks())
    if blocks:
        total = sum(int(block.wrong.sum()) for block in blocks)
        covered = total / int(case.wrong.sum())
        per_block = [_of_block(block) for block in blocks]
        shares = [int(block.wrong.sum()) / total for block in blocks]
        found += _combined(per_block, [covered * share for share in shares])
    return ranked(found)


def ranked(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """The causes, those that explain most first, each name once."""
    first: dict[str, Cause] = {}
    for found in sorted(causes, key=lambda one: -round(one.score, 3)):
        first.setdefault(found.name, found)
    return tuple(first.values())[:MOST]


def _of_block(block: Block) -> list[tuple[int, Match]]:
    """Matches with the place of their recogniser in the table."""
    return [
        (place, match)
        for place, recognise in enumerate(_BLOCKS)
        for match in _listed(recognise(block))
    ]


def _listed(found: Match | list[Match] | None) -> list[Match]:
    return [] if found is None else found if isinstance(found, list) else [found]


def _combined(per_block: Sequence[list[tuple[int, Match]]], shares: Sequence[float]) -> list[Cause]:
    """One cause for each name, weighed by the wrong entries of the blocks that it explains."""
    places: dict[str, int] = {}
    for matches in per_block:
        for place, match in matches:
            places[match.name] = min(place, places.get(match.name, place))
    names = sorted(places, key=lambda name: places[name])
    causes = []
    for name in names:
        chosen = [
            (match, share)
            for matches, share in zip(per_block, shares, strict=True)
            for match in [next((one for _, one in matches if one.name == name), None)]
            if match is not None
        ]
        texts = dict.fromkeys(match.text for match, _ in chosen)
        evidence = dict.fromkeys(match.evidence for match, _ in chosen if match.evidence)
        causes.append(
            _cause(
                Match(
                    name,
                    "; ".join(list(texts)[:3]),
                    "; ".join(list(evidence)[:2]),
                    sum(match.weight * share for match, share in chosen),
                )
            )
        )
    return causes


def _cause(match: Match) -> Cause:
    return cause(match.name, match.text, match.evidence, match.weight)


def quietly(result: CheckResult, explain: Callable[[CheckResult], CheckResult]) -> CheckResult:
    """The result explained; as it is where that fails, for whatever reason."""
    try:
        return explain(result)
    except (Exception, BudgetSpent):
        return result


def cause(name: str, message: str, evidence: str = "", score: float = 1.0) -> Cause:
    """A cause with the advice that belongs to its name."""
    return Cause(name, message, evidence, advice(name), score)
