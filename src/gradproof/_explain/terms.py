"""Recognisers of formulas: a missing term, a missing factor, another function's derivative."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from gradproof._data.space import Mask, Values
from gradproof._explain.case import ENOUGH, SLACK, Block, Match, Matrix, common_ratio
from gradproof._explain.sums import subsets
from gradproof._judge.found import count

_LARGEST = math.floor(math.log(np.finfo(float).max))  # whose exponential is a number

Formula = Callable[[Values], Values]


def _sigmoid(x: Values) -> Values:
    return np.asarray(1 / (1 + np.exp(-x)))


def _phi(x: Values) -> Values:
    return np.asarray(np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi))


# Derivatives of functions that are taken for each other, in their argument.
_FAMILY: dict[str, Formula] = {
    "tanh": lambda x: 1 - np.tanh(x) ** 2,
    "sigmoid": lambda x: _sigmoid(x) * (1 - _sigmoid(x)),
    "sin": np.cos,
    "cos": lambda x: -np.sin(x),
    "-sin": lambda x: -np.cos(x),
    "exp": np.exp,
    "sinh": np.cosh,
    "cosh": np.sinh,
    "tan": lambda x: 1 + np.tan(x) ** 2,
    "log": lambda x: 1 / x,
    "log1p": lambda x: 1 / (1 + x),
    "log2": lambda x: 1 / (x * np.log(2)),
    "log10": lambda x: 1 / (x * np.log(10)),
    "reciprocal": lambda x: -1 / x**2,
    "sqrt": lambda x: 0.5 / np.sqrt(x),
    "rsqrt": lambda x: -0.5 * x**-1.5,
    "square": lambda x: 2 * x,
    "cube": lambda x: 3 * x**2,
    "relu": lambda x: (x > 0).astype(float),
    "softplus": _sigmoid,
    "silu": lambda x: _sigmoid(x) * (1 + x * (1 - _sigmoid(x))),
    "logsigmoid": lambda x: 1 - _sigmoid(x),
    "softsign": lambda x: 1 / (1 + np.abs(x)) ** 2,
    "atan": lambda x: 1 / (1 + x**2),
    "asin": lambda x: (1 - x**2) ** -0.5,
    "acos": lambda x: -((1 - x**2) ** -0.5),
    "asinh": lambda x: (1 + x**2) ** -0.5,
    "atanh": lambda x: 1 / (1 - x**2),
    "erf": lambda x: 2 / np.sqrt(np.pi) * np.exp(-(x**2)),
    "normal density": lambda x: -x * _phi(x),
    "normal distribution": _phi,
    "elu": lambda x: np.where(x > 0, 1.0, np.exp(x)),
}


# The same as formulas in the output.
_IN_OUTPUT: dict[str, Formula] = {
    "tanh": lambda y: 1 - y**2,
    "sigmoid": lambda y: y * (1 - y),
    "exp": lambda y: y,
    "sqrt": lambda y: 0.5 / y,
    "tan": lambda y: 1 + y**2,
    "reciprocal": lambda y: -(y**2),
}


def elementwise(block: Block) -> Matrix | None:
    """The diagonals of a Jacobian that is one; None of any other."""
    case = block.case
    if not case.outputs or len(case.codomain.slots) != 1 or block.parts != 1:
        return None
    size = block.claimed.shape[1]
    if block.claimed.shape[0] != size or size < ENOUGH:
        return None
    off = ~np.eye(size, dtype=bool)
    for values in (block.claimed, block.measured):
        if not (np.abs(values[off]) <= block.allowed[off]).all():
            return None
    return Matrix(*map(np.diagonal, block.numbers))


def other_function(block: Block) -> Match | None:
    """The derivative of another function, or of this one at the wrong argument."""
    found = elementwise(block)
    if found is None or int(found.wrong.sum()) < ENOUGH or np.unique(found.claimed).size < 3:
        return None
    claimed, allowed, x, y = found.claimed, found.allowed, block.x, block.case.value
    evidence = f"{count(claimed.size)} fit"
    own = _known(found.measured, allowed, x)
    if own and _is(_FAMILY[own], claimed, allowed, y):
        text = f"the derivative of {own} is taken at the output, not at {block.name}"
        return Match("wrong argument", text, evidence)
    if own in _IN_OUTPUT and _is(_IN_OUTPUT[own], claimed, allowed, x):
        text = f"the derivative of {own}, a formula in its output, is taken at {block.name}"
        return Match("wrong argument", text, evidence)
    if own in _IN_OUTPUT and (np.abs(claimed - y) <= SLACK * allowed).all():
        return None  # the formula in the output without its factors: another's by accident
    if not own and len(block.case.domain.slots) > 1:
        return None  # beside other inputs a forgotten factor leaves a known derivative, too
    for sign, of in ((1, ""), (-1, "minus ")):
        other = _known(sign * claimed, allowed, x)
        if other and other != own:
            measured_is = f"; measured is that of {own}" if own else ""
            text = f"the derivative is {of}that of {other}{measured_is}"
            # Beside a function that is none of the known ones the name says less of what was
            # done than a term or a factor that is missing.
            return Match("another function", text, evidence, 1 if own else 0.8)
    return None


def _known(derivative: Values, allowed: Values, x: Values) -> str:
    """The function of the family whose derivative this is; "" where there is none."""
    found = (name for name, formula in _FAMILY.items() if _is(formula, derivative, allowed, x))
    return next(found, "")


def _is(formula: Formula, derivative: Values, allowed: Values, x: Values) -> bool:
    with np.errstate(all="ignore"):
        found = formula(x)
        near = np.abs(derivative - found) <= SLACK * allowed + 1e-9 * np.abs(found)
    return bool(near.all())


def missing_factor(block: Block) -> Match | None:
    """The claim is off by a factor that is the input, or the output, or their inverse."""
    claimed, measured, allowed = block.claimed, block.measured, block.allowed
    if int(block.wrong.sum()) < ENOUGH:
        return None
    for what, values in _values_of(block):
        if np.unique(np.abs(values)).size < 3 or not (values != 0).all():
            continue
        for way, word in ((1, "a factor equal to {} is missing"), (-1, "multiplied by {}")):
            scale = np.broadcast_to(values**way, claimed.shape)
            ratio = common_ratio(
                (claimed * scale)[block.wrong],
                measured[block.wrong],
                (allowed * np.maximum(np.abs(scale), 1))[block.wrong],
            )
            if ratio is None:
                continue
            times = "" if abs(ratio[0] - 1) < 1e-5 else f", up to {ratio[0]:.6g}"
            text = f"{word.format(what)}{times}"
            return Match("missing factor", text, f"{count(int(block.wrong.sum()))} fit")
    return None


def _values_of(block: Block) -> Iterator[tuple[str, Values]]:
    """Values of the inputs along the columns, and of the outputs along the rows."""
    if block.parts == 1:
        yield block.name, block.x[None, :]
        for position, slot in enumerate(block.case.domain.slots):
            if position == block.slot or len(slot.parts) != 1 or slot.entries is not None:
                continue
            values = block.case.point[block.case.domain.span(position)]
            long = tuple(size for size in slot.shape if size > 1)
            for axes in subsets(block.shape):
                if long == tuple(block.shape[axis] for axis in axes):
                    kept = [n if axis in axes else 1 for axis, n in enumerate(block.shape)]
                    spread = np.broadcast_to(values.reshape(kept), block.shape)
                    yield slot.name, spread.reshape(1, -1)
    if block.case.outputs and all(len(s.parts) == 1 for s in block.case.codomain.slots):
        yield "the output", block.case.value[:, None]


def missing_term(block: Block) -> Match | None:
    """The claim is off by a multiple of the input, of the output, or of 1 along some axes.

    So is a softmax without y (v.y), a normalisation without its projection, a centring without
    its mean: one coefficient for each output and each slice explains all entries of the slice.
    A term is missing where the function depends on its input: of a slice on which it does not
    depend more is wrong than a term, as where a mean is taken over too many axes.
    """
    gap = block.claimed - block.measured
    if block.parts != 1 or not np.isfinite(gap).all() or not block.shape:
        return None
    for what, pattern, centred in _patterns(block):
        for axes in subsets(block.shape):
            along = tuple(axis + 1 for axis in axes)
            shaped = gap.reshape(-1, *block.shape)
            grid = pattern.reshape(1, *block.shape)
            if centred:
                grid = grid - grid.mean(axis=along, keepdims=True)
            below = (grid * grid).sum(axis=along, keepdims=True)
            length = int(np.prod([block.shape[a] for a in axes]))
            if length < 3 or not (below > 0).all():
                continue
            part = (shaped * grid).sum(axis=along, keepdims=True) / below
            # The coefficient is fitted to entries that are each off by what is allowed.
            bars = np.abs(block.allowed.reshape(shaped.shape))
            bar = (bars * np.abs(grid)).sum(axis=along, keepdims=True) / below
            rest = np.abs(shaped - part * grid)
            sure = np.abs(part) > SLACK * bar  # a coefficient within its error of 0 is none
            live = np.abs(block.measured.reshape(shaped.shape)) > SLACK * bars
            if (sure & ~live.any(axis=along, keepdims=True)).any():
                continue
            if (rest <= SLACK * (bars + bar * np.abs(grid))).all() and _told(sure, length):
                text = f"a term proportional to {what} along axis {', '.join(map(str, axes))}"
                evidence = f"{part.size:,} coefficients explain {gap.size:,} entries"
                return Match("missing term", f"{text} is missing, or too much", evidence)
    return None


def _told(sure: Mask, length: int) -> bool:
    """Whether enough entries are explained by few enough coefficients."""
    return int(sure.sum()) * (length - 1) >= ENOUGH


def _patterns(block: Block) -> Iterator[tuple[str, Values, bool]]:
    """What a term may be proportional to, its values, and whether their mean is taken off."""
    case = block.case
    if block.x.size and np.unique(block.x).size > 1:
        yield block.name, block.x, False
        yield f"the centred {block.name}, as a normalisation makes it,", block.x, True
    for position, slot in enumerate(case.codomain.slots):
        if slot.shape == block.shape and len(slot.parts) == 1:
            values = case.value[case.codomain.span(position)]
            if np.unique(values).size > 1:
                yield slot.name, values, False
                yield f"exp({slot.name})", np.exp(np.minimum(values, _LARGEST)), False
    yield "1, as a mean", np.ones_like(block.x), False


def own_entry_only(block: Block) -> Match | None:
    """Each output depends on many entries, and is claimed to depend on its own alone."""
    size = block.claimed.shape[1]
    if not block.case.outputs or block.claimed.shape[0] != size or block.parts != 1:
        return None
    own, number = np.eye(size, dtype=bool), int(block.wrong.sum())
    if block.claimed[~own].any() or not block.claimed[own].all() or block.wrong[own].any():
        return None
    if number < max(size, ENOUGH):
        return None
    text = f"what goes through other entries of {block.name} is missing: a sum was left out"
    return Match("missing term", text, f"{count(number)} off the diagonal claimed 0")
