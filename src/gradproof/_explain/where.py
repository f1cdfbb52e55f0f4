"""Which entries of a Jacobian are wrong, as people say it.

A description is exact among the entries that can be told: an entry is left out of account where
an error as large, for its size, as the others have would not be seen. The only ones that promise
less begin with "only inside": nothing outside is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gradproof._explain import sets
from gradproof._explain.sets import Mask
from gradproof._space import Space

Values = np.ndarray[Any, np.dtype[np.float64]]
Indices = np.ndarray[Any, np.dtype[np.int64]]
_Line = tuple[Mask, Mask, Values, Space, Indices | None]

_USUAL = 0.5  # of the usual relative gap: what an entry has to show to be told
_SIGN, _LIMIT = 20.0, 200.0  # chance against which a rule in values is believed
_SMALL_BOX = 0.5  # part of the whole that a block may be to be worth telling


@dataclass(frozen=True)
class Map:
    """What a set of wrong entries is described by.

    Attributes:
        domain: of the columns.
        codomain: of the rows.
        rows: which rows were looked at; None for all.
        point: value of every input.
        value: value of every output.
        transposed: rows are told rather than columns, where either would do.
    """

    domain: Space
    codomain: Space
    rows: Indices | None
    point: Values
    value: Values
    transposed: bool = False

    def out(self, mask: Mask) -> Mask:
        """A mask of the rows looked at as one of all rows."""
        if self.rows is None:
            return mask
        full = np.zeros(self.codomain.size, dtype=bool)
        full[self.rows[mask]] = True
        return full


def telling(claimed: Values, measured: Values, allowed: Values, wrong: Mask) -> Mask:
    """Entries that are wrong, or where an error of the usual relative size would be seen."""
    size = np.maximum(np.abs(claimed), np.abs(measured))
    gap = np.abs(claimed - measured)
    with np.errstate(all="ignore"):
        parts = (gap / size)[wrong]
        parts = parts[np.isfinite(parts)]
        usual = _USUAL * float(np.median(parts)) if parts.size else 1.0
        return np.asarray(wrong | (usual * size > allowed))


def described(wrong: Mask, care: Mask, live: Mask, map_: Map) -> str:
    """Words for the wrong entries.

    Args:
        wrong: which they are, (rows, columns).
        care: those that can be told, the wrong ones among them.
        live: those whose derivative, claimed or measured, is not zero.
        map_: whose they are.
    """
    if not wrong.any():
        return ""
    if wrong.all():
        return "everywhere"
    if (wrong == care).all():
        nonzero = bool((live == wrong).all())
        return f"wherever the derivative is {'not zero' if nonzero else 'large enough to tell'}"
    return (
        _lines(wrong, care, map_)
        or _by_value(wrong, care, map_)
        or sets.related(wrong, care)
        or _inside(wrong, map_)
    )


def _lines(wrong: Mask, care: Mask, map_: Map) -> str:
    """Whole rows, whole columns, or every crossing of some rows with some columns."""
    rows, columns = sets.along(wrong, 1), sets.along(wrong, 0)
    by_row = bool((wrong == (care & rows[:, None])).all())
    by_column = bool((wrong == (care & columns[None, :])).all())
    outputs = sets.described(map_.out(rows), map_.codomain) if map_.rows is None else ""
    inputs = sets.described(columns, map_.domain)
    ways = [(by_column, inputs), (by_row, outputs)]
    for fits, words in ways[::-1] if map_.transposed else ways:
        if fits and words:
            value = _by_value(wrong, care, map_) if _is_list(words) else ""
            return value or words
    both = bool((wrong == (care & rows[:, None] & columns[None, :])).all())
    if both and inputs and outputs:
        return f"{outputs} with respect to {inputs}"
    return ""


def _is_list(words: str) -> bool:
    """Whether entries are only enumerated: a rule that explains them says more."""
    return " and " in words and "]" in words


def _by_value(wrong: Mask, care: Mask, map_: Map) -> str:
    """The sign or the size of the inputs, or of the outputs, decides."""
    rows, columns = sets.along(wrong, 1), sets.along(wrong, 0)
    values = map_.value if map_.rows is None else map_.value[map_.rows]
    lines: list[_Line] = []
    if (wrong == (care & columns[None, :])).all():
        lines.append((columns, sets.along(care, 0), map_.point, map_.domain, None))
    if (wrong == (care & rows[:, None])).all():
        lines.append((rows, sets.along(care, 1), values, map_.codomain, map_.rows))
    for chosen, told, numbers, space, at in lines:
        name = _only_slot(told, space, at)
        words = _rule(chosen[told], numbers[told]) if name else ""
        if words:
            return f"only where {name} {words}"
    return ""


def _only_slot(told: Mask, space: Space, at: Indices | None) -> str:
    """Name of the one array that holds all of the coordinates; "" where there are several."""
    where = np.nonzero(told)[0] if at is None else at[told]
    slots = {space.slot_at(int(k)) for k in (where.min(), where.max())}
    slot = space.slots[slots.pop()]
    return slot.name if not slots and len(slot.parts) == 1 else ""


def _rule(chosen: Mask, values: Values) -> str:
    """What the values have in common where they are chosen, and nowhere else."""
    number, size = int(chosen.sum()), chosen.size
    if not 0 < number < size:
        return ""
    if not np.isfinite(values).all():
        return "is infinite" if (np.isinf(values) == chosen).all() else ""
    if sets.unlikely(size, number, _SIGN):
        for words, mask in (
            ("< 0", values < 0),
            ("> 0", values > 0),
            ("= 0", values == 0),
            ("<= 0", values <= 0),
            (">= 0", values >= 0),
            ("is not 0", values != 0),
        ):
            if (mask == chosen).all():
                return words
    if not sets.unlikely(size, number, _LIMIT):
        return ""
    inside, outside = values[chosen], values[~chosen]
    if inside.min() > outside.max():
        return f">= {inside.min():.4g} (right up to {outside.max():.4g})"
    if inside.max() < outside.min():
        return f"<= {inside.max():.4g} (right from {outside.min():.4g})"
    return ""


def _inside(wrong: Mask, map_: Map) -> str:
    """A block of one output, or of one input, outside of which nothing is wrong."""
    columns = _block(sets.along(wrong, 0), map_.domain)
    rows = _block(map_.out(sets.along(wrong, 1)), map_.codomain) if map_.rows is None else ""
    found = (rows, columns) if map_.transposed else (columns, rows)
    words = next(filter(None, found), "")
    return f"only inside {words}" if words else ""


def _block(chosen: Mask, space: Space) -> str:
    first, last = (int(np.nonzero(chosen)[0][k]) for k in (0, -1))
    position = space.slot_at(first)
    slot = space.slots[position]
    if space.slot_at(last) != position or slot.entries is not None or not slot.shape:
        return ""
    pairs = chosen[space.span(position)].reshape(-1, len(slot.parts))
    mask = sets.along(pairs, 1).reshape(slot.shape)
    box = 1
    for axis in range(mask.ndim):
        at = np.nonzero(sets.only(mask, axis))[0]
        box *= int(at[-1] - at[0]) + 1
    if box > _SMALL_BOX * mask.size:
        return slot.name if len(space.slots) > 1 else ""
    return sets.sliced(mask, slot.name)
