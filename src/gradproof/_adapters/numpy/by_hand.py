"""What a user wrote by hand: a function with its arguments, and what he says its derivative is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import array_api_compat
import numpy as np

from gradproof._adapters.arrays import Piece, kind_of, to_numpy
from gradproof._adapters.foreign import Lift, Told, in_double
from gradproof._data.frames import first_line
from gradproof._data.inputs import is_operator
from gradproof._data.options import shown
from gradproof._data.settings import DOUBLE
from gradproof._data.space import Array
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import probes
from gradproof.errors import UsageError

# Weights of F(x + k h) - F(x - k h), k from 1, in differences of the sixth and fourth order.
_SIXTH, _FOURTH = (45 / 60, -9 / 60, 1 / 60), (8 / 12, -1 / 12)
_STEPS, _APART = (2.0**-10, 2.0**-12, 2.0**-14), 1e-9
_COARSE, _COARSE_APART = (2.0**-4, 2.0**-6), 1e-3  # in single precision and below


@dataclass(frozen=True)
class Call:
    """A function and its arguments."""

    fn: Callable[..., Any]
    inputs: tuple[Any, ...]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    places: tuple[int, ...] = ()  # positions of the inputs that are differentiated
    paired: bool = False  # the function returns its value and its derivative

    def differentiable(self) -> list[int]:
        """Positions of the inputs that can be differentiated. UsageError where there is none."""
        places = [place for place, value in enumerate(self.inputs) if kind_of(value)]
        if not places:
            raise UsageError(
                "inputs: expected at least one array of real or complex floating numbers"
                + " by position; keyword arguments are not differentiated here" * bool(self.kwargs)
                + "; arrays in a container are not differentiated here: pass each by position"
                * any(isinstance(value, (Mapping, list, tuple)) for value in self.inputs)
            )
        return places

    def filled(self, arrays: Sequence[Any]) -> list[Any]:
        """The inputs, other arrays in the place of the differentiable ones."""
        values = list(self.inputs)
        for place, array in zip(self.places, arrays, strict=True):
            values[place] = array
        return values

    def claim(self, function: Callable[..., Any], arrays: Sequence[Any], *more: Any) -> Any:
        """What one of the user's functions says at these arrays."""
        return function(*self.filled(arrays), *more, *self.args, **self.kwargs)


def told(call: Call, names: Sequence[str]) -> Told:
    """The call, for a reference of another framework."""

    def filled(arrays: Sequence[Any], lift: Lift) -> tuple[Sequence[Any], Mapping[str, Any]]:
        def lifted(value: Any) -> Any:
            if not array_api_compat.is_array_api_obj(value):
                return value
            return lift(in_double(to_numpy(value)))

        inputs = [
            value if place in call.places else lifted(value)
            for place, value in enumerate(call.filled(arrays))
        ]
        kwargs = {name: lifted(value) for name, value in call.kwargs.items()}
        return [*inputs, *map(lifted, call.args)], kwargs

    return Told(names, filled, as_list, call.places)


def as_list(result: Any) -> list[Any]:
    """What a function returned, one by one."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


def pair(result: Any) -> Any:
    """A value and its derivative. UsageError where the user's function returned something else."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise UsageError(
            "fn: with jac=True or grad=True it returns a pair, its value and that derivative; "
            f"got {shown(result)}"
        )
    return result


def second_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values, **options: pair(fn(*values, **options))[1]


def one(arrays: Sequence[Any]) -> Any:
    """What the user's function takes: the array where there is one, a tuple where several."""
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def as_tuple(said: Any, count: int) -> tuple[Any, ...]:
    """What the user's function returned, as one array per slot."""
    if count == 1 and not (isinstance(said, tuple) and len(said) == 1):
        return (said,)
    if not isinstance(said, (tuple, list)) or len(said) != count:
        got = len(said) if isinstance(said, (tuple, list)) else type(said).__name__
        raise ValueError(f"expected a tuple of {count} arrays, got {got}")
    return tuple(said)


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
    """TypeError where the gradient of a real function is missing, or not real in a real input."""
    for gradient, piece in zip(gradients, inputs, strict=True):
        if gradient is None:
            raise TypeError("grad: expected an array per input, got None")
        far = 0.0 if piece.is_complex else np.abs(np.imag(to_numpy(gradient))).max(initial=0.0)
        if far:
            raise TypeError(
                f"grad: expected real numbers for {piece.slot.name}, got an imaginary part of up "
                f"to {far:.2g}"
            )


