"""A set of coordinates of a space, as people say it: "the last 3 of 67 rows of x", "x[:, ::2]".

Every description is exact: read again it gives the set, no more and no less. Where none of the
usual ones fits there is none.
"""

from __future__ import annotations

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
    is_slice = at.size == _LISTED and _progression(at) is not None and slot.entries is None
    if at.size <= _LISTED and 2 * at.size <= max(chosen.size, 2) and not is_slice:
        return join_words([_name_of_entry(int(entry), slot, position) for entry in at])
    if slot.entries is not None or not slot.shape:
        return ""
    mask = chosen.reshape(slot.shape)
    return _words_of_box(mask, slot.name)


def _name_of_entry(entry: int, slot: Slot, position: int) -> str:
    place = slot.place(entry * len(slot.parts), position)
    return str(place).removesuffix(f".{place.part}") if place.part else str(place)


def _progression(at: Indices) -> tuple[int, int, int] | None:
    """Start, last and step of increasing integers that are evenly spaced."""
    if at.size == 1:
        return int(at[0]), int(at[0]), 1
    steps = np.diff(at)
    if (steps != steps[0]).any():
        return None
    return int(at[0]), int(at[-1]), int(steps[0])


def _slice_text(line: tuple[int, int, int], size: int) -> str:
    """Start, last and step as Python writes them, for an axis of this size."""
    start, last, step = line
    if start == last:
        return str(start)
    first = "" if start == 0 else str(start)
    stop = "" if last + step >= size else str(last + 1)
    return f"{first}:{stop}" + ("" if step == 1 else f":{step}")


def _words_of_box(mask: Mask, name: str) -> str:
    """A product of slices: heads, tails, rows, columns, blocks, every k-th."""
    lines = []
    for axis in range(mask.ndim):
        others = tuple(k for k in range(mask.ndim) if k != axis)
        line = _progression(np.nonzero(mask.any(axis=others))[0])
        if line is None:
            return ""
        lines.append(line)
    slices = tuple(slice(start, last + 1, step) for start, last, step in lines)
    if not mask[slices].all():
        return ""
    limited = [axis for axis, size in enumerate(mask.shape) if lines[axis] != (0, size - 1, 1)]
    start, last, step = lines[0]
    size, count = mask.shape[0], last - start + 1
    if limited == [0] and step == 1 and count > 1 and (start == 0 or last == size - 1):
        which, noun = "first" if start == 0 else "last", "rows" if mask.ndim > 1 else "entries"
        return f"the {which} {count:,} of {size:,} {noun} of {name}"
    return f"{name}[{', '.join(map(_slice_text, lines, mask.shape))}]"
