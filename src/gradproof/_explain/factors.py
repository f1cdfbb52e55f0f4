"""Causes of single numbers: zeros, masks, factors, signs, conjugates, fewer digits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from gradproof._data.formats import FORMATS
from gradproof._data.records import Cause, digits_of_gap
from gradproof._data.results import count_of
from gradproof._data.space import Values
from gradproof._explain.case import ENOUGH, SLACK, InputBlock
from gradproof._explain.causes import named_cause

_NEAR_SIZE = 0.01  # that a factor and the size of a dimension may differ by, whatever is tolerated
_ULPS = 16.0  # roundings of a format that its numbers may be off by


def zero_entries(block: InputBlock) -> Cause | None:
    """Nothing arrives where something should. No number is fitted."""
    wrong = block.wrong
    zero = np.minimum(1e-3 * block.allowed, 2.0**-24 * np.abs(block.measured))
    if not (np.abs(block.claimed) <= zero)[wrong].all():
        return None
    evidence = f"{count_of(block.wrong_count)} claimed 0"
    is_stored = block.point[block.columns] != 0
    if "sparse" in block.slot.describe and not (wrong & is_stored).any():
        message = f"entries that {block.name} does not store have a derivative, and 0 is claimed"
        return named_cause("unspecified entries", message, evidence)
    seen = "" if block.whole else " that were compared"
    message = f"the wrong entries{seen} are claimed to be 0"
    if block.has_shape and block.whole and not block.claimed.any():
        message = f"nothing arrives at {block.name}"
    return named_cause("zero", message, evidence)


def missing_mask(block: InputBlock) -> Cause | None:
    """Something arrives where nothing should: at inputs, or from outputs, without a part in it.

    So is a backward without the mask, the clamp or the where() of its forward, or one that passes
    its gradient straight through round(). No number is fitted. A backward that leaks from one entry
    into another does so at entries of inputs that have a derivative, and is none.
    """
    wrong = block.wrong
    if block.is_live[wrong].any() or not block.whole:
        return None
    for axis, what in (
        (0, f"entries of {block.name} that have no effect"),
        (1, f"outputs on which {block.name} has no effect"),
    ):
        lines = wrong.any(axis=axis)
        if not (block.is_live.any(axis=axis) & lines).any():
            message = f"something arrives where nothing should: {what} there"
            weight = 1.0 if int(lines.sum()) >= ENOUGH else 0.8
            evidence = f"{count_of(block.wrong_count)} measured 0"
            return named_cause("missing mask", message, evidence, weight)
    return None


@dataclass(frozen=True)
class Ratio:
    """One number by which claimed entries are multiples of measured ones.

    Attributes:
        value: the ratio.
        bar: its error.
        count: entries that show it: others are zero within what is allowed.
    """

    value: float
    bar: float
    count: int

    def is_equal(self, number: float) -> bool:
        return abs(self.value - number) <= SLACK * self.bar * max(1.0, abs(number))


def common_ratio(claimed: Values, measured: Values, allowed: Values) -> Ratio | None:
    """The ratio of claimed to measured entries, where it is one number throughout; else None."""
    is_live = np.abs(measured) > 4 * allowed
    if not np.isfinite(claimed).all() or not is_live.any():
        return None
    weight = measured / np.maximum(allowed, 1e-300) ** 2
    weight = weight / np.abs(weight).max()
    value = float((weight * claimed).sum() / (weight * measured).sum())
    if not (np.abs(claimed - value * measured) <= SLACK * allowed * (1 + abs(value))).all():
        return None
    sharpest = float((np.abs(measured) / np.maximum(allowed, 1e-300)).max())
    return Ratio(value, 1 / sharpest, int(is_live.sum()))


def ratio_text(ratio: float, bar: float) -> str:
    """A ratio as people write it: a whole number, its inverse, or digits that tell it from 1."""
    for value, text in ((ratio, "{}"), (1 / ratio, "1/{}")):
        if round(value) and abs(value - round(value)) <= SLACK * bar * abs(value):
            return text.format(round(value))
    return f"{ratio:.{digits_of_gap(ratio, 1.0)}g}"


def common_factor(block: InputBlock) -> Cause | None:
    """The wrong entries are one multiple of the right ones.

    The number is fitted: it takes `ENOUGH` entries, or two where it is a number that has a reason,
    as 2 or the size of a dimension. The sign is not fitted: one entry shows it.
    """
    wrong = block.wrong
    ratio = common_ratio(block.claimed[wrong], block.measured[wrong], block.allowed[wrong])
    if ratio is None or ratio.is_equal(0.0) or ratio.is_equal(1.0):
        return None  # what is 1 within its error explains nothing
    evidence = f"ratio {ratio.value:.9g} +- {ratio.bar:.1g} over {count_of(ratio.count)}"
    if ratio.is_equal(-1.0):
        message = f"the sign{' of the wrong entries' if ratio.count > 1 else ''} is flipped"
        return named_cause("sign", message, evidence, 1.0 if ratio.count > 1 else 0.8)
    origin = _origins_of_factor(ratio, block)
    if ratio.count < (2 if origin else ENOUGH):
        return None
    message = f"multiplied by {ratio_text(ratio.value, ratio.bar)}{f': {origin}' if origin else ''}"
    return named_cause("factor", message, evidence, 1.0 if ratio.count >= ENOUGH else 0.8)


def _origins_of_factor(ratio: Ratio, block: InputBlock) -> str:
    """What a factor may come from: a term counted twice, or the size of a dimension."""
    numbers = {"counted twice": 2.0, "counted half, as without the 2 of a square": 0.5}
    for slot in (block.slot, *block.codomain.slots, *block.domain.slots):
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
    near = min(SLACK * ratio.bar / abs(ratio.value), _NEAR_SIZE)
    found = [text for text, number in numbers.items() if abs(ratio.value / number - 1) <= near]
    return " or ".join(found[:2])


def conjugated_parts(block: InputBlock) -> Cause | None:
    """Imaginary parts of the gradient, of the cotangent, or of both have the other sign.

    No number is fitted. Entries whose sign is kept, and that are not zero, tell it from a minus.
    """
    rows, columns = (np.where(at % 2, -1.0, 1.0) for at in (block.rows, block.places))
    signs = {}
    if block.parts == 2:
        signs["the gradient"] = np.broadcast_to(columns, block.claimed.shape)
    if all(len(slot.parts) == 2 for slot in block.codomain.slots):
        signs["the cotangent"] = np.broadcast_to(rows[:, None], block.claimed.shape)
    if len(signs) == 2:
        signs["the gradient and the cotangent"] = rows[:, None] * columns
    for what, sign in signs.items():
        change = partial(np.multiply, sign)
        is_kept = block.is_live & (sign > 0)
        if block.fits(change) and (block.whole or is_kept.sum() >= ENOUGH):
            verb = "are" if " and " in what else "is"
            message = f"{what} of {block.name} {verb} conjugated: a conj is missing, or too much"
            return named_cause("conjugate", message, block.full_fit_text)
    return None


def lower_precision(block: InputBlock) -> Cause | None:
    """Every claimed number is one of a coarser format, and off by no more than its rounding."""
    claimed, measured = block.claimed[block.wrong], block.measured[block.wrong]
    off = float(np.abs(claimed - measured).max() / max(float(np.abs(measured).max()), 1e-300))
    units = coarser_formats(block.claimed, block.slot.grain.unit)
    name = next((each for each, unit in units.items() if off <= _ULPS * unit), "")
    if not name:
        return None
    count = count_of(int((block.claimed != 0).sum()))
    bits = -round(math.log2(units[name]))
    evidence = f"all {count} claimed are numbers of {bits} bits; off by up to {off:.1g}"
    return named_cause("lower precision", f"the gradient went through {name}", evidence)


def coarser_formats(values: Values, unit: float) -> dict[str, float]:
    """Formats, with their unit round-off, that have all of the numbers, the coarsest first.

    Args:
        values: the numbers; ones and halves belong to every format, so several must differ.
        unit: of the format that they are in.
    """
    fraction = np.frexp(values[values != 0])[0]
    if np.unique(np.abs(fraction)).size < ENOUGH:
        return {}
    units = {name: FORMATS[name].unit for name in ("bfloat16", "float16", "float32")}
    return {
        name: each
        for name, each in units.items()
        if each > unit and (fraction / each == np.round(fraction / each)).all()
    }
