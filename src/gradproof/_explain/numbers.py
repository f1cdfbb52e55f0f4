"""Causes that change single numbers: factors, signs, conjugates, fewer bits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from gradproof._data.formats import FORMATS
from gradproof._data.results import count_of
from gradproof._data.space import Values
from gradproof._explain.case import (
    ENOUGH,
    NOTHING,
    SLACK,
    Block,
    Case,
    Match,
    Ratio,
    common_ratio,
    ratio_text,
)

CLOSE = 1e-3  # of an entry: gaps of an iteration that stopped, which half the digits survive
_SEVERAL = 2  # entries that are alike by no accident, where no number is fitted
_ULPS = 16.0  # roundings of a format that its numbers may be off by


def not_a_number(block: Block) -> Match | None:
    """NaN or infinity is claimed where a derivative was measured."""
    bad = ~np.isfinite(block.claimed) & block.wrong
    if not bad.any():
        return None
    text = f"the derivative with respect to {block.name} is not a number"
    return Match("not a number", text, f"{count_of(int(bad.sum()))}, finite where measured")


def zero(block: Block) -> Match | None:
    """Nothing arrives where something should. No number is fitted."""
    wrong = block.wrong
    if not (np.abs(block.claimed[wrong]) <= 1e-3 * block.allowed[wrong]).all():
        return None
    whole = block.has_shape and not block.claimed.any()
    text = f"nothing arrives at {block.name}" if whole else "the wrong entries are claimed to be 0"
    evidence = f"{count_of(block.wrong_count)} claimed 0"
    return Match("zero", text, evidence, change=lambda values: np.where(wrong, 0.0, values))


def factor(block: Block) -> Match | None:
    """The wrong entries are one multiple of the right ones.

    The number is fitted: it takes `ENOUGH` entries, or two where it is a number that has a reason,
    as 2 or the size of a dimension. The sign is not fitted: one entry shows it.
    """
    wrong = block.wrong
    ratio = common_ratio(
        block.claimed[wrong], block.measured[wrong], block.allowed[wrong], block.case.sharpness
    )
    if ratio is None or ratio.is_equal(0.0) or ratio.is_equal(1.0):
        return None  # what is 1 within its error explains nothing
    change = partial(np.multiply, np.where(wrong, ratio.value, 1.0))
    evidence = f"ratio {ratio.value:.9g} +- {ratio.bar:.1g} over {count_of(ratio.count)}"
    if ratio.is_equal(-1.0):
        text = f"the sign{' of the wrong entries' if ratio.count > 1 else ''} is flipped"
        return Match("sign", text, evidence, 1.0 if ratio.count > 1 else 0.8, change)
    origin = _origins_of(ratio, block)
    if ratio.count < (2 if origin else ENOUGH):
        return None
    text = f"multiplied by {ratio_text(ratio.value, ratio.bar)}{f': {origin}' if origin else ''}"
    return Match("factor", text, evidence, 1.0 if ratio.count >= ENOUGH else 0.8, change)


def _origins_of(ratio: Ratio, block: Block) -> str:
    """What a factor may come from: a term counted twice, or the size of a dimension."""
    numbers = {"counted twice": 2.0, "counted half, as without the 2 of a square": 0.5}
    for slot in (block.slot, *block.case.codomain.slots, *block.case.domain.slots):
        sizes = [(size, f"dimension {axis} of {slot.name}") for axis, size in enumerate(slot.shape)]
        for size, what in (*sizes, (math.prod(slot.shape), f"the entries of {slot.name}")):
            for text, number in (
                ("1/N, a mean where a sum belongs", 1 / max(size, 1)),
                ("N, a sum where a mean belongs", size),
                ("1/sqrt(N)", max(size, 1) ** -0.5),
                ("sqrt(N)", size**0.5),
            ):
                if size > 1:
                    numbers.setdefault(f"{text}, N = {size} being {what}", number)
    near = SLACK * ratio.bar / abs(ratio.value)
    found = [text for text, number in numbers.items() if abs(ratio.value / number - 1) <= near]
    return " or ".join(found[:2])


def conjugate(block: Block) -> Iterator[Match]:
    """Imaginary parts of the gradient, of the cotangent, or of both have the other sign."""
    if not block.has_shape:
        return
    rows, columns = (np.arange(count) % 2 for count in block.claimed.shape)
    imaginary = {}
    if block.parts == 2:
        imaginary["the gradient"] = columns[None, :]
    if block.case.whole and all(len(slot.parts) == 2 for slot in block.case.codomain.slots):
        imaginary["the cotangent"] = rows[:, None]
    both = [imaginary] if len(imaginary) == 2 else []
    for chosen in (*({end: where} for end, where in imaginary.items()), *both):
        signs = math.prod(1 - 2 * where for where in chosen.values())
        verb = "are" if len(chosen) == 2 else "is"
        text = f"{' and '.join(chosen)} of {block.name} {verb} conjugated"
        text += ": a conj is missing, or too much"
        yield Match("conjugate", text, block.all_fit, change=partial(np.multiply, signs))


def neighbour(block: Block) -> Match | None:
    """Every entry receives one part of its neighbour's derivative."""
    if not block.has_shape or block.places.size // block.parts < 3:
        return None
    gap, index = block.claimed - block.measured, np.arange(block.places.size // block.parts)
    for shift in (-1, 1):
        beside = block.reordered(np.roll(index, shift))
        bars = np.maximum(block.allowed, beside(block.allowed))
        ratio = common_ratio(gap, beside(block.measured), bars)
        if ratio is not None and ratio.count >= ENOUGH and abs(ratio.value) > NOTHING:
            text = f"every entry of {block.name} receives {ratio.value:.4g} times its neighbour's"
            return Match("neighbour leaks in", text, block.all_fit)
    return None


def lower_precision(block: Block) -> Match | None:
    """Every claimed number is one of a coarser format, and off by no more than its rounding."""
    claimed, measured = block.claimed[block.wrong], block.measured[block.wrong]
    part = float(np.abs(claimed - measured).max() / max(float(np.abs(measured).max()), 1e-300))
    own = block.slot.grain.unit
    found = [
        (name, unit)
        for name, unit in _formats_of(block.claimed)
        if unit > own and part <= _ULPS * unit
    ]
    if not found:
        return None
    # Numbers of 8 bits are numbers of 24, too: it is the format whose rounding is as large.
    name, unit = min(found, key=lambda each: abs(math.log2((part or 1.0) / each[1])))
    count = count_of(int((block.claimed != 0).sum()))
    bits = -round(math.log2(unit))
    evidence = f"all {count} claimed are numbers of {bits} bits; off by up to {part:.1g}"
    return Match("lower precision", f"the gradient went through {name}", evidence)


def _formats_of(values: Values) -> list[tuple[str, float]]:
    """Coarser formats to which all of the numbers belong, with their unit round-offs."""
    fraction = np.frexp(values[values != 0])[0]
    if np.unique(np.abs(fraction)).size < ENOUGH:
        return []  # ones and halves belong to every format
    found = []
    for name in ("bfloat16", "float16", "float32"):
        scaled = fraction / FORMATS[name].unit
        if (scaled == np.round(scaled)).all():
            found.append((name, FORMATS[name].unit))
    return found


def inexact(case: Case) -> Match | None:
    """All gaps are alike small beside their entries, or beside the largest one.

    Half the digits of several numbers are right by no accident. No number is fitted.
    """
    gap, size = (np.abs(v[case.wrong]) for v in (case.claimed - case.measured, case.measured))
    largest = float(np.abs(case.measured).max())
    if gap.size < _SEVERAL or not largest:
        return None
    worst, of = float(np.max(gap / np.maximum(size, 1e-300))), "its entry"
    if worst > CLOSE:
        worst, of = float(gap.max()) / largest, "the largest entry"
    if worst > CLOSE:
        return None
    return Match("inexact", tolerance_text(worst, of), count_of(gap.size), 0.3)


def tolerance_text(part: float, of: str) -> str:
    """That every gap is this small, and the tolerance that accepts it.

    Args:
        part: the largest gap, as a part.
        of: of what it is a part, "its entry".
    """
    unit = 10.0 ** math.floor(math.log10(max(part, 1e-300)))
    bound = next(unit * step for step in (1, 2, 5, 10) if part <= unit * step)
    accepted = f"; rtol={10.0 ** math.ceil(math.log10(2 * part)):.0e} accepts that"
    text = f"every gap is below {bound:.0e} of {of}, as of an iteration that stopped"
    return text + (accepted if of == "its entry" else "")


def straight_through(block: Block) -> Match | None:
    """The identity is claimed where the function stands still.

    Where it moves, as tanh does, a forgotten factor looks the same, and nothing is said.
    """
    if not block.is_square:
        return None
    kept = block.claimed.any(axis=0)
    still = np.abs(block.measured) <= block.allowed
    if not (block.claimed == np.eye(kept.size) * kept).all() or not still[block.wrong].all():
        return None
    text = f"the cotangent passes to {block.name} straight through: the identity is claimed"
    weight = 1.0 if block.wrong_count >= ENOUGH else 0.8
    return Match("straight through", text, f"{count_of(block.wrong_count)} claimed 1", weight)
