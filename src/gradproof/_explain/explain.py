"""Where and why a derivative is wrong: made of the findings and measured entries of a failed check.

Recognisers are functions of a block of measured entries. Each names a mistake only where it
predicts every claimed number to the error bars, from more entries than it has numbers to fit.
Several may: then the more special one comes first, in the order of the tables below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from gradproof._data.evidence import EvidenceElsewhere
from gradproof._data.records import Cause, CheckResult, Patch, Verdict
from gradproof._data.results import MeasuredBlock, ProductBlock, count_of
from gradproof._data.space import Indices, Space, Values
from gradproof._explain import behaviour, numbers, order, sums, terms, words
from gradproof._explain.case import Block, Case, Match, fitting_matches
from gradproof._explain.causes import cause, causes_of_kinds, ranked_causes
from gradproof._explain.products import explanation_of_products

MOST_ENTRIES = 1 << 17  # that recognisers look at: of more outputs, the wrong ones first
_WIDE = 0.05  # of an entry: an error bar that is an interval of slopes, in double precision
SIDE = 12  # rows and columns of a patch at most

Guesses = Match | Iterable[Match] | None  # a match, or guesses of which those count that fit

_OF_CASE: tuple[Callable[[Case], Guesses], ...] = (
    sums.ignored_cotangent,
    order.swapped_inputs,
    numbers.inexact,
)
_OF_BLOCK: tuple[Callable[[Block], Guesses], ...] = (
    sums.missing_reduction,
    sums.overwritten,
    numbers.conjugate,
    terms.own_entry_only,
    numbers.straight_through,
    numbers.zero,
    numbers.factor,
    order.reordered,
    sums.extra_reduction,
    numbers.lower_precision,
    terms.added_number,
    numbers.neighbour,
    terms.missing_factor,  # it has no coefficient, a term has one for each slice
    order.transposed_jacobian,
    order.symmetric_input,
    terms.missing_term,
)
# Checks of the derivative of a backward, by the mode of differentiation.
_SECOND_ORDER = ("second_order", "third_order", "forward_over_reverse")
_FEWER = (
    "no cause is named of a few measured entries: check fewer inputs, or outputs, to see the whole "
    "Jacobian"
)


def explained(
    result: CheckResult, domain: Space, codomain: Space, point: Values, value: Values
) -> CheckResult:
    """The result with place, causes and a patch of the Jacobian, and without its evidence.

    Only a failure is explained. An explanation changes no verdict and no finding. It asks nothing
    of the user's function, but for two backwards where one is not linear, or does not repeat.

    Args:
        result: of one check.
        domain, codomain: of the map that the check is about; the evidence may have its own, as
            that of a second derivative.
        point: values of its inputs, (n,).
        value: values of its outputs, (m,).
    """
    evidence, bare = result.evidence, replace(result, evidence=None)
    if isinstance(evidence, EvidenceElsewhere):
        domain, codomain = evidence.domain, evidence.codomain
        point, value, evidence = evidence.point, evidence.value, evidence.evidence
    if result.verdict is not Verdict.FAILED:
        return bare
    found = bare
    with np.errstate(all="ignore"):
        if isinstance(evidence, MeasuredBlock) and _is_of(evidence, domain, codomain):
            found = _of_block(bare, evidence, domain, codomain, point, value)
        elif isinstance(evidence, ProductBlock):
            is_domain = evidence.space == domain
            known = point if is_domain else np.zeros(evidence.space.size)
            where, causes = explanation_of_products(evidence, known, codomain, value)
            found = replace(bare, where=where, causes=causes)
        elif not isinstance(evidence, MeasuredBlock):
            found = replace(bare, causes=behaviour.causes_of_behaviour(evidence, bare))
    about_entries = evidence is None or isinstance(evidence, (MeasuredBlock, ProductBlock))
    missing = any(_is_missing(finding.claimed, finding.measured) for finding in result.findings)
    if missing and about_entries:
        count = count_of(sum(_is_missing(f.claimed, f.measured) for f in result.findings))
        message = "the claimed derivative is not a number, or infinite, where it was measured"
        return replace(found, causes=(cause("not a number", message, f"{count} so"),))
    return replace(found, causes=ranked_causes((*causes_of_kinds(result), *found.causes)))


def _is_of(evidence: MeasuredBlock, domain: Space, codomain: Space) -> bool:
    """Whether these are entries of a Jacobian between these spaces, as far as sizes tell."""
    shape = evidence.rows.size, evidence.columns.size
    if evidence.whole:
        return shape == (codomain.size, domain.size)
    inside = evidence.rows.max() < codomain.size and evidence.columns.max() < domain.size
    return bool(min(shape) and inside)


def _is_missing(claimed: float, measured: float) -> bool:
    """Whether the claim is NaN or infinite; a finding without numbers has neither."""
    return math.isinf(claimed) or (math.isnan(claimed) and math.isfinite(measured))


def _of_block(
    result: CheckResult,
    evidence: MeasuredBlock,
    domain: Space,
    codomain: Space,
    point: Values,
    value: Values,
) -> CheckResult:
    """The failure with its place, causes and picture."""
    case = case_of(evidence, domain, codomain, point, value)
    case = replace(case, is_forward=result.name.startswith("forward"))
    causes = diagnosed_causes(_shortened(case)) or _cause_of_kinks(evidence)
    if result.name in _SECOND_ORDER:
        causes = tuple(map(_as_second_order, causes))
    where = words.place_of(case)
    patch = _patch(evidence, domain, codomain) if case.wrong.any() else None
    found = replace(result, where=where or result.where, causes=causes, patch=patch)
    if not causes and not evidence.whole and evidence.columns.size > 1:
        found = replace(found, notes=(*found.notes, _FEWER))
    return found


def case_of(
    evidence: MeasuredBlock, domain: Space, codomain: Space, point: Values, value: Values
) -> Case:
    """The measured entries as recognisers want them, finite.

    An entry without a measured number counts as right, whatever is claimed.
    """
    claimed, measured, allowed = evidence.claimed, evidence.measured, evidence.allowed
    blank = ~(np.isfinite(measured) & np.isfinite(allowed))
    return Case(
        claimed=np.where(blank, 0.0, claimed),
        measured=np.where(blank, 0.0, measured),
        allowed=np.where(blank, 1e125, allowed),  # whose square is a number
        wrong=evidence.wrong & ~blank,
        rows=evidence.rows,
        columns=evidence.columns,
        domain=domain,
        codomain=codomain,
        point=point,
        value=value,
        whole=evidence.whole,
    )


def _shortened(case: Case) -> Case:
    """As many rows as recognisers look at, the wrong ones first."""
    if case.wrong.size <= MOST_ENTRIES:
        return case
    wrong_first = np.argsort(~case.wrong.any(axis=1), kind="stable")
    kept = np.sort(wrong_first[: max(1, MOST_ENTRIES // case.columns.size)])
    return replace(
        case,
        claimed=case.claimed[kept],
        measured=case.measured[kept],
        allowed=case.allowed[kept],
        wrong=case.wrong[kept],
        rows=case.rows[kept],
        whole=False,
    )


def diagnosed_causes(case: Case) -> tuple[Cause, ...]:
    """Causes of a refuted Jacobian, the likeliest first; () where nothing fits.

    A claim that is no number has this cause and no other.
    """
    if not case.wrong.any():
        return ()
    blocks = list(case.blocks())
    missing = [match for match in map(numbers.not_a_number, blocks) if match is not None]
    if missing:
        text, evidence = ("; ".join(dict.fromkeys(t)) for t in zip(*_texts(missing), strict=True))
        return (cause("not a number", text, evidence),)
    of_case = [match for recognise in _OF_CASE for match in _matches(recognise(case), case)]
    causes = [cause(one.name, one.text, one.evidence, one.weight) for one in of_case]
    return ranked_causes((*causes, *_causes_of_blocks(case, blocks)))


def _texts(matches: Iterable[Match]) -> Iterator[tuple[str, str]]:
    return ((match.text, match.evidence) for match in matches)


def _causes_of_blocks(case: Case, blocks: list[Block]) -> Iterator[Cause]:
    """One cause for each name, weighed by the wrong entries of the blocks that it explains."""
    found: dict[str, dict[int, Match]] = {}
    for block in blocks:
        for recognise in _OF_BLOCK:
            for match in _matches(recognise(block), block):
                found.setdefault(match.name, {}).setdefault(block.position, match)
            if block.position in found.get("zero", {}):
                break  # nothing is claimed there that a formula could explain
    total = int(case.wrong.sum())
    shares = {block.position: block.wrong_count / total for block in blocks}
    for name, by_position in found.items():
        matches = [by_position[position] for position in sorted(by_position)]
        texts = dict.fromkeys(match.text for match in matches)
        evidence = dict.fromkeys(match.evidence for match in matches if match.evidence)
        score = sum(match.weight * shares[position] for position, match in by_position.items())
        yield cause(name, "; ".join(list(texts)[:3]), "; ".join(list(evidence)[:2]), score)


def _matches(guesses: Guesses, of: Block | Case) -> list[Match]:
    """The matches among guesses: of an iterator, those whose change fits."""
    if guesses is None:
        return []
    if isinstance(guesses, Match):
        return [guesses]
    return guesses if isinstance(guesses, list) else fitting_matches(guesses, of.fits)


def _cause_of_kinks(evidence: MeasuredBlock) -> tuple[Cause, ...]:
    """That every wrong entry lies at a kink: its error bar is the interval of its slopes.

    Of a block without wrong entries it is the gradient as a whole that is none near a kink.
    """
    wrong = evidence.wrong
    if not wrong.any():
        text = "each entry is a slope at a kink, but together they are no gradient near it"
        return (cause("not differentiable", text, score=0.5),)
    claimed, error, measured = (
        t[wrong] for t in (evidence.claimed, evidence.error, evidence.measured)
    )
    if not (error > _WIDE * np.maximum(np.abs(measured), np.abs(claimed))).all():
        return ()
    text = "the function has no derivative there, and the claim is no slope between its two sides"
    slopes = f"from {measured[0] - error[0]:.3g} to {measured[0] + error[0]:.3g}"
    return (cause("not differentiable", text, f"slopes {slopes}", 0.5),)


def _as_second_order(found: Cause) -> Cause:
    """The cause as it is for the derivative of a backward: zero is a value taken as a constant."""
    if found.name != "zero" or found.message.startswith("nothing arrives at cotangent"):
        return found
    message = f"{found.message}: the backward uses a value that depends on it as a constant"
    return cause("saved intermediate", message, found.evidence, found.score)


def _patch(evidence: MeasuredBlock, domain: Space, codomain: Space) -> Patch:
    """The entries around the one with the largest gap."""
    gap = np.abs(evidence.claimed - evidence.measured)
    gap = np.where(evidence.wrong, np.where(np.isnan(gap), np.inf, gap), -1.0)
    first = np.unravel_index(int(np.argmax(gap)), gap.shape)
    rows = _nearest(evidence.rows, int(first[0]))
    columns = _nearest(evidence.columns, int(first[1]))
    at = np.ix_(rows, columns)
    claimed, measured, error = (
        tuple(map(tuple, table[at].tolist()))
        for table in (evidence.claimed, evidence.measured, evidence.error)
    )
    return Patch(
        outputs=tuple(str(codomain.locate(int(i))) for i in evidence.rows[rows]),
        inputs=tuple(str(domain.locate(int(j))) for j in evidence.columns[columns]),
        claimed=claimed,
        measured=measured,
        error=error,
        wrong=tuple(map(tuple, evidence.wrong[at].tolist())),
    )


def _nearest(coordinates: Indices, middle: int) -> Indices:
    """Positions of the coordinates nearest to one of them, in order."""
    distance = np.abs(coordinates - coordinates[middle])
    return np.sort(np.argsort(distance, kind="stable")[:SIDE])
