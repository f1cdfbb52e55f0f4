"""A set of coordinates of a space, as people say it: "the last 3 of 67 rows of x", "x[:, ::2]".

Every description is exact: read again it gives the set, no more and no less. Where none of the
usual ones fits there is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradproof._data.space import Indices, Mask, Slot, Space, Values
from gradproof._data.visible import joined
from gradproof._explain.case import Case, Map
from gradproof._measure.sizes import LISTED


def along(mask: Mask, axis: int) -> Mask:
    """Where a matrix has anything along an axis."""
    return np.asarray(mask.any(axis=axis))


def only(mask: Mask, axis: int) -> Mask:
    """Which positions along one axis have anything."""
    return np.asarray(mask.any(axis=tuple(k for k in range(mask.ndim) if k != axis)))


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
        _flat(mask, slot.name),
        _triangle(mask, slot.name),
        _all_but(chosen, slot, position, whole),
    )
    return next(filter(None, ways), "")


def _listed(chosen: Mask, slot: Slot, position: int, whole: bool) -> str:
    """The entries by name, if they are few."""
    number = int(chosen.sum())
    if number > LISTED or 2 * number > max(chosen.size, 2):
        return ""
    # Two neighbours are listed, three in a row are a slice.
    at = np.nonzero(chosen)[0]
    if number == LISTED and _progression(at) is not None:
        return ""
    return joined([_name(int(k), slot, position, whole) for k in at])


def _name(entry: int, slot: Slot, position: int, whole: bool) -> str:
    place = slot.place(entry * len(slot.parts), position)
    text = str(place)
    return text.removesuffix(f".{place.part}") if whole and place.part else text


def _all_but(chosen: Mask, slot: Slot, position: int, whole: bool) -> str:
    missing = np.nonzero(~chosen)[0]
    if missing.size > LISTED or chosen.size < 4 * missing.size:
        return ""
    names = [_name(int(k), slot, position, whole) for k in missing]
    return f"every entry of {slot.name} but {joined(names)}"


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
        line = _progression(np.nonzero(only(mask, axis))[0])
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


def _flat(mask: Mask, name: str) -> str:
    """A regular pattern of entries of an array that is read as one line; "" without any."""
    if mask.ndim < 2:
        return ""
    line = _progression(np.nonzero(mask.reshape(-1))[0])
    if line is None:
        return ""
    start, last, step = line
    if step == 1 and (start == 0 or last == mask.size - 1):
        return _end(start == 0, last - start + 1, mask.size, "entries", f"{name}, in memory order")
    return f"{name}.ravel()[{_slice(line, mask.size)}]"


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


def related(mask: Mask, care: Mask) -> str:
    """A part of a square Jacobian, told by the positions of output and input."""
    rows, columns = mask.shape
    if rows != columns or rows < 3:
        return ""
    for words, shape in _shapes(rows, columns):
        if 0 < int((shape & care).sum()) < int(care.sum()) and (mask == (care & shape)).all():
            return f"{words} of the Jacobian"
    return ""


# Which entries of a Jacobian are wrong, as people say it.
#
# A description is exact among the entries that can be told: an entry is left out of account where
# an error as large, for its size, as the others have would not be seen. The only ones that
# promise less begin with "only inside": nothing outside is wrong.


_Line = tuple[Mask, Mask, Values, Space, Indices | None]

LIMIT = 200.0  # a rule is believed if so few of so many are chosen by chance less than once in


def telling(claimed: Values, measured: Values, allowed: Values, wrong: Mask) -> Mask:
    """Entries that are wrong, or where an error of the usual relative size would be seen."""
    size = np.maximum(np.abs(claimed), np.abs(measured))
    gap = np.abs(claimed - measured)
    with np.errstate(all="ignore"):
        parts = (gap / size)[wrong]
        parts = parts[np.isfinite(parts)]
        usual = float(np.median(parts)) / 2 if parts.size else 1.0
        return np.asarray(wrong | (usual * size > allowed))


def where(case: Case) -> str:
    size = np.maximum(np.abs(case.claimed), np.abs(case.measured))
    care = telling(case.claimed, case.measured, case.allowed, case.wrong)
    return described_entries(case.wrong, care, case.wrong | (size > case.allowed), case)


def described_entries(wrong: Mask, care: Mask, live: Mask, map_: Map) -> str:
    """Words for the wrong entries, (rows, columns), of a map.

    `care` are those that can be told, the wrong ones among them; `live` those whose derivative,
    claimed or measured, is not zero.
    """
    if not wrong.any():
        return ""
    if wrong.all():
        return "everywhere"
    if (wrong == care).all():
        nonzero = bool((live == wrong).all())
        return f"wherever the derivative is {'not zero' if nonzero else 'large enough to tell'}"
    return (
        _where_lines(wrong, care, map_)
        or _by_value(wrong, care, map_)
        or related(wrong, care)
        or _inside(wrong, map_)
    )


def _where_lines(wrong: Mask, care: Mask, map_: Map) -> str:
    """Whole rows, whole columns, or every crossing of some rows with some columns."""
    rows, columns = along(wrong, 1), along(wrong, 0)
    by_row = bool((wrong == (care & rows[:, None])).all())
    by_column = bool((wrong == (care & columns[None, :])).all())
    outputs = described(rows, map_.codomain) if map_.rows is None else ""
    inputs = described(columns, map_.domain)
    ways = [(by_column, inputs), (by_row, outputs)]
    for fits, words in ways[::-1] if map_.transposed else ways:
        if fits and words:
            # Entries that are only enumerated say less than a rule that explains them.
            listed = " and " in words and "]" in words
            return (listed and _by_value(wrong, care, map_)) or words
    both = bool((wrong == (care & rows[:, None] & columns[None, :])).all())
    if both and inputs and outputs:
        return f"{outputs} with respect to {inputs}"
    return ""


def _by_value(wrong: Mask, care: Mask, map_: Map) -> str:
    """The sign or the size of the inputs, or of the outputs, decides."""
    rows, columns = along(wrong, 1), along(wrong, 0)
    values = map_.value if map_.rows is None else map_.value[map_.rows]
    lines: list[_Line] = []
    if (wrong == (care & columns[None, :])).all():
        lines.append((columns, along(care, 0), map_.point, map_.domain, None))
    if (wrong == (care & rows[:, None])).all():
        lines.append((rows, along(care, 1), values, map_.codomain, map_.rows))
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
    if not np.isfinite(values).all() or math.comb(size, number) < LIMIT:
        return ""
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
    inside, outside = values[chosen], values[~chosen]
    if inside.min() > outside.max():
        return f">= {inside.min():.4g} (right up to {outside.max():.4g})"
    if inside.max() < outside.min():
        return f"<= {inside.max():.4g} (right from {outside.min():.4g})"
    return ""


def _inside(wrong: Mask, map_: Map) -> str:
    """A block of one output, or of one input, outside of which nothing is wrong."""
    outputs = along(wrong, 1) if map_.rows is None else np.zeros(0, dtype=bool)
    sides = [(along(wrong, 0), map_.domain), (outputs, map_.codomain)]
    for chosen, space in sides[::-1] if map_.transposed else sides:
        if words := _block(chosen, space) if chosen.size else "":
            # Each of its entries is wrong somewhere, and nothing else is: no need to say less.
            every = described(chosen, space) == f"all of {words}"
            return f"all of {words}" if every else f"only inside {words}"
    return ""


def _block(chosen: Mask, space: Space) -> str:
    """The smallest block that holds the coordinates, all of one array."""
    first, last = (int(np.nonzero(chosen)[0][k]) for k in (0, -1))
    position = space.slot_at(first)
    slot = space.slots[position]
    if space.slot_at(last) != position or slot.entries is not None or not slot.shape:
        return ""
    pairs = chosen[space.span(position)].reshape(-1, len(slot.parts))
    mask = along(pairs, 1).reshape(slot.shape)
    along_axes = [np.nonzero(only(mask, axis))[0] for axis in range(mask.ndim)]
    lines = [(int(at[0]), int(at[-1]), 1) for at in along_axes]
    if 2 * math.prod(last - first + 1 for first, last, _ in lines) > mask.size:
        return slot.name if len(space.slots) > 1 else ""
    return _indexed(slot.name, lines, mask.shape)
