"""The last stage: of the evidence that a failing check left, its places, causes and pictures.

An explanation may cost a few calls. It changes no verdict and no finding, and nothing that judges
knows of it: the engine asks for it once, after a check has run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from gradproof._checks.backward import DoubleBackward
from gradproof._checks.determinism import NotRepeated
from gradproof._checks.layout import WrongLayouts
from gradproof._checks.linearity import NotLinear
from gradproof._checks.state import SUMMARIES
from gradproof._checks.traits import Spoilt
from gradproof._data.checks import row
from gradproof._data.records import Cause, CheckResult, Verdict
from gradproof._data.space import Mask, Slot, Space, Values
from gradproof._data.vectors import KEPT
from gradproof._explain import behaviour, order, pictures, scaling, sums, words
from gradproof._explain.case import (
    NOTHING,
    SLACK,
    Block,
    Case,
    Turn,
    common_ratio,
    told_ratio,
    weight,
)
from gradproof._explain.diagnose import cause, diagnosed, of_block, quietly, ranked
from gradproof._explain.scaling import near_one
from gradproof._judge.decide import BARS, NEVER, SELDOM
from gradproof._judge.found import Entries, count
from gradproof._judge.found import ranked as by_gap
from gradproof._locate.hypotheses import Common
from gradproof._locate.search import Search
from gradproof._measure import directional, evaluate
from gradproof._measure.sizes import SMALL, UNDERFLOW
from gradproof._verdict.low_precision import FewBits


def explain(result: CheckResult) -> CheckResult:
    """The result of a check with what its evidence and its findings tell, and without evidence.

    Only a failure is explained. Evidence knows the map it is about: that of the check, of a
    derivative of it, or of an oracle. Where no explanation can be had the result stays as it is.
    """
    bare = result if result.evidence is None else replace(result, evidence=None)
    if result.verdict is not Verdict.FAILED:
        return bare
    return _named(_of(result.evidence, bare))


def _of(evidence: object, result: CheckResult) -> CheckResult:
    """What this evidence tells of a failure; nothing where there is none, or it cannot be had."""
    if evidence is None:
        return result
    return quietly(result, partial(explanations()[type(evidence)], evidence))


def explanations() -> dict[type, Callable[[Any, CheckResult], CheckResult]]:
    """Class of evidence -> the failure with what such evidence tells of it."""
    return {
        Entries: _of_entries,
        Search: _of_search,
        FewBits: _of_few_bits,
        DoubleBackward: _of_double_backward,
        NotLinear: behaviour.nonlinear,
        NotRepeated: behaviour.unsteady,
        Spoilt: behaviour.of_spoilt,
        WrongLayouts: behaviour.of_layouts,
    }


def _of_double_backward(evidence: DoubleBackward, result: CheckResult) -> CheckResult:
    """A backward that is right and whose own derivative lacks what goes through the input."""
    result = _of(evidence.of, result)
    places = [finding.input for finding in result.findings if finding.input is not None]
    if not places or any(place.slot >= evidence.inputs for place in places):
        return result
    names = ", ".join(sorted({place.name for place in places}))
    found = cause(
        "saved intermediate",
        f"the derivative of the backward lacks what depends on {names}: the backward uses a "
        "result of the forward as a constant",
    )
    return replace(result, causes=ranked((found, *result.causes)))


# Causes that need no numbers: the kinds of the findings name them.

_UNDEFINED = "undefined cotangent", "a cotangent that is None is not taken for zero"
# Kind of a finding -> name of the cause, its message, and what was counted where that says more.
_CAUSES: dict[str, tuple[str, ...]] = {
    "detached": ("output detached", "{outputs} has a derivative and claims to have none"),
    "kink": (
        "not differentiable",
        "the function has no derivative here, and the claim is no slope between its two",
        "{number} at kinks",
    ),
    "cotangent": ("cotangent overwritten", "the backward writes into the cotangent"),
    "input": ("input overwritten", "an input is written into"),
    "saved": ("saved overwritten", "a saved array is changed after it was saved"),
    "undefined": _UNDEFINED,
    "undefined: raised": _UNDEFINED,
    "undefined tangent": _UNDEFINED,
    "first call": ("first call", SUMMARIES["first call"]),
    "first point": ("first call", "the gradient there is that of the first point"),
    "last call": ("last call", SUMMARIES["last call"]),
}


def _named(result: CheckResult) -> CheckResult:
    """The failure with what the kinds of its findings name, before what was found otherwise."""
    counts = Counter(one.kind for one in result.findings if one.kind in _CAUSES)
    score = counts.total() / max(1, len(result.findings))
    found = [_cause(result, kind, number, score) for kind, number in counts.items()]
    return replace(result, causes=ranked((*found, *result.causes)))


def _cause(result: CheckResult, kind: str, number: int, score: float) -> Cause:
    outputs = dict.fromkeys(one.output_name or "" for one in result.findings if one.kind == kind)
    told = {"outputs": ", ".join(outputs), "number": count(number)}
    name, message, evidence = (*_CAUSES[kind], "")[:3]
    return cause(name, message.format(**told), evidence.format(**told), score)


# Causes that one check alone cannot name: what several of them say together.
#
# A backward that is not linear in its cotangent, or gives another gradient every time, has no
# Jacobian: what is read off its rows says nothing. Such causes come before those of the numbers.

# What a Jacobian read off a non-linear backward row by row still shows.
_OF_NUMBERS = frozenset({"offset", "absolute value", "one cotangent for all", "zero"})


def crossed(results: Iterable[CheckResult]) -> tuple[CheckResult, ...]:
    """The results; failed ones with the causes that the others name."""
    results = tuple(results)
    failed = [
        (found, result)
        for result in results
        if result.verdict is Verdict.FAILED and (found := row(result.name)) is not None
    ]
    deeper = sorted(failed, key=lambda pair: -pair[0].explains)
    # What spoils its call explains nothing of others, for which each backward had one of its own.
    spoilt = {r.name for _, r in failed if "spoilt" in [each.kind for each in r.findings]}
    deeper = [pair for pair in deeper if pair[0].explains and pair[0].name not in spoilt]
    causes = [one for _, result in deeper for one in result.causes]
    if not causes:
        return results
    explained = {check.name for check, _ in failed if check.explained}
    matrix = [one for c, r in failed if c.derivative and c.explained for one in r.causes]
    special = [one for one in matrix if one.name in _OF_NUMBERS and one.score == 1]
    return tuple(
        replace(result, causes=ranked((*special, *causes, *result.causes)))
        if result.name in explained
        else result
        for result in results
    )


# Where and why a Jacobian is wrong of which rows, or all, were measured in every column.


def _of_entries(evidence: Entries, result: CheckResult) -> CheckResult:
    """The failure with its places, causes and picture."""
    for explain in (_entries_as_words, _entries_diagnosed, _patch):
        result = quietly(result, partial(explain, evidence))
    return result


def _case(evidence: Entries) -> Case:
    found, map_, rows = evidence.comparison, evidence.map, evidence.rows
    return Case(
        claimed=found.claimed,
        measured=found.measured,
        allowed=found.allowed,
        wrong=np.asarray(evidence.wrong),
        domain=map_.domain,
        codomain=map_.codomain,
        point=map_.given,
        value=evaluate.centre(map_).value,
        rows=None if rows is None else np.asarray(list(rows)),
        transposed=evidence.claim.columnwise,
    )


def _entries_as_words(evidence: Entries, result: CheckResult) -> CheckResult:
    return replace(result, where=words.where(_case(evidence)))


def _entries_diagnosed(evidence: Entries, result: CheckResult) -> CheckResult:
    """The failure with its causes, told by as many wrong rows as are looked at.

    What was not measured counts as right.
    """
    case = _case(evidence)
    kept, whole = np.arange(case.wrong.shape[0]), case.outputs and case.wrong.size <= KEPT
    if not whole:
        wrong_first = np.argsort(~case.wrong.any(axis=1), kind="stable")
        kept = wrong_first[: max(1, KEPT // case.wrong.shape[1])]
    claimed, measured, allowed, wrong = (part[kept] for part in case.numbers)
    blank = ~(np.isfinite(measured) & np.isfinite(allowed))
    looked_at = replace(
        case,
        claimed=np.where(blank, 0.0, claimed),
        measured=np.where(blank, 0.0, measured),
        allowed=np.where(blank, 1 / math.sqrt(UNDERFLOW), allowed),
        wrong=wrong,
        point=evidence.map.point,
        rows=None if whole else kept,
    )
    return replace(result, causes=diagnosed(looked_at))


def _lines(evidence: Entries) -> tuple[range | list[int], range]:
    map_, rows = evidence.map, evidence.rows
    return range(map_.codomain.size) if rows is None else list(rows), range(map_.domain.size)


def _patch(evidence: Entries, result: CheckResult) -> CheckResult:
    lines, first = _lines(evidence), by_gap(evidence.comparison, evidence.wrong)[0]
    at = [pictures.around(line, middle) for line, middle in zip(lines, first, strict=True)]
    rows, columns = ([line[k] for k in near] for line, near in zip(lines, at, strict=True))
    found = evidence.comparison
    parts = (found.claimed, found.measured, found.error, np.asarray(evidence.wrong))
    table = np.stack([part[np.ix_(*at)] for part in parts])
    return replace(result, patch=pictures.patch(evidence.map, rows, columns, table))


# Where and why a Jacobian is wrong of which only a few columns were measured.


# Part of the wrong outputs that may be followed by others of which nothing can be told.
_BEYOND = 1 / 16


def _of_search(evidence: Search, result: CheckResult) -> CheckResult:
    """The failure with its places and causes."""
    for explain in (_why, _where):
        result = quietly(result, partial(explain, evidence))
    return result


def _why(located: Search, result: CheckResult) -> CheckResult:
    """The cause that the residuals showed, or the common ratio of the entries found."""
    numbers = np.asarray([(f.claimed, f.measured, f.allowed) for f in result.findings])
    ratio, number, common = common_ratio(*numbers.T), len(numbers), located.common
    if common is not None:
        causes = _of_common(common, None if ratio is None else ratio[0])
    elif ratio is not None and _tells(*ratio, number):
        evidence = f"ratio {ratio[0]:.9g} +- {ratio[1]:.1g} over {number} entries measured"
        causes = (replace(_of_ratio(ratio[0], evidence), score=weight(number)),)
    else:
        causes = ()
    return replace(result, causes=ranked(causes))


def _tells(ratio: float, bar: float, number: int) -> bool:
    """Whether a common ratio of so many entries explains them: 1 within its error does not."""
    if abs(ratio - 1) <= SLACK * bar:
        return False
    return number > 1 or abs(ratio) < NOTHING or near_one(abs(ratio))


def _of_common(common: Common, measured: float | None) -> tuple[Cause, ...]:
    """The cause of rows that are wrong in many columns; `measured`: the ratio of the entries."""
    if common.ratio is None:
        return ()
    ratio = common.ratio
    if measured is not None and abs(measured - ratio) <= SMALL * max(1.0, abs(ratio)):
        ratio = measured  # of entries it is known more sharply
    number = common.high - common.low if common.among is None else int(common.among.sum())
    return (_of_ratio(ratio, f"ratio {ratio:.9g} in {common.rows} rows, {number:,} columns"),)


def _of_ratio(ratio: float, evidence: str) -> Cause:
    """The cause that a common ratio of claimed to measured is."""
    if abs(ratio) <= NOTHING:
        return cause("zero", "the wrong entries are claimed to be 0", evidence)
    if abs(ratio + 1) <= NOTHING:
        return cause("sign", "the sign of the wrong entries is flipped", evidence)
    return cause("factor", f"the wrong entries are multiplied by {told_ratio(ratio)}", evidence)


def _where(located: Search, result: CheckResult) -> CheckResult:
    rows, sure = _rows(located)
    columns, exact = _columns(located, result)
    if rows is None or (rows.all() and not sure):
        outputs = ""
    else:
        outputs = words.described(rows, located.map.codomain)
        outputs = outputs if sure else _inside(outputs)
    every = rows is not None and bool(rows.all())
    if not columns:
        told = outputs
    elif every or not outputs or not exact:
        seen = rows is not None and int(rows.sum()) <= len(located.rows)
        told = columns if seen else f"{columns} (in the {len(located.rows)} outputs looked at)"
    else:
        told = f"{outputs} with respect to {columns}"
    return replace(result, where=told)


def _inside(told: str) -> str:
    """Words for a set of which it is known only that nothing outside is wrong."""
    return f"only inside {told.removeprefix('all of ')}" if told else ""


def _rows(located: Search) -> tuple[Mask | None, bool]:
    """The wrong outputs, and whether it is they and not only where they lie; None if unknown."""
    if located.gap is not None and located.screen.mask is not None:
        return _filled(located, located.screen.mask), True
    if located.screen.suspects or not _alike(located):
        return None, False
    rows = np.zeros(located.map.codomain.size, dtype=bool)
    followed = located.rows
    if located.many:
        rows[min(followed) : max(followed) + 1] = True
        return rows, False
    rows[followed] = True
    return rows, True


def _filled(located: Search, rows: Mask) -> Mask:
    """The wrong outputs, and those between them, or beyond, of which nothing can be told.

    They are blurred, or have a derivative so small that a gap as large, for its size, as the others
    have would not be seen.
    """
    found = directional.along(located.map, located.settings, 0).estimate
    exact, gap = found.value, located.gap
    allowed = BARS * found.error + NOTHING * np.abs(exact)
    told = words.telling(exact + gap, exact, allowed, rows)
    told[list(located.screen.blurred)] = False
    first, last = int(np.argmax(rows)), rows.size - int(np.argmax(rows[::-1]))
    few = _BEYOND * (last - first)
    first = 0 if first <= few and not told[:first].any() else first
    last = rows.size if rows.size - last <= few and not told[last:].any() else last
    between = np.zeros_like(rows)
    between[first:last] = True
    return between if bool((rows | ~told)[between].all()) else rows


def _alike(located: Search) -> bool:
    """Whether other rows like these would have been seen by projections.

    A gap that is a small part of the row is seen only in the few rows whose bars are smallest:
    they are then alike in nothing but that.
    """
    along = located.along
    got, exact, allowed = along.claimed, along.measured, along.allowed
    plain = np.abs(got - exact) >= SMALL * np.abs(exact)  # as gradcheck sees
    alike = not located.many or common_ratio(got, exact, allowed) is not None
    return bool(plain.all()) and alike


def _columns(located: Search, result: CheckResult) -> tuple[str, bool]:
    """The wrong inputs, where they are the same for all rows looked at, and whether it is they.

    "" where they are not the same, or all.
    """
    common = located.common
    if common is not None:
        mask = np.zeros(located.map.domain.size, dtype=bool)
        mask[common.low : common.high] = (
            True if common.among is None else common.among[common.low : common.high]
        )
        told = "" if mask.all() else words.described(mask, located.map.domain)
        return (told if common.sure else _inside(told)), common.sure
    places = {str(finding.input) for finding in result.findings}
    alone = len(places) == 1 and located.complete and not located.crowded
    return (places.pop() if alone else ""), True


# Where and why a derivative in few bits is wrong: by sums over many entries, not by single ones.
#
# Every guess is weighed by the root mean square of what it leaves, in units of the errors of honest
# arithmetic: about 1 where it is right. It is believed if it leaves that, and the claim does not.


_LEFT = 1.8  # what a right guess may leave, in units of honest errors
_BETTER = 1.25  # times more than that is left without it
_FEW_BITS = 0.25  # of a spacing, at least, are honest errors of an entry
# Single entries say too little for the others.
_RECOGNISERS = (scaling.zero, scaling.factor, order.moved, sums.over_axes, scaling.added)


@dataclass(frozen=True)
class Sampled:
    """Gradients of one array for several cotangents."""

    got: Values  # claimed, (P, N)
    exact: Values  # of the oracle
    sigma: Values  # honest error of each entry, (N,) or (P, N)
    slot: Slot  # the array
    eps: float  # spacing of the format at 1

    @cached_property
    def wrong(self) -> Mask:
        """The entries of the slices, along the first axis, whose slope is not 1."""
        size, shape = self.exact.shape[1], self.slot.shape
        count = shape[0] if shape and self.slot.entries is None else 1
        weight = self.exact / self.bars**2
        terms = (weight * self.exact, weight * (self.got - self.exact))
        below, above = (term.sum(axis=0).reshape(count, -1).sum(axis=1) for term in terms)
        known = below > 0
        slope = np.where(known, above / np.where(known, below, 1.0), 0.0)
        wrong = known & (np.abs(slope) * np.sqrt(below) > NEVER)
        return np.asarray(np.repeat(wrong, size // count))

    @property
    def bars(self) -> Values:
        floor = _FEW_BITS * self.eps * np.abs(self.exact)
        least = 1e-3 * self.eps * float(np.abs(self.exact).max(initial=0.0)) + 1e-300
        return np.maximum(np.maximum(floor, least), self.sigma)

    def left(self, turn: Turn, where: Mask) -> float:
        """Root mean square of what a guess leaves, in units of honest errors.

        Those of entries that are added up add up in quadrature.
        """
        predicted = turn(self.exact)
        squares = np.maximum(turn(self.bars**2) - turn(np.zeros_like(predicted)), 0.0)
        floor = _FEW_BITS * self.eps * np.abs(predicted)
        bars = np.maximum(np.maximum(self.bars, floor), np.sqrt(squares))
        part = ((self.got - predicted) / bars)[:, where]
        return float(np.sqrt(np.mean(part**2))) if part.size else 0.0

    def block(self, region: Mask) -> Block:
        """What recognisers look at, where the entries of a region are wrong."""
        size, shape = self.got.shape[1], self.got.shape
        case = Case(
            claimed=self.got,
            measured=self.exact,
            allowed=SELDOM * np.broadcast_to(self.bars, shape),
            wrong=np.broadcast_to(region, shape),
            domain=Space((self.slot,)),
            codomain=Space(()),
            point=np.zeros(size),
            value=np.zeros(0),
            rows=np.arange(0),
            unit=self.eps / 16,
        )
        return next(case.blocks())


def _of_few_bits(evidence: FewBits, result: CheckResult) -> CheckResult:
    """The failure with the places and causes of every wrong array, where they can be had."""
    arrays = [_sampled(evidence, position) for position in evidence.wrong]
    told = [of_array(one) for one in arrays]
    where = " and ".join(words for words, _ in told) if all(words for words, _ in told) else ""
    every = len(arrays) == len(evidence.space.slots) and all(one.wrong.all() for one in arrays)
    return replace(
        result,
        where="everywhere" if where and every else where,
        causes=ranked(one for _, causes in told for one in causes),
    )


def _sampled(evidence: FewBits, position: int) -> Sampled:
    span = evidence.space.span(position)
    return Sampled(
        got=evidence.claimed[:, span],
        exact=evidence.exact[:, span],
        sigma=evidence.sizes[position],
        slot=evidence.space.slots[position],
        eps=2 * evidence.unit,
    )


def of_array(sampled: Sampled) -> tuple[str, tuple[Cause, ...]]:
    """Words for the wrong entries of the array, and causes; empty where nothing fits."""
    if not np.isfinite(sampled.got).all() or not np.isfinite(sampled.exact).all():
        return "", ()
    wrong = sampled.wrong
    where = words.described(wrong, Space((sampled.slot,))) if wrong.any() else ""
    every, found = np.ones(wrong.size, dtype=bool), list[Cause]()
    for region in [wrong, every] if wrong.any() and not wrong.all() else [every]:
        before = sampled.left(np.asarray, region)
        for match in of_block(sampled.block(region), _RECOGNISERS):
            turn = match.turn or np.asarray
            after = sampled.left(turn, every)
            if after <= _LEFT and before >= _BETTER * sampled.left(turn, region):
                told = f"{match.evidence}; it leaves {after:.2g} of honest errors, not {before:.2g}"
                found.append(cause(match.name, match.text, told, match.weight))
    return where, ranked(found)
