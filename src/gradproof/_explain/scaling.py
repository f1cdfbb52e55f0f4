"""Recognisers of what was done to single numbers: factors, signs, conjugates, fewer bits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from gradproof._data.space import FORMATS, Values
from gradproof._explain.case import (
    ENOUGH,
    NOTHING,
    SLACK,
    Block,
    Case,
    Match,
    common_ratio,
    told_ratio,
    weight,
)
from gradproof._explain.sums import masked
from gradproof._judge.claim_error import HONEST
from gradproof._judge.found import count
from gradproof._measure.sizes import ALIKE, LISTED, SMALL

# Formats by the bits of their significands.
_COARSE = ("bfloat16", "float16", "float32")
BITS = [(name, -round(math.log2(FORMATS[name].unit))) for name in _COARSE]
_CONSTANTS = {
    "pi": math.pi,
    "ln 2, as between logarithms of base 2 and e": math.log(2),
    "ln 10, as between logarithms of base 10 and e": math.log(10),
}


def zero(block: Block) -> Match | None:
    """Nothing arrives where something should."""
    claimed = block.claimed[block.wrong]
    if not (np.abs(claimed) <= 1e-3 * block.allowed[block.wrong]).all():
        return None
    whole = bool((block.claimed == 0).all())
    text = f"nothing arrives at {block.name}" if whole else "the wrong entries are claimed to be 0"
    return Match("zero", text, f"{count(claimed.size)} claimed 0", turn=masked(~block.wrong))


def factor(block: Block) -> Match | None:
    """The wrong entries are a common multiple of the right ones."""
    claimed, measured, allowed, _ = (part[block.wrong] for part in block.numbers)
    found = common_ratio(claimed, measured, allowed, block.case.unit)
    if found is None or found[0] == 0:
        return None
    ratio, bar = found
    if abs(ratio - 1) <= SLACK * bar:
        return None  # what is 1 within its error explains nothing
    sure, told = weight(claimed.size), f"ratio {ratio:.9g} +- {bar:.1g} over {count(claimed.size)}"
    turn = partial(np.multiply, np.where(block.wrong, ratio, 1.0))
    if abs(ratio + 1) <= SLACK * bar:
        text = f"the {'sign of the wrong entries' if claimed.size > 1 else 'sign'} is flipped"
        return Match("sign", text, told, max(sure, weight(2)), turn)
    name = called(ratio, bar, block)
    if claimed.size == 1 and not (name or near_one(ratio)):
        return None  # of one entry everything is a multiple
    text = f"multiplied by {_short(ratio, bar)}" + (f": {name}" if name else "")
    return Match("factor", text, told, sure, turn)


def straight_through(block: Block) -> Match | None:
    """The identity, or some of its columns, is claimed where the function stands still.

    Where it moves, as tanh does, a forgotten factor looks the same, and nothing is said.
    """
    size = block.claimed.shape[1]
    if not block.case.outputs or block.claimed.shape[0] != size or block.parts != 1:
        return None
    kept = block.claimed.any(axis=0)
    still = np.abs(block.measured) <= block.allowed
    if not (block.claimed == np.eye(size) * kept).all() or not still[block.wrong].all():
        return None
    number = int(block.wrong.sum())
    text = f"the cotangent passes to {block.name} straight through: the identity is claimed"
    return Match("straight through", text, f"{count(number)} claimed 1", weight(number))


def inexact(case: Case) -> Match | None:
    """All gaps are alike small, beside their entries or beside the largest: an iteration stopped.

    Half the digits that a number shows are right by no accident. PyTorch's gradcheck takes so much
    for equal by default.
    """
    gap, size = (np.abs(v[case.wrong]) for v in (case.claimed - case.measured, case.measured))
    largest = float(np.abs(case.measured).max())
    if gap.size < ENOUGH or not np.isfinite(gap).all() or not largest:
        return None
    worst, of = float(np.max(gap / np.maximum(size, 1e-300))), "its entry"
    told = f" rtol={10.0 ** math.ceil(math.log10(2 * worst)):.0e} accepts that"
    # What PyTorch's gradcheck lets pass may be meant so.
    if worst > SMALL:
        worst, of, told = float(gap.max()) / largest, "the largest entry", ""
    if worst > SMALL:
        return None
    text = f"every gap is below {_above(worst):.0e} of {of}: an iteration stopped early?{told}"
    return Match("inexact", text, count(gap.size), 0.3)


def _above(number: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    unit = 10.0 ** math.floor(math.log10(number))
    return next(unit * step for step in (1, 2, 5, 10) if number <= unit * step)


def near_one(ratio: float) -> bool:
    """Whether a single entry's ratio looks like a factor and not like another number."""
    return abs(ratio - 1) <= ALIKE or abs(abs(ratio) - 2) <= NOTHING or abs(ratio) == 0.5


