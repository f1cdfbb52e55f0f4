"""The whole Jacobian, measured and claimed, one block per output and input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradproof._adapters.torch import TorchMap, build
from gradproof._data.settings import Settings
from gradproof._data.space import Slot, on_host
from gradproof._guard import guarded
from gradproof._maps.contract import Unsupported
from gradproof._measure import jacobian
from gradproof.torch._guards import as_tuple, refuse_inputs

Array = np.ndarray[Any, np.dtype[np.float64]]


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
    measured: Array
    error: Array
    reverse: Array
    forward: Array | None


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


@guarded
def jacobians(func: Callable[..., Any], inputs: Any) -> Jacobians:
    """Measure the full Jacobian of `func`, and ask reverse and forward mode for theirs.

    Costs several calls of `func` per input element, one backward per output element and one call
    in forward mode per input element. Judges nothing.

    Args:
        func: as for `gradcheck`.
        inputs: as for `gradcheck`; those that require grad are varied.

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
    estimates = [jacobian.column(derivative, Settings(), j) for j in range(n)]
    measured = _columns([estimate.value for estimate in estimates], m)
    error = _columns([estimate.error for estimate in estimates], m)
    reverse = np.array([on_host(derivative.vjp(row)) for row in np.eye(m)]).reshape(m, n)
    try:
        forward = _columns([derivative.jvp(column) for column in np.eye(n)], m)
    except Unsupported:
        forward = None
    rows = []
    for i, output in enumerate(derivative.codomain.slots):
        row = []
        for j, input_ in enumerate(derivative.domain.slots):
            part = (derivative.codomain.span(i), derivative.domain.span(j))
            shape = (*_shape(output), *_shape(input_))
            arrays = (
                None if matrix is None else matrix[part].reshape(shape)
                for matrix in (measured, error, reverse, forward)
            )
            row.append(Jacobian(output.name, input_.name, *arrays))  # type: ignore[arg-type]  # only forward may be None
        rows.append(tuple(row))
    return Jacobians(tuple(rows))


def _columns(columns: list[Array], size: int) -> Array:
    return np.stack(list(map(on_host, columns)), axis=1) if columns else np.zeros((size, 0))


def _shape(slot: Slot) -> tuple[int, ...]:
    return (*slot.shape, 2) if len(slot.parts) == 2 else slot.shape
