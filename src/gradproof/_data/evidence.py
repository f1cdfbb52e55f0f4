"""What a result carries beside its numbers: causes, and the data of pictures.

Values, like all records: strings, floats and tuples of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradproof.errors import UsageError


@dataclass(frozen=True)
class Cause:
    """What kind of mistake explains the findings of a check.

    Attributes:
        name: one word or a few, the same for the same mistake: "factor", "sign", "transposed".
        message: one sentence for people: "every entry is multiplied by 2".
        evidence: the numbers behind it: "ratio 2.000000 +- 3e-09 over 64 entries".
        advice: what to look at or try next; "" where there is nothing better than the message.
        score: how much of what was measured it explains, from 0 to 1; causes are ranked by it.
    """

    name: str
    message: str
    evidence: str = ""
    advice: str = ""
    score: float = 1.0


@dataclass(frozen=True)
class Patch:
    """A piece of a Jacobian around a wrong entry, for a picture; all tables are (row, column).

    Attributes:
        outputs: the outputs of the rows, as people write them.
        inputs: the inputs of the columns, likewise.
        claimed: what automatic differentiation says.
        measured: what the oracle says.
        error: error bars of `measured`.
        wrong: which entries are refuted.
    """

    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    claimed: tuple[tuple[float, ...], ...]
    measured: tuple[tuple[float, ...], ...]
    error: tuple[tuple[float, ...], ...]
    wrong: tuple[tuple[bool, ...], ...]

    def __post_init__(self) -> None:
        shape = [len(self.inputs)] * len(self.outputs)
        for name in ("claimed", "measured", "error", "wrong"):
            if [len(row) for row in getattr(self, name)] != shape:
                raise UsageError(
                    f"{name}: expected a table of {len(self.outputs)} rows of {len(self.inputs)}"
                )


@dataclass(frozen=True)
class Curve:
    """A measured derivative against the step it was measured with, for a picture.

    Attributes:
        output: the output, as people write it.
        input: the input, or "along a random direction".
        steps: perturbations, in units of the direction, largest first.
        values: the plain central difference at each.
        forward: the one-sided difference to the right, at each.
        backward: the one-sided difference to the left, at each.
        claimed: what automatic differentiation says.
        chosen: the step whose estimate was believed.
        value: that estimate.
        error: its error bar.
    """

    output: str
    input: str
    steps: tuple[float, ...]
    values: tuple[float, ...]
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    claimed: float
    chosen: float
    value: float
    error: float

    def __post_init__(self) -> None:
        for name in ("values", "forward", "backward"):
            if len(getattr(self, name)) != len(self.steps):
                raise UsageError(f"{name}: expected {len(self.steps)} numbers, one for each step")