def _short(ratio: float, bar: float) -> str:
    for whole in (ratio, 1 / ratio):
        if abs(whole - round(whole)) <= SLACK * bar * abs(whole) and round(whole):
            return f"{round(whole)}" if whole is ratio else f"1/{round(whole)}"
    return told_ratio(ratio, bar)


def called(ratio: float, bar: float, block: Block) -> str:
    """What a factor may come from: a constant, the size of a dimension, its root; all that fit."""
    found: dict[str, list[str]] = {}
    for told, number, where in _origins(block):
        if abs(ratio / number - 1) <= SLACK * bar:
            found.setdefault(told, []).append(where)
    names = [told + (f", N = {places[0]}" if places[0] else "") for told, places in found.items()]
    return " or ".join(names[:LISTED])


def _origins(block: Block) -> Iterator[tuple[str, float, str]]:
    """Words for a factor, the number, and the dimension that it is made of."""
    yield "counted twice", 2.0, ""
    yield "counted half: the 2 of a square, or one of two equal terms", 0.5, ""
    for size, what in _sizes(block):
        where = f"{size} being {what}"
        yield "1/N, a mean where a sum belongs", 1 / size, where
        yield "N, a sum where a mean belongs", size, where
        yield "1/sqrt(N)", size**-0.5, where
        yield "sqrt(N)", size**0.5, where
        yield "(N - 1)/N", (size - 1) / size, where
        yield "N/(N - 1)", size / (size - 1), where
    for told, number in _CONSTANTS.items():
        yield told, number, ""
        yield told, 1 / number, ""


def _sizes(block: Block) -> Iterator[tuple[int, str]]:
    """Sizes of dimensions and of whole arrays, the batch first."""
    slots = ((block.name, block.shape), *((s.name, s.shape) for s in block.case.codomain.slots))
    for name, shape in slots:
        for axis, size in enumerate(shape):
            if size > 1:
                yield size, f"dimension {axis} of {name}"
    for name, shape in slots:
        if math.prod(shape) > 1:
            yield math.prod(shape), f"the entries of {name}"


def not_a_number(block: Block) -> Match | None:
    """NaN or infinity where there is a derivative."""
    bad = ~np.isfinite(block.claimed)
    if not bad.any() or not (bad == block.wrong).all():
        return None
    text = f"the gradient of {block.name} is not a number"
    return Match("not a number", text, f"{count(int(bad.sum()))}, finite where measured")


def absolute(block: Block) -> Match | None:
    """The modulus of the gradient."""

    def modulus(values: Values) -> Values:
        shaped = block.shaped(np.abs(values))
        if block.parts == 1:
            return np.asarray(shaped)
        size = np.hypot(shaped[..., 0], shaped[..., 1])
        return np.stack([size, np.zeros_like(size)], axis=-1)

    if not block.fits(lambda values: modulus(values).reshape(values.shape)):
        return None
    number = int(block.wrong.sum())
    kept = (block.measured > SLACK * block.allowed) & ~block.wrong
    if block.parts == 1 and (number < ENOUGH or int(kept.sum()) < ENOUGH):
        return None  # no more than a sign
    return Match("absolute value", "the absolute value is taken", f"{count(number)} lost a sign")


