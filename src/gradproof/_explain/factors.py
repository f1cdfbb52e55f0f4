"""Causes of single numbers: zeros, factors, signs, conjugates, fewer digits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from gradproof._data.formats import FORMATS
from gradproof._data.results import count_of
from gradproof._data.space import Values
from gradproof._explain.case import ENOUGH, SLACK, InputBlock, Match, WrongJacobian

CLOSE = 1e-3  # of an entry: gaps of an iteration that stopped, which half the digits survive
_SEVERAL = 2  # entries that are alike by no accident, where no number is fitted
_ULPS = 16.0  # roundings of a format that its numbers may be off by
_DIFFERENT = 3  # values, at least, of what a factor may be
_LARGEST_FACTOR = 100.0  # and 1/100: by more, something else is wrong


def zero_entries(block: InputBlock) -> Match | None:
    """Nothing arrives where something should. No number is fitted."""
    wrong = block.wrong
    if not (np.abs(block.claimed[wrong]) <= 1e-3 * block.allowed[wrong]).all():
        return None
    is_whole = block.has_shape and not block.claimed.any()
    message = f"nothing arrives at {block.name}"
    evidence = f"{count_of(block.wrong_count)} claimed 0"
    return Match(
        "zero",
        message if is_whole else "the wrong entries are claimed to be 0",
        evidence,
        change=lambda values: np.where(wrong, 0.0, values),
    )


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


def common_ratio(
    claimed: Values, measured: Values, allowed: Values, sharpness: float = 0.0
) -> Ratio | None:
    """The ratio of claimed to measured entries, where it is one number throughout; else None.

    Args:
        claimed, measured, allowed: of the entries.
        sharpness: as of a `WrongJacobian`.
    """
    is_live = np.abs(measured) > 4 * allowed
    if not np.isfinite(claimed).all() or not is_live.any():
        return None
    weight = measured / np.maximum(allowed, 1e-300) ** 2
    weight = weight / np.abs(weight).max()
    value = float((weight * claimed).sum() / (weight * measured).sum())
    if not (np.abs(claimed - value * measured) <= SLACK * allowed * (1 + abs(value))).all():
        return None
    sharp = np.abs(measured) / np.maximum(allowed, 1e-300)
    bar = max(sharpness, 1 / float(np.linalg.norm(sharp))) if sharpness else 1 / float(sharp.max())
    return Ratio(value, bar, int(is_live.sum()))


def ratio_text(ratio: float, bar: float) -> str:
    """A ratio as people write it: a whole number, its inverse, or the digits that are known."""
    for value, text in ((ratio, "{}"), (1 / ratio, "1/{}")):
        if round(value) and abs(value - round(value)) <= SLACK * bar * abs(value):
            return text.format(round(value))
    # As many digits as are known, and as show that it is not 1.
    known, off = -math.log10(max(bar, 1e-6)), abs(ratio - 1)
    needed = 1 - math.floor(math.log10(off)) if 0 < off < 1 else 1
    return f"{ratio:.{max(2, int(known), min(needed, 15))}g}"


def common_factor(block: InputBlock) -> Match | None:
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
        message = f"the sign{' of the wrong entries' if ratio.count > 1 else ''} is flipped"
        return Match("sign", message, evidence, 1.0 if ratio.count > 1 else 0.8, change)
    origin = _origins_of_factor(ratio, block)
    if ratio.count < (2 if origin else ENOUGH):
        return None
    message = f"multiplied by {ratio_text(ratio.value, ratio.bar)}{f': {origin}' if origin else ''}"
    return Match("factor", message, evidence, 1.0 if ratio.count >= ENOUGH else 0.8, change)


def _origins_of_factor(ratio: Ratio, block: InputBlock) -> str:
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


def missing_factor(block: InputBlock) -> Match | None:
    """The claim is off by a factor that is the input, another one, the output, or its inverse.

    Up to one number, which is fitted: it takes more than `ENOUGH` entries.
    """
    wrong = block.wrong
    if block.wrong_count <= ENOUGH:
        return None
    for what, values in _possible_factors(block):
        if np.unique(np.abs(values)).size < _DIFFERENT or not values.all():
            continue
        for power, text in (
            (1, f"a factor equal to {what} is missing"),
            (-1, f"multiplied by {what}"),
        ):
            scale = np.broadcast_to(values**power, block.claimed.shape)
            ratio = common_ratio(
                (block.claimed * scale)[wrong],
                block.measured[wrong],
                (block.allowed * np.maximum(np.abs(scale), 1))[wrong],
            )
            spread = np.unique(np.abs(scale[wrong])).size
            if ratio is None or ratio.count <= ENOUGH or spread < _DIFFERENT:
                continue
            if not 1 / _LARGEST_FACTOR <= abs(ratio.value) <= _LARGEST_FACTOR:
                continue
            up_to = "" if ratio.is_equal(1.0) else f", up to {ratio.value:.6g}"
            message = f"{text.format(what)}{up_to}"
            change = partial(np.multiply, np.where(wrong, ratio.value / scale, 1.0))
            return Match(
                "missing factor", message, f"{count_of(block.wrong_count)} fit", change=change
            )
    return None


def _possible_factors(block: InputBlock) -> Iterator[tuple[str, Values]]:
    """Values of the inputs along the columns, and of the outputs along the rows."""
    case = block.case
    if block.parts == 1:
        yield block.name, block.x[None, :]
        if block.has_shape:
            for position, slot in enumerate(case.domain.slots):
                if position != block.position and len(slot.parts) == 1 and slot.entries is None:
                    values = case.point[case.domain.span(position)]
                    for shape in _broadcast_shapes(slot.shape, block.shape):
                        full = np.broadcast_to(values.reshape(shape), block.shape)
                        yield slot.name, full.reshape(1, -1)
    if case.whole and all(len(slot.parts) == 1 for slot in case.codomain.slots):
        yield "the output", case.value[:, None]


def _broadcast_shapes(shape: tuple[int, ...], target: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Ways to put the axes of one array along some axes of another, in order."""
    if 0 in shape:
        return
    long = tuple(size for size in shape if size > 1)
    for axes in itertools.combinations(range(len(target)), len(long)):
        if long == tuple(target[axis] for axis in axes):
            yield tuple(size if axis in axes else 1 for axis, size in enumerate(target))


