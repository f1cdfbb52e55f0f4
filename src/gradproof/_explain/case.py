"""Measured entries of a refuted Jacobian, and the guesses that explain them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from gradproof._data.space import Indices, Mask, Slot, Space, Values

Change = Callable[[Values], Values]  # a linear map of matrices, the same for numbers and for bars

SLACK = 2.0  # times what is allowed, of the claimed and of the predicted number together
# Entries that one fitted number must explain. One it meets by being fitted; bars are wide enough
# for another two to come near by chance.
ENOUGH = 4
MOST_AXES = 4  # of an array, of which every subset and every order is tried: 15 and 24
NOTHING = 1e-6  # of a coefficient: roundings of single precision, which are no mistake of a formula


@dataclass(frozen=True)
class Case:
    """Entries of a refuted Jacobian, (r, k), or products with one.

    Attributes:
        claimed, measured: the two derivatives; measured ones are finite.
        allowed: gap of an entry that means nothing.
        wrong: the refuted entries.
        rows, columns: outputs and inputs they belong to, (r,) and (k,).
        domain, codomain: what these are coordinates of.
        point, value: of every input and of every output.
        whole: whether rows are all outputs.
        is_forward: whether forward mode claims it, column by column.
        sharpness: relative error of a ratio that is common to many entries; 0.0 where errors of
            entries may be alike, so that the sharpest entry decides.
    """

    claimed: Values
    measured: Values
    allowed: Values
    wrong: Mask
    rows: Indices
    columns: Indices
    domain: Space
    codomain: Space
    point: Values
    value: Values
    whole: bool
    is_forward: bool = False
    sharpness: float = 0.0

    def fits(self, change: Change) -> bool:
        """Whether the claimed matrix is the measured one, changed so."""
        return fits(self.claimed, change(self.measured), self.allowed, change(self.allowed))

    @property
    def has_all_columns(self) -> bool:
        return self.columns.size == self.domain.size

    @property
    def wrong_rows(self) -> Mask:
        return np.asarray(self.wrong.any(axis=1))

    @property
    def wrong_columns(self) -> Mask:
        return np.asarray(self.wrong.any(axis=0))

    def blocks(self) -> Iterator[Block]:
        """The parts that belong to one input each, of those with wrong entries."""
        for position, slot in enumerate(self.domain.slots):
            span = self.domain.span(position)
            inside = (self.columns >= span.start) & (self.columns < span.stop)
            if inside.any() and self.wrong[:, inside].any():
                yield Block(
                    self.claimed[:, inside],
                    self.measured[:, inside],
                    self.allowed[:, inside],
                    self.wrong[:, inside],
                    self,
                    slot,
                    position,
                    self.columns[inside] - span.start,
                )


@dataclass(frozen=True)
class Block:
    """The columns of a case that belong to one input.

    Attributes:
        claimed, measured, allowed, wrong: as of a case, (r, k).
        case: what it is a part of.
        slot, position: the input, and its position in the domain.
        places: coordinates of the input that are columns, (k,).
    """

    claimed: Values
    measured: Values
    allowed: Values
    wrong: Mask
    case: Case
    slot: Slot
    position: int
    places: Indices

    @property
    def name(self) -> str:
        return self.slot.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.slot.shape

    @property
    def parts(self) -> int:
        """Real coordinates of one entry, 1 or 2."""
        return len(self.slot.parts)

    @property
    def has_shape(self) -> bool:
        """Whether the columns are all coordinates of a dense array."""
        return self.slot.entries is None and self.places.size == self.slot.size

    @property
    def is_square(self) -> bool:
        """Whether rows are all outputs, as many as there are columns: all of one real input."""
        rows, columns = self.claimed.shape
        return self.case.whole and self.has_shape and rows == columns and self.parts == 1

    @property
    def x(self) -> Values:
        """Values of the inputs, (k,)."""
        return self.case.point[self.case.domain.span(self.position)][self.places]

    @property
    def wrong_count(self) -> int:
        return int(self.wrong.sum())

    @property
    def all_fit(self) -> str:
        """Evidence of a guess that predicts every entry."""
        return f"all {self.claimed.size:,} entries with respect to {self.name} fit"

    def fits(self, change: Change) -> bool:
        """Whether the claimed block is the measured one, changed so."""
        return fits(self.claimed, change(self.measured), self.allowed, change(self.allowed))

    def shaped(self, values: Values) -> Values:
        """Columns as the array of the input, (r, *shape, parts)."""
        return values.reshape(values.shape[0], *self.shape, self.parts)

    def on_shape(self, change: Change) -> Change:
        """A map of matrices from one of (r, *shape, parts)."""
        return lambda values: change(self.shaped(values)).reshape(values.shape)

    def reordered(self, order: Indices) -> Change:
        """The map of matrices that puts entry order[k] at entry k, both parts together."""
        columns = (order[:, None] * self.parts + np.arange(self.parts)).reshape(-1)
        return lambda values: values[:, columns]


@dataclass(frozen=True)
class Match:
    """One way to explain one block, or a whole case.

    Attributes:
        name: of the cause.
        text: what was done, as a sentence without a full stop.
        evidence: the numbers behind it.
        weight: how much of the wrong entries is explained, or how far the evidence goes, to 1.
        change: what makes the claimed block of the measured one, where it is known.
    """

    name: str
    text: str
    evidence: str = ""
    weight: float = 1.0
    change: Change | None = None


def fits(claimed: Values, predicted: Values, allowed: Values, more: Values) -> bool:
    """Whether every claimed number is the predicted one, up to what is allowed for both."""
    with np.errstate(all="ignore"):
        return bool((np.abs(claimed - predicted) <= SLACK * (allowed + np.abs(more))).all())


def fitting_matches(guesses: Iterable[Match], is_fit: Callable[[Change], bool]) -> list[Match]:
    """The guesses whose change makes the claimed of the measured, the first of each name."""
    found: dict[str, Match] = {}
    for guess in guesses:
        if guess.name not in found and guess.change is not None and is_fit(guess.change):
            found[guess.name] = guess
    return list(found.values())


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
        sharpness: as of a `Case`.
    """
    live = np.abs(measured) > 4 * allowed
    if not np.isfinite(claimed).all() or not live.any():
        return None
    weight = measured / np.maximum(allowed, 1e-300) ** 2
    weight = weight / np.abs(weight).max()
    value = float((weight * claimed).sum() / (weight * measured).sum())
    if not (np.abs(claimed - value * measured) <= SLACK * allowed * (1 + abs(value))).all():
        return None
    sharp = np.abs(measured) / np.maximum(allowed, 1e-300)
    bar = max(sharpness, 1 / float(np.linalg.norm(sharp))) if sharpness else 1 / float(sharp.max())
    return Ratio(value, bar, int(live.sum()))


def ratio_text(ratio: float, bar: float) -> str:
    """A ratio as people write it: a whole number, its inverse, or the digits that are known."""
    for value, text in ((ratio, "{}"), (1 / ratio, "1/{}")):
        if round(value) and abs(value - round(value)) <= SLACK * bar * abs(value):
            return text.format(round(value))
    # As many digits as are known, and as show that it is not 1.
    known, off = -math.log10(max(bar, 1e-6)), abs(ratio - 1)
    needed = 1 - math.floor(math.log10(off)) if 0 < off < 1 else 1
    return f"{ratio:.{max(2, int(known), min(needed, 15))}g}"
