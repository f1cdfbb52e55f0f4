"""Other inputs for a function: the arrays of one call with other values and of other sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from gradproof._adapters.arrays import name_at
from gradproof._data.inputs import parameter_names

Values = np.ndarray[Any, Any]

# A single one, an odd number, and both neighbours of powers of two, in which kernels make blocks.
SIZES = (1, 5, 31, 33, 127, 129)
LARGEST = 20_000  # entries of the resized arrays together

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
class SampleCall:
    """One call to try: the change in words, and the new values of what is changed, by name."""

    label: str
    changed: Mapping[str, Values]
    resized: bool = False


class Samples:
    """The arrays and flags among the arguments of a call; containers of arrays stay as they are.

    Args:
        adapter: of a framework; its `values_of` and `array_like` know the arrays.
        fn: the function; only the names of its parameters are used.
        inputs: positional arguments.
        kwargs: keyword arguments.

    Attributes:
        values: of each array and flag by name, in double precision, integers or bools.
    """

    def __init__(
        self, adapter: ModuleType, fn: Callable[..., Any], inputs: Sequence[Any], kwargs: Any = None
    ) -> None:
        self._adapter = adapter
        names = parameter_names(fn)
        self._inputs = {name_at(names, place): given for place, given in enumerate(inputs)}
        self._kwargs = dict(kwargs or {})
        self.values: dict[str, Values] = {}
        for name, given in (self._inputs | self._kwargs).items():
            values = np.asarray(given) if isinstance(given, bool) else adapter.values_of(given)
            if values is not None:
                self.values[name] = _doubled_values(values)

    def call(self, case: SampleCall) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments, new where the case changes them."""
        inputs, kwargs = dict(self._inputs), dict(self._kwargs)
        for name, values in case.changed.items():
            arguments = inputs if name in inputs else kwargs
            flag = isinstance(arguments[name], bool)
            new = bool(values) if flag else self._adapter.array_like(arguments[name], values)
            arguments[name] = new
        return tuple(inputs.values()), kwargs

    def cases(self, seed: int) -> Iterator[SampleCall]:
        """All that a sweep tries; the same for the same seed."""
        for label, changed in self._changed_values():
            if any(not np.array_equal(self.values[name], new) for name, new in changed.items()):
                yield SampleCall(label, changed)
        rng = np.random.default_rng(seed)
        for size in sorted({size for values in self.values.values() for size in values.shape}):
            alike = {n: a for n, a in self.values.items() if size in a.shape and a.size}
            for other in SIZES:
                shapes = {
                    name: tuple(other if extent == size else extent for extent in values.shape)
                    for name, values in alike.items()
                }
                if other != size and 0 < sum(map(math.prod, shapes.values())) <= LARGEST:
                    changed = {
                        n: _resized_values(alike[n], shape, rng) for n, shape in shapes.items()
                    }
                    yield SampleCall(
                        f"every size of {size} changed to {other}", changed, resized=True
                    )

    def _changed_values(self) -> Iterator[tuple[str, dict[str, Values]]]:
        floats = {n: a for n, a in self.values.items() if a.dtype.kind in "fc" and a.size}
        for label, change in CHANGES.items():  # of all arrays, then of each alone
            changed = {name: change(values) for name, values in floats.items()}
            yield label, changed
            if len(floats) > 1:
                for name, values in changed.items():
                    yield f"{label} in {name}", {name: values}
        for name, values in self.values.items():
            if values.dtype.kind in "iu" and values.size:
                yield f"ties in {name}", {name: CHANGES["ties"](values)}
            elif values.dtype.kind == "b" and not values.shape:
                yield f"{name}={not values}", {name: np.logical_not(values)}


def _doubled_values(values: Values) -> Values:
    """An array with the same numbers in float64 or complex128; integers and flags stay."""
    is_exact = values.dtype.kind in "iub"
    return values if is_exact else values.astype(np.result_type(values.dtype, np.float64))


def _resized_values(values: Values, shape: tuple[int, ...], rng: np.random.Generator) -> Values:
    """Values of another shape: each lies between two of the given ones; indices are among them."""
    one, other = values.reshape(-1)[rng.integers(values.size, size=(2, *shape))]
    if values.dtype.kind in "fc":
        one = other + rng.uniform(size=shape) * (one - other)
    return np.asarray(one)
