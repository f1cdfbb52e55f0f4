"""A function with its derivative written by hand, called at its arguments; what calls return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradproof._adapters import framework_of, samples_module
from gradproof._adapters.arrays import Piece, kind_of, name_at, to_numpy
from gradproof._data.by_hand import ByHand
from gradproof._data.inputs import parameter_names
from gradproof._data.options import short_repr
from gradproof.errors import UsageError


@dataclass(frozen=True)
class HandWrittenCall:
    """A function with its derivative, and its arguments."""

    hand: ByHand
    inputs: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    places: tuple[int, ...] = ()  # positions of the inputs that are differentiated

    def differentiable_positions(self) -> list[int]:
        """Positions of the inputs that can be differentiated. UsageError where there is none."""
        places = [place for place, value in enumerate(self.inputs) if kind_of(value)]
        for place, value in enumerate(self.inputs):
            dtype = getattr(value, "dtype", None)
            if place not in places and isinstance(dtype, np.dtype) and dtype.kind in "fc":
                name = name_at(parameter_names(self.hand.fn), place)
                raise UsageError(
                    f"{name}: arrays of {dtype} are not differentiated here; pass it as float64 or "
                    "complex128"
                )
        whole = [] if places else [each for each in self.inputs if _are_whole_numbers(each)]
        if whole:
            raise UsageError(
                f"inputs: {short_repr(whole[0])} holds whole numbers, which have no derivative; "
                "pass floating ones"
            )
        if not places:
            raise UsageError(
                "inputs: expected at least one array of real or complex floating numbers (of "
                "NumPy, PyTorch or JAX)"
                + " by position; keyword arguments are not differentiated here" * bool(self.kwargs)
                + "; arrays in a container are not differentiated here: pass each by position"
                * any(isinstance(value, (Mapping, list, tuple)) for value in self.inputs)
            )
        return places

    def filled_inputs(self, arrays: Sequence[Any]) -> list[Any]:
        """The inputs, other arrays in the place of the differentiable ones."""
        values = list(self.inputs)
        for place, array in zip(self.places, arrays, strict=True):
            values[place] = array
        return values

    def claim(self, function: Callable[..., Any], arrays: Sequence[Any], *more: Any) -> Any:
        """What one of the user's functions says at these arrays."""
        return function(*self.filled_inputs(arrays), *more, *self.hand.args, **self.kwargs)


def _are_whole_numbers(value: Any) -> bool:
    try:
        return np.asarray(value).dtype.kind in "iu"
    except Exception:  # lists not of one length, arrays of another framework
        return False


def value_and_derivative(result: Any) -> Any:
    """A value and its derivative. UsageError where the user's function returned something else."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise UsageError(
            "fn: with jac=True or grad=True it returns a pair, its value and that derivative; "
            f"got {short_repr(result)}"
        )
    return result


def single_or_tuple(arrays: Sequence[Any]) -> Any:
    """What the user's function takes: the array where there is one, a tuple where several."""
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def floating_outputs(result: Any) -> list[Any]:
    """The arrays of floating numbers that the user's function returned, alone or in a sequence.

    UsageError where others are in a container among them: no derivative of these would be asked.
    """
    outputs = result if isinstance(result, (tuple, list)) else [result]
    for place, output in enumerate(outputs):
        if _contains_floating(output):
            raise UsageError(
                f"output {place}: floating numbers in a {type(output).__name__} are not "
                "differentiated here; return an array, or a tuple of arrays, without it"
            )
    return [output for output in outputs if kind_of(output)]


def _contains_floating(value: Any) -> bool:
    """Whether it is a container with floating numbers inside, at any depth."""
    members = value.values() if isinstance(value, Mapping) else value
    return isinstance(value, (Mapping, tuple, list)) and any(
        kind_of(member) or _contains_floating(member) for member in members
    )


def as_tuple(name: str, returned: Any, count: int) -> tuple[Any, ...]:
    """What the user's function of that name returned, as one array per slot."""
    if count == 1 and not (isinstance(returned, tuple) and len(returned) == 1):
        return (returned,)
    if not isinstance(returned, (tuple, list)) or len(returned) != count:
        is_tuple = isinstance(returned, (tuple, list))
        got = len(returned) if is_tuple else type(returned).__name__
        raise ValueError(f"{name}: expected a tuple of {count} arrays, got {got}")
    return tuple(returned)


def as_array(value: Any) -> Any:
    """A list of numbers, or of such lists, as an array where they are floating; else itself."""
    if not isinstance(value, (list, tuple)):
        return value
    try:
        array = np.asarray(value)
    except Exception:  # not of one length, or of another framework, which refuses in its own way
        return value
    return array if array.dtype.kind in "fc" else value


def require_gradients(gradients: Sequence[Any], inputs: Sequence[Piece]) -> None:
    """TypeError where the gradient of a real function is no array, or not real in a real input."""
    for gradient, piece in zip(gradients, inputs, strict=True):
        numbers = to_numpy(gradient)
        if numbers.dtype.kind in "OSUMm":  # of None, a sparse matrix, a dict, words
            kind = type(gradient).__name__
            raise TypeError(f"grad: expected a dense array per input, got {kind}")
        far = 0.0 if piece.is_complex else np.abs(np.imag(numbers)).max(initial=0.0)
        if far:
            raise TypeError(
                f"grad: expected real numbers for {piece.slot.name}, got an imaginary part of up "
                f"to {far:.2g}"
            )


def double_precision_array(value: Any) -> Any:
    """An array of the same library with these numbers in double precision."""
    kind = kind_of(value)
    if not kind or isinstance(value, (float, complex)):
        return value
    given = value.detach() if hasattr(value, "detach") else value
    dtype = "complex128" if kind == "complex" else "float64"
    samples = samples_module(framework_of(value))
    return samples.array_like(given, to_numpy(value), dtype)
