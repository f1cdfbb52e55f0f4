"""Causes that are sums, or lack one: reductions, indices read twice, one cotangent for all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from gradproof._data.results import count_of
from gradproof._data.space import Mask, Values
from gradproof._explain.case import (
    ENOUGH,
    MOST_AXES,
    SLACK,
    Block,
    Case,
    Change,
    Match,
)


def axes_subsets(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every set of axes longer than 1, the small ones first."""
    axes = [axis for axis, size in enumerate(shape) if size > 1][:MOST_AXES]
    for count in range(1, len(axes) + 1):
        yield from itertools.combinations(axes, count)


def extra_reduction(block: Block) -> Iterator[Match]:
    """Every entry holds the sum, or the mean, along axes of the input. No number is fitted."""
    # Rows that sum to zero, as of a softmax, would make a sum of everything claimed zero.
    shown = np.abs(block.claimed) > SLACK * block.allowed
    if not block.has_shape or int(shown.sum()) < ENOUGH:
        return
    for axes in axes_subsets(block.shape):
        where = f"{'axis' if len(axes) == 1 else 'axes'} {', '.join(map(str, axes))}"
        along = tuple(axis + 1 for axis in axes)
        for text, mean in (("summed once more over", False), ("averaged over", True)):
            told = f"the gradient of {block.name} is {text} {where}"
            change = block.on_shape(_spread_along(along, mean=mean))
            yield Match("extra reduction", told, block.all_fit, change=change)


def _spread_along(axes: tuple[int, ...], *, mean: bool) -> Change:
    def spread(values: Values) -> Values:
        reduced = (np.mean if mean else np.sum)(values, axis=axes, keepdims=True)
        return np.broadcast_to(reduced, values.shape)

    return spread


def missing_reduction(block: Block) -> Match | None:
    """Where an input was broadcast, one slice's gradient arrives instead of the sum of all."""
    case = block.case
    if not (case.whole and block.has_shape and len(case.codomain.slots) == 1):
        return None
    out = case.codomain.slots[0]
    if out.entries is not None or len(block.shape) > len(out.shape):
        return None
    padded = (1,) * (len(out.shape) - len(block.shape)) + block.shape
    axes = tuple(a for a, n in enumerate(padded) if n == 1 and out.shape[a] > 1)
    if not axes or any(n not in (1, size) for n, size in zip(padded, out.shape, strict=True)):
        return None
    for position, which in ((0, "first"), (-1, "last")):
        kept = np.zeros((*out.shape, len(out.parts)), dtype=bool)
        kept[tuple([position] if a in axes else slice(None) for a in range(kept.ndim))] = True
        if block.fits(_rows_alone(kept.reshape(-1))):
            text = (
                f"{block.name} was broadcast along axis {', '.join(map(str, axes))} of {out.name}, "
                f"but only the {which} slice's gradient arrives, not the sum"
            )
            lost = int((~kept).sum())
            return Match("missing reduction", text, f"{lost:,} outputs forgotten")
    return None


def _rows_alone(kept: Mask) -> Change:
    return lambda values: np.where(kept[:, None], values, 0.0)


def overwritten(block: Block) -> Match | None:
    """Of several outputs that read one entry, the gradient of one arrives: stored, and not added.

    Where it is that of the first throughout, the outputs after it may be detached as well.
    """
    kept, read = block.claimed != 0, np.abs(block.measured) > SLACK * block.allowed
    lost = block.wrong.any(axis=0)
    copies = read.sum(axis=1).max() <= 1 and kept.sum(axis=0).max() <= 1
    if not (block.case.whole and copies and kept[:, lost].any(axis=0).all()):
        return None
    first = kept[:, lost].argmax(axis=0) == read[:, lost].argmax(axis=0)
    if first.all() or kept[block.wrong].any():
        return None
    number = int(lost.sum())
    text = (
        f"{count_of(number)} of {block.name} {'is' if number == 1 else 'are'} read more "
        "than once, and only one of the gradients arrives, not their sum"
    )
    evidence = f"{count_of(block.wrong_count)} claimed 0, another of the same input right"
    return Match("overwritten", text, evidence)


def ignored_cotangent(case: Case) -> Match | None:
    """One entry of the cotangent is used for all, or in forward mode the tangent is ignored.

    The Jacobian is then the sum of all rows in one row, or the same column throughout.
    """
    claimed, measured = case.claimed, case.measured
    shown = np.abs(claimed) > SLACK * case.allowed  # zeros are a sum of rows that cancel
    if not case.whole or int(shown.sum()) < ENOUGH or not np.isfinite(claimed).all():
        return None
    rows, columns = claimed.shape
    parts = len(case.codomain.slots[0].parts)
    for entry in (0, rows // parts - 1):
        if rows % parts == 0 and rows > parts and case.fits(_gathered_in(entry, parts)):
            place = case.codomain.locate(entry * parts)
            output = str(place).removesuffix(f".{place.part}") if place.part else str(place)
            text = f"the cotangent of {output} is used for every output"
            return Match("cotangent ignored", text, f"{rows - parts:,} rows are 0")
    if case.is_forward and columns > 1:
        same = np.abs(claimed - claimed[:, :1]) <= SLACK * case.allowed
        differs = np.abs(measured - measured[:, :1]) > 2 * SLACK * case.allowed
        if same.all() and int(differs.sum()) >= ENOUGH:
            text = "the tangent is ignored, or summed: every column is the same"
            return Match("cotangent ignored", text, f"{columns} equal columns")
    return None


def _gathered_in(entry: int, parts: int) -> Change:
    """The map of matrices that puts the sum of all rows, part by part, into those of one output."""

    def change(values: Values) -> Values:
        shaped = values.reshape(-1, parts, values.shape[1])
        made = np.zeros_like(shaped)
        made[entry] = shaped.sum(axis=0)
        return np.asarray(made.reshape(values.shape))

    return change