def conjugated_parts(block: InputBlock) -> Match | None:
    """Imaginary parts of the gradient, of the cotangent, or of both have the other sign."""
    if not block.has_shape:
        return None
    rows, columns = (np.where(np.arange(n) % 2, -1.0, 1.0) for n in block.claimed.shape)
    signs = {}
    if block.parts == 2:
        signs["the gradient"] = columns[None, :]
    if block.case.whole and all(len(slot.parts) == 2 for slot in block.case.codomain.slots):
        signs["the cotangent"] = rows[:, None]
    if len(signs) == 2:
        signs["the gradient and the cotangent"] = rows[:, None] * columns
    for what, sign in signs.items():
        change = partial(np.multiply, sign)
        if block.fits(change):
            verb = "are" if " and " in what else "is"
            message = f"{what} of {block.name} {verb} conjugated: a conj is missing, or too much"
            return Match("conjugate", message, block.full_fit_text, change=change)
    return None


def straight_through_identity(block: InputBlock) -> Match | None:
    """The identity is claimed where the function stands still.

    Where it moves, as tanh does, a forgotten factor looks the same, and nothing is said.
    """
    if not block.is_square:
        return None
    kept = block.claimed.any(axis=0)
    is_still = np.abs(block.measured) <= block.allowed
    if not (block.claimed == np.eye(kept.size) * kept).all() or not is_still[block.wrong].all():
        return None
    message = f"the cotangent passes to {block.name} straight through: the identity is claimed"
    weight = 1.0 if block.wrong_count >= ENOUGH else 0.8
    return Match("straight through", message, f"{count_of(block.wrong_count)} claimed 1", weight)


def lower_precision(block: InputBlock) -> Match | None:
    """Every claimed number is one of a coarser format, and off by no more than its rounding."""
    claimed, measured = block.claimed[block.wrong], block.measured[block.wrong]
    off = float(np.abs(claimed - measured).max() / max(float(np.abs(measured).max()), 1e-300))
    fraction = np.frexp(block.claimed[block.claimed != 0])[0]
    if np.unique(np.abs(fraction)).size < ENOUGH:
        return None  # ones and halves belong to every format
    units = {name: FORMATS[name].unit for name in ("bfloat16", "float16", "float32")}
    fitting = [
        name
        for name, unit in units.items()
        if block.slot.grain.unit < unit
        and off <= _ULPS * unit
        and (fraction / unit == np.round(fraction / unit)).all()
    ]
    if not fitting:
        return None
    # Numbers of 8 bits are numbers of 24, too: it is the format whose rounding is as large.
    name = min(fitting, key=lambda each: abs(math.log2((off or 1.0) / units[each])))
    count = count_of(int((block.claimed != 0).sum()))
    bits = -round(math.log2(units[name]))
    evidence = f"all {count} claimed are numbers of {bits} bits; off by up to {off:.1g}"
    return Match("lower precision", f"the gradient went through {name}", evidence)


def inexact_entries(case: WrongJacobian) -> Match | None:
    """Every gap is small beside its own entry.

    Half the digits of several numbers are right by no accident. No number is fitted.
    """
    gap, size = (np.abs(v[case.wrong]) for v in (case.claimed - case.measured, case.measured))
    part = float(np.max(gap / np.maximum(size, 1e-300)))
    if gap.size < _SEVERAL or not part <= CLOSE:
        return None
    unit = 10.0 ** math.floor(math.log10(part))
    bound = next(unit * step for step in (1, 2, 5, 10) if part <= unit * step)
    message = (
        f"every gap is below {bound:.0e} of its entry, as of an iteration that stopped; "
        f"rtol={10.0 ** math.ceil(math.log10(2 * part)):.0e} accepts that"
    )
    return Match("inexact", message, count_of(gap.size), 0.3)
