"""Causes in the formula of an entry: a factor, or a term, that is made of inputs and outputs.

A backward is a formula of what the forward has seen. So inputs and outputs, and functions of them
that derivatives are made of, are held against the ratio, and the gap, of claimed and measured
entries. One number is fitted, to more than `ENOUGH` entries that have at least three values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from gradproof._data.results import count_of
from gradproof._data.space import Indices, Values
from gradproof._explain.case import ENOUGH, SLACK, InputBlock, Match
from gradproof._explain.factors import Ratio, common_ratio

_DIFFERENT = 3  # values, at least, of what a factor or a term may be
_LARGEST_NUMBER = 6  # before an expression, or 1/6
_SAMPLE = 48  # entries, those that are known best, on which all expressions are tried
_TELLING = 0.1  # relative error of an entry, above which it tells nothing
_SHARP = 1e-4  # relative error of entries up to which expressions of two parts are tried

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


@dataclass(frozen=True)
class _Expression:
    """A product of two known quantities, or a quotient; one of them may be 1.

    Attributes:
        first, second: their texts; "" for 1.
        values: of the product, or quotient, for each entry of the block.
    """

    first: str
    second: str
    values: Values


def other_factor(block: InputBlock) -> Match | None:
    """Claimed are the right entries times an expression, or one expression stands for another."""
    wrong = block.wrong
    if block.wrong_count <= ENOUGH:
        return None
    with np.errstate(all="ignore"):
        ratios = block.claimed / block.measured
    for found in _expressions_near(block, ratios, is_product=False):
        scale = 1 / found.values[wrong]
        ratio = common_ratio(
            block.claimed[wrong] * scale,
            block.measured[wrong],
            block.allowed[wrong] * np.maximum(np.abs(scale), 1),
        )
        if not _is_believed(ratio, scale):
            continue
        assert ratio is not None
        if found.first and found.second:
            message = f"{found.first} stands where {found.second} belongs"
        elif found.first:
            message = f"multiplied by {found.first}"
        else:
            message = f"a factor equal to {found.second} is missing"
        message += "" if ratio.is_equal(1.0) else f", up to {ratio.value:.6g}"
        change = partial(np.multiply, np.where(wrong, ratio.value * found.values, 1.0))
        return Match("factor", message, f"{count_of(block.wrong_count)} fit", change=change)
    return None


def other_term(block: InputBlock) -> Match | None:
    """The wrong entries are off by a number, or by an expression, times one number.

    A term is missing where the function depends on its input.
    """
    wrong, gaps = block.wrong, block.claimed - block.measured
    if block.wrong_count <= ENOUGH or block.case.sharpness or not block.is_live[wrong].all():
        return None
    level = common_ratio(gaps[wrong], np.ones(block.wrong_count), block.allowed[wrong])
    if level is not None and level.count > ENOUGH:
        evidence = f"the same gap in {count_of(block.wrong_count)}"
        return Match("missing term", f"{level.value:.6g} is added to the wrong entries", evidence)
    for found in _expressions_near(block, gaps, is_product=True):
        part = found.values[wrong]
        ratio = common_ratio(gaps[wrong], part, block.allowed[wrong])
        if _is_believed(ratio, part):
            assert ratio is not None
            what = " * ".join(filter(None, (found.second, found.first)))
            message = f"a term {ratio.value:.6g} * {what} is too much, or its opposite missing"
            return Match("missing term", message, f"{count_of(block.wrong_count)} fit")
    return None


def _is_believed(ratio: Ratio | None, values: Values) -> bool:
    """Whether a number before an expression of several values explains enough entries.

    It is a whole number up to 6, or the inverse of one: of a claim that is the same everywhere
    every expression is missing, up to some number.
    """
    if ratio is None or ratio.count <= ENOUGH or np.unique(np.abs(values)).size < _DIFFERENT:
        return False
    size = abs(ratio.value)
    whole = size if size >= 1 else 1 / max(size, 1e-300)
    near = SLACK * ratio.bar * whole * max(1.0, whole)
    return bool(whole < _LARGEST_NUMBER + 0.5 and abs(whole - round(whole)) <= near)


def _expressions_near(
    block: InputBlock, target: Values, *, is_product: bool
) -> Iterator[_Expression]:
    """Expressions in proportion to the target at a few entries; the plain ones first.

    In logarithms a product is a sum, and a number in front is a shift, which the mean takes off.
    """
    size = np.abs(target if is_product else block.measured).reshape(-1)
    with np.errstate(all="ignore"):
        error = np.where(block.wrong.reshape(-1), block.allowed.reshape(-1) / size, np.inf)
    sample = np.argsort(error, kind="stable")[:_SAMPLE]
    sample = sample[error[sample] < _TELLING]
    if sample.size <= ENOUGH:
        return
    known = list(_known_quantities(block, sample))
    known.insert(0, ("", np.ones((1, 1)), np.ones(sample.size)))
    table = np.array([target.reshape(-1)[sample], *(values for _, _, values in known)])
    with np.errstate(all="ignore"):  # of a target that is 0 nothing is near
        table = np.log(np.abs(table))
        goal, *logs = table - table.mean(axis=1, keepdims=True)
    room = 4 * SLACK * float(error[sample].max()) + 1e-12
    sign = -1.0 if is_product else 1.0
    left = goal - np.array(logs)[:, None] + sign * np.array(logs)[None, :]
    near = np.argwhere(np.abs(left).max(axis=2) <= room)
    for i, j in sorted(near.tolist(), key=lambda pair: (min(pair) > 0, sum(pair))):
        is_pair = i > 0 and j > 0
        if is_pair and (room > _SHARP or i == j or (is_product and i > j)):
            continue
        with np.errstate(all="ignore"):
            values = known[i][1] * known[j][1] if is_product else known[i][1] / known[j][1]
        values = np.broadcast_to(values, block.claimed.shape)
        if np.isfinite(values[block.wrong]).all() and values[block.wrong].all():
            yield _Expression(known[i][0], known[j][0], values)


def _known_quantities(block: InputBlock, sample: Indices) -> Iterator[tuple[str, Values, Values]]:
    """Text, values for the block, and values at a sample, of functions of inputs and outputs.

    Inputs and outputs stand along the columns where their shape fits the input, and along the rows
    where it fits the output.
    """
    seen: set[str] = set()
    for name, values in _arrays_beside(block):
        for text, function in _FUNCTIONS.items():
            with np.errstate(all="ignore"):
                found = function(values)
                picked = np.broadcast_to(found, block.claimed.shape).reshape(-1)[sample]
            is_number = bool(np.isfinite(picked).all() and picked.all())
            if is_number and np.unique(np.abs(picked)).size >= _DIFFERENT:
                key = f"{text}{name}{picked.tobytes()!r}"
                if key not in seen:
                    seen.add(key)
                    yield text.format(name), found, picked


def _arrays_beside(block: InputBlock) -> Iterator[tuple[str, Values]]:
    """Name and values, (1, k) or (r, 1), of arrays that have the shape of columns or of rows."""
    case = block.case
    arrays = [
        (slot, values[space.span(position)])
        for space, values in ((case.domain, case.point), (case.codomain, case.value))
        for position, slot in enumerate(space.slots)
        if len(slot.parts) == 1 and slot.entries is None and 0 not in slot.shape
    ]
    own = [each for each in arrays if each[0] is block.slot]
    arrays = own + [each for each in arrays if each[0] is not block.slot]
    sides = []
    if block.parts == 1 and block.slot.entries is None:
        sides.append((block.shape, block.places, (1, -1)))
    out = case.codomain.slots[0]
    if len(case.codomain.slots) == 1 and len(out.parts) == 1 and not case.sharpness:
        sides.append((out.shape, case.rows, (-1, 1)))
    for target, places, shape in sides:
        for slot, values in arrays:
            for fitting in _broadcast_shapes(slot.shape, target):
                full = np.broadcast_to(values.reshape(fitting), target).reshape(-1)
                yield slot.name, full[places].reshape(shape)


def _broadcast_shapes(shape: tuple[int, ...], target: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Ways to put the axes of one array along some axes of another, in order."""
    long = tuple(size for size in shape if size > 1)
    for axes in itertools.combinations(range(len(target)), len(long)):
        if long and long == tuple(target[axis] for axis in axes):
            yield tuple(size if axis in axes else 1 for axis, size in enumerate(target))
