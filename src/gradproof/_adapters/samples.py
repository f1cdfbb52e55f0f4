"""The arrays of a call taken out as NumPy's, and put in again: what a sweep varies."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from gradproof._adapters.foreign import in_double
from gradproof._measure.regimes import Sample, Values

_MOST = 64  # entries that are written out


class Words(NamedTuple):
    """How a framework's arrays are taken out, made and written."""

    # Of an array: "float", "integer", or "" where it is not varied; "" for what is none.
    kind: Callable[[Any], str]
    # Its numbers, in float64, complex128 or an integer dtype; `on_host` of most.
    values: Callable[[Any], Values]
    made: Callable[[Any, Values], Any]  # (an array, other numbers) -> an array like it
    module: str  # its name in a program, "torch"
    array: str  # the function in it that makes an array of numbers, "tensor"
    dtype: Callable[[Any], str]  # of an array, as written in a program
    # An array -> what marks one as differentiable: an argument, or a method afterwards.
    asking: Callable[[Any], tuple[str, str]] = lambda _: ("", "")


def on_host(leaf: Any) -> Values:
    """The numbers of an array that NumPy can read."""
    return in_double(np.array(leaf))


class Samples:
    """What of the arguments of a call can be varied: arrays, floats and flags.

    Args:
        leaves: of the arguments, each with its name.
        rebuilt: leaves -> positional and keyword arguments.
        words: of the framework.

    Attributes:
        found: one sample each.
    """

    # While the function is run at other inputs: keeps out those that would end the process.
    guard: Callable[[], AbstractContextManager[Any]] = nullcontext

    def __init__(
        self,
        leaves: Sequence[tuple[str, Any]],
        rebuilt: Callable[[list[Any]], tuple[tuple[Any, ...], dict[str, Any]]],
        words: Words,
    ) -> None:
        self._leaves, self._rebuilt, self._words = [leaf for _, leaf in leaves], rebuilt, words
        self._places: list[int] = []
        self.found: list[Sample] = []
        for place, (name, leaf) in enumerate(leaves):
            of_array = words.kind(leaf)
            if kind := of_array or _of_number(leaf):
                values = words.values(leaf) if of_array else np.asarray(leaf)
                self._places.append(place)
                self.found.append(Sample(name, values, kind))

    def call(self, arrays: Sequence[Values]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments with these values."""
        leaves = list(self._leaves)
        for place, sample, array in zip(self._places, self.found, arrays, strict=True):
            if not self._words.kind(leaves[place]):
                leaves[place] = array.item()
            elif array is not sample.values:
                leaves[place] = self._words.made(leaves[place], array)
        return self._rebuilt(leaves)

    def written(self, arrays: Sequence[Values]) -> list[str]:
        """One line of Python for each array; floats and flags are written in the call."""
        lines = []
        for place, sample, array in zip(self._places, self.found, arrays, strict=True):
            leaf = self._leaves[place]
            if self._words.kind(leaf):
                name = re.sub("^input ", "x", sample.name)  # x0 for "input 0"
                lines.append(f"{name} = {_source(self._words, leaf, array)}")
        return lines


def _of_number(leaf: Any) -> str:
    """The kind of a number of Python; "" for what is not varied."""
    if isinstance(leaf, bool):
        return "flag"
    return "number" if isinstance(leaf, float) else ""


def _source(words: Words, leaf: Any, array: Values) -> str:
    dtype, (argument, method) = f"dtype={words.dtype(leaf)}", words.asking(leaf)
    shape, flat = tuple(array.shape), array.reshape(-1)
    if not array.size:
        return f"{words.module}.zeros({shape}, {dtype}{argument})"
    if array.size > 1 and bool((flat == flat[0]).all()):
        return f"{words.module}.full({shape}, {flat[0].item()!r}, {dtype}{argument})"
    if array.size > _MOST and np.array_equal(flat, np.linspace(0.5, 1.5, array.size)):
        ramp = f"{words.module}.linspace(0.5, 1.5, {array.size}, {dtype})"
        return f"{ramp}.reshape({shape}){method}"
    return f"{words.module}.{words.array}({array.tolist()}, {dtype}{argument})"
