"""Causes of sums: a term or a reduction that is missing, or a store where numbers are added."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from gradproof._data.records import Cause
from gradproof._data.results import count_of
from gradproof._data.space import Mask, Values
from gradproof._explain.case import ENOUGH, SLACK, InputBlock
from gradproof._explain.causes import named_cause

_LARGEST_EXPONENT = 700.0  # whose exponential is a number
_LONG_AXES = 4  # of an array, of which every subset is tried: 15


def missing_reduction(block: InputBlock) -> Cause | None:
    """Where an input was broadcast, one slice's gradient arrives instead of the sum of all."""
    if not (block.whole and block.has_shape and len(block.codomain.slots) == 1):
        return None
    out = block.codomain.slots[0]
    if out.entries is not None or len(block.shape) > len(out.shape):
        return None
    padded = (1,) * (len(out.shape) - len(block.shape)) + block.shape
    axes = tuple(a for a, n in enumerate(padded) if n == 1 and out.shape[a] > 1)
    if not axes or any(n not in (1, size) for n, size in zip(padded, out.shape, strict=True)):
        return None
    for position, which in ((0, "first"), (-1, "last")):
        is_kept = np.zeros((*out.shape, len(out.parts)), dtype=bool)
        is_kept[tuple([position] if a in axes else slice(None) for a in range(is_kept.ndim))] = True
        rows = is_kept.reshape(-1, 1)
        if block.fits(partial(np.multiply, rows)):
            message = (
                f"{block.name} was broadcast along axis {', '.join(map(str, axes))} of {out.name}, "
                f"but only the {which} slice's gradient arrives, not the sum"
            )
            evidence = f"{int((~is_kept).sum()):,} outputs forgotten"
            return named_cause("missing reduction", message, evidence)
    return None


def overwritten_gradient(block: InputBlock) -> Cause | None:
    """Of several outputs that read one entry, the gradient of one arrives: stored, and not added.

    Where it is that of the first throughout, the outputs after it may be detached as well.
    """
    is_kept, is_read = block.claimed != 0, block.is_live
    lost = block.wrong.any(axis=0)
    is_copy = is_read.sum(axis=1).max() <= 1 and is_kept.sum(axis=0).max() <= 1
    if not (block.whole and is_copy and is_kept[:, lost].any(axis=0).all()):
        return None
    is_first = is_kept[:, lost].argmax(axis=0) == is_read[:, lost].argmax(axis=0)
    if is_first.all() or is_kept[block.wrong].any():
        return None
    reading = block.rows[is_read[:, lost].any(axis=1)]
    if len({block.codomain.slot_at(int(row)) for row in reading}) > 1:
        return None  # one of them may be detached as well
    count = int(lost.sum())
    message = (
        f"{count_of(count)} of {block.name} {'is' if count == 1 else 'are'} read more "
        "than once, and only one of the gradients arrives, not their sum"
    )
    evidence = f"{count_of(block.wrong_count)} claimed 0, another of the same input right"
    return named_cause("overwritten", message, evidence)


def dropped_sum(block: InputBlock) -> Cause | None:
    """Each output depends on many entries, and is claimed to depend on its own alone."""
    if not block.is_square:
        return None
    own = np.eye(block.claimed.shape[0], dtype=bool)
    if block.claimed[~own].any() or not block.claimed[own].all() or block.wrong[own].any():
        return None
    if block.wrong_count < max(own.shape[0], ENOUGH):
        return None
    message = f"what goes through other entries of {block.name} is missing: a sum was left out"
    evidence = f"{count_of(block.wrong_count)} off the diagonal claimed 0"
    return named_cause("missing term", message, evidence)


