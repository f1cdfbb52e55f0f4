"""Recognisers of sums, means and broadcasts over the wrong dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from gradproof._data.space import Mask, Values
from gradproof._explain.case import MOST_AXES, SLACK, Block, Case, Match, Turn
from gradproof._judge.found import count


def over_axes(block: Block) -> Iterator[Match]:
    """Sums, means and copies along axes of the input."""
    for axes in subsets(block.shape):
        where = f"{'axis' if len(axes) == 1 else 'axes'} {', '.join(map(str, axes))}"
        for name, text, change in _changes(tuple(axis + 1 for axis in axes)):
            told = f"the gradient of {block.name} is {text} {where}"
            yield Match(name, told, block.all_fit, turn=block.along(change))


def subsets(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    axes = [axis for axis, size in enumerate(shape) if size > 1][:MOST_AXES]
    for some in range(1, len(axes) + 1):
        yield from itertools.combinations(axes, some)


def _changes(axes: tuple[int, ...]) -> Iterator[tuple[str, str, Turn]]:
    """What may go wrong along axes of (r, *shape, parts): name, words, change."""

    def spread(reduced: Callable[..., Values]) -> Turn:
        return lambda v: np.broadcast_to(reduced(v, axis=axes, keepdims=True), v.shape)

    def first(values: Values) -> Values:
        return np.broadcast_to(_first(values, axes), values.shape)

    def into_first(values: Values) -> Values:
        kept = np.zeros_like(values)
        _first(kept, axes)[...] = values.sum(axis=axes, keepdims=True)
        return kept

    yield "extra sum", "summed once more over", spread(np.sum)
    yield "extra mean", "averaged over", spread(np.mean)
    yield "first for all", "that of index 0 for all along", first
    yield "summed into the first", "summed into index 0 along", into_first


def masked(kept: Mask) -> Turn:
    """Nothing is left but where the mask, as far as it reaches, is true."""
    return lambda values: np.where(kept, values, 0.0)


def _first(values: Values, axes: tuple[int, ...]) -> Values:
    where = tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(values.ndim))
    return values[where]


def broadcast(block: Block) -> Match | None:
    """Where an input was broadcast, one slice's gradient arrives instead of the sum of all."""
    case = block.case
    if not case.outputs or len(case.codomain.slots) != 1:
        return None
    out = case.codomain.slots[0]
    if out.entries is not None or len(block.shape) > len(out.shape):
        return None
    padded = (1,) * (len(out.shape) - len(block.shape)) + block.shape
    axes = tuple(a for a, n in enumerate(padded) if n == 1 and out.shape[a] > 1)
    if not axes or any(n not in (1, size) for n, size in zip(padded, out.shape, strict=True)):
        return None
    for at in (0, -1):
        kept = np.zeros((*out.shape, len(out.parts)), dtype=bool)
        kept[tuple([at] if a in axes else slice(None) for a in range(len(out.shape)))] = True
        rows = kept.reshape(-1)
        if block.fits(masked(rows[:, None])):
            told = ", ".join(map(str, axes))
            which = "first" if at == 0 else "last"
            text = (
                f"{block.name} was broadcast along axis {told} of {out.name}, but only the "
                f"{which} slice's gradient arrives, not the sum"
            )
            return Match("broadcast sum missing", text, f"{int((~rows).sum())} outputs forgotten")
    return None


def overwritten(block: Block) -> Match | None:
    """One gradient arrives at an entry that several outputs are: stored, where it should be added.

    Where it is that of the first throughout, the outputs after it may be detached as well.
    """
    kept, read = block.claimed != 0, np.abs(block.measured) > SLACK * block.allowed
    lost = block.wrong.any(axis=0)
    copies = read.sum(axis=1).max() <= 1 and kept.sum(axis=0).max() <= 1
    if not (block.case.outputs and copies and kept[:, lost].any(axis=0).all()):
        return None
    first = kept[:, lost].argmax(axis=0) == read[:, lost].argmax(axis=0)
    if first.all() or kept[block.wrong].any():
        return None
    number = int(lost.sum())
    text = (
        f"{count(number)} of {block.name} {'is' if number == 1 else 'are'} read more than once, "
        "and only one of the gradients arrives, not their sum"
    )
    told = f"{count(int(block.wrong.sum()))} claimed 0, another of the same input right"
    return Match("overwritten", text, told)


def of_cotangent(case: Case) -> Match | None:
    """One entry of the cotangent is used for all."""
    if not case.outputs or case.claimed.shape[0] < 2:
        return None
    number = case.claimed.shape[0]
    parts = len(case.codomain.slots[0].parts)
    for entry in (0, number // parts - 1):
        if number % parts == 0 and number > parts and case.fits(_gathered(entry, parts)):
            place = case.codomain.locate(entry * parts)
            output = str(place).removesuffix(f".{place.part}") if place.part else str(place)
            text = f"the cotangent of {output} is used for every output"
            return Match("one cotangent for all", text, f"{number - parts:,} rows are 0")
    return None


def _gathered(entry: int, parts: int) -> Turn:
    """The sum of all rows in those of one output, part by part; nothing in the others."""

    def change(values: Values) -> Values:
        shaped = values.reshape(-1, parts, values.shape[1])
        made = np.zeros_like(shaped)
        made[entry] = shaped.sum(axis=0)
        return np.asarray(made.reshape(values.shape))

    return change