def measured_gradient(map_: DifferentiableMap, v: Array) -> Callable[[Array], Array]:
    """The function x -> J(x)^T v by differences of the sixth order, where no derivative is claimed.

    Their own differences are second derivatives, with what rounding does to these rungs as noise.
    That asks for one formula everywhere, whose truncation is smaller still: of steps in parts of
    each coordinate the largest is taken at which the fourth order differs by no more than `_APART`
    from it. In units of the length over which F bends that step is below (30 `_APART`)^(1/4), and
    the sixth order is off by its sixth power over 140. Without such a step all is NaN.
    """
    scales = probes.scales(map_.domain, map_.point)
    steps, most = (_STEPS, _APART) if map_.resolution < DOUBLE else (_COARSE, _COARSE_APART)

    def differences(x: Array, step: float, weights: Sequence[float]) -> Array:
        found = np.zeros(x.size)
        for j, size in enumerate(step * scales):
            move = np.zeros(x.size)
            for k, weight in enumerate(weights, 1):
                move[j] = k * size
                found[j] += weight * float(v @ (map_.value(x + move) - map_.value(x - move)))
        return found / (step * scales)

    here = abs(float(v @ map_.value(map_.point))) / scales
    for step in steps:
        best = differences(map_.point, step, _SIXTH)
        apart = abs(best - differences(map_.point, step, _FOURTH))
        if bool(np.all(apart <= most * np.maximum(np.max(abs(best)), here))):
            return partial(differences, step=step, weights=_SIXTH)
    return lambda x: np.full(x.size, np.nan)


def product(matrix: Any, vector: Array, size: int, *, adjoint: bool) -> Array:
    """Matrix or its conjugate transpose times a flat vector; `size` entries long."""
    if is_operator(matrix):
        try:
            return (matrix.rmatvec if adjoint else matrix.matvec)(vector)
        except NotImplementedError as error:  # as SciPy's where none was given
            raise Unsupported(first_line(error)) from error
    want = (vector.size, size) if adjoint else (size, vector.size)
    if not hasattr(matrix, "tocsr"):  # dense: the shapes of output and input in a row will do
        matrix = _dense(matrix, want)
        if matrix.size == vector.size * size:
            matrix = matrix.reshape(want)
    if tuple(matrix.shape) != want:
        raise ValueError(f"jac: expected a matrix of shape {want}, got {tuple(matrix.shape)}")
    return np.asarray((matrix.conj().T if adjoint else matrix) @ vector)


def _dense(said: Any, want: tuple[int, int]) -> np.ndarray[Any, Any]:
    try:
        matrix = to_numpy(said)
    except Exception:  # ragged lists; whatever an object does that is no array
        matrix = np.asarray(None)
    if matrix.dtype.kind in "OSUMm" or matrix.dtype.names:  # objects, words, dates, records
        raise ValueError(f"jac: expected a matrix of shape {want}, got {shown(said)}")
    return matrix


def widened(value: Any) -> Any:
    """An array of the same library with these numbers in double precision."""
    kind = kind_of(value)
    if not kind or isinstance(value, (float, complex)):
        return value
    numbers = to_numpy(value).astype(np.complex128 if kind == "complex" else np.float64)
    if isinstance(value, (np.ndarray, np.generic)):
        return numbers if isinstance(value, np.ndarray) else numbers[()]
    xp = array_api_compat.array_namespace(value)
    return xp.asarray(numbers, device=getattr(value, "device", None))
