"""Where and why a derivative in few bits is wrong: by sums over many entries, not by single ones.

Every guess is weighed by the root mean square of what it leaves, in units of the errors of honest
arithmetic: about 1 where it is right. It is believed if it leaves that, and the claim does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gradproof._data.records import Cause, CheckResult
from gradproof._data.space import Slot, Space, on_host
from gradproof._explain import order, scaling, sums, words
from gradproof._explain.case import Block, Case, Mask, Turn, Values
from gradproof._explain.diagnose import cause, of_block, ranked
from gradproof._verdict.low_precision import FewBits

_SIGMAS = 8.0  # of a slice's slope: beyond, the slice is wrong
_LEFT = 1.8  # what a right guess may leave, in units of honest errors
_BETTER = 1.25  # times more than that is left without it
_BAR = 3.0  # sigmas of one entry that a reordering may leave
_FEW_BITS = 0.25  # of a spacing, at least, are honest errors of an entry
# Single entries say too little for the others.
_RECOGNISERS = (scaling.zero, scaling.factor, order.moved, sums.over_axes, scaling.added)


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
            allowed=_BAR * np.broadcast_to(self.bars, shape),
            wrong=np.broadcast_to(region, shape),
            domain=Space((self.slot,)),
            codomain=Space(()),
            point=np.zeros(size),
            value=np.zeros(0),
            outputs=False,
            unit=self.eps / 16,
        )
        return next(case.blocks())


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
