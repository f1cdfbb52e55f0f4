"""A piece of a Jacobian as tables whose cells have colours: claimed, measured and gap."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from gradproof._data.records import Patch
from gradproof._render._spans import number

NUMBERS = 8  # columns up to which the cells show their numbers
Table = tuple[tuple[float, ...], ...]


class Cell(NamedTuple):
    """One entry: how strong its colour is from 0 to 1, its classes, its number."""

    strength: float
    kind: str
    text: str


def map_of(patch: Patch) -> dict[str, Any]:
    """What the page shows of a patch: three tables of the same entries, and a sentence on each."""
    gap = tuple(
        tuple(abs(c - m) for c, m in zip(*rows, strict=True))
        for rows in zip(patch.claimed, patch.measured, strict=True)
    )
    largest = _largest(patch.claimed, patch.measured)
    (output, outputs), (input_, inputs) = _common(patch.outputs), _common(patch.inputs)
    return {
        "common": (output, input_),
        "outputs": outputs,
        "inputs": inputs,
        "heats": [
            _heat("claimed", patch.claimed, largest, patch),
            _heat("measured", patch.measured, largest, patch),
            _heat("gap", gap, _largest(gap), patch),
        ],
        "told": [
            [_told(patch, gap, i, j) for j in range(len(inputs))] for i in range(len(outputs))
        ],
        "wide": len(inputs) > NUMBERS,
    }


def _largest(*tables: Table) -> float:
    sizes = [abs(x) for table in tables for row in table for x in row if math.isfinite(x)]
    return max(sizes, default=0.0)


def _heat(title: str, table: Table, largest: float, patch: Patch) -> dict[str, Any]:
    rows = [
        [_cell(value, largest, bad, title) for value, bad in zip(*both, strict=True)]
        for both in zip(table, patch.wrong, strict=True)
    ]
    return {"title": title, "largest": f"{largest:.2g}", "rows": rows}


def _cell(value: float, largest: float, wrong: bool, title: str) -> Cell:
    if not math.isfinite(value):
        return Cell(0.0, "odd wrong" if wrong else "odd", f"{value:g}")
    # The root shows small entries beside large ones; zero stays without colour.
    strength = math.sqrt(abs(value) / largest) if largest else 0.0
    kinds = ["gap" if title == "gap" else "minus" if value < 0 else "plus"]
    return Cell(round(strength, 2), " ".join(kinds + ["wrong"] * wrong), _short(value))


def _short(value: float) -> str:
    """A number of at most six characters, which a cell has room for."""
    text = f"{value:.2g}"
    if "e" in text:
        digits, _, power = f"{value:.0e}".partition("e")
        return f"{digits}e{int(power)}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def _told(patch: Patch, gap: Table, i: int, j: int) -> str:
    verdict = "refuted" if patch.wrong[i][j] else "not refuted"
    return (
        f"{patch.inputs[j]} to {patch.outputs[i]}: claimed {number(patch.claimed[i][j])}, "
        f"measured {number(patch.measured[i][j])} ± {patch.error[i][j]:.1g}, "
        f"gap {gap[i][j]:.2g}, {verdict}"
    )


def _common(names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """`x[1, 2]`, `x[1, 3]` -> `x` and the indices; nothing where the arrays differ."""
    heads = {name.partition("[")[0] for name in names}
    if len(heads) != 1 or not all(name.endswith("]") for name in names):
        return "", names
    (head,) = heads
    return head, tuple(name[len(head) :] for name in names)
