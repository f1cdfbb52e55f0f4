"""The numbers that recognisers look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gradproof._data.space import Indices, Mask, Slot, Space, Values

Change = Callable[[Values], Values]  # a linear map of matrices, the same for numbers and for bars

SLACK = 2.0  # times what is allowed, of the claimed and of the predicted number together
# Entries that one fitted number must explain. One it meets by being fitted; bars are wide enough
# for another two to come near by chance.
ENOUGH = 4


@dataclass(frozen=True)
class WrongJacobian:
    """Entries of a wrong Jacobian, (r, k).

    Attributes:
        claimed, measured: the two derivatives; measured ones are finite.
        allowed: gap of an entry that means nothing.
        wrong: the refuted entries.
        rows, columns: outputs and inputs they belong to, (r,) and (k,).
        domain, codomain: what these are coordinates of.
        point, value: of every input and of every output.
        whole: whether rows are all outputs.
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

    @property
    def has_all_columns(self) -> bool:
        return self.columns.size == self.domain.size

    @property
    def wrong_rows(self) -> Mask:
        return np.asarray(self.wrong.any(axis=1))

    @property
    def wrong_columns(self) -> Mask:
        return np.asarray(self.wrong.any(axis=0))

    def blocks(self) -> Iterator[InputBlock]:
        """The parts that belong to one input each, of those with wrong entries."""
        for position, slot in enumerate(self.domain.slots):
            span = self.domain.span(position)
            inside = (self.columns >= span.start) & (self.columns < span.stop)
            if self.wrong[:, inside].any():
                yield InputBlock(
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
class InputBlock:
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
    case: WrongJacobian
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
    def wrong_count(self) -> int:
        return int(self.wrong.sum())

    @property
    def is_live(self) -> Mask:
        """Where the derivative is not zero, as far as can be told."""
        return np.abs(self.measured) > SLACK * self.allowed

    @property
    def full_fit_text(self) -> str:
        """Evidence of a guess that predicts every entry."""
        return f"all {self.claimed.size:,} entries with respect to {self.name} fit"

    def fits(self, change: Change) -> bool:
        """Whether the claimed block is the measured one, changed so."""
        return is_fit(self.claimed, change(self.measured), self.allowed, change(self.allowed))


def is_fit(claimed: Values, predicted: Values, allowed: Values, more: Values) -> bool:
    """Whether every claimed number is the predicted one, up to what is allowed for both."""
    with np.errstate(all="ignore"):
        return bool((np.abs(claimed - predicted) <= SLACK * (allowed + np.abs(more))).all())
