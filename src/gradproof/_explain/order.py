"""Causes that put right numbers into wrong places.

A gradient of few numbers among zeros is a rearrangement of the right one whatever the mistake: an
argmin for an argmax moves ones to where zeros were, and so does a permutation. So a rearrangement
is named only where chance is excluded: numbers that are not zero stand where others stood (`ENOUGH`
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
    SLACK,
    Block,
    Case,
    Change,
    Match,
    fits,
    fitting_matches,
)

_MOST_SHIFTS = 4096  # distances tried, the short ones first, and entries matched one by one
CHANCE = 200.0  # a rule is believed if so few of so many are chosen by chance less than once in


def reordered(block: Block) -> list[Match]:
    """Every reordering of the input's entries that makes the claimed gradient of the right one."""
    if not block.has_shape or block.places.size // block.parts < 2:
        return []
    sketch = _Sketch(block.claimed, block.measured, block.allowed)
    found = fitting_matches(_reorderings(block), sketch.fits_all)
    found = found or fitting_matches(_shifts(block), sketch.fits_all)
    if found:
        return found if sketch.numbers_moved() or sketch.is_unlikely() else []
    return _any_order(block, sketch) if sketch.numbers_moved() else []


class _Sketch:
    """A random sum of the rows: one vector, on which many reorderings can be tried."""

    def __init__(self, claimed: Values, measured: Values, allowed: Values) -> None:
        self._whole, self._tried = (claimed, measured, allowed), 0
        weights = np.random.default_rng(0).uniform(0.5, 1.5, claimed.shape[0])[None, :]
        self.claimed, self.measured = weights @ claimed, weights @ measured
        self.allowed = weights @ allowed
        self._counts = (np.abs(claimed) > SLACK * allowed).sum(axis=0)

    def fits_all(self, change: Change) -> bool:
        """Whether a reordering, which counts as tried, fits the sum, and then every row."""
        self._tried += 1
        sums = self.claimed, self.measured, self.allowed
        return all(
            fits(claimed, change(measured), allowed, change(allowed))
            for claimed, measured, allowed in (sums, self._whole)
        )

    def numbers_moved(self) -> bool:
        """Whether numbers that are not zero stand where others, not zero either, should."""
        bars = SLACK * self.allowed
        live = np.minimum(np.abs(self.claimed), np.abs(self.measured)) > bars
        moved = live & (np.abs(self.claimed - self.measured) > 2 * bars)
        return int(self._counts[moved.reshape(-1)].sum()) >= ENOUGH

    def is_unlikely(self) -> bool:
        """Whether of all arrangements of the columns so many rules would hardly meet this one."""
        order = np.argsort(self.measured[0], kind="stable")
        values, bars = self.measured[0][order], SLACK * self.allowed[0][order]
        starts = np.nonzero(np.diff(values) > bars[1:] + bars[:-1])[0] + 1
        alike = np.diff([0, *starts, values.size])
        arrangements = math.lgamma(values.size + 1) - sum(math.lgamma(n + 1) for n in alike)
        return arrangements >= math.log(CHANCE * self._tried)


def _reorderings(block: Block) -> Iterator[Match]:
    for name, how, order in _orders(block.shape):
        text = f"the gradient of {block.name} is {how}"
        yield Match(name, text, f"{block.all_fit}, reordered so", change=block.reordered(order))


def _orders(shape: tuple[int, ...]) -> Iterator[tuple[str, str, Indices]]:
    """Reorderings that happen: name, words, and which entry lands where, flat."""
    index = np.arange(math.prod(shape)).reshape(shape)
    yield from _axis_orders(index)
    yield "permuted", "reversed", index.reshape(-1)[::-1]
    for axis in range(index.ndim if index.ndim > 1 else 0):
        if index.shape[axis] > 1:
            flipped = np.flip(index, axis).reshape(-1)
            yield "permuted", f"reversed along axis {axis}", flipped
    for shift in _shift_distances(index.size):
        yield "permuted", f"rolled by {shift}", np.roll(index.reshape(-1), shift)
    for axis in range(index.ndim if index.ndim > 1 else 0):
        for shift in _shift_distances(index.shape[axis]):
            rolled = np.roll(index, shift, axis).reshape(-1)
            yield "permuted", f"rolled by {shift} along axis {axis}", rolled


def _axis_orders(index: Indices) -> Iterator[tuple[str, str, Indices]]:
    """Every order of the axes, of arrays of few."""
    if index.ndim > MOST_AXES:
        return
    usual = tuple(range(index.ndim))
    for axes in itertools.permutations(usual):
        if axes == usual:
            continue
        turned = index.transpose(axes)
        is_transposed = axes == (*usual[:-2], usual[-1], usual[-2])
        how = "transposed" if is_transposed else f"permuted, its axes being {axes}"
        if turned.shape != index.shape:
            how += " in memory and read in the old shape"
        yield "transposed" if is_transposed else "permuted", how, turned.reshape(-1)


