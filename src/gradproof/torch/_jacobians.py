"""Whole Jacobians, measured and claimed, one block per output and input; nothing is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradproof._data.space import Slot, Values
from gradproof._guard import guard_face
from gradproof._maps.contract import Unsupported
from gradproof._numdiff.slopes import Slopes, measured_slopes
from gradproof._numdiff.steps import coordinate_scales, step_tables
from gradproof._numdiff.values import FunctionValues
from gradproof.torch._adapter import TorchMap, build
from gradproof.torch._guards import as_tuple, refuse_inputs

_SHARP = 1e-6  # of a slope: a larger bar is measured again


@dataclass(frozen=True)
class Jacobian:
    """The derivative of one output with respect to one input.

    Every array has the shape of the output followed by that of the input; a complex one counts as
    real with a last axis of length 2, real and imaginary part.

    Attributes:
        output: name of the output.
        input: name of the input.
        measured: by differences, in units of output per unit of input.
        error: error bar of `measured`; infinite where no difference is stable.
        reverse: what reverse mode claims.
        forward: what forward mode claims; None where it is not implemented.
    """

    output: str
    input: str
    measured: Values
    error: Values
    reverse: Values
    forward: Values | None


@dataclass(frozen=True)
class Jacobians:
    """All blocks of a Jacobian: `jacobians[output, input]`, both counted from 0.

    Attributes:
        blocks: one row per floating or complex output, in it one block per input that requires
            grad.
    """

    blocks: tuple[tuple[Jacobian, ...], ...]

    def __getitem__(self, place: tuple[int, int]) -> Jacobian:
        output, input_ = place
        return self.blocks[output][input_]

    def __iter__(self) -> Iterator[Jacobian]:
        return (block for row in self.blocks for block in row)


@guard_face
def jacobians(func: Callable[..., Any], inputs: Any) -> Jacobians:
    """Measure the Jacobian of `func`, and compute those of reverse and forward mode.

    It decides nothing. It needs several calls of `func` for each input entry, one backward for each
    output entry, and one call in forward mode for each input entry.

    Args:
        func: as for `gradcheck`.
        inputs: as for `gradcheck`; tensors that require grad are varied.

    Returns:
        All blocks: ``jacobians(func, inputs)[output, input]``, both counted from 0.

    Raises:
        ValueError: no input requires grad.
    """
    arguments = as_tuple(inputs)
    refuse_inputs(func, arguments)
    derivative = build(func, arguments, captured=False)
    try:
        with np.errstate(all="ignore"):
            return _blocks(derivative)
    finally:
        derivative.close()


def _blocks(derivative: TorchMap) -> Jacobians:
    n, m = derivative.domain.size, derivative.codomain.size
    scales = coordinate_scales(derivative.domain, derivative.point)
    slopes = _measured_columns(derivative, scales)
    measured = _columns([each.middle / h for each, h in zip(slopes, scales, strict=True)], m)
    error = _columns([each.bar / h for each, h in zip(slopes, scales, strict=True)], m)
    reverse = np.array([derivative.vjp(row) for row in np.eye(m)]).reshape(m, n)
    try:
        forward = _columns([derivative.jvp(column) for column in np.eye(n)], m)
    except Unsupported:
        forward = None
    matrices = measured, error, reverse, forward

    def block(i: int, j: int) -> Jacobian:
        output, input_ = derivative.codomain.slots[i], derivative.domain.slots[j]
        part = derivative.codomain.span(i), derivative.domain.span(j)
        shape = (*_shape(output), *_shape(input_))
        arrays = (None if matrix is None else matrix[part].reshape(shape) for matrix in matrices)
        return Jacobian(output.name, input_.name, *arrays)  # type: ignore[arg-type]  # only forward may be None

    rows, columns = (range(len(space.slots)) for space in (derivative.codomain, derivative.domain))
    return Jacobians(tuple(tuple(block(i, j) for j in columns) for i in rows))


def _measured_columns(derivative: TorchMap, scales: Values) -> list[Slopes]:
    """Slopes along each input, moved by its scale; at a kink the middle, with a bar to both ends.

    A column that the usual steps do not resolve is measured with the finer step table as well.
    """
    function, found = FunctionValues(derivative), []
    usual, fine = step_tables(max(derivative.resolution, function.coarsest_unit))
    for j in range(scales.size):
        slopes = measured_slopes(function.column_tables(scales, [j], usual)).without_kinks()
        if (slopes.bar > _SHARP * slopes.size).any():
            finer = measured_slopes(function.column_tables(scales, [j], fine))
            slopes = slopes.merge(finer.without_kinks())
        found.append(slopes)
    return found


def _columns(columns: list[Values], size: int) -> Values:
    return np.stack(columns, axis=1) if columns else np.zeros((size, 0))


def _shape(slot: Slot) -> tuple[int, ...]:
    return (*slot.shape, 2) if len(slot.parts) == 2 else slot.shape
