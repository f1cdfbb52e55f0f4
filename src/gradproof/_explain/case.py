"""The numbers that recognisers look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gradproof._data.results import JacobianEvidence
from gradproof._data.space import Indices, Mask, Slot, Values

Change = Callable[[Values], Values]  # a linear map of matrices, the same for numbers and for bars

SLACK = 2.0  # times what is allowed, of the claimed and of the predicted number together
# Entries that one fitted number must explain. One it meets by being fitted; bars are wide enough
# for another two to come near by chance.
ENOUGH = 4


@dataclass(frozen=True)
class InputBlock(JacobianEvidence):
    """The columns of a wrong Jacobian that belong to one input; `position` is that of the input."""

    position: int

    @property
    def slot(self) -> Slot:
        return self.domain.slots[self.position]

    @property
    def places(self) -> Indices:
        """Coordinates of the input that are columns, (k,)."""
        return np.asarray(self.columns - self.domain.span(self.position).start)

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
        return self.whole and self.has_shape and rows == columns and self.parts == 1

    @property
    def wrong_count(self) -> int:
        return int(self.wrong.sum())

    @property
    def is_live(self) -> Mask:
        """Where the derivative is not zero, as far as can be told."""
        return np.abs(self.measured) > SLACK * self.allowed

    @property
    def is_claimed(self) -> Mask:
        """Where something other than zero is claimed, as far as can be told."""
        return np.abs(self.claimed) > SLACK * self.allowed

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


def input_blocks(case: JacobianEvidence) -> Iterator[InputBlock]:
    """The parts that belong to one input each, of those with wrong entries."""
    for position in range(len(case.domain.slots)):
        span = case.domain.span(position)
        inside = (case.columns >= span.start) & (case.columns < span.stop)
        if case.wrong[:, inside].any():
            tables = ("claimed", "measured", "error", "allowed", "wrong")
            parts = {name: getattr(case, name)[:, inside] for name in tables}
            parts["columns"] = case.columns[inside]
            yield InputBlock(**{**vars(case), **parts}, position=position)
