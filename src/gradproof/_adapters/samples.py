"""The arrays of a call taken out as NumPy's, and put in again: what a sweep varies."""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from gradproof._adapters.foreign import in_double
from gradproof._measure.regimes import Sample, Values

_MOST = 64  # entries that are written out

Leaves = Sequence[tuple[str, Any]]  # of the arguments, each with its name
Rebuilt = Callable[[list[Any]], Sequence[Any]]  # leaves -> positional and keyword arguments


class Samples(abc.ABC):
    """What of the arguments of a call can be varied: arrays, floats and flags.

    Attributes:
        found: one sample each.
        module: name of the framework in a program, "torch".
        array: of the function in it that makes an array of numbers, "tensor".
    """

    # While the function is run at other inputs: keeps out those that would end the process.
    guard: Callable[[], AbstractContextManager[Any]] = nullcontext
    module: str
    array: str

    def __init__(
        self, fn: Callable[..., Any], inputs: Sequence[Any], kwargs: Mapping[str, Any] | None
    ) -> None:
        leaves, self._rebuilt = self.taken_apart(fn, tuple(inputs), dict(kwargs or {}))
        self._leaves = [leaf for _, leaf in leaves]
        self._places: list[int] = []
        self.found: list[Sample] = []
        for place, (name, leaf) in enumerate(leaves):
            of_array = self.kind(leaf)
            if kind := of_array or _of_number(leaf):
                values = self.values(leaf) if of_array else np.asarray(leaf)
                self._places.append(place)
                self.found.append(Sample(name, values, kind))

    @abc.abstractmethod
    def taken_apart(
        self, fn: Callable[..., Any], inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Leaves, Rebuilt]:
        """The leaves of the arguments, and how arguments are made of others."""

    @abc.abstractmethod
    def kind(self, leaf: Any) -> str:
        """The kind of an array, "float" or "integer"; "" for what is not varied, or no array."""

    def values(self, leaf: Any) -> Values:
        """The numbers of an array, in float64, complex128 or an integer dtype."""
        return in_double(np.array(leaf))

    @abc.abstractmethod
    def made(self, leaf: Any, array: Values) -> Any:
        """An array like `leaf` of other numbers."""

    @abc.abstractmethod
    def dtype(self, leaf: Any) -> str:
        """The dtype of an array, as a program writes it."""

    def asking(self, leaf: Any) -> tuple[str, str]:  # noqa: ARG002  # a default
        """What marks an array as differentiable: an argument, or a method afterwards."""
        return "", ""

    def call(self, arrays: Sequence[Values]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments with these values."""
        leaves = list(self._leaves)
        for place, sample, array in zip(self._places, self.found, arrays, strict=True):
            if not self.kind(leaves[place]):
                leaves[place] = array.item()
            elif array is not sample.values:
                leaves[place] = self.made(leaves[place], array)
        inputs, kwargs = self._rebuilt(leaves)
        return inputs, kwargs

    def written(self, arrays: Sequence[Values]) -> list[str]:
        """One line of Python for each array; floats and flags are written in the call."""
        lines = []
        for place, sample, array in zip(self._places, self.found, arrays, strict=True):
            leaf = self._leaves[place]
            if self.kind(leaf):
                name = re.sub("^input ", "x", sample.name)  # x0 for "input 0"
                lines.append(f"{name} = {self.module}.{self._source(leaf, array)}")
        return lines

    def _source(self, leaf: Any, array: Values) -> str:
        dtype, (argument, method) = f"dtype={self.dtype(leaf)}", self.asking(leaf)
        shape, flat = tuple(array.shape), array.reshape(-1)
        if not array.size:
            return f"zeros({shape}, {dtype}{argument})"
        if array.size > 1 and bool((flat == flat[0]).all()):
            return f"full({shape}, {flat[0].item()!r}, {dtype}{argument})"
        if array.size > _MOST and np.array_equal(flat, np.linspace(0.5, 1.5, array.size)):
            return f"linspace(0.5, 1.5, {array.size}, {dtype}).reshape({shape}){method}"
        return f"{self.array}({array.tolist()}, {dtype}{argument})"


def _of_number(leaf: Any) -> str:
    """The kind of a number of Python; "" for what is not varied."""
    if isinstance(leaf, bool):
        return "flag"
    return "number" if isinstance(leaf, float) else ""
