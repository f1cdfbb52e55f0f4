"""Products with a Jacobian that the user gave: matrices, blocks of them, linear operators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradproof._adapters.arrays import to_numpy
from gradproof._data.exceptions import first_line
from gradproof._data.options import short_repr
from gradproof._data.space import Array
from gradproof._maps.contract import Unsupported
from gradproof._numpy.call import as_tuple
from gradproof.errors import UsageError


def is_operator(value: Any) -> bool:
    """Whether a value is a linear operator with an adjoint."""
    return callable(getattr(value, "matvec", None)) and callable(getattr(value, "rmatvec", None))


def blocks_of(name: str, jacobian: Any, outputs: int, inputs: int) -> list[tuple[Any, ...]]:
    """The blocks of a Jacobian, row by row: a tuple per output, in it one per input."""
    try:
        return [as_tuple("a row", row, inputs) for row in as_tuple("rows", jacobian, outputs)]
    except ValueError as error:
        raise UsageError(
            f"{name}: expected one matrix, or blocks, {outputs} outputs by {inputs} inputs: {error}"
        ) from error


def matrix_product(
    name: str,
    matrix: Any,
    vector: Array,
    output: tuple[int, ...],
    input_: tuple[int, ...],
    *,
    adjoint: bool,
) -> Array:
    """Matrix or its conjugate transpose times a flat vector.

    Args:
        name: of the argument that the user gave, for messages.
        matrix: dense, also of the shapes of output and input in a row; sparse; an operator.
        vector: of the output where `adjoint`, else of the input.
        output, input_: shapes.
        adjoint: for the conjugate transpose.

    Raises:
        UsageError: the matrix has another shape, or holds no numbers.
    """
    want = math.prod(output), math.prod(input_)
    if is_operator(matrix):
        _require_shape(name, getattr(matrix, "shape", want), want)
        try:
            return (matrix.rmatvec if adjoint else matrix.matvec)(vector)
        except NotImplementedError as error:  # as SciPy's where none was given
            raise Unsupported(first_line(error)) from error
    if not hasattr(matrix, "tocsr"):
        matrix = _dense_matrix(name, matrix, want)
        # Lengths of one say nothing: the gradient of a scalar is a row, a column or a vector.
        if _lengths_above_one(matrix.shape) in (
            _lengths_above_one(want),
            _lengths_above_one((*output, *input_)),
        ):
            matrix = matrix.reshape(want)
    _require_shape(name, matrix.shape, want)
    return np.asarray((matrix.conj().T if adjoint else matrix) @ vector)


def _lengths_above_one(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)


def _require_shape(name: str, got: Any, want: tuple[int, int]) -> None:
    if tuple(got) != want:
        raise UsageError(
            f"{name}: expected a matrix of shape {want}, got one of shape {tuple(got)}"
        )


def _dense_matrix(name: str, given: Any, want: tuple[int, int]) -> np.ndarray[Any, Any]:
    try:
        matrix = to_numpy(given)
    except Exception:  # ragged lists; whatever an object does that is no array
        matrix = np.asarray(None)
    if matrix.dtype.kind in "OSUMm" or matrix.dtype.names:  # objects, words, dates, records
        raise UsageError(f"{name}: expected a matrix of shape {want}, got {short_repr(given)}")
    return matrix