def _shift_distances(size: int) -> list[int]:
    """Distances to roll by, either way, the short ones first."""
    both = (k for k in range(-(size // 2), size - size // 2) if k)
    return sorted(both, key=abs)[:_MOST_SHIFTS]


def _shifts(block: Block) -> Iterator[Match]:
    """Shifted along an axis, zeros coming in: a block too early or too late."""
    for axis, size in enumerate(block.shape):
        for shift in sorted((k for k in range(1 - size, size) if k), key=abs):

            def shifted(values: Values, axis: int = axis, shift: int = shift) -> Values:
                rolled = np.roll(values, shift, axis + 1)
                empty = np.arange(shift) if shift > 0 else np.arange(shift, 0)
                rolled[(slice(None),) * (axis + 1) + (empty,)] = 0.0
                return rolled

            text = f"the gradient of {block.name} is shifted by {shift} along axis {axis}"
            change = block.on_shape(shifted)
            yield Match("permuted", f"{text}, zeros coming in", block.all_fit, change=change)


def _any_order(block: Block, sketch: _Sketch) -> list[Match]:
    """Every claimed column is some measured one, each taken once."""
    claimed, measured = (v[0, :: block.parts] for v in (sketch.claimed, sketch.measured))
    bars = sketch.allowed[0, :: block.parts]
    if not 3 < claimed.size <= _MOST_SHIFTS:
        return []
    order = np.empty(claimed.size, dtype=int)
    order[np.argsort(claimed, kind="stable")] = np.argsort(measured, kind="stable")
    near = np.abs(claimed - measured[order]) <= SLACK * (bars + bars[order])
    change = block.reordered(order)
    if not near.all() or not block.fits(change):
        return []
    moved = int((order != np.arange(order.size)).sum())
    text = f"{moved:,} entries of the gradient of {block.name} have changed places"
    return [Match("permuted", text, block.all_fit, change=change)] if moved else []


def _columns_taken(order: Indices) -> Change:
    return lambda values: values[:, order]


def swapped_inputs(case: Case) -> list[Match]:
    """Two inputs have each other's gradient."""
    slots, found = case.domain.slots, []
    if not case.has_all_columns:
        return []
    for first, second in itertools.combinations(range(len(slots)), 2):
        if slots[first].size == slots[second].size > 0:
            one, other = case.domain.span(first), case.domain.span(second)
            columns = np.arange(case.domain.size)
            columns[one], columns[other] = np.arange(case.domain.size)[other], columns[one].copy()
            text = f"{slots[first].name} and {slots[second].name} have each other's gradient"
            evidence = f"all {case.claimed.size:,} entries fit"
            found.append(Match("permuted", text, evidence, change=_columns_taken(columns)))
    several = int(case.wrong.sum()) >= ENOUGH
    return fitting_matches(found, case.fits) if several else []


def transposed_jacobian(block: Block) -> Match | None:
    """The Jacobian where its transpose belongs, as W g for W^T g."""
    if not block.is_square or not block.fits(np.transpose):
        return None
    live = block.wrong & (np.abs(block.claimed) > SLACK * block.allowed)
    if int(live.sum()) < ENOUGH:
        return None
    return Match("transposed", f"the Jacobian of {block.name} is transposed", block.all_fit)


def symmetric_input(block: Block) -> Match | None:
    """The input is a symmetric, or Hermitian, matrix; the claim is right along such directions.

    The gap of entry (i, j) is minus that of (j, i): one condition for each pair, nothing fitted.
    """
    if not block.has_shape or len(block.shape) < 2 or block.shape[-1] != block.shape[-2]:
        return None
    index = np.arange(math.prod(block.shape)).reshape(block.shape)
    swapped = block.reordered(np.swapaxes(index, -1, -2).reshape(-1))
    signs = np.resize((1.0, -1.0) if block.parts == 2 else (1.0,), block.places.size)
    x = block.x[None, :]

    def transpose(values: Values) -> Values:
        return np.asarray(swapped(values) * signs)

    if not np.allclose(x, transpose(x), rtol=1e-6, atol=1e-9 * float(np.abs(x).max(initial=0.0))):
        return None
    gap = block.claimed - block.measured
    allowed = block.allowed + swapped(block.allowed)
    if block.wrong_count < ENOUGH or not (np.abs(gap + transpose(gap)) <= SLACK * allowed).all():
        return None
    text = f"{block.name} is symmetric, and the claim is right along symmetric directions"
    return Match("symmetric input", text, f"{block.wrong_count:,} gaps cancel in pairs")
