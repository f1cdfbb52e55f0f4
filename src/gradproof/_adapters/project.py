"""Projections of arrays to valid ones: symmetric, triangular, of positive entries, ..."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradproof._data.frames import raised
from gradproof._data.options import shown
from gradproof.errors import UsageError

Projection = Callable[[Any], Any]

# Units of rounding by which a projection may move a valid input: as many operations an entry, of
# which k in a row are off by k units at most (Higham, Accuracy and Stability of Numerical
# Algorithms, 2002, section 3.1).
_UNITS = 16.0


@dataclass(frozen=True)
class Input:
    """An input that may be projected."""

    name: str  # of it
    array: Callable[[], Any]  # a private array with its values
    kinds: tuple[type, ...]  # types of such arrays
    unit: float  # unit round-off of its dtype
    # Array -> its entries in an array of NumPy, in double precision.
    numbers: Callable[[Any], np.ndarray[Any, Any]]


def projections(project: Any, inputs: Sequence[Input]) -> dict[str, Projection]:
    """Name of an input -> its projection; none where `project` is None.

    UsageError where it is neither a function nor a mapping from names of inputs to functions, or
    one moves its input, raises, or returns another kind of array.
    """
    names = [each.name for each in inputs]
    if project is None:
        return {}
    given = project if isinstance(project, Mapping) else dict.fromkeys(names, project)
    if unknown := [name for name in given if name not in names]:
        raise UsageError(
            f"project: no differentiable input is called {shown(unknown[0])}; there are "
            + ", ".join(names)
        )
    for name, function in given.items():
        if not callable(function):
            raise UsageError(
                f"project: expected a function, or a dict from names of inputs to functions, got "
                f"{type(function).__name__} for {name}"
            )
    for each in inputs:
        if each.name in given:
            _require_valid(given[each.name], each)
    return dict(given)


def _require_valid(function: Projection, given: Input) -> None:
    name, array = given.name, given.array()
    shape = tuple(array.shape)
    try:
        made: Any = function(given.array())
    except Exception as error:  # the user's function may raise anything
        raise UsageError(f"project: of {name} it raised {raised(error)}") from error
    got: Any = type(made).__name__
    if isinstance(made, given.kinds):
        got = tuple(getattr(made, "shape", ()))
    if got != shape:
        raise UsageError(f"project: expected an array of shape {shape} for {name}, got {got}")
    values = given.numbers(array)
    if not values.size:
        return
    far, size = np.abs(given.numbers(made) - values).max(), np.abs(values).max()
    if not far <= _UNITS * given.unit * size:
        raise UsageError(
            f"project: it moves {name} by up to {far:.2g}; choose a valid point, one that it "
            "leaves where it is"
        )
