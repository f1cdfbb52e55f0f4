"""A set of coordinates of a space, as people say it: "the last 3 of 67 rows of x", "x[:, ::2]".

Every description is exact: read again it gives the set, no more and no less. Where none of the
usual ones fits there is none.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradproof._data.space import Indices, Mask, Slot, Space
from gradproof._data.visible import join_words

_LISTED = 3  # entries that a sentence names


def words_of_coordinates(chosen: Mask, space: Space) -> str:
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
        entries = part.reshape(-1, len(slot.parts))
        is_of_both_parts = (entries == entries[:, :1]).all()
        words = _words_of_entries(entries[:, 0], slot, position) if is_of_both_parts else ""
        if not words:
            return ""
        parts.append(words)
    if len(parts) > 2:
        return ""
    if len(whole) == 1 and not parts and whole[0].size == 1:
        return whole[0].name
    names = [slot.name for slot in whole]
    return join_words(([f"all of {join_words(names)}"] if whole else []) + parts)


def _words_of_entries(chosen: Mask, slot: Slot, position: int) -> str:
    """Words for some entries of an array, real and imaginary parts together."""
    at = np.nonzero(chosen)[0]
    # Two neighbours are listed, three in a row are a slice.
    is_slice = at.size == _LISTED and _slice_of(at) is not None and slot.entries is None
    if at.size <= _LISTED and 2 * at.size <= max(chosen.size, 2) and not is_slice:
        places = [slot.place(int(entry) * len(slot.parts), position) for entry in at]
        return join_words([str(replace(place, part="")) for place in places])
    if slot.entries is not None or not slot.shape:
        return ""
    return _words_of_box(chosen.reshape(slot.shape), slot.name)


def _slice_of(at: Indices) -> slice | None:
    """The slice of these increasing integers; None where they are not evenly spaced."""
    step = int(at[1] - at[0]) if at.size > 1 else 1
    found = slice(int(at[0]), int(at[-1]) + 1, step)
    return found if np.array_equal(at, np.arange(found.start, found.stop, step)) else None


def _slice_text(line: slice, size: int) -> str:
    """A slice as Python writes it, for an axis of this size."""
    if line.stop == line.start + 1:
        return str(line.start)
    first = "" if line.start == 0 else str(line.start)
    stop = "" if line.stop - 1 + line.step >= size else str(line.stop)
    return f"{first}:{stop}" + ("" if line.step == 1 else f":{line.step}")


def _words_of_box(mask: Mask, name: str) -> str:
    """A product of slices: heads, tails, rows, columns, blocks, every k-th."""
    lines = []
    for axis in range(mask.ndim):
        others = tuple(k for k in range(mask.ndim) if k != axis)
        line = _slice_of(np.nonzero(mask.any(axis=others))[0])
        if line is None:
            return ""
        lines.append(line)
    if not mask[tuple(lines)].all():
        return ""
    limited = [axis for axis, size in enumerate(mask.shape) if lines[axis] != slice(0, size, 1)]
    line, size = lines[0], mask.shape[0]
    count = line.stop - line.start
    if limited == [0] and line.step == 1 and count > 1 and (line.start == 0 or line.stop == size):
        which, noun = "first" if line.start == 0 else "last", "rows" if mask.ndim > 1 else "entries"
        return f"the {which} {count:,} of {size:,} {noun} of {name}"
    return f"{name}[{', '.join(map(_slice_text, lines, mask.shape))}]"
