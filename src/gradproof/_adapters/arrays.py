"""Maps of functions of arrays that are values: JAX's, and those with a derivative by hand.

What these adapters share: arrays as pieces of a flat real vector, the names of arguments, and a map
whose derivative is two functions. Vectors are NumPy's in float64 on the host; arrays of a framework
are converted here, by the module of samples of that framework.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np

from gradproof._adapters import framework_of, samples_module
from gradproof._data.exceptions import first_line
from gradproof._data.formats import FORMATS, Grain
from gradproof._data.held import finite_point
from gradproof._data.space import Array, Slot, Space
from gradproof._maps.contract import CallCounter, DifferentiableMap, OutputChangedError, Trait
from gradproof.errors import UsageError

Map = TypeVar("Map", bound="ArrayMap")

# Units of rounding, in parts of its size, that a value may be off by: of so many operations in a
# row (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1).
ROUNDINGS = 2.0**10


def name_at(parameters: Sequence[str], position: int) -> str:
    """What a positional argument is called."""
    return parameters[position] if position < len(parameters) else f"input {position}"


def chosen_names(found: list[str], names: Sequence[str] | None) -> list[str]:
    """The names found, or those that the user gave. UsageError where their number differs."""
    if names is None:
        return found
    if len(names) != len(found):
        raise UsageError(
            f"names: expected {len(found)}, one per differentiable input, got {len(names)}"
        )
    return list(names)


# Dtypes of complex numbers -> those of their parts.
_COMPLEX = {"complex64": "float32", "complex128": "float64"}


@cache  # as NumPy takes longer to write it than to add a few numbers
def dtype_name(dtype: Any) -> str:
    """`float32`, whatever the framework or the byte order: PyTorch writes `torch.float32`."""
    if isinstance(dtype, np.dtype):
        dtype = dtype.newbyteorder("=")
    return str(dtype).rpartition(".")[2]


def kind_of(value: Any) -> str:
    """What numbers a value holds: "float", "complex", or "" where it cannot have a derivative."""
    if isinstance(value, (float, complex)):
        return "complex" if isinstance(value, complex) else "float"
    if not framework_of(value):
        return ""
    name = dtype_name(value.dtype)
    return "complex" if name in _COMPLEX else "float" if name in FORMATS else ""


def to_numpy(array: Any) -> np.ndarray[Any, Any]:
    """An array of NumPy, on the host, with the numbers of any array. May share memory."""
    if type(array) is np.ndarray:
        return array
    if framework_of(array) == "torch":  # which may require grad, or have a dtype of its own
        return samples_module("torch").to_numpy(array)  # type: ignore[no-any-return]  # a module
    return np.asarray(array)


def read_pieces(names: Sequence[str], values: Sequence[Any]) -> tuple[list[Piece], Array]:
    """The inputs as pieces, and their flat coordinates. UsageError where one has no numbers."""
    pieces, point = [], []
    for name, value in zip(names, values, strict=True):
        try:
            pieces.append(Piece.from_value(name, value))
            point.append(pieces[-1].vector(value))
        except Exception as error:  # whatever a library says of an array without numbers
            raise UsageError(f"{name}: its numbers cannot be read: {first_line(error)}") from error
    return pieces, np.concatenate(point)


@dataclass(frozen=True)
class Piece:
    """One array of a space: what it is, and how it is made from flat coordinates."""

    slot: Slot  # its place in the space
    dtype: Any  # of the library it belongs to
    # An array of that library from one of NumPy in double precision, which it may keep.
    make: Callable[[np.ndarray[Any, Any]], Any]

    @classmethod
    def from_value(cls, name: str, value: Any) -> Piece:
        """The piece that `value` is: an array, or a number of Python's."""
        if isinstance(value, (float, complex)) and not isinstance(value, np.generic):
            value = np.asarray(value)
        if type(value) is np.ndarray and not value.ndim:
            value = value[()]
        dtype = dtype_name(value.dtype)
        parts = ("real", "imag") if dtype in _COMPLEX else ("",)
        grain = FORMATS[_COMPLEX.get(dtype, dtype)]
        slot = Slot(
            name, tuple(value.shape), parts, describe=f"{dtype}{list(value.shape)}", grain=grain
        )
        given = value.detach() if hasattr(value, "detach") else value  # of a tensor without graph
        make = partial(samples_module(framework_of(value)).array_like, given)
        return cls(slot, value.dtype, make)

    @property
    def is_complex(self) -> bool:
        return len(self.slot.parts) == 2

    def numpy_piece(self) -> Piece:
        """A piece that makes arrays of NumPy, where it is in double precision; else this one."""
        kind = "complex128" if self.is_complex else "float64"
        return replace(self, make=lambda values: values) if self.dtype == kind else self

    def in_double(self) -> Piece:
        """A piece of the same entries in double precision, of NumPy, whatever its dtype."""
        kind = "complex128" if self.is_complex else "float64"
        slot = replace(self.slot, grain=Grain())
        return replace(self, slot=slot, dtype=np.dtype(kind), make=lambda values: values)

    def array(self, coordinates: Array) -> Any:
        """A private array of the library from flat float64 coordinates."""
        values = np.array(coordinates, dtype=np.float64)
        if self.is_complex:
            values = values.view(np.complex128)
        return self.make(values.reshape(self.slot.shape))

    def vector(self, array: Any, what: str = "") -> Array:
        """Private flat coordinates of an array with as many entries. ValueError where it has not.

        What a real array cannot hold, an imaginary part, is dropped. `what` it is to the slot goes
        before its name.
        """
        values = to_numpy(array)
        if values.size != np.prod(self.slot.shape, dtype=int):
            raise ValueError(
                f"{what}{self.slot.name}: expected shape {self.slot.shape}, got {values.shape}"
            )
        if self.is_complex:
            return values.astype(np.complex128).ravel().view(np.float64)
        if np.iscomplexobj(values):
            values = values.real
        return values.astype(np.float64).ravel()


