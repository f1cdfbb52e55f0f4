"""Other inputs for a function: the arrays of one call with other values and of other sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from gradproof._adapters.arrays import name_at
from gradproof._adapters.double import doubled_values
from gradproof._data.inputs import parameter_names

Values = np.ndarray[Any, Any]

# A single one, an odd number, and both neighbours of powers of two, in which kernels make blocks.
SIZES = (1, 5, 31, 33, 127, 129)
LARGEST = 20_000  # entries of all arrays together

CHANGES: dict[str, Callable[[Values], Any]] = {
    "one zero": lambda values: values * (np.arange(values.size) > 0).reshape(values.shape),
    "zeros": np.zeros_like,
    "ties": lambda values: np.full_like(values, values.reshape(-1)[0]),
    "negative values": lambda values: -np.abs(values),
    "positive values": np.abs,
    "large values": lambda values: 32 * values,
    "small values": lambda values: values * 2.0**-20,
}


@dataclass(frozen=True)
class Case:
    """One call to try: the change in words, and values for each of `Samples.found`."""

    label: str
    arrays: tuple[Values, ...]
    shaped: bool = False  # whether a shape is another than in the given call


class Samples:
    """The arrays and flags among the arguments of a call; containers of arrays stay as they are.

    Args:
        adapter: of a framework; its `values_of` and `made_like` know the arrays.
        fn: the function; only the names of its parameters are used.
        inputs: positional arguments.
        kwargs: keyword arguments.

    Attributes:
        found: name and values of each array and flag, in double precision, integers or bools.
    """

    def __init__(
        self,
        adapter: ModuleType,
        fn: Callable[..., Any],
        inputs: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        kwargs = kwargs or {}
        self._adapter, self._count, self._keywords = adapter, len(inputs), tuple(kwargs)
        self._arguments = [*inputs, *kwargs.values()]
        names = [name_at(parameter_names(fn), place) for place in range(len(inputs))]
        self._places: list[int] = []
        self.found: list[tuple[str, Values]] = []
        for place, (name, given) in enumerate(zip([*names, *kwargs], self._arguments, strict=True)):
            values = np.asarray(given) if isinstance(given, bool) else adapter.values_of(given)
            if values is not None:
                self._places.append(place)
                self.found.append((name, doubled_values(values)))

    def call(self, arrays: Sequence[Values]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments with these values."""
        arguments = list(self._arguments)
        for place, (_, given), values in zip(self._places, self.found, arrays, strict=True):
            if isinstance(arguments[place], bool):
                arguments[place] = bool(values)
            elif values is not given:
                arguments[place] = self._adapter.made_like(arguments[place], values)
        keywords = zip(self._keywords, arguments[self._count :], strict=True)
        return tuple(arguments[: self._count]), dict(keywords)

    def cases(self, seed: int) -> Iterator[Case]:
        """All that a sweep tries; the same for the same seed."""
        base = [values for _, values in self.found]
        floats = [k for k, values in enumerate(base) if values.dtype.kind in "fc" and values.size]
        for label, change in CHANGES.items():  # of all arrays, then of each alone
            for chosen in [floats, *([k] for k in floats if len(floats) > 1)]:
                arrays = tuple(change(a) if k in chosen else a for k, a in enumerate(base))
                if any(not np.array_equal(a, b) for a, b in zip(arrays, base, strict=True)):
                    alone = f" in {self.found[chosen[0]][0]}" if len(chosen) < len(floats) else ""
                    yield Case(label + alone, arrays)
        for k, (name, values) in enumerate(self.found):
            if isinstance(self._arguments[self._places[k]], bool):
                label, other = f"{name}={not values}", np.logical_not(values)
            elif values.dtype.kind in "iu" and values.size > 1:
                label, other = f"ties in {name}", CHANGES["ties"](values)
            else:
                continue
            yield Case(label, (*base[:k], other, *base[k + 1 :]))
        rng = np.random.default_rng(seed)
        for size in sorted({size for values in base for size in values.shape}):
            for other_size in SIZES:
                shapes = [tuple(other_size if n == size else n for n in a.shape) for a in base]
                if other_size != size and sum(map(math.prod, shapes)) <= LARGEST:
                    pairs = zip(base, shapes, strict=True)
                    arrays = tuple(a if a.shape == s else _resized(a, s, rng) for a, s in pairs)
                    yield Case(f"sizes of {size} made {other_size}", arrays, shaped=True)


def _resized(values: Values, shape: tuple[int, ...], rng: np.random.Generator) -> Values:
    """Values of another shape: each lies between two of the given ones; indices are among them."""
    flat, count = values.reshape(-1), math.prod(shape)
    if not flat.size:
        return np.asarray(rng.standard_normal(shape), dtype=values.dtype)
    one, other = flat[rng.integers(flat.size, size=(2, count))]
    if values.dtype.kind in "fc":
        one = other + rng.uniform(size=count) * (one - other)
    return np.reshape(one, shape)
