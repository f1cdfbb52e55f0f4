"""Causes that put right numbers into wrong places.

A gradient of few numbers among zeros is a rearrangement of the right one whatever the mistake: an
argmin for an argmax moves ones to where zeros were, and so does a permutation. So a rearrangement
is named only where `ENOUGH` numbers that are not zero stand where others stood.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from gradproof._data.space import Indices, Values
from gradproof._explain.case import ENOUGH, SLACK, InputBlock, Match, WrongJacobian, is_fit

_MOST_ENTRIES = 4096  # of an input of which other orders are tried
_MOST_AXES = 4  # of an array, of which every order is tried: 24


def reordered_gradient(block: InputBlock) -> Match | None:
    """The gradient has the right entries in another order. No number is fitted.

    Orders are tried on a random sum of the rows, and what fits that on every row.
    """
    count = block.places.size // block.parts
    if not block.has_shape or not 2 <= count <= _MOST_ENTRIES:
        return None
    weights = np.random.default_rng(0).uniform(0.5, 1.5, block.claimed.shape[0])[None, :]
    claimed, measured = weights @ block.claimed, weights @ block.measured
    allowed = weights @ block.allowed
    bars = SLACK * allowed
    is_live = np.minimum(np.abs(claimed), np.abs(measured)) > bars
    is_moved = is_live & (np.abs(claimed - measured) > 2 * bars)
    shown = (np.abs(block.claimed) > SLACK * block.allowed).sum(axis=0)
    if int(shown[is_moved[0]].sum()) < ENOUGH:
        return None
    orders = _usual_orders(np.arange(count).reshape(block.shape))
    if block.claimed.shape[0] > 1:
        # An order is as many numbers as there are entries. The sum gives it, rows are evidence.
        orders = itertools.chain(orders, _order_by_size(claimed, measured, block.parts))
    for name, how, order in orders:
        change = block.reordering(order)
        if is_fit(claimed, change(measured), allowed, change(allowed)) and block.fits(change):
            message = f"the gradient of {block.name} {how}"
            return Match(name, message, f"{block.full_fit_text}, reordered so", change=change)
    return None


def _usual_orders(index: Indices) -> Iterator[tuple[str, str, Indices]]:
    """Reorderings that happen: name, words, and which entry lands where, flat."""
    axes = tuple(range(index.ndim))
    for order in itertools.permutations(axes) if index.ndim <= _MOST_AXES else ():
        if order == axes:
            continue
        turned = index.transpose(order)
        is_transposed = order == (*axes[:-2], axes[-1], axes[-2])
        how = "is transposed" if is_transposed else f"is permuted, its axes being {order}"
        if turned.shape != index.shape:
            how += " in memory and read in the old shape"
        yield "transposed" if is_transposed else "permuted", how, turned.reshape(-1)
    yield "permuted", "is reversed", index.reshape(-1)[::-1]
    for shift in _shifts(index.size):
        yield "permuted", f"is rolled by {shift}", np.roll(index.reshape(-1), shift)
    for axis in axes if index.ndim > 1 else ():
        yield "permuted", f"is reversed along axis {axis}", np.flip(index, axis).reshape(-1)
        for shift in _shifts(index.shape[axis]):
            rolled = np.roll(index, shift, axis).reshape(-1)
            yield "permuted", f"is rolled by {shift} along axis {axis}", rolled


def _shifts(size: int) -> list[int]:
    """Distances to roll by, either way, the short ones first."""
    return sorted((k for k in range(-(size // 2), size - size // 2) if k), key=abs)


def _order_by_size(
    claimed: Values, measured: Values, parts: int
) -> Iterator[tuple[str, str, Indices]]:
    """The order in which every claimed entry is a measured one, each taken once."""
    order = np.empty(claimed.size // parts, dtype=int)
    order[np.argsort(claimed[0, ::parts], kind="stable")] = np.argsort(
        measured[0, ::parts], kind="stable"
    )
    moved = int((order != np.arange(order.size)).sum())
    yield "permuted", f"has {moved:,} entries that changed places", order


def swapped_inputs(case: WrongJacobian) -> Match | None:
    """Two inputs have each other's gradient. No number is fitted."""
    slots = case.domain.slots
    if not case.has_all_columns or int(case.wrong.sum()) < ENOUGH:
        return None
    for first, second in itertools.combinations(range(len(slots)), 2):
        if slots[first].size == slots[second].size > 0:
            one, other = case.domain.span(first), case.domain.span(second)
            order = np.arange(case.domain.size)
            order[one], order[other] = order[other], order[one].copy()
            if case.fits(partial(np.take, indices=order, axis=1)):
                message = f"{slots[first].name} and {slots[second].name} have each other's gradient"
                return Match("permuted", message, f"all {case.claimed.size:,} entries fit")
    return None


def transposed_jacobian(block: InputBlock) -> Match | None:
    """The Jacobian where its transpose belongs, as W g for W^T g. No number is fitted."""
    if not block.is_square or not block.fits(np.transpose):
        return None
    is_shown = block.wrong & (np.abs(block.claimed) > SLACK * block.allowed)
    if int(is_shown.sum()) < ENOUGH:
        return None
    return Match("transposed", f"the Jacobian of {block.name} is transposed", block.full_fit_text)


def symmetric_input(block: InputBlock) -> Match | None:
    """The input is a symmetric, or Hermitian, matrix; the claim is right along such directions.

    The gap of entry (i, j) is minus that of (j, i): one condition for each pair, nothing fitted.
    """
    if not block.has_shape or len(block.shape) < 2 or block.shape[-1] != block.shape[-2]:
        return None
    index = np.arange(math.prod(block.shape)).reshape(block.shape)
    swapped = block.reordering(np.swapaxes(index, -1, -2).reshape(-1))
    signs = np.resize((1.0, -1.0) if block.parts == 2 else (1.0,), block.places.size)
    x, gap = block.x[None, :], block.claimed - block.measured
    largest = float(np.abs(x).max(initial=0.0))
    if not np.allclose(x, swapped(x) * signs, rtol=1e-6, atol=1e-9 * largest):
        return None
    allowed = SLACK * (block.allowed + swapped(block.allowed))
    if block.wrong_count < ENOUGH or not (np.abs(gap + swapped(gap) * signs) <= allowed).all():
        return None
    message = f"{block.name} is symmetric, and the claim is right along symmetric directions"
    return Match("symmetric input", message, f"{block.wrong_count:,} gaps cancel in pairs")