def added(block: Block) -> Match | None:
    """One number is added to every entry, or one to every entry of a row."""
    gap = block.claimed - block.measured
    if gap.shape[1] < ENOUGH or not np.isfinite(gap).all():
        return None
    weights = np.maximum(block.allowed, 1e-300) ** -2
    level = (gap * weights).sum(axis=1, keepdims=True) / weights.sum(axis=1, keepdims=True)
    if not (np.abs(gap - level) <= SLACK * block.allowed).all():
        return None
    one = bool(
        (np.abs(level - np.median(level)) <= SLACK * block.allowed.max(axis=1, keepdims=True)).all()
    )
    # A function blind to a common shift has rows that sum to 0: a mean was not taken off.
    sums = np.abs(block.measured.sum(axis=1)) <= SLACK * np.linalg.norm(block.allowed, axis=1)
    if sums.all():
        return None
    what = f"{float(np.median(level)):.3g}" if one else "one number for each output"
    text, told = f"{what} is added to every entry", f"the same gap in {gap.size} entries"
    return Match("offset", text, told, turn=lambda values: values + level)


def bits(block: Block) -> Match | None:
    """Every claimed number is one of a coarser format, and off by no more than its rounding."""
    claimed, measured = (v[block.wrong] for v in (block.claimed, block.measured))
    if not np.isfinite(claimed).all():
        return None
    part = float(np.abs(claimed - measured).max() / max(float(np.abs(measured).max()), 1e-300))
    found = [one for one in formats_of(block.claimed) if part <= HONEST * 2.0 ** -one[1]]
    if not found:
        return None
    # Numbers of 8 bits are numbers of 24, too: it is the format whose rounding is as large.
    name, digits = min(found, key=lambda one: abs(math.log2(part or 1.0) + one[1]))
    number = int((block.claimed != 0).sum())
    evidence = f"all {count(number)} claimed are numbers of {digits} bits; off by up to {part:.1g}"
    return Match(f"{name} inside", f"the gradient went through {name}", evidence)


def formats_of(values: Values) -> list[tuple[str, int]]:
    """The formats to which all of the numbers belong, with their bits, the coarsest first."""
    every = values[values != 0]
    if every.size < ENOUGH or not np.isfinite(every).all():
        return []
    fraction, _ = np.frexp(every)
    if np.unique(np.abs(fraction)).size < ENOUGH:
        return []  # ones and halves belong to every format
    scaled = [(one, np.ldexp(fraction, one[1])) for one in BITS]
    return [one for one, whole in scaled if (whole == np.round(whole)).all()]


def of_parts(block: Block) -> Iterator[Match]:
    """Imaginary parts of the gradient, or of the cotangent, change sign, or one part is lost."""
    rows = block.case.outputs and all(len(s.parts) == 2 for s in block.case.codomain.slots)
    imaginary = {
        what: np.expand_dims(np.arange(block.claimed.shape[axis]) % 2, 1 - axis)
        for what, axis, there in (("cotangent", 0, rows), ("gradient", 1, block.parts == 2))
        if there
    }
    ends = [*imaginary]
    for chosen in (*([end] for end in reversed(ends)), *([ends] if len(ends) == 2 else [])):
        signs = math.prod(1 - 2 * imaginary[end] for end in chosen)
        told = f"{' and '.join(f'the {end}' for end in chosen)} of {block.name} is conjugated"
        text = f"{told}: a conj is missing, or too much"
        yield Match("conjugate", text, block.all_fit, turn=partial(np.multiply, signs))
    for kept, name in enumerate(("real", "imaginary")):
        for end in reversed(ends):
            text = f"only the {name} part of the {end} of {block.name} is kept"
            turn = masked(imaginary[end] == kept)
            yield Match(f"{name} part only", text, block.all_fit, turn=turn)


def phase(block: Block) -> Match | None:
    """The gradient is multiplied by one complex number."""
    if block.parts != 2:
        return None
    claimed, measured = (v[:, ::2] + 1j * v[:, 1::2] for v in (block.claimed, block.measured))
    allowed = np.maximum(block.allowed[:, ::2], block.allowed[:, 1::2])
    below = float((np.abs(measured) ** 2).sum())
    if not below or not np.isfinite(claimed).all():
        return None
    factor = complex((np.conj(measured) * claimed).sum() / below)
    fits = np.abs(claimed - factor * measured) <= 2 * SLACK * allowed * (1 + abs(factor))
    if not fits.all() or abs(factor.imag) <= 1e-9 * abs(factor):
        return None
    text = f"the gradient of {block.name} is multiplied by {factor:.6g}"
    return Match("phase", text, f"one ratio for all {claimed.size:,} complex entries")
