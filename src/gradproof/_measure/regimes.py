"""Other inputs than the given ones: values and shapes at which derivatives are often wrong.

From the arrays of one call other arrays are made, that the same function may well take: exact
zeros, ties, signs, scales, single extents, extents across the borders of blocks. Where it does not
take them, that is no fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradproof._measure.steps import SMOOTH

Values = np.ndarray[Any, Any]

SIZES = (1, 2, 3, 5)
BLOCKS = (31, 32, 33, 63, 64, 65, 127, 128, 129)
LARGEST = 20_000  # entries of all arrays together


@dataclass(frozen=True)
class Sample:
    """One array, or number, of a call."""

    name: str  # as in the report
    values: Values  # float64, complex128 or int64; 0-d for a number
    # "float" (complex included), "integer", "number" for a float of Python, "flag" for a bool of
    # Python.
    kind: str


@dataclass(frozen=True)
class Case:
    """One call to try instead.

    Attributes:
        label: what is special about it, "one exact zero".
        arrays: one per sample.
        shaped: whether a shape is another than in the given call.
    """

    label: str
    arrays: tuple[Values, ...]
    shaped: bool = False


def cases(samples: Sequence[Sample], seed: int, numbers: Sequence[float] = ()) -> Iterator[Case]:
    """All that is tried, the likeliest first; the same for the same seed.

    `numbers` are those at which the function may branch.
    """
    rng = np.random.default_rng(seed)
    base = [sample.values for sample in samples]
    yield from _of_values(samples, base)
    yield from _beside(samples, base, numbers)
    yield from _of_constants(samples, base)
    yield from _of_extents(samples, base, rng)
    yield from _of_ranks(samples, base, rng)
    yield from _of_blocks(samples, base, rng)


# Values.


def _put(values: Values, places: Sequence[int], what: float) -> Values:
    made: Values = values.copy()
    for place in places:
        made.reshape(-1)[place] = what
    return made


def _doubled(values: Values) -> Values:
    """The second half repeats the first."""
    flat = values.reshape(-1)
    half = (flat.size + 1) // 2
    made: Values = np.concatenate([flat[:half], flat[: flat.size - half]])
    made.shape = values.shape
    return made


_VALUES: dict[str, Callable[[Values], Any]] = {
    "zeros": np.zeros_like,
    "one exact zero": lambda a: _put(a, [a.size // 2], 0.0),
    "two exact zeros": lambda a: _put(a, [0, a.size - 1], 0.0),
    "ties": lambda a: np.full_like(a, a.reshape(-1)[0].item()),
    "duplicates": _doubled,
    "negative values": lambda a: -np.abs(a),
    "positive values": np.abs,
    "whole numbers": lambda a: np.rint(2 * a),
    "ones": np.ones_like,
    "large values": lambda a: 32 * a,
    "large positive values": lambda a: 32 * np.abs(a),
    "small values": lambda a: a * 2.0**-20,
}


def _of_values(samples: Sequence[Sample], base: list[Values]) -> Iterator[Case]:
    """Each regime for all arrays at once, then for each alone: the others may not take it."""
    places = [k for k, s in enumerate(samples) if s.kind == "float" and s.values.size]
    for label, change in _VALUES.items():
        for chosen in [places, *([k] for k in places if len(places) > 1)]:
            arrays = [change(a) if k in chosen else a for k, a in enumerate(base)]
            if any(not np.array_equal(a, b) for a, b in zip(arrays, base, strict=True)):
                alone = f" in {samples[chosen[0]].name}" if len(chosen) < len(places) else ""
                yield Case(label + alone, tuple(arrays))


def _beside(
    samples: Sequence[Sample], base: list[Values], numbers: Sequence[float]
) -> Iterator[Case]:
    """Entries on both sides of each number, in turn; then those that were below it above it.

    So many entries are as many distances, between a 64th and a 32nd of the number.
    """
    places = [k for k, s in enumerate(samples) if s.kind == "float" and s.values.size]
    for number, first in ((number, side) for number in numbers for side in (-1.0, 1.0)):
        arrays = list(base)
        for k in places:
            count = np.arange(base[k].size)
            sides = np.where(count % 2 == 0, first, -first)
            apart = SMOOTH * (1 + count / base[k].size) * (abs(number) or 1.0)
            arrays[k] = (number + sides * apart).astype(base[k].dtype).reshape(base[k].shape)
        if places:
            yield Case(f"both sides of {number:.6g}", tuple(arrays))


def _of_constants(samples: Sequence[Sample], base: list[Values]) -> Iterator[Case]:
    """Indices that repeat, numbers that are not 1, flags the other way round."""
    for k, sample in enumerate(samples):
        others = {
            "integer": [np.full_like(sample.values, v) for v in sample.values.reshape(-1)[:1]],
            "number": [sample.values * 1.5, sample.values * 0.5],
            "flag": [np.logical_not(sample.values)],
        }
        for other in others.get(sample.kind, []):
            if not np.array_equal(other, sample.values):
                what = "one index throughout" if sample.kind == "integer" else f"{other}"
                yield Case(f"{sample.name}: {what}", (*base[:k], other, *base[k + 1 :]))


# Shapes.


def resized(values: Values, shape: tuple[int, ...], rng: np.random.Generator) -> Values:
    """Other values of the same range: each between two of the given ones; indices among them."""
    count, flat = math.prod(shape), values.reshape(-1)
    if not flat.size:
        return rng.standard_normal(count).astype(values.dtype).reshape(shape)
    first = flat[rng.integers(flat.size, size=count)]
    if values.dtype.kind not in "fc":
        return first.reshape(shape)
    part = rng.uniform(size=count)
    return (part * first + (1 - part) * flat[rng.integers(flat.size, size=count)]).reshape(shape)


def _shaped(
    label: str, base: list[Values], shapes: Sequence[tuple[int, ...]], rng: np.random.Generator
) -> Iterator[Case]:
    if sum(map(math.prod, shapes)) > LARGEST:
        return
    pairs = zip(base, shapes, strict=True)
    arrays = [a if a.shape == shape else resized(a, shape, rng) for a, shape in pairs]
    if any(a is not b for a, b in zip(arrays, base, strict=True)):
        yield Case(label, tuple(arrays), shaped=True)


def extents(arrays: Sequence[Values]) -> dict[int, list[tuple[int, int]]]:
    """Extent -> the dimensions that have it, each as (array, axis)."""
    found: dict[int, list[tuple[int, int]]] = {}
    for k, array in enumerate(arrays):
        for axis, size in enumerate(array.shape):
            found.setdefault(size, []).append((k, axis))
    return found


def with_extent(
    arrays: Sequence[Values], dimensions: Sequence[tuple[int, int]], size: int
) -> list[tuple[int, ...]]:
    """The shapes with some dimensions of another size."""
    shapes = [list(array.shape) for array in arrays]
    for k, axis in dimensions:
        shapes[k][axis] = size
    return [tuple(shape) for shape in shapes]


def _of_extents(
    samples: Sequence[Sample], base: list[Values], rng: np.random.Generator
) -> Iterator[Case]:
    """Dimensions of one size changed together, then one at a time: they may be equal by chance."""
    for size, dimensions in extents(base).items():
        for other in (*SIZES, 0):
            shapes = with_extent(base, dimensions, other)
            yield from _shaped(f"extents of {size} made {other}", base, shapes, rng)
        for k, axis in dimensions if len(dimensions) > 1 else []:
            label = f"dimension {axis} of {samples[k].name} made {size + 1}"
            yield from _shaped(label, base, with_extent(base, [(k, axis)], size + 1), rng)


def _of_ranks(
    samples: Sequence[Sample], base: list[Values], rng: np.random.Generator
) -> Iterator[Case]:
    arrays = [k for k, s in enumerate(samples) if s.kind in ("float", "integer")]
    rank = max((base[k].ndim for k in arrays), default=0)
    highest = [k for k in arrays if base[k].ndim == rank]
    for chosen in [arrays, highest] if highest != arrays else [arrays]:
        ways: dict[str, Callable[[tuple[int, ...]], tuple[int, ...]]] = {
            "a dimension more in front": lambda shape: (2, *shape),
            "a dimension more at the end": lambda shape: (*shape, 2),
            "a dimension less in front": lambda shape: shape[1:],
        }
        for label, change in ways.items():
            shapes = [change(a.shape) if k in chosen else a.shape for k, a in enumerate(base)]
            yield from _shaped(label, base, shapes, rng)


def _of_blocks(
    samples: Sequence[Sample], base: list[Values], rng: np.random.Generator
) -> Iterator[Case]:
    """Extents on both sides of the sizes of blocks, in which kernels work."""
    del samples
    found = extents(base)
    for size in sorted(found, reverse=True)[:2]:
        for other in BLOCKS:
            shapes = with_extent(base, found[size], other)
            yield from _shaped(f"extents of {size} made {other}", base, shapes, rng)


# Smaller ones.


def smaller(case: Case, base: Sequence[Values]) -> Iterator[Case]:
    """Simpler cases of the same kind: fewer entries, then values as given, then round ones."""
    arrays = list(case.arrays)
    for size, dimensions in sorted(extents(arrays).items(), reverse=True):
        for other in dict.fromkeys((1, 2, size // 2, size - 1)):
            if 0 < other < size:
                kept = list(arrays)
                for k, axis in dimensions:
                    kept[k] = np.take(kept[k], range(other), axis=axis)
                yield Case(case.label, tuple(kept), shaped=True)
    for k, (array, given) in enumerate(zip(arrays, base, strict=True)):
        if array.shape == given.shape and not np.array_equal(array, given):
            yield Case(case.label, (*arrays[:k], given, *arrays[k + 1 :]), case.shaped)
    roundings: list[Callable[[Values], Any]] = [_ramp, np.rint, lambda a: np.round(a, 1)]
    for rounded in roundings:
        others = [rounded(a) if a.dtype.kind in "fc" and a.ndim else a for a in arrays]
        if any(not np.array_equal(a, b) for a, b in zip(arrays, others, strict=True)):
            yield Case(case.label, tuple(others), case.shaped)


def _ramp(values: Values) -> Values:
    """Evenly spaced values of no meaning; zeros stay."""
    ramp = np.linspace(0.5, 1.5, values.size).reshape(values.shape).astype(values.dtype)
    return np.where(values == 0, values, ramp)