def missing_term(block: InputBlock) -> Cause | None:
    """The claim is off by a multiple of the input, of the output, or of 1 along some axes.

    So is a softmax without y (v.y), a normalisation without its projection, a centring without its
    mean: one coefficient for each output and each slice explains all entries of the slice. A term
    is missing where the function depends on its input: of a slice on which it does not depend more
    is wrong than a term, as where a mean is taken over too many axes.
    """
    if block.parts != 1 or not (block.has_shape and block.shape):
        return None
    shape = (-1, *block.shape)
    gap = (block.claimed - block.measured).reshape(shape)
    bars = block.allowed.reshape(shape)
    is_live, is_wrong = block.is_live.reshape(shape), block.wrong.reshape(shape)
    for what, pattern, is_centred in _patterns(block):
        for axes in _axes_subsets(block.shape):
            along = tuple(axis + 1 for axis in axes)
            grid = pattern.reshape(1, *block.shape)
            if is_centred:
                grid = grid - grid.mean(axis=along, keepdims=True)
            part = _coefficients(gap, bars, is_live, is_wrong, grid, along)
            if part is None:
                continue
            added = (part * grid).reshape(block.claimed.shape)
            level = float(np.median(added))
            is_level = bool((np.abs(added - level) <= SLACK * block.allowed).all())
            if what == "1" and is_level and not _is_blind(block):
                message = f"{level:.3g} is added to every entry"
                evidence = f"the same gap in {gap.size:,} entries"
            else:
                where = ", ".join(map(str, axes))
                shown = "1, as a mean" if what == "1" else what
                message = (
                    f"a term proportional to {shown} along axis {where} is missing, or too much"
                )
                evidence = f"{part.size:,} coefficients explain {gap.size:,} entries"
            return named_cause("missing term", message, evidence)
    return None


def _axes_subsets(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every set of axes longer than 1: the empty one first, that of all last."""
    axes = [axis for axis, size in enumerate(shape) if size > 1][:_LONG_AXES]
    for count in range(len(axes) + 1):
        yield from itertools.combinations(axes, count)


def _coefficients(
    gap: Values,
    bars: Values,
    is_live: Mask,
    is_wrong: Mask,
    grid: Values,
    along: tuple[int, ...],
) -> Values | None:
    """Multiples of the grid, one for each slice, that explain all gaps; None if they do not.

    Args:
        gap, bars: what is off, and what is allowed.
        is_live, is_wrong: where the derivative is not zero, and where more is off than allowed.
        grid: what the gap may be proportional to, (1, *shape).
        along: axes of a slice.
    """
    length = math.prod(grid.shape[axis] for axis in along)
    below = (grid * grid).sum(axis=along, keepdims=True)
    if length < 3 or not below.all():
        return None
    part = (gap * grid).sum(axis=along, keepdims=True) / below
    # The coefficient is fitted to entries that are each off by what is allowed.
    bar = (bars * np.abs(grid)).sum(axis=along, keepdims=True) / below
    is_sure = np.abs(part) > SLACK * bar  # one within its error of 0 is none
    if (is_sure & ~is_live.any(axis=along, keepdims=True)).any():
        return None
    is_explained = np.abs(gap - part * grid) <= SLACK * (bars + bar * np.abs(grid))
    # More wrong entries than coefficients, by enough.
    is_enough = int((is_wrong & is_sure).sum()) - int(is_sure.sum()) >= ENOUGH
    return np.asarray(part) if is_enough and is_explained.all() else None


def _is_blind(block: InputBlock) -> bool:
    """Whether a shift of all entries changes nothing: what is added is a mean not taken off."""
    sums = np.abs(block.measured.sum(axis=1))
    return bool((sums <= SLACK * np.linalg.norm(block.allowed, axis=1)).all())


def _patterns(block: InputBlock) -> Iterator[tuple[str, Values, bool]]:
    """What a term may be proportional to, its values, and whether their mean is taken off."""
    x = block.point[block.domain.span(block.position)][block.places]
    if np.unique(x).size > 1:
        yield block.name, x, False
        yield f"the centred {block.name}, as a normalisation makes it,", x, True
    for position, slot in enumerate(block.codomain.slots):
        if slot.shape == block.shape and len(slot.parts) == 1 and slot.entries is None:
            values = block.value[block.codomain.span(position)][block.places]
            if np.unique(values).size > 1:
                yield slot.name, values, False
                yield f"exp({slot.name})", np.exp(np.minimum(values, _LARGEST_EXPONENT)), False
    yield "1", np.ones_like(x), False
