"""Causes in formulas: a factor, or a term, that is missing or does not belong there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from gradproof._data.results import count_of
from gradproof._data.space import Mask, Values
from gradproof._explain.case import ENOUGH, SLACK, Block, Match, common_ratio
from gradproof._explain.sums import axes_subsets

_LARGEST = 700.0  # whose exponential is a number
_DIFFERENT = 3  # values, at least, of what a factor may be
_LARGE_TIMES = 100.0  # by a larger number, or a smaller one, something else is wrong


def missing_factor(block: Block) -> Match | None:
    """The claim is off by a factor that is the input, or the output, or their inverse.

    Up to one number, which is fitted: it takes `ENOUGH` entries beside it.
    """
    wrong = block.wrong
    if block.wrong_count <= ENOUGH:
        return None
    for what, values in _possible_factors(block):
        if np.unique(np.abs(values)).size < _DIFFERENT or not (values != 0).all():
            continue
        for power, text in ((1, "a factor equal to {} is missing"), (-1, "multiplied by {}")):
            scale = np.broadcast_to(values**power, block.claimed.shape)
            spread = np.unique(np.abs(scale[wrong])).size
            ratio = common_ratio(
                (block.claimed * scale)[wrong],
                block.measured[wrong],
                (block.allowed * np.maximum(np.abs(scale), 1))[wrong],
            )
            if ratio is None or ratio.count <= ENOUGH or spread < _DIFFERENT:
                continue
            if not 1 / _LARGE_TIMES <= abs(ratio.value) <= _LARGE_TIMES:
                continue
            times = "" if ratio.is_equal(1.0) else f", up to {ratio.value:.6g}"
            told = f"{text.format(what)}{times}"
            change = partial(np.multiply, np.where(wrong, ratio.value / scale, 1.0))
            evidence = f"{count_of(block.wrong_count)} fit"
            return Match("missing factor", told, evidence, change=change)
    return None


def _possible_factors(block: Block) -> Iterator[tuple[str, Values]]:
    """Values of the inputs along the columns, and of the outputs along the rows."""
    case = block.case
    if block.parts == 1:
        yield block.name, block.x[None, :]
        if block.has_shape:
            yield from _broadcast_inputs(block)
    if case.whole and all(len(slot.parts) == 1 for slot in case.codomain.slots):
        yield "the output", case.value[:, None]


def _broadcast_inputs(block: Block) -> Iterator[tuple[str, Values]]:
    """Other inputs whose shape fits some axes of this one."""
    case = block.case
    for position, slot in enumerate(case.domain.slots):
        if position == block.position or len(slot.parts) != 1 or slot.entries is not None:
            continue
        values = case.point[case.domain.span(position)]
        if not values.size:
            continue
        long = tuple(size for size in slot.shape if size > 1)
        for axes in axes_subsets(block.shape):
            if long == tuple(block.shape[axis] for axis in axes):
                kept = [n if axis in axes else 1 for axis, n in enumerate(block.shape)]
                yield slot.name, np.broadcast_to(values.reshape(kept), block.shape).reshape(1, -1)


def added_number(block: Block) -> Match | None:
    """One number is added to every entry, or one to every entry of a row."""
    gap = block.claimed - block.measured
    if not block.has_shape or gap.shape[1] < ENOUGH:
        return None
    weights = np.maximum(block.allowed, 1e-300) ** -2
    level = (gap * weights).sum(axis=1, keepdims=True) / weights.sum(axis=1, keepdims=True)
    if not (np.abs(gap - level) <= SLACK * block.allowed).all():
        return None
    # A function blind to a common shift has rows that sum to 0: a mean was not taken off.
    sums = np.abs(block.measured.sum(axis=1)) <= SLACK * np.linalg.norm(block.allowed, axis=1)
    if sums.all():
        return None
    widest = block.allowed.max(axis=1, keepdims=True)
    is_one = bool((np.abs(level - np.median(level)) <= SLACK * widest).all())
    what = f"{float(np.median(level)):.3g}" if is_one else "one number for each output"
    text, evidence = f"{what} is added to every entry", f"the same gap in {gap.size:,} entries"
    return Match("missing term", text, evidence, change=lambda values: values + level)


def own_entry_only(block: Block) -> Match | None:
    """Each output depends on many entries, and is claimed to depend on its own alone."""
    if not block.is_square:
        return None
    own = np.eye(block.claimed.shape[0], dtype=bool)
    if block.claimed[~own].any() or not block.claimed[own].all() or block.wrong[own].any():
        return None
    if block.wrong_count < max(own.shape[0], ENOUGH):
        return None
    text = f"what goes through other entries of {block.name} is missing: a sum was left out"
    evidence = f"{count_of(block.wrong_count)} off the diagonal claimed 0"
    return Match("missing term", text, evidence)


def missing_term(block: Block) -> Match | None:
    """The claim is off by a multiple of the input, of the output, or of 1 along some axes.

    So is a softmax without y (v.y), a normalisation without its projection, a centring without its
    mean: one coefficient for each output and each slice explains all entries of the slice. A term
    is missing where the function depends on its input: of a slice on which it does not depend more
    is wrong than a term, as where a mean is taken over too many axes.
    """
    if block.parts != 1 or not block.shape or not block.has_shape:
        return None
    shape = (-1, *block.shape)
    gap, bars, measured = (
        table.reshape(shape)
        for table in (block.claimed - block.measured, block.allowed, block.measured)
    )
    live = np.abs(measured) > SLACK * bars
    if block.case.sharpness:  # products with random vectors: each row shows all outputs
        live = np.asarray(live.any(axis=0, keepdims=True))
    for what, pattern, is_centred in _patterns(block):
        for axes in axes_subsets(block.shape):
            along = tuple(axis + 1 for axis in axes)
            grid = pattern.reshape(1, *block.shape)
            if is_centred:
                grid = grid - grid.mean(axis=along, keepdims=True)
            part = _coefficients(gap, bars, live, grid, along)
            if part is not None:
                text = f"a term proportional to {what} along axis {', '.join(map(str, axes))}"
                evidence = f"{part.size:,} coefficients explain {gap.size:,} entries"
                added = (part * grid).reshape(block.claimed.shape)
                change = partial(np.add, added)
                text += " is missing, or too much"
                return Match("missing term", text, evidence, change=change)
    return None


def _coefficients(
    gap: Values, bars: Values, live: Mask, grid: Values, along: tuple[int, ...]
) -> Values | None:
    """Multiples of the grid, one for each slice, that explain all gaps; None if they do not.

    Args:
        gap, bars, live: what is off, what is allowed, where the derivative is not zero.
        grid: what the gap may be proportional to, (1, *shape).
        along: axes of a slice.
    """
    length = math.prod(grid.shape[axis] for axis in along)
    below = (grid * grid).sum(axis=along, keepdims=True)
    if length < 3 or not (below > 0).all():
        return None
    part = (gap * grid).sum(axis=along, keepdims=True) / below
    # The coefficient is fitted to entries that are each off by what is allowed.
    bar = (bars * np.abs(grid)).sum(axis=along, keepdims=True) / below
    sure = np.abs(part) > SLACK * bar  # a coefficient within its error of 0 is none
    if (sure & ~live.any(axis=along, keepdims=True)).any():
        return None
    explained = np.abs(gap - part * grid) <= SLACK * (bars + bar * np.abs(grid))
    # More entries than coefficients, by enough.
    enough = int(sure.sum()) * (length - 1) >= ENOUGH
    return np.asarray(part) if enough and explained.all() else None


def _patterns(block: Block) -> Iterator[tuple[str, Values, bool]]:
    """What a term may be proportional to, its values, and whether their mean is taken off."""
    case = block.case
    if np.unique(block.x).size > 1:
        yield block.name, block.x, False
        yield f"the centred {block.name}, as a normalisation makes it,", block.x, True
    for position, slot in enumerate(case.codomain.slots):
        if slot.shape == block.shape and len(slot.parts) == 1:
            values = case.value[case.codomain.span(position)]
            if np.unique(values).size > 1:
                yield slot.name, values, False
                yield f"exp({slot.name})", np.exp(np.minimum(values, _LARGEST)), False
    yield "1, as a mean", np.ones_like(block.x), False
