"""A set of coordinates of a space, as people say it: "the last 3 of 67 rows of x", "x[:, ::2]".

Every description is exact: read again it gives the set, no more and no less. Where none of the
usual ones fits there is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradproof._space import Slot, Space

Mask = np.ndarray[Any, np.dtype[np.bool_]]

_LISTED = 3  # coordinates that are named one by one
_LEFT_OUT = 2  # likewise, where all but those belong to the set


def along(mask: Mask, axis: int) -> Mask:
    """Where a matrix has anything along an axis."""
    return np.asarray(mask.any(axis=axis))


def only(mask: Mask, axis: int) -> Mask:
    """Which positions along one axis have anything."""
    return np.asarray(mask.any(axis=tuple(k for k in range(mask.ndim) if k != axis)))


def described(chosen: Mask, space: Space) -> str:
    """Words for the coordinates of a space where `chosen` is true; "" where nothing fits."""
    whole, parts = [], []
    for position, slot in enumerate(space.slots):
        part = chosen[space.span(position)]
        if not part.any():
            continue
        if part.all():
            whole.append(slot.name)
            continue
        words = _of_slot(part, slot, position)
        if not words:
            return ""
        parts.append(words)
    if len(parts) > 2:
        return ""
    if len(whole) == 1 and not parts and space.slots[_named(space, whole[0])].size == 1:
        return whole[0]
    return _joined(([f"all of {_joined(whole)}"] if whole else []) + parts)


def _named(space: Space, name: str) -> int:
    return next(k for k, slot in enumerate(space.slots) if slot.name == name)


def _joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


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
    for words in (
        _listed(chosen, slot, position, whole),
        _box(mask, slot.name),
        _flat(mask, slot.name),
        _triangle(mask, slot.name),
        _all_but(chosen, slot, position, whole),
    ):
        if words:
            return words
    return ""


def _listed(chosen: Mask, slot: Slot, position: int, whole: bool) -> str:
    """The entries by name, if they are few."""
    number = int(chosen.sum())
    if number > _LISTED or 2 * number > max(chosen.size, 2):
        return ""
    # Two neighbours are listed, three in a row are a slice.
    at = np.nonzero(chosen)[0]
    if number == _LISTED and _progression(at) is not None:
        return ""
    return _joined([_name(int(k), slot, position, whole) for k in at])


def _name(entry: int, slot: Slot, position: int, whole: bool) -> str:
    place = slot.place(entry * len(slot.parts), position)
    text = str(place)
    return text.removesuffix(f".{place.part}") if whole and place.part else text


def _all_but(chosen: Mask, slot: Slot, position: int, whole: bool) -> str:
    missing = np.nonzero(~chosen)[0]
    if missing.size > _LEFT_OUT or chosen.size < 4 * missing.size:
        return ""
    names = [_name(int(k), slot, position, whole) for k in missing]
    return f"every entry of {slot.name} but {_joined(names)}"


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


def sliced(mask: Mask, name: str) -> str:
    """The smallest block that holds the mask, as Python writes it: "y[:, 64:]"."""
    lines = []
    for axis in range(mask.ndim):
        at = np.nonzero(only(mask, axis))[0]
        lines.append((int(at[0]), int(at[-1]), 1))
    return f"{name}[{', '.join(map(_slice, lines, mask.shape))}]"


def _box(mask: Mask, name: str) -> str:
    """A product of slices: heads, tails, rows, columns, blocks, every k-th."""
    lines = _lines(mask) if mask.ndim else None
    if lines is None:
        return ""
    limited = [k for k, n in enumerate(mask.shape) if lines[k] != (0, n - 1, 1)]
    text = f"{name}[{', '.join(map(_slice, lines, mask.shape))}]"
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
    """The same of an array of several dimensions read as one line."""
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


def unlikely(size: int, chosen: int, least: float) -> bool:
    """Whether a set of `chosen` of `size` matches a rule by chance less than once in `least`."""
    return math.comb(size, chosen) >= least
