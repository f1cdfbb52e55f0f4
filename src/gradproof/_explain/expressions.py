"""Causes in the formula of an entry: a factor that is made of an input or output.

A backward is a formula of what the forward has seen. So inputs and outputs, and functions of them
that derivatives are made of, are held against the ratio of claimed and measured entries. One number
is fitted, to more than `ENOUGH` entries that have at least three values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from gradproof._data.records import Cause
from gradproof._data.results import count_of
from gradproof._data.space import Values
from gradproof._explain.case import ENOUGH, SLACK, InputBlock
from gradproof._explain.causes import named_cause
from gradproof._explain.factors import Ratio, common_ratio

_DIFFERENT = 3  # values, at least, of what a factor may be
_LARGEST_NUMBER = 6  # before an expression, or 1/6
_TELLING = 0.1  # relative error of the best entry, above which none tells a formula

# What derivatives are made of.
_FUNCTIONS: dict[str, Callable[[Values], Values]] = {
    "{}": lambda v: v,
    "{}**2": np.square,
    "(1 - {})": lambda v: 1 - v,
    "(1 + {})": lambda v: 1 + v,
    "(1 - {}**2)": lambda v: 1 - v * v,
    "(1 + {}**2)": lambda v: 1 + v * v,
    "exp({})": np.exp,
    "log({})": np.log,
    "sqrt({})": np.sqrt,
    "sigmoid({})": lambda v: 1 / (1 + np.exp(-v)),
    "(1 - sigmoid({}))": lambda v: 1 / (1 + np.exp(v)),
    "tanh({})": np.tanh,
    "(1 - tanh({})**2)": lambda v: 1 - np.tanh(v) ** 2,
    "sin({})": np.sin,
    "cos({})": np.cos,
}


def other_factor(block: InputBlock) -> Cause | None:
    """Claimed are the right entries times an expression, or without one that belongs there."""
    wrong = block.wrong
    if block.wrong_count <= ENOUGH:
        return None
    claimed, measured, allowed = (
        table[wrong] for table in (block.claimed, block.measured, block.allowed)
    )
    if not (allowed < _TELLING * np.abs(measured)).any():
        return None
    for text, expression in _expressions(block):
        values = expression[wrong]
        for scale, message in (
            (1 / values, f"multiplied by {text}"),
            (values, f"a factor equal to {text} is missing"),
        ):
            ratio = common_ratio(claimed * scale, measured, allowed * np.maximum(np.abs(scale), 1))
            if ratio is not None and _is_believed(ratio, scale):
                message += "" if ratio.is_equal(1.0) else f", up to {ratio.value:.6g}"
                return named_cause("factor", message, f"{count_of(block.wrong_count)} fit")
    return None


def _is_believed(ratio: Ratio, values: Values) -> bool:
    """Whether a number before an expression of several values explains enough entries.

    It is a whole number up to 6, or the inverse of one: of a claim that is the same everywhere
    every expression is missing, up to some number.
    """
    if ratio.count <= ENOUGH or np.unique(np.abs(values)).size < _DIFFERENT:
        return False
    size = abs(ratio.value)
    whole = size if size >= 1 else 1 / max(size, 1e-300)
    near = SLACK * ratio.bar * whole * max(1.0, whole)
    return bool(whole < _LARGEST_NUMBER + 0.5 and abs(whole - round(whole)) <= near)


def _expressions(block: InputBlock) -> Iterator[tuple[str, Values]]:
    """Text and values, (r, k), of functions of inputs and outputs that are finite and not 0.

    Inputs and outputs stand along the columns where their shape fits the input, and along the rows
    where it fits the output.
    """
    for name, values in _arrays_beside(block):
        for text, function in _FUNCTIONS.items():
            with np.errstate(all="ignore"):
                found = np.broadcast_to(function(values), block.claimed.shape)
            if np.isfinite(found[block.wrong]).all() and found[block.wrong].all():
                yield text.format(name), found


def _arrays_beside(block: InputBlock) -> Iterator[tuple[str, Values]]:
    """Name and values, (1, k) or (r, 1), of real arrays that have the shape of input or output."""
    arrays = [
        (slot, values[space.span(position)])
        for space, values in ((block.domain, block.point), (block.codomain, block.value))
        for position, slot in enumerate(space.slots)
        if len(slot.parts) == 1 and slot.entries is None
    ]
    arrays.sort(key=lambda each: each[0] is not block.slot)  # its own values first
    sides = [(block.slot, block.places, (1, -1))]
    if len(block.codomain.slots) == 1:
        sides.append((block.codomain.slots[0], block.rows, (-1, 1)))
    for target, places, shape in sides:
        for slot, values in arrays:
            if slot.shape == target.shape and values.size == target.size:
                yield slot.name, values[places].reshape(shape)
