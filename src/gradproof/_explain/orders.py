"""Causes that put right numbers into wrong places. No number is fitted for any of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from gradproof._data.results import count_of
from gradproof._data.space import Indices
from gradproof._explain.case import ENOUGH, SLACK, Change, InputBlock, Match, WrongJacobian, is_fit

_MOST_AXES = 4  # of an array, of which every order is tried: 24


def transposed_gradient(block: InputBlock) -> Match | None:
    """The gradient has its axes in another order, or was written in one and read in another.

    Of few numbers among zeros an order may fit whatever the mistake, so `ENOUGH` numbers that are
    not zero must stand where others stood.
    """
    if not block.has_shape or not 1 < len(block.shape) <= _MOST_AXES:
        return None
    shown = np.abs(block.claimed) > SLACK * block.allowed
    if int((shown & block.wrong & block.is_live.any(axis=0)).sum()) < ENOUGH:
        return None
    axes = tuple(range(len(block.shape)))
    index = np.arange(math.prod(block.shape)).reshape(block.shape)
    for order in itertools.permutations(axes):
        change = _reordering(block, index.transpose(order).reshape(-1))
        if order == axes or not block.fits(change):
            continue
        how = "is transposed"
        if order != (*axes[:-2], axes[-1], axes[-2]):
            how = f"has its axes in the order {order}"
        if index.transpose(order).shape != index.shape:
            how += " in memory and is read in the old shape"
        message = f"the gradient of {block.name} {how}"
        return Match("transposed", message, block.full_fit_text)
    return None


def _reordering(block: InputBlock, order: Indices) -> Change:
    """The map of matrices that puts entry order[k] at entry k, both parts together."""
    columns = (order[:, None] * block.parts + np.arange(block.parts)).reshape(-1)
    return lambda values: values[:, columns]


def transposed_jacobian(block: InputBlock) -> Match | None:
    """The Jacobian where its transpose belongs, as W g for W^T g."""
    if not block.is_square or not block.fits(np.transpose):
        return None
    is_shown = block.wrong & (np.abs(block.claimed) > SLACK * block.allowed)
    if int(is_shown.sum()) < ENOUGH:
        return None
    return Match("transposed", f"the Jacobian of {block.name} is transposed", block.full_fit_text)


def misplaced_entries(block: InputBlock) -> Match | None:
    """Every wrong row, or column, has the numbers of the right one, at other entries.

    So is an index that is off by one, argmin for argmax, a kernel that is not reversed, a gradient
    or a cotangent that is. Numbers are compared in order of size.
    """
    moved = int((np.abs(block.claimed) > SLACK * block.allowed)[block.wrong].sum())
    if moved < ENOUGH:
        return None
    entries, outputs = f"at other entries of {block.name}", "from other outputs"
    for axis, is_whole, words in (
        (1, block.has_shape, entries),
        (0, block.case.whole and len(block.claimed) > 2, outputs),
    ):
        lines = np.flatnonzero(block.wrong.any(axis=axis))
        claimed, measured, allowed = (
            np.take(table, lines, axis=1 - axis)
            for table in (block.claimed, block.measured, block.allowed)
        )
        order = np.argsort(measured, axis=axis)
        measured, allowed = (
            np.take_along_axis(table, order, axis=axis) for table in (measured, allowed)
        )
        if is_whole and is_fit(np.sort(claimed, axis=axis), measured, allowed, allowed):
            message = f"the right numbers arrive {words}"
            return Match("misplaced", message, f"{count_of(moved)} moved")
    return None


def swapped_inputs(case: WrongJacobian) -> Match | None:
    """Two inputs have each other's gradient."""
    slots = case.domain.slots
    if not case.has_all_columns or int(case.wrong.sum()) < ENOUGH:
        return None
    for first, second in _pairs_of_equal_size(case):
        one, other = case.domain.span(first), case.domain.span(second)
        order = np.arange(case.domain.size)
        order[one], order[other] = order[other], order[one].copy()
        change = partial(np.take, indices=order, axis=1)
        if is_fit(case.claimed, change(case.measured), case.allowed, change(case.allowed)):
            message = f"{slots[first].name} and {slots[second].name} have each other's gradient"
            return Match("misplaced", message, f"all {case.claimed.size:,} entries fit")
    return None


def _pairs_of_equal_size(case: WrongJacobian) -> Iterator[tuple[int, int]]:
    sizes = [slot.size for slot in case.domain.slots]
    for first, second in itertools.combinations(range(len(sizes)), 2):
        if sizes[first] == sizes[second] > 0:
            yield first, second


def symmetric_input(block: InputBlock) -> Match | None:
    """The input is a symmetric, or Hermitian, matrix; the claim is right along such directions.

    The gap of entry (i, j) is minus that of (j, i): one condition for each pair.
    """
    shape = block.shape
    if not block.has_shape or len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 2:
        return None
    x = block.case.point[block.case.domain.span(block.position)]
    swapped = _swap_of_last_axes(block)
    signs = np.resize((1.0, -1.0) if block.parts == 2 else (1.0,), block.places.size)
    room = 1e-6 * float(np.abs(x).max())
    if not (np.abs(x - swapped(x[None, :]) * signs) <= room).all():
        return None
    gap = block.claimed - block.measured
    allowed = SLACK * (block.allowed + swapped(block.allowed))
    if block.wrong_count < ENOUGH or not (np.abs(gap + swapped(gap) * signs) <= allowed).all():
        return None
    is_batch = " in its last two axes" if len(shape) > 2 else ""
    right = "and along symmetric directions the claim is right"
    message = f"{block.name} is symmetric{is_batch}, {right}"
    return Match("symmetric input", message, f"{block.wrong_count:,} gaps cancel in pairs")


def _swap_of_last_axes(block: InputBlock) -> Change:
    index = np.arange(math.prod(block.shape)).reshape(block.shape)
    return _reordering(block, np.swapaxes(index, -1, -2).reshape(-1))