class ArrayMap(DifferentiableMap):
    """A function of arrays without state, as a map; a subclass says what is claimed.

    `inputs` and `outputs` are the pieces of domain and codomain; a subclass calls `start` once it
    can run.
    """

    precision_context: Callable[[], AbstractContextManager[Any]] = nullcontext

    def __init__(self, name: str, pieces: Sequence[Piece], point: Array) -> None:
        self.name, self.inputs = name, list(pieces)
        self.domain = Space(tuple(piece.slot for piece in self.inputs))
        self.point, self.held = finite_point(self.domain, point)
        self.counts = CallCounter()

    def share_limits_of(self: Map, other: ArrayMap) -> Map:
        """Keep the limits of another map, and count runs with it; returns this map."""
        self.counts = other.counts
        self.keep_limits(self.domain.with_limits_of(other.domain))
        return self

    @property
    def notes(self) -> list[str]:
        return [self.held.note] if self.held else []

    def start(self, outputs: Sequence[tuple[str, Any]]) -> None:
        """Take the outputs at the point, each with its name, as those that every call must return.

        UsageError where there is none.
        """
        if not outputs:
            raise UsageError(
                f"{self.name} returned no array of floating numbers; return an array, or a "
                "container of arrays"
            )
        self.use_outputs([Piece.from_value(name, value) for name, value in outputs])

    def use_outputs(self, outputs: Sequence[Piece]) -> None:
        """Take these as the outputs: the codomain, and the coarsest numbers, follow from them."""
        self.outputs = list(outputs)
        self.codomain = Space(tuple(piece.slot for piece in self.outputs))
        used = [piece.slot.grain.unit for piece in (*self.inputs, *self.outputs)]
        self.resolution = max(used)

    @abc.abstractmethod
    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """The floating and complex outputs of the user's function, in order."""

    @abc.abstractmethod
    def pull(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        """The claimed gradients for one cotangent per output, <a, b> being Re sum conj(a) b."""

    @abc.abstractmethod
    def push(self, tangents: Sequence[Any]) -> Sequence[Any]:
        """The claimed tangents of the outputs."""

    def arrays(self, x: Array) -> list[Any]:
        """Private arrays at other coordinates, one per input."""
        return self.directions(self.whole_point(x))

    def whole_point(self, x: Array) -> Array:
        """A point with the infinite entries of the inputs, which no vector of a map has."""
        return x if self.held is None else self.held.put_back(x)

    def directions(self, u: Array) -> list[Any]:
        """Private arrays of a domain vector, one per input."""
        return [piece.array(u[self.domain.span(k)]) for k, piece in enumerate(self.inputs)]

    def cotangents(self, v: Array) -> list[Any]:
        """Private arrays from a codomain vector, one per output."""
        return [piece.array(v[self.codomain.span(k)]) for k, piece in enumerate(self.outputs)]

    def value(self, x: Array) -> Array:
        self.counts.add("function")
        with self.precision_context():
            return self.codomain_vector(self.run(self.arrays(x)))

    def vjp(self, v: Array) -> Array:
        self.counts.add("vjp")
        with self.precision_context():
            return self.domain_vector(self.pull(self.cotangents(v)))

    def jvp(self, u: Array) -> Array:
        self.counts.add("jvp")
        with self.precision_context():
            return self.codomain_vector(self.push(self.directions(u)))

    def codomain_vector(self, results: Sequence[Any]) -> Array:
        """A codomain vector from one array per output. UsageError where they are others."""
        if len(results) != len(self.outputs):
            raise OutputChangedError(
                f"{self.name} returned {len(self.outputs)} floating outputs at the point and "
                f"{len(results)} at another input; make their number independent of the values"
            )
        for piece, result in zip(self.outputs, results, strict=True):
            if (shape := tuple(np.shape(result))) != piece.slot.shape:
                raise OutputChangedError(
                    f"{self.name} returned {piece.slot.name} of shape {piece.slot.shape} at the "
                    f"point and {shape} at another input; make the shape independent of the values"
                )
        return np.concatenate([p.vector(r) for p, r in zip(self.outputs, results, strict=True)])

    def domain_vector(self, gradients: Sequence[Any]) -> Array:
        """A domain vector from one gradient per input; None counts as zero."""
        vector = np.concatenate(
            [
                np.zeros(piece.slot.size)
                if gradient is None
                else piece.vector(gradient, "gradient of ")
                for piece, gradient in zip(self.inputs, gradients, strict=True)
            ]
        )
        return self.domain.zero_still_entries(vector)

    def gradient_traits(self, v: Array) -> Sequence[Trait]:
        with self.precision_context():
            gradients = self.pull(self.cotangents(v))
        return [
            Trait(slot, what, claimed, expected)
            for slot, (piece, gradient) in enumerate(zip(self.inputs, gradients, strict=True))
            if gradient is not None  # which stands for zero
            for what, claimed, expected in (
                (
                    "dtype",
                    dtype_name(getattr(gradient, "dtype", piece.dtype)),
                    dtype_name(piece.dtype),
                ),
                ("shape", str(tuple(np.shape(gradient))), str(piece.slot.shape)),
            )
            if claimed != expected
        ]
