"""Does a mistake show? Answered without gradproof, by the plainest means there are.

For some checks one test of what it checks: plain central differences, one-hot cotangents, loops.
Slow, blind to precision, and independent of everything in `src`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

TOLERANCE = 1e-4  # of the largest entry; plain differences are not better
MANY = 400  # rows and columns of a larger Jacobian are sampled

Function = Callable[..., Any]
Inputs = Callable[[], tuple[Any, ...]]


def outputs_of(fn: Function, inputs: tuple[Any, ...]) -> list[Tensor]:
    result = fn(*inputs)
    return list(result) if isinstance(result, tuple) else [result]


def leaves_of(inputs: tuple[Any, ...]) -> list[Tensor]:
    return [each for each in inputs if isinstance(each, Tensor) and each.requires_grad]


def dense(tensors: list[Tensor]) -> list[Tensor]:
    return [each.to_dense() if each.is_sparse else each for each in tensors]


def reals(tensors: list[Tensor]) -> Tensor:
    """One real float64 vector; an imaginary part follows its real part."""
    tensors = [each.resolve_conj() for each in dense([each.detach() for each in tensors])]
    flat = [torch.view_as_real(each) if each.is_complex() else each for each in tensors]
    return torch.cat([each.reshape(-1).double() for each in flat])


def basis(tensors: list[Tensor], index: int) -> list[Tensor]:
    """The unit vector of real coordinate `index`, as tensors shaped like these."""
    result = [torch.zeros(each.shape, dtype=each.dtype) for each in tensors]
    for each in result:
        flat = (torch.view_as_real(each) if each.is_complex() else each).view(-1)
        if 0 <= index < len(flat):
            flat[index] = 1
        index -= len(flat)
    return result


def sample(size: int, extra: tuple[int, ...] = ()) -> list[int]:
    """All coordinates, or of many some: evenly spaced ones, the ends, and `extra`."""
    return sorted({*range(0, size, size // MANY + 1), size - 1, *(i for i in extra if i < size)})


def columns_of(make: Inputs, extra: tuple[int, ...] = ()) -> list[int]:
    """Coordinates of the inputs to measure."""
    return sample(len(reals(leaves_of(make()))), extra)


def shifted(make: Inputs, column: int, step: float) -> tuple[Any, ...]:
    """The inputs with one real coordinate moved by `step`."""
    inputs = make()
    units = iter(basis(leaves_of(inputs), column))
    return tuple(
        moved(each, step * next(units)) if isinstance(each, Tensor) and each.requires_grad else each
        for each in inputs
    )


def moved(leaf: Tensor, by: Tensor) -> Tensor:
    result = dense([leaf.detach()])[0] + by
    return (result.to_sparse() if leaf.is_sparse else result).requires_grad_()


def central(value: Function, make: Inputs, columns: list[int], step: float) -> Tensor:
    """Columns of the Jacobian of `value`, a function of the tuple of inputs."""
    ends = [[value(shifted(make, column, h)) for h in (step, -step)] for column in columns]
    return torch.stack([(above - below) / (2 * step) for above, below in ends], 1)


def gradient(fn: Function, make: Inputs, cotangents: list[Tensor] | None, **options: Any):
    """The VJP at fresh inputs, as one real vector; cotangents of one where None."""
    inputs = make()
    leaves, outputs = leaves_of(inputs), outputs_of(fn, inputs)
    cotangents = cotangents or [torch.ones_like(each) for each in outputs]
    kept = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if o.requires_grad]
    found = torch.autograd.grad(
        [o for o, _ in kept], leaves, [c for _, c in kept], allow_unused=True, **options
    )
    return [
        torch.zeros_like(leaf) if each is None else each
        for each, leaf in zip(found, leaves, strict=True)
    ]


def reverse_jacobian(fn: Function, make: Inputs, rows: list[int], columns: list[int]) -> Tensor:
    outputs = outputs_of(fn, make())
    found = [reals(gradient(fn, make, basis(outputs, row)))[columns] for row in rows]
    return torch.stack(found)


def forward_jacobian(fn: Function, make: Inputs, columns: list[int]) -> Tensor:
    return torch.stack([forward_column(fn, make, column) for column in columns], 1)


def forward_column(fn: Function, make: Inputs, column: int) -> Tensor:
    return forward_along(fn, make, basis(leaves_of(make()), column))


def forward_along(fn: Function, make: Inputs, along: list[Tensor]) -> Tensor:
    inputs, tangents = make(), iter(along)
    with warnings.catch_warnings(), forward_ad.dual_level():
        # PyTorch's own, when forward mode is first used
        warnings.filterwarnings("ignore", ".*torch.jit.script.*", DeprecationWarning)
        duals = tuple(
            forward_ad.make_dual(each.detach(), next(tangents))
            if isinstance(each, Tensor) and each.requires_grad
            else each
            for each in inputs
        )
        pairs = [forward_ad.unpack_dual(each) for each in outputs_of(fn, duals)]
        return reals(
            [
                torch.zeros_like(pair.primal) if pair.tangent is None else pair.tangent
                for pair in pairs
            ]
        )


def differ(claimed: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    """NaN differs from everything."""
    return not bool(((claimed - expected).abs() <= tolerance * expected.abs().max()).all())


def some_cotangents(fn: Function, make: Inputs, seed: int = 11) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(each.shape, generator=generator, dtype=each.dtype)
        for each in outputs_of(fn, make())
    ]


def backward_is_wrong(fn: Function, make: Inputs, step: float, extra: tuple[int, ...]) -> bool:
    columns = columns_of(make, extra)
    rows = sample(len(reals(outputs_of(fn, make()))), extra)
    measured = central(lambda inputs: reals(outputs_of(fn, inputs))[rows], make, columns, step)
    return differ(reverse_jacobian(fn, make, rows, columns), measured)


def forward_is_wrong(fn: Function, make: Inputs, step: float, extra: tuple[int, ...]) -> bool:
    columns = columns_of(make, extra)
    measured = central(lambda inputs: reals(outputs_of(fn, inputs)), make, columns, step)
    return differ(forward_jacobian(fn, make, columns), measured)


def determinism_is_wrong(fn: Function, make: Inputs, *_: Any) -> bool:
    """The backward of one graph, run four times, and once more with a graph of its own."""
    leaves = leaves_of(inputs := make())
    outputs = outputs_of(fn, inputs)
    cotangents = some_cotangents(fn, make)
    first, *others, recorded = (
        torch.autograd.grad(
            outputs,
            leaves,
            [each.clone() for each in cotangents],
            retain_graph=True,
            create_graph=graph,
        )
        for graph in (False, False, False, False, True)
    )
    expected = reals(list(first))
    return any(differ_at_all(expected, reals(list(other))) for other in others) or differ(
        expected, reals([each.detach() for each in recorded])
    )


def differ_at_all(one: Tensor, other: Tensor) -> bool:
    return not torch.equal(one, other)


def second_order_is_wrong(fn: Function, make: Inputs, step: float, _: tuple[int, ...]) -> bool:
    """The derivative of the VJP in the inputs and in the cotangents, by double backward."""
    cotangents = some_cotangents(fn, make)

    def with_cotangents() -> tuple[Any, ...]:
        return (*make(), *(each.clone().requires_grad_() for each in cotangents))

    def vjp(*values: Any):
        inputs, v = values[: -len(cotangents)], list(values[-len(cotangents) :])
        found = torch.autograd.grad(outputs_of(fn, inputs), leaves_of(inputs), v, create_graph=True)
        return tuple(found)

    columns = columns_of(with_cotangents)
    measured = central(
        lambda values: reals(outputs_of(vjp, values)), with_cotangents, columns, step
    )
    rows = list(range(len(measured)))
    alone, graphed = gradient(fn, make, cotangents), vjp(*with_cotangents())
    if len(alone) == len(graphed) and differ(reals(graphed), reals(alone)):
        return True
    try:
        return differ(reverse_jacobian(vjp, with_cotangents, rows, columns), measured)
    except RuntimeError as error:  # what cannot be run at all
        return "modified by an inplace operation" in str(error)


# What is about memory, state or rare probes is left to the checks themselves.
SHOWS: dict[str, Callable[..., bool]] = {
    "backward": backward_is_wrong,
    "forward": forward_is_wrong,
    "determinism": determinism_is_wrong,
    "second_order": second_order_is_wrong,
}
