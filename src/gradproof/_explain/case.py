"""What recognisers look at: a claimed and a measured Jacobian, whole or by blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradproof._data.space import FORMATS, Indices, Mask, Space, Values
from gradproof._judge.claim_error import HONEST

Turn = Callable[[Values], Values]  # a linear map of matrices, the same for numbers and for bars

SLACK = 2.0  # times what is allowed, of the claimed and of the predicted number together
# Entries that one fitted number must explain, itself included, to be no accident: one it meets by
# being fitted, and bars are wide enough for another two to come near by chance.
ENOUGH = 4
MOST_AXES = 4  # of an array, of which every subset and every order is tried: 15 and 24
# Of a coefficient: roundings of a part in single precision, which are no mistake of a formula.
NOTHING = HONEST * FORMATS["float32"].unit


@dataclass(frozen=True)
class Matrix:
    """Some columns of a refuted Jacobian, (r, k); rows are outputs, or cotangents."""

    claimed: Values  # what automatic differentiation says
    measured: Values  # what the oracle says
    allowed: Values  # gap of an entry that means nothing
    wrong: Mask  # the entries refuted

    def fits(self, turn: Turn) -> bool:
        """Whether what is claimed is what is measured, changed by `turn`."""
        return fits(self.claimed, turn(self.measured), self.allowed, turn(self.allowed))

    @property
    def numbers(self) -> tuple[Any, Any, Any, Any]:
        return self.claimed, self.measured, self.allowed, self.wrong

    @property
    def all_fit(self) -> str:
        """Evidence of a guess that predicts every entry."""
        return f"all {self.claimed.size:,} entries fit"


@dataclass(frozen=True)
class Map:
    """What the entries of a Jacobian are described by."""

    domain: Space  # of the columns
    codomain: Space  # of the rows
    point: Values  # value of every input
    value: Values  # value of every output
    rows: Indices | None = None  # which outputs the rows are; None where they are all of them
    transposed: bool = False  # rows are told rather than columns, where either would do


@dataclass(frozen=True)
class Case(Map, Matrix):
    """All columns."""

    # Where errors of entries are random, what a common factor of however many may be off by; None
    # where they may be alike.
    unit: float | None = None

    @property
    def outputs(self) -> bool:
        """Whether the rows are the outputs, all of them."""
        return self.rows is None

    def blocks(self) -> Iterator[Block]:
        """The parts of the Jacobian that belong to one input, those with wrong entries."""
        for position, slot in enumerate(self.domain.slots):
            span = self.domain.span(position)
            if slot.size and slot.entries is None and self.wrong[:, span].any():
                claimed, measured, allowed, wrong = (part[:, span] for part in self.numbers)
                yield Block(claimed, measured, allowed, wrong, self, position)


@dataclass(frozen=True)
class Block(Matrix):
    """The columns of one input."""

    case: Case  # what it is a part of
    slot: int  # position of the input

    @property
    def name(self) -> str:
        return self.case.domain.slots[self.slot].name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.case.domain.slots[self.slot].shape

    @property
    def parts(self) -> int:
        """Real coordinates of one entry, 1 or 2."""
        return len(self.case.domain.slots[self.slot].parts)

    @property
    def x(self) -> Values:
        return self.case.point[self.case.domain.span(self.slot)]

    @property
    def entries(self) -> int:
        return self.x.size // self.parts

    def shaped(self, values: Values) -> Values:
        """Columns as the array of the input, (r, *shape, parts)."""
        return values.reshape(values.shape[0], *self.shape, self.parts)

    def along(self, change: Turn) -> Turn:
        """A map of matrices from one of (r, *shape, parts)."""
        return lambda values: change(self.shaped(values)).reshape(values.shape)

    def taken(self, order: Indices) -> Turn:
        """Column of entry k from that of entry order[k]; both parts together."""
        columns = (order[:, None] * self.parts + np.arange(self.parts)).reshape(-1)
        return lambda values: values[:, columns]


@dataclass(frozen=True)
class Match:
    """One way to explain one block, or the whole."""

    name: str  # of the cause
    text: str  # what was done, for the middle of a sentence
    evidence: str = ""  # the numbers behind it
    weight: float = 1.0  # part of the wrong entries explained, or how far the evidence goes
    turn: Turn | None = None  # what makes the claimed block of the measured one


def fits(claimed: Values, predicted: Values, allowed: Values, extra: Values) -> bool:
    """Whether every claimed number is the predicted one, up to what is allowed for both."""
    with np.errstate(all="ignore"):
        return bool((np.abs(claimed - predicted) <= SLACK * (allowed + np.abs(extra))).all())


def fitting(guesses: Iterable[Match], fit: Callable[[Turn], bool]) -> list[Match]:
    """The guesses whose turn makes the claimed of the measured, the first of each name."""
    found: dict[str, Match] = {}
    for guess in guesses:
        if guess.turn is not None and fit(guess.turn):
            found.setdefault(guess.name, guess)
    return list(found.values())


def common_ratio(
    claimed: Values, measured: Values, allowed: Values, unit: float | None = None
) -> tuple[float, float] | None:
    """Claimed / measured where it is one number throughout, with its bar; `unit` as of a `Case`."""
    if not (np.isfinite(claimed).all() and (np.abs(measured) > 4 * allowed).any()):
        return None
    weight = measured / np.maximum(allowed, 1e-300) ** 2
    weight = weight / np.abs(weight).max()
    below = float((weight * measured).sum())
    ratio = float((weight * claimed).sum()) / below if below else math.nan
    slack = SLACK * allowed * (1 + abs(ratio))
    if not (np.abs(claimed - ratio * measured) <= slack).all():
        return None
    sharp = np.abs(measured) / np.maximum(allowed, 1e-300)
    bar = 1 / float(sharp.max()) if unit is None else max(unit, 1 / float(np.linalg.norm(sharp)))
    return ratio, bar


def told_ratio(ratio: float, bar: float = 0.0) -> str:
    """A factor in the digits that are known of it, up to 6, or in as many as show it is not 1."""
    off, known = abs(ratio - 1), -math.log10(max(bar, 1e-6))
    needed = 1 - math.floor(math.log10(off)) if 0 < off < 1 else 1
    return f"{ratio:.{max(2, int(known), min(needed, 15))}g}"


def weight(number: int) -> float:
    """How far a number that is common to so many entries is to be believed."""
    return 1.0 if number >= ENOUGH else 0.8 if number > 1 else 0.5
