"""Places and causes of a derivative in few bits: by sums over many entries, not by single ones.

Every guess is weighed by the root mean square of the errors it leaves, in units of the errors of
honest arithmetic: about 1 where it is right. It is believed if it leaves that, or next to nothing
of the errors that are there without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gradproof._data.records import Cause
from gradproof._data.results import ProductBlock
from gradproof._data.space import Mask, Slot, Space, Values
from gradproof._explain.case import Change, InputBlock, WrongJacobian
from gradproof._explain.causes import named_cause, ranked_causes
from gradproof._explain.coordinates import words_of_coordinates
from gradproof._explain.entries import OF_PRODUCTS

_LEFT = 1.8  # what a right guess may leave, in units of honest errors
_BETTER = 1.25  # times more than that is left without it
_PART = 0.02  # of the errors without it, that a right guess may leave whatever honest errors are
_BARS = 3.0  # standard deviations that one entry may be off by
_SURE = 8.0  # standard deviations by which the slope of a slice must differ from 1
_FEW_BITS = 0.25  # of a spacing, at least, are honest errors of an entry


def explanation_of_products(
    evidence: ProductBlock, point: Values, codomain: Space, value: Values
) -> tuple[str, tuple[Cause, ...]]:
    """The place of what is wrong, in words, and causes; "" and () where nothing fits.

    Args:
        evidence: the products.
        point: values of the space of the products; zeros where they are not known.
        codomain, value: the outputs of the function, and their values.
    """
    places: list[str] = []
    causes: list[Cause] = []
    is_everywhere = len(evidence.wrong) == len(evidence.space.slots)
    for position in evidence.wrong:
        array = _array_of(evidence, position, point)
        wrong = array.wrong_slices()
        is_everywhere &= bool(wrong.all())
        places.append(words_of_coordinates(wrong, Space((array.slot,))) if wrong.any() else "")
        causes += _causes_of_array(array, wrong, codomain, value)
    where = " and ".join(places) if all(places) else ""
    return "everywhere" if where and is_everywhere else where, ranked_causes(causes)


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
        below, above = (
            (weight * each).sum(axis=0).reshape(count, -1).sum(axis=1)
            for each in (self.exact, self.claimed - self.exact)
        )
        slope = np.where(below > 0, above / np.where(below > 0, below, 1.0), 0.0)
        return np.repeat(np.abs(slope) * np.sqrt(below) > _SURE, size // count)

    def rms_left(self, change: Change, region: Mask) -> float:
        """Root mean square of the errors that a guess leaves, in units of honest ones."""
        predicted = change(self.exact)
        bars = np.maximum(self.bars, _FEW_BITS * self.eps * np.abs(predicted))
        part = ((self.claimed - predicted) / bars)[:, region]
        return float(np.sqrt(np.mean(part**2)))

    def block(self, region: Mask, codomain: Space, value: Values) -> InputBlock:
        """What recognisers look at, where the entries of a region are wrong."""
        count, size = self.claimed.shape
        gap = np.sqrt(np.mean((self.claimed - self.exact) ** 2))
        case = WrongJacobian(
            claimed=self.claimed,
            measured=self.exact,
            allowed=np.maximum(_BARS * self.bars, _PART / 2 * gap),
            wrong=np.broadcast_to(region, (count, size)),
            rows=np.arange(count),
            columns=np.arange(size),
            domain=Space((self.slot,)),
            codomain=codomain,
            point=self.x,
            value=value,
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


def _causes_of_array(array: _Array, wrong: Mask, codomain: Space, value: Values) -> Iterator[Cause]:
    """Causes of one array: of its wrong slices, or of all of it."""
    if not (np.isfinite(array.claimed).all() and np.isfinite(array.exact).all()):
        return
    every = np.ones_like(wrong)
    for region in [wrong, every] if wrong.any() and not wrong.all() else [every]:
        block = array.block(region, codomain, value)
        before = array.rms_left(np.asarray, region)
        for match in filter(None, (recogniser(block) for recogniser in OF_PRODUCTS)):
            evidence = match.evidence
            if match.change is not None:  # the others judge by themselves
                after = array.rms_left(match.change, every)
                here = array.rms_left(match.change, region)
                if after > max(_LEFT, _PART * before) or before < _BETTER * here:
                    continue
                evidence += f"; it leaves {here / before:.1%} of the error"
            yield named_cause(match.name, match.message, evidence, match.weight)
