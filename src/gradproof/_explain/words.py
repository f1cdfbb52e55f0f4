"""A set of coordinates of a space, as people say it: "the last 3 of 67 rows of x", "x[:, ::2]".

Every description is exact: read again it gives the set, no more and no less. Where none of the
usual ones fits there is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradproof._data.space import Mask, Slot, Space, Values
from gradproof._data.visible import joined
from gradproof._explain.case import Case
from gradproof._explain.order import CHANCE

_LISTED = 3  # entries that a sentence names


def described(chosen: Mask, space: Space) -> str:
    """Words for the coordinates of a space where `chosen` is true; "" where nothing fits."""
    whole: list[Slot] = []
    parts: list[str] = []
    for position, slot in enumerate(space.slots):
        part = chosen[space.span(position)]
        if not part.any():
            continue
        if part.all():
            whole.append(slot)
            continue
        words = _of_slot(part, slot, position)
        if not words:
            return ""
        parts.append(words)
    if len(parts) > 2:
        return ""
    if len(whole) == 1 and not parts and whole[0].size == 1:
        return whole[0].name
    names = [slot.name for slot in whole]
    return joined(([f"all of {joined(names)}"] if whole else []) + parts)


def _used_along(mask: Mask, axis: int) -> Mask:
    """Which positions along one axis have anything."""
    return np.asarray(mask.any(axis=tuple(k for k in range(mask.ndim) if k != axis)))


def _of_slot(part: Mask, slot: Slot, position: int) -> str:
    """Words for some, not all, coordinates of one array."""
    pairs = part.reshape(-1, len(slot.parts))
    if len(slot.parts) == 1 or bool((pairs[:, 0] == pairs[:, 1]).all()):
        return _of_entries(pairs[:, 0], slot, position, whole=len(slot.parts) > 1)
    used = pairs.any(axis=0)
    if used.all():
        return ""
    side = int(np.argmax(used))
    name = {"real": "real", "imag": "imaginary"}[slot.parts[side]]
    if pairs[:, side].all():
        return f"the {name} part of {slot.name}"
    words = _of_entries(pairs[:, side], slot, position, whole=True)
    return f"the {name} part of {words}" if words else ""


def _of_entries(chosen: Mask, slot: Slot, position: int, *, whole: bool) -> str:
    """Words for some entries of an array; `whole`: parts are not to be named."""
    if slot.entries is not None:
        return _listed(chosen, slot, position, whole)
    mask = chosen.reshape(slot.shape)
    ways = (
        _listed(chosen, slot, position, whole),
        _box(mask, slot.name),
        _triangle(mask, slot.name),
    )
    return next(filter(None, ways), "")


def _listed(chosen: Mask, slot: Slot, position: int, whole: bool) -> str:
    """The entries by name, if they are few."""
    number = int(chosen.sum())
    if number > _LISTED or 2 * number > max(chosen.size, 2):
        return ""
    # Two neighbours are listed, three in a row are a slice.
    at = np.nonzero(chosen)[0]
    if number == _LISTED and _progression(at) is not None:
        return ""
    return joined([_name(int(k), slot, position, whole) for k in at])


def _name(entry: int, slot: Slot, position: int, whole: bool) -> str:
    place = slot.place(entry * len(slot.parts), position)
    text = str(place)
    return text.removesuffix(f".{place.part}") if whole and place.part else text


def _progression(at: np.ndarray[Any, Any]) -> tuple[int, int, int] | None:
    """Start, last and step of increasing integers that are evenly spaced."""
    if at.size == 1:
        return int(at[0]), int(at[0]), 1
    steps = np.diff(at)
    if (steps != steps[0]).any():
        return None
    return int(at[0]), int(at[-1]), int(steps[0])


def _slice(line: tuple[int, int, int], size: int) -> str:
    """Start, last and step as Python writes them, for an axis of this size."""
    start, last, step = line
    if start == last:
        return str(start)
    first = "" if start == 0 else str(start)
    stop = "" if last + step >= size else str(last + 1)
    return f"{first}:{stop}" + ("" if step == 1 else f":{step}")


def _lines(mask: Mask) -> list[tuple[int, int, int]] | None:
    """The slice along each axis whose product the mask is; None if it is no such product."""
    lines, number = [], 1
    for axis in range(mask.ndim):
        line = _progression(np.nonzero(_used_along(mask, axis))[0])
        if line is None:
            return None
        lines.append(line)
        number *= (line[1] - line[0]) // line[2] + 1
    return lines if number == int(mask.sum()) else None


def _indexed(name: str, lines: list[tuple[int, int, int]], shape: tuple[int, ...]) -> str:
    """A product of slices as Python writes it: "y[:, 64:]"."""
    return f"{name}[{', '.join(map(_slice, lines, shape))}]"


def _box(mask: Mask, name: str) -> str:
    """A product of slices: heads, tails, rows, columns, blocks, every k-th."""
    lines = _lines(mask) if mask.ndim else None
    if lines is None:
        return ""
    limited = [k for k, n in enumerate(mask.shape) if lines[k] != (0, n - 1, 1)]
    text = _indexed(name, lines, mask.shape)
    if len(limited) != 1:
        return text
    axis = limited[0]
    (start, last, step), size = lines[axis], mask.shape[axis]
    if axis == 0 and step == 1 and last > start and (start == 0 or last == size - 1):
        return _end(
            start == 0, last - start + 1, size, "rows" if mask.ndim > 1 else "entries", name
        )
    if start == last and mask.ndim > 2:
        return f"every entry of {name} with index[{axis}] = {start}"
    return text


def _end(first: bool, count: int, size: int, noun: str, name: str) -> str:
    return f"the {'first' if first else 'last'} {count:,} of {size:,} {noun} of {name}"


def _shapes(rows: int, columns: int) -> Iterator[tuple[str, Mask]]:
    """Parts of a matrix, and how they are called."""
    gap = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    yield "on the diagonal", gap == 0
    yield "off the diagonal", gap != 0
    yield "above the diagonal", gap > 0
    yield "below the diagonal", gap < 0
    yield "on and above the diagonal", gap >= 0
    yield "on and below the diagonal", gap <= 0


def _triangle(mask: Mask, name: str) -> str:
    """A part of every matrix that the last two axes make."""
    if mask.ndim < 2 or min(mask.shape[-2:]) < 2:
        return ""
    for words, shape in _shapes(*mask.shape[-2:]):
        if (mask == shape).all():
            return f"the entries of {name} {words}"
    return ""


# Which entries of a Jacobian are wrong, as people say it.
#
# A description is exact among the entries that can be told: an entry is left out of account where
# an error as large, for its size, as the others have would not be seen.


def place_of(case: Case) -> str:
    """Words for the wrong entries of a Jacobian; "" where nothing fits.

    Where rows or columns would do, rows are named in forward mode.
    """
    wrong = case.wrong
    if not wrong.any():
        return ""
    if not (case.whole and case.has_all_columns):
        return _place_among_some(case)
    if wrong.all():
        return "everywhere"
    telling = _telling_entries(case)
    if (wrong == telling).all():
        is_live = np.abs(case.measured) > case.allowed
        if (is_live == wrong).all():
            return "wherever the derivative is not zero"
        if is_live[wrong].any():
            return "wherever the derivative is large enough to tell"
    return _whole_lines(case, telling) or _by_value(case, telling) or _by_diagonal(wrong, telling)


def _place_among_some(case: Case) -> str:
    """Words for the wrong inputs among those measured, where some of them are right."""
    columns = case.wrong_columns
    if columns.all() or case.has_all_columns:
        return ""
    chosen = np.zeros(case.domain.size, dtype=bool)
    chosen[case.columns[columns]] = True
    text = described(chosen, case.domain)
    return f"{text} (of the {case.columns.size} inputs measured)" if text else ""


def _telling_entries(case: Case) -> Mask:
    """Entries that are wrong, or where an error of the usual relative size would be seen."""
    size = np.maximum(np.abs(case.claimed), np.abs(case.measured))
    with np.errstate(all="ignore"):
        parts = (np.abs(case.claimed - case.measured) / size)[case.wrong]
        parts = parts[np.isfinite(parts)]
        usual = float(np.median(parts)) / 2 if parts.size else 1.0
        return np.asarray(case.wrong | (usual * size > case.allowed))


def _whole_lines(case: Case, telling: Mask) -> str:
    """Whole rows, whole columns, or every crossing of some rows with some columns."""
    wrong = case.wrong
    rows, columns = case.wrong_rows, case.wrong_columns
    is_by_row = bool((wrong == (telling & rows[:, None])).all())
    is_by_column = bool((wrong == (telling & columns[None, :])).all())
    outputs, inputs = described(rows, case.codomain), described(columns, case.domain)
    ways = [(is_by_column, inputs), (is_by_row, outputs)]
    for fits, text in ways[::-1] if case.is_forward else ways:
        if fits and text:
            # Entries that are only enumerated say less than a rule that explains them.
            is_list = " and " in text and "]" in text
            return (is_list and _by_value(case, telling)) or text
    both = bool((wrong == (telling & rows[:, None] & columns[None, :])).all())
    return f"{outputs} with respect to {inputs}" if both and inputs and outputs else ""


def _by_value(case: Case, telling: Mask) -> str:
    """The sign or the size of the inputs, or of the outputs, decides."""
    wrong = case.wrong
    rows, columns = case.wrong_rows, case.wrong_columns
    lines = []
    if (wrong == (telling & columns[None, :])).all():
        lines.append((columns, np.asarray(telling.any(axis=0)), case.point, case.domain))
    if (wrong == (telling & rows[:, None])).all():
        lines.append((rows, np.asarray(telling.any(axis=1)), case.value, case.codomain))
    for chosen, among, values, space in lines:
        name = _only_array(among, space)
        text = _rule_of_values(chosen[among], values[among]) if name else ""
        if text:
            return f"only where {name} {text}"
    return ""


def _only_array(among: Mask, space: Space) -> str:
    """Name of the one real array that holds all of the coordinates; "" where there are several."""
    at = np.nonzero(among)[0]
    slots = {space.slot_at(int(k)) for k in (at.min(), at.max())}
    slot = space.slots[slots.pop()]
    return slot.name if not slots and len(slot.parts) == 1 else ""


def _rule_of_values(chosen: Mask, values: Values) -> str:
    """What the values have in common where they are chosen, and nowhere else."""
    number, size = int(chosen.sum()), chosen.size
    if not np.isfinite(values).all() or math.comb(size, number) < CHANCE:
        return ""
    for text, mask in (
        ("< 0", values < 0),
        ("> 0", values > 0),
        ("= 0", values == 0),
        ("<= 0", values <= 0),
        (">= 0", values >= 0),
        ("is not 0", values != 0),
    ):
        if (mask == chosen).all():
            return text
    inside, outside = values[chosen], values[~chosen]
    if inside.min() > outside.max():
        return f">= {inside.min():.4g} (right up to {outside.max():.4g})"
    if inside.max() < outside.min():
        return f"<= {inside.max():.4g} (right from {outside.min():.4g})"
    return ""


def _by_diagonal(wrong: Mask, telling: Mask) -> str:
    """A part of a square Jacobian, given by the positions of output and input."""
    rows, columns = wrong.shape
    if rows != columns or rows < 3:
        return ""
    for text, shape in _shapes(rows, columns):
        is_part = 0 < int((shape & telling).sum()) < int(telling.sum())
        if is_part and (wrong == (telling & shape)).all():
            return f"{text} of the Jacobian"
    return ""
