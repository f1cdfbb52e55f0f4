"""Recognisers of numbers that are right but lie in the wrong place.

A gradient of few numbers among zeros is a rearrangement of the right one whatever the mistake: an
argmin for an argmax moves ones to where zeros were, and so does a permutation. So a rearrangement
is told only where chance is excluded: numbers that are not zero stand where others stood (`ENOUGH`
of them), or, of a rule that has no freedom, the arrangements that could have been are many more
than the rules that were tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from gradproof._data.space import Indices, Values
from gradproof._explain.case import (
    ENOUGH,
    MOST_AXES,
    NOTHING,
    SLACK,
    Block,
    Case,
    Match,
    Turn,
    common_ratio,
    fits,
    fitting,
)
from gradproof._explain.words import LIMIT

_MOST_ROLLS = 4096  # distances tried, the short ones first, and entries matched one by one


def moved(block: Block) -> list[Match]:
    """Every reordering of the input's entries after which the claimed gradient is the right one."""
    if block.entries < 2:
        return []
    sketch = _Sketch(block.claimed, block.measured, block.allowed)
    found = fitting(_moved(block), sketch.fits_all) or fitting(_filled(block), sketch.fits_all)
    if found:
        return found if sketch.exchanged() or sketch.unlikely() else []
    return _any_order(block, sketch) if sketch.exchanged() else []


def _moved(block: Block) -> Iterator[Match]:
    for name, text, order in _orders(block.shape):
        told = text.format(block.name)
        yield Match(name, told, f"{_share(block)}, reordered so", turn=block.taken(order))


def _share(block: Block) -> str:
    return f"all {block.claimed.size:,} entries with respect to {block.name} fit"


class _Sketch:
    """A random sum of the rows: one vector, on which many reorderings can be tried."""

    def __init__(self, claimed: Values, measured: Values, allowed: Values) -> None:
        self._whole, self._tried = (claimed, measured, allowed), 0
        weights = np.random.default_rng(0).uniform(0.5, 1.5, claimed.shape[0])[None, :]
        with np.errstate(all="ignore"):
            self.claimed, self.measured = weights @ claimed, weights @ measured
            self.allowed = weights @ allowed
            self.numbers = (np.abs(claimed) > SLACK * allowed).sum(axis=0)

    def fits_all(self, turn: Turn) -> bool:
        """Whether a reordering, which counts as tried, fits the sum, and then every row."""
        self._tried += 1
        sums = self.claimed, self.measured, self.allowed
        return all(
            fits(claimed, turn(measured), allowed, turn(allowed))
            for claimed, measured, allowed in (sums, self._whole)
        )

    def exchanged(self) -> bool:
        """Whether numbers that are not zero stand where others, not zero either, should."""
        bars = SLACK * self.allowed
        with np.errstate(all="ignore"):
            live = np.minimum(np.abs(self.claimed), np.abs(self.measured)) > bars
            moved = live & (np.abs(self.claimed - self.measured) > 2 * bars)
        return int(self.numbers[moved.reshape(-1)].sum()) >= ENOUGH

    def unlikely(self) -> bool:
        """Whether of all arrangements of the columns so many rules would hardly meet this one."""
        order = np.argsort(self.measured[0], kind="stable")
        values, bars = self.measured[0][order], SLACK * self.allowed[0][order]
        starts = np.nonzero(np.diff(values) > bars[1:] + bars[:-1])[0] + 1
        alike = np.diff([0, *starts, values.size])
        arrangements = math.lgamma(values.size + 1) - sum(math.lgamma(n + 1) for n in alike)
        return arrangements >= math.log(LIMIT * self._tried)


def _taken(order: Indices) -> Turn:
    return lambda values: values[:, order]


def _orders(shape: tuple[int, ...]) -> Iterator[tuple[str, str, Indices]]:
    """Reorderings that happen: name, words, and which entry lands where, flat."""
    index = np.arange(math.prod(shape)).reshape(shape)
    yield from _axes(index)
    yield "reversed", "the gradient of {} is reversed", index.reshape(-1)[::-1]
    for axis in range(index.ndim):
        if index.ndim > 1 and index.shape[axis] > 1:
            flipped = np.flip(index, axis).reshape(-1)
            yield "reversed", f"the gradient of {{}} is reversed along axis {axis}", flipped
    yield from _rolls(index)


def _axes(index: Indices) -> Iterator[tuple[str, str, Indices]]:
    shape = index.shape
    for axes in itertools.permutations(range(min(index.ndim, MOST_AXES))):
        if axes == tuple(range(index.ndim)) or len(axes) < index.ndim:
            continue
        turned = index.transpose(axes)
        last_two = axes == (*range(index.ndim - 2), index.ndim - 1, index.ndim - 2)
        name = "transposed" if last_two else "permuted axes"
        how = "transposed" if last_two else f"permuted, its axes being {axes}"
        if turned.shape != shape:
            how += " in memory and read in the old shape"
        yield name, f"the gradient of {{}} is {how}", turned.reshape(-1)


def _rolls(index: Indices) -> Iterator[tuple[str, str, Indices]]:
    flat = index.reshape(-1)
    for k in _near(flat.size):
        yield "rolled", f"the gradient of {{}} is rolled by {k}", np.roll(flat, k)
    for axis in range(index.ndim if index.ndim > 1 else 0):
        for k in _near(index.shape[axis]):
            rolled = np.roll(index, k, axis).reshape(-1)
            yield "rolled", f"the gradient of {{}} is rolled by {k} along axis {axis}", rolled


