"""Where and why a derivative in few bits is wrong: by sums over many entries, not by single ones.

Every guess is weighed by the root mean square of what it leaves, in units of the errors of honest
arithmetic: about 1 where it is right. It is believed if it leaves that, and the claim does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gradproof._data.records import Cause, CheckResult
from gradproof._data.space import Slot, Space, on_host
from gradproof._explain import order, scaling, sums, words
from gradproof._explain.case import (
    ENOUGH,
    Block,
    Case,
    Mask,
    Match,
    Turn,
    Values,
    fitting,
    told_ratio,
)
from gradproof._explain.diagnose import cause, ranked
from gradproof._verdict.low_precision import FewBits

_SIGMAS = 8.0  # of a slice's slope: beyond, the slice is wrong
_LEFT = 1.8  # what a right guess may leave, in units of honest errors
_BETTER = 1.25  # times more than that is left without it
_BAR = 3.0  # sigmas of one entry that a reordering may leave
_FEW_BITS = 0.25  # of a spacing, at least, are honest errors of an entry


@dataclass(frozen=True)
class Sampled:
    """Gradients of one array for several cotangents.

    Attributes:
        got: claimed, (P, N).
        exact: of the oracle.
        sigma: honest error of each entry, (N,) or (P, N).
        slot: the array.
        eps: spacing of the format at 1.
    """

    got: Values
    exact: Values
    sigma: Values
    slot: Slot
    eps: float

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
        wrong = known & (np.abs(slope) * np.sqrt(below) > _SIGMAS)
        return np.asarray(np.repeat(wrong, size // count))

    @property
    def bars(self) -> Values:
        floor = _FEW_BITS * self.eps * np.abs(self.exact)
        least = 1e-3 * self.eps * float(np.abs(self.exact).max(initial=0.0)) + 1e-300
        return np.maximum(np.maximum(floor, least), self.sigma)

    def left(self, predicted: Values, where: Mask, turn: Turn | None = None) -> float:
        """Root mean square of what a guess leaves, in units of honest errors.

        A guess that adds up entries, `turn`, adds up the squares of their errors.
        """
        bars = self.bars
        if turn is not None:
            squares = np.sqrt(np.maximum(turn(bars**2), 0.0))
            bars = np.maximum(np.maximum(bars, squares), _FEW_BITS * self.eps * np.abs(predicted))
        part = ((self.got - predicted) / bars)[:, where]
        return float(np.sqrt(np.mean(part**2))) if part.size else 0.0


def of_few_bits(evidence: FewBits, result: CheckResult) -> CheckResult:
    """The failure with the places and causes of every wrong array, where they can be had."""
    arrays = [_sampled(evidence, position) for position in evidence.wrong]
    told = [explained(one) for one in arrays]
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
        got=on_host(evidence.claimed)[:, span],
        exact=on_host(evidence.exact)[:, span],
        sigma=on_host(evidence.sizes[position]),
        slot=evidence.space.slots[position],
        eps=2 * evidence.unit,
    )


def explained(sampled: Sampled) -> tuple[str, tuple[Cause, ...]]:
    """Words for the wrong entries of the array, and causes; empty where nothing fits."""
    if not np.isfinite(sampled.got).all() or not np.isfinite(sampled.exact).all():
        return "", ()
    wrong = sampled.wrong
    where = words.described(wrong, Space((sampled.slot,))) if wrong.any() else ""
    every = np.ones(wrong.size, dtype=bool)
    found: list[tuple[float, Cause]] = []
    for region in [wrong, every] if wrong.any() and not wrong.all() else [every]:
        before = sampled.left(sampled.exact, region)
        for match, predicted in _guesses(sampled, region):
            after = sampled.left(predicted, every, match.turn)
            if after <= _LEFT and before >= _BETTER * sampled.left(predicted, region, match.turn):
                told = f"{match.evidence}; it leaves {after:.2g} of honest errors, not {before:.2g}"
                found.append((after, cause(match.name, match.text, told, match.weight)))
    found.sort(key=lambda pair: (round(pair[0], 1), -pair[1].score))
    return where, tuple({one.name: one for _, one in reversed(found)}.values())[::-1]


def _guesses(sampled: Sampled, region: Mask) -> Iterator[tuple[Match, Values]]:
    got, exact, bars = (v[:, region] for v in (sampled.got, sampled.exact, sampled.bars))
    weight = exact / bars**2
    below = float((weight * exact).sum())
    if below > 0:
        ratio, bar = float((weight * got).sum()) / below, below**-0.5
        yield (
            _scaled(ratio, bar, sampled, got),
            np.where(region, ratio * sampled.exact, sampled.exact),
        )
    weights = 1 / bars**2
    level = ((got - exact) * weights).sum(axis=1, keepdims=True) / weights.sum(
        axis=1, keepdims=True
    )
    text = f"{float(np.median(level)):.2g} is added to every entry"
    match = Match("offset", text, f"the mean gap of {got.size:,} entries", 0.9)
    if exact.shape[1] >= ENOUGH:
        yield match, np.where(region, sampled.exact + level, sampled.exact)
    if region.all():
        block = _block(sampled)
        for match in (*order.moved(block), *fitting(sums.over_axes(block), block.fits)):
            if match.turn is not None:
                yield match, match.turn(sampled.exact)


def _scaled(ratio: float, bar: float, sampled: Sampled, got: Values) -> Match:
    evidence = f"slope {ratio:.6g} +- {bar:.1g} over {got.size:,} entries"
    if not got.any():
        whole = got.size == sampled.got.size
        text = f"nothing arrives at {sampled.slot.name}" if whole else "the wrong entries are 0"
        return Match("zero", text, evidence)
    if abs(ratio + 1) <= max(6 * bar, 8 * sampled.eps):
        return Match("sign", "the sign of the wrong entries is flipped", evidence)
    name = scaling.called(ratio, max(3 * bar, sampled.eps / 8), _block(sampled))
    digits = max(2, int(-np.log10(max(bar, 1e-9))))
    text = f"multiplied by {told_ratio(ratio, digits)}" + (f": {name}" if name else "")
    return Match("factor", text, evidence)


def _block(sampled: Sampled) -> Block:
    size = sampled.got.shape[1]
    case = Case(
        claimed=sampled.got,
        measured=sampled.exact,
        allowed=_BAR * np.broadcast_to(sampled.bars, sampled.got.shape),
        wrong=np.ones(sampled.got.shape, dtype=bool),
        domain=Space((sampled.slot,)),
        codomain=Space(()),
        point=np.zeros(size),
        value=np.zeros(0),
        outputs=False,
    )
    return next(case.blocks())
