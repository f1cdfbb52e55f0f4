"""Places and causes of a derivative in few bits: by sums over many entries, not by single ones.

Every guess is weighed by the root mean square of the errors it leaves, in units of the errors of
honest arithmetic: about 1 where it is right. It is believed if it leaves that, or next to nothing
of the errors that are there without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from gradproof._data.records import Cause
from gradproof._data.results import ProductBlock
from gradproof._data.space import Mask, Slot, Space, Values
from gradproof._explain import numbers, order, sums, terms, words
from gradproof._explain.case import Block, Case, Change, Match, fitting_matches
from gradproof._explain.causes import cause, ranked_causes

_LEFT = 1.8  # what a right guess may leave, in units of honest errors
_BETTER = 1.25  # times more than that is left without it
_PART = 0.02  # of the errors without it, that a right guess may leave whatever honest errors are
_BARS = 3.0  # standard deviations that one entry may be off by
_SURE = 8.0  # standard deviations by which the slope of a slice must differ from 1
_FEW_BITS = 0.25  # of a spacing, at least, are honest errors of an entry

# Single entries say too little for the others.
_RECOGNISERS: tuple[Callable[[Block], Match | Iterable[Match] | None], ...] = (
    numbers.zero,
    numbers.factor,
    order.reordered,
    sums.extra_reduction,
    numbers.conjugate,
    numbers.lower_precision,
    terms.added_number,
    terms.missing_factor,
    terms.missing_term,
)


def explanation_of_products(
    evidence: ProductBlock, point: Values, codomain: Space, value: Values
) -> tuple[str, tuple[Cause, ...]]:
    """The place of what is wrong, in words, and causes; "" and () where nothing fits.

    Args:
        evidence: the products.
        point: values of the space of the products; zeros where they are not known.
        codomain, value: the outputs of the function, and their values.
    """
    arrays = [_array_of(evidence, position, point) for position in evidence.wrong]
    outputs = codomain, value
    places: list[str] = []
    causes: list[Cause] = []
    for array in arrays:
        wrong = array.wrong_slices()
        space = Space((array.slot,))
        places.append(words.described(wrong, space) if wrong.any() else "")
        causes += _causes_of(array, wrong, outputs)
    where = " and ".join(places) if all(places) else ""
    every = len(arrays) == len(evidence.space.slots) and all(a.wrong_slices().all() for a in arrays)
    return "everywhere" if where and every else where, ranked_causes(causes)


@dataclass(frozen=True)
class _Array:
    """Gradients of one array for V probes, (V, N).

    Attributes:
        claimed, exact: what is claimed, and what the reference says.
        bars: honest error of each entry, (V, N).
        x: values of the array, (N,).
        slot: the array.
        eps: spacing of the format at 1.
    """

    claimed: Values
    exact: Values
    bars: Values
    x: Values
    slot: Slot
    eps: float

    def wrong_slices(self) -> Mask:
        """The entries, (N,), of slices along the first axis whose slope is not 1."""
        size, shape = self.exact.shape[1], self.slot.shape
        count = shape[0] if shape and self.slot.entries is None else 1
        weight = self.exact / self.bars**2
        terms_ = (weight * self.exact, weight * (self.claimed - self.exact))
        below, above = (term.sum(axis=0).reshape(count, -1).sum(axis=1) for term in terms_)
        slope = np.where(below > 0, above / np.where(below > 0, below, 1.0), 0.0)
        return np.repeat(np.abs(slope) * np.sqrt(below) > _SURE, size // count)

    def rms_left(self, change: Change, region: Mask) -> float:
        """Root mean square of the errors that a guess leaves, in units of honest ones.

        Those of entries that are added up add up in quadrature.
        """
        predicted = change(self.exact)
        squares = np.maximum(change(self.bars**2) - change(np.zeros_like(predicted)), 0.0)
        floor = _FEW_BITS * self.eps * np.abs(predicted)
        bars = np.maximum(np.maximum(self.bars, floor), np.sqrt(squares))
        part = ((self.claimed - predicted) / bars)[:, region]
        return float(np.sqrt(np.mean(part**2))) if part.size else 0.0

    def block(self, region: Mask, outputs: tuple[Space, Values]) -> Block:
        """What recognisers look at, where the entries of a region are wrong."""
        count, size = self.claimed.shape
        gap = np.sqrt(np.mean((self.claimed - self.exact) ** 2))
        case = Case(
            claimed=self.claimed,
            measured=self.exact,
            allowed=np.maximum(_BARS * self.bars, _PART / 2 * gap),
            wrong=np.broadcast_to(region, (count, size)),
            rows=np.arange(count),
            columns=np.arange(size),
            domain=Space((self.slot,)),
            codomain=outputs[0],
            point=self.x,
            value=outputs[1],
            whole=False,
            sharpness=self.eps / 16,
        )
        return next(case.blocks())


def _array_of(evidence: ProductBlock, position: int, point: Values) -> _Array:
    span, eps = evidence.space.span(position), 2 * evidence.unit
    exact = evidence.exact[:, span]
    floor = 1e-3 * eps * float(np.abs(exact).max(initial=0.0)) + 1e-300
    bars = np.maximum(_FEW_BITS * eps * np.abs(exact), floor)
    return _Array(
        claimed=evidence.claimed[:, span],
        exact=exact,
        bars=np.maximum(bars, evidence.errors[position]),
        x=point[span],
        slot=evidence.space.slots[position],
        eps=eps,
    )


def _causes_of(array: _Array, wrong: Mask, outputs: tuple[Space, Values]) -> Iterator[Cause]:
    """Causes of one array: of its wrong slices, or of all of it."""
    if not (np.isfinite(array.claimed).all() and np.isfinite(array.exact).all()):
        return
    every = np.ones(wrong.size, dtype=bool)
    for region in [wrong, every] if wrong.any() and not wrong.all() else [every]:
        block = array.block(region, outputs)
        before = array.rms_left(np.asarray, region)
        for match in _matches_of(block):
            if match.change is None:  # judged by itself
                yield cause(match.name, match.text, match.evidence, match.weight)
                continue
            change = match.change
            after, here = array.rms_left(change, every), array.rms_left(change, region)
            if after <= max(_LEFT, _PART * before) and before >= _BETTER * here:
                share = f"it leaves {here / before:.1%} of the error"
                evidence = f"{match.evidence}; {share}" if match.evidence else share
                yield cause(match.name, match.text, evidence, match.weight)


def _matches_of(block: Block) -> Iterator[Match]:
    for recognise in _RECOGNISERS:
        found = recognise(block)
        if isinstance(found, Match):
            yield found
        elif isinstance(found, list):
            yield from found
        elif found is not None:
            yield from fitting_matches(found, block.fits)