def _near(size: int) -> list[int]:
    """Distances to roll by, either way, the short ones first."""
    return sorted((k for k in range(-(size // 2), size - size // 2) if k), key=abs)[:_MOST_ROLLS]


def _filled(block: Block) -> Iterator[Match]:
    """Shifted along an axis, zeros coming in: a block too early or too late."""
    for axis, size in enumerate(block.shape):
        for k in sorted((k for k in range(1 - size, size) if k), key=abs):

            def shifted(values: Values, axis: int = axis, k: int = k) -> Values:
                rolled = np.roll(values, k, axis + 1)
                empty = np.arange(k) if k > 0 else np.arange(k, 0)
                rolled[(slice(None),) * (axis + 1) + (empty,)] = 0.0
                return rolled

            text = f"the gradient of {block.name} is shifted by {k} along axis {axis}"
            turn = block.along(shifted)
            yield Match("rolled", f"{text}, zeros coming in", _share(block), turn=turn)


def _any_order(block: Block, sketch: _Sketch) -> list[Match]:
    """Every claimed column is some measured one, each taken once."""
    claimed, measured = (v[:, :: block.parts] for v in (sketch.claimed, sketch.measured))
    size = claimed.shape[1]
    if not 3 < size <= _MOST_ROLLS:
        return []
    # Twins are told apart by what else is known of them: nothing, so the first free one is taken.
    order = _matched(claimed.reshape(-1), measured.reshape(-1), sketch.allowed[:, :: block.parts])
    turn = None if order is None else block.taken(order)
    if order is None or turn is None or not block.fits(turn):
        return []
    moved_ = int((order != np.arange(size)).sum())
    text = f"{moved_:,} entries of the gradient of {block.name} have changed places"
    return [Match("permuted entries", text, _share(block), turn=turn)]


def _matched(claimed: Values, measured: Values, allowed: Values) -> Indices | None:
    """Which measured number each claimed one is, each taken once; None where they differ."""
    order = np.empty(claimed.size, dtype=int)
    order[np.argsort(claimed, kind="stable")] = np.argsort(measured, kind="stable")
    bars = allowed.reshape(-1)
    near = np.abs(claimed - measured[order]) <= SLACK * (bars + bars[order])
    return order if bool(near.all()) and (order != np.arange(order.size)).any() else None


def moved_cotangent(case: Case) -> list[Match]:
    """The cotangent is reordered before it is pulled back: rows of the Jacobian change places."""
    if not case.outputs:
        return []
    sketch = _Sketch(case.claimed.T, case.measured.T, case.allowed.T)
    found = fitting(_moved_cotangent(case), sketch.fits_all)
    return found if found and (sketch.exchanged() or sketch.unlikely()) else []


def _moved_cotangent(case: Case) -> Iterator[Match]:
    """Reorderings of the rows, as maps of the transposed Jacobian."""
    for position, slot in enumerate(case.codomain.slots):
        if slot.entries is not None or math.prod(slot.shape) < 2:
            continue
        span, parts = case.codomain.span(position), len(slot.parts)
        for name, text, order in _orders(slot.shape):
            rows = np.arange(case.claimed.shape[0])
            rows[span] = span.start + (order[:, None] * parts + np.arange(parts)).reshape(-1)
            told = text.replace("gradient", "cotangent").format(slot.name)
            yield Match(name, told, case.all_fit, turn=_taken(rows))


def swapped(case: Case) -> Iterator[Match]:
    """Two inputs have each other's gradient."""
    slots = case.domain.slots
    for first, second in itertools.combinations(range(len(slots)), 2):
        if slots[first].size == slots[second].size > 0:
            one, other = case.domain.span(first), case.domain.span(second)
            columns = np.arange(case.domain.size)
            columns[one], columns[other] = (np.arange(s.start, s.stop) for s in (other, one))
            text = f"{slots[first].name} and {slots[second].name} have each other's gradient"
            yield Match("inputs swapped", text, case.all_fit, turn=_taken(columns))


def turned(block: Block) -> Iterator[Match]:
    """The Jacobian where its transpose belongs, as W g for W^T g."""
    (rows, columns), bars = block.claimed.shape, SLACK * block.allowed
    if rows != columns or not block.case.outputs or block.parts > 1:
        return
    live = block.wrong & (np.abs(block.claimed) > bars)
    if int(live.sum()) >= ENOUGH:
        text = f"the Jacobian of {block.name} is transposed"
        yield Match("transposed", text, block.all_fit, turn=np.transpose)


def leaking(block: Block) -> Match | None:
    """Every entry receives a part of its neighbour's."""
    gap, index = block.claimed - block.measured, np.arange(block.entries)
    for k in (-1, 1):
        beside = block.taken(np.roll(index, k))
        bars = np.maximum(block.allowed, beside(block.allowed))
        found = common_ratio(gap, beside(block.measured), bars)
        if found is not None and abs(found[0]) > NOTHING:
            part = f"{found[0]:.4g} times its neighbour's gradient"
            text = f"every entry of {block.name} receives {part}"
            return Match("neighbour leaks in", text, block.all_fit)
    return None
