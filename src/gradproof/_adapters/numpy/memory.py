"""Arrays of NumPy in memory: how cotangents lie in it, and who writes where he should not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradproof._guard import restored
from gradproof._guard.random import RandomState, draw, effect_on

_LAYOUTS = ("transposed", "gaps", "offset", "expanded")


def layouts_for(shapes: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
    """The layouts that change how a cotangent of one of these shapes lies in memory."""
    sizes = [np.prod(shape, dtype=int) for shape in shapes]
    if not any(sizes) or not all(shapes):
        return ()
    many = any(size > 1 for size in sizes)
    square = any(sum(extent > 1 for extent in shape) > 1 for shape in shapes)
    fits = {"transposed": square, "gaps": many, "offset": True, "expanded": many}
    return tuple(layout for layout in _LAYOUTS if fits[layout])


def in_layout(array: Any, layout: str) -> Any:
    """The values of a contiguous array in another memory layout.

    "expanded" repeats the first entry. What lies between or before the entries is NaN.
    """
    if not array.size or not array.ndim:
        return array
    if layout == "transposed":
        return np.asfortranarray(array)
    if layout == "expanded":
        return np.broadcast_to(array.ravel()[0], array.shape)
    step, start = (2, 4) if layout == "gaps" else (1, 3)
    wide = np.full(start + step * array.size, np.nan, dtype=array.dtype)[start:]
    view = wide.reshape(*array.shape[:-1], step * array.shape[-1])[..., ::step]
    view[...] = array
    return view


def changes(
    forward: Callable[[], Any],
    backward: Callable[[], Any],
    names: Sequence[str],
    arrays: Sequence[Any],
    cotangents: Sequence[Any],
    constants: Sequence[Any],
) -> list[tuple[str, str]]:
    """What a run of the function and its backward changed, each as (kind, sentence).

    The global random states are put back.
    """
    random = RandomState()
    before = [_kept(arrays), _kept(cotangents), _kept(constants)]
    found: list[tuple[str, str]] = []

    def run() -> None:
        forward()
        backward()

    with restored(random.restore):
        draw()  # earlier runs may have set a state
        begun = RandomState()
        forward()
        first = _changed(arrays, before[0])
        found += [("input", f"the function changed its input {names[k]}") for k in first]
        backward()
        later = set(_changed(arrays, before[0])) - set(first)
        found += [("input", f"the backward changed the input {names[k]}") for k in sorted(later)]
        if _changed(cotangents, before[1]):
            found.append(("cotangent", "the backward changed its cotangent, which others may use"))
        if _changed(constants, before[2]):
            found.append(("input", "a run changed one of the arguments that are not tested"))
        found += effect_on("a run", begun, run)
    return found


def _kept(values: Sequence[Any]) -> list[Any]:
    return [value.copy() if isinstance(value, np.ndarray) else None for value in values]


def _changed(values: Sequence[Any], before: Sequence[Any]) -> list[int]:
    return [
        place
        for place, (value, kept) in enumerate(zip(values, before, strict=True))
        if kept is not None and not np.array_equal(value, kept, equal_nan=kept.dtype.kind in "fc")
    ]
