"""Causes that put right numbers into wrong places. No number is fitted for any of them."""

from __future__ import annotations

import itertools
import math

import numpy as np

from gradproof._data.records import Cause
from gradproof._data.results import JacobianEvidence, count_of
from gradproof._data.space import Indices
from gradproof._explain.case import ENOUGH, Change, InputBlock, input_blocks, is_fit
from gradproof._explain.causes import named_cause

_MOST_AXES = 4  # of an array, of which every order is tried: 24


def transposed_gradient(block: InputBlock) -> Cause | None:
    """The gradient has its axes in another order, or was written in one and read in another.

    Of few numbers among zeros an order may fit whatever the mistake, so `ENOUGH` numbers that are
    not zero must stand where others stood.
    """
    if not block.has_shape or not 1 < len(block.shape) <= _MOST_AXES:
        return None
    if int((block.is_claimed & block.wrong & block.is_live.any(axis=0)).sum()) < ENOUGH:
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
        return named_cause("transposed", message, block.full_fit_text)
    return None


def _reordering(block: InputBlock, order: Indices) -> Change:
    """The map of matrices that puts entry order[k] at entry k, both parts together."""
    columns = (order[:, None] * block.parts + np.arange(block.parts)).reshape(-1)
    return lambda values: values[:, columns]


def transposed_jacobian(block: InputBlock) -> Cause | None:
    """The Jacobian where its transpose belongs, as W g for W^T g."""
    is_shown = int((block.is_claimed & block.wrong).sum()) >= ENOUGH
    if not (is_shown and block.is_square and block.fits(np.transpose)):
        return None
    message = f"the Jacobian of {block.name} is transposed"
    return named_cause("transposed", message, block.full_fit_text)


def misplaced_entries(block: InputBlock) -> Cause | None:
    """Every wrong row, or column, has the numbers of the right one, at other entries.

    So is an index that is off by one, argmin for argmax, a kernel that is not reversed, a gradient
    or a cotangent that is. Numbers are compared in order of size.
    """
    moved = int((block.is_claimed & block.wrong).sum())
    if moved < ENOUGH:
        return None
    entries, outputs = f"at other entries of {block.name}", "from other outputs"
    for axis, is_whole, words in (
        (1, block.has_shape, entries),
        (0, block.whole and len(block.claimed) > 2, outputs),
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
            return named_cause("misplaced", message, f"{count_of(moved)} moved")
    return None


def swapped_inputs(case: JacobianEvidence) -> Cause | None:
    """Two inputs have each other's gradient."""
    for one, other in itertools.combinations(input_blocks(case), 2):
        if one.wrong_count + other.wrong_count < ENOUGH or one.wrong.shape != other.wrong.shape:
            continue
        if (
            one.has_shape
            and other.has_shape
            and is_fit(one.claimed, other.measured, one.allowed, other.allowed)
            and is_fit(other.claimed, one.measured, one.allowed, other.allowed)
        ):
            message = f"{one.name} and {other.name} have each other's gradient"
            return named_cause("misplaced", message, f"all {2 * one.claimed.size:,} entries fit")
    return None


def symmetric_input(block: InputBlock) -> Cause | None:
    """The input is a symmetric matrix, and along such directions the claim is right.

    The gap of entry (i, j) is minus that of (j, i): one condition for each pair.
    """
    shape = block.shape
    if block.parts != 1 or not block.has_shape or len(shape) != 2 or shape[0] != shape[1]:
        return None
    x = block.point[block.domain.span(block.position)].reshape(shape)
    if block.wrong_count < ENOUGH or not np.allclose(x, x.T, rtol=0, atol=1e-6 * np.abs(x).max()):
        return None
    index = np.arange(x.size).reshape(shape).T.reshape(-1)
    gap, allowed = block.claimed - block.measured, block.allowed
    if not is_fit(gap, -gap[:, index], allowed, allowed[:, index]):
        return None
    message = f"{block.name} is symmetric, and along symmetric directions the claim is right"
    return named_cause("symmetric input", message, f"{block.wrong_count:,} gaps cancel in pairs")
