"""PyTorch's three `get_*_jacobian` functions: same arguments, same results, nothing left perturbed.

They compute plain central differences and rows of the reverse-mode Jacobian, and judge nothing.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.overrides import is_tensor_like

from gradproof._adapters.torch.leaves import MKLDNN
from gradproof._adapters.torch.sparse import entries_of, in_c_order, values_of
from gradproof._guard import guarded, restored
from gradproof.torch._guards import as_tuple, require


@guarded
def get_numerical_jacobian(
    fn: Callable[..., Any],
    inputs: Any,
    target: Any = None,
    eps: float = 1e-3,
    grad_out: float = 1.0,
) -> tuple[torch.Tensor, ...]:
    """Central differences of the first output of `fn(inputs)`; `fn` takes one tuple.

    `target`, by default `inputs`, holds the tensors that are perturbed, in place; they need not be
    among `inputs`. They are restored, also when `fn` raises.

    Returns:
        For each tensor of `target` that requires grad, a matrix of shape (its elements, elements
        of the first output), complex where the tensor is.

    Raises:
        ValueError: `grad_out` is not 1.0, or an output is complex.
    """
    _only_ones(grad_out, "get_numerical_jacobian")
    outputs = as_tuple(fn(as_tuple(inputs)))
    if any(_is_differentiable_dtype(output) and output.is_complex() for output in outputs):
        raise ValueError(_NO_COMPLEX.format("get_numerical_jacobian"))
    targets = as_tuple(inputs if target is None else target)
    return tuple(
        get_numerical_jacobian_wrt_specific_input(
            lambda *arguments: fn(arguments), index, inputs, outputs, eps, input=tensor
        )[0]
        for index, tensor in enumerate(targets)
        if is_tensor_like(tensor) and tensor.requires_grad
    )


@guarded
def get_numerical_jacobian_wrt_specific_input(
    fn: Callable[..., Any],
    input_idx: int,
    inputs: Any,
    outputs: Any,
    eps: float,
    input: torch.Tensor | None = None,
    is_forward_ad: bool = False,
) -> tuple[torch.Tensor, ...]:
    """Central differences of every floating or complex output with respect to one input.

    The input is perturbed in place, entry by entry (the specified ones where it is sparse), and
    restored, also when `fn` raises.

    Returns:
        For each floating or complex tensor of `outputs` a matrix of shape (elements of the input,
        elements of the output). A complex input gives d/dx + i d/dy.

    Raises:
        AssertionError: the input does not require grad, an output is complex where that is not
            allowed, or an output changes shape or dtype when the input is perturbed.
    """
    inputs = as_tuple(inputs)
    perturbed = inputs[input_idx] if input is None else input
    require(perturbed.requires_grad, "Expected input to have requires_grad=True")
    kept = [o for o in as_tuple(outputs) if _is_differentiable_dtype(o)]
    real = not any(output.is_complex() for output in kept)
    may_be_complex = is_forward_ad and not perturbed.is_complex()
    require(real or may_be_complex, "Expected the outputs to be real-valued, not complex.")
    jacobians = [_zero_jacobian(perturbed, output) for output in kept]

    for row, entry, replacement in _entries(perturbed):

        def call(replacement: Any = replacement) -> Any:
            arguments = list(inputs)
            if replacement is not None:
                arguments[input_idx] = replacement()
            return fn(*arguments)

        columns = _central_difference(call, entry, eps, eps)
        if perturbed.is_complex():
            imaginary = _central_difference(call, entry, eps * 1j, eps)
            columns = [dx + 1j * dy for dx, dy in zip(columns, imaginary, strict=True)]
        for jacobian, column in zip(jacobians, columns, strict=True):
            jacobian[row] = column
    return tuple(jacobians)


def _zero_jacobian(perturbed: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    return output.new_zeros(
        (perturbed.numel(), output.numel()),
        dtype=perturbed.dtype if perturbed.is_complex() else output.dtype,
        layout=torch.strided,
    )


@guarded
def get_analytical_jacobian(
    inputs: Any, output: torch.Tensor, nondet_tol: float = 0.0, grad_out: float = 1.0
) -> tuple[tuple[torch.Tensor, ...], bool, bool, bool]:
    """The reverse-mode Jacobian of `output`, row by row, computed twice.

    Returns:
        (jacobians, reentrant, sizes_ok, types_ok): for each input that requires grad a matrix of
        shape (its elements, elements of `output`); whether both runs agree within `nondet_tol`;
        whether every gradient has its input's size; and its dtype. (PyTorch 2.13 returns the last
        two in the other order; its own docs agree with this one.)

    Raises:
        ValueError: `grad_out` is not 1.0, or `output` is complex.
    """
    _only_ones(grad_out, "get_analytical_jacobian")
    if output.is_complex():
        raise ValueError(_NO_COMPLEX.format("get_analytical_jacobian"))
    wrt = list(_requiring_grad(inputs))
    first, second = _reverse_rows(output, wrt), _reverse_rows(output, wrt)
    grads = [
        (grad, tensor)
        for row in first
        for grad, tensor in zip(row, wrt, strict=True)
        if grad is not None
    ]
    sizes_ok = all(grad.size() == tensor.size() for grad, tensor in grads)
    types_ok = all(grad.dtype == tensor.dtype for grad, tensor in grads)
    jacobians, again = _assemble(first, wrt, output), _assemble(second, wrt, output)
    # `<=` and not `>`: a NaN is not reentrant.
    reentrant = all(
        bool(((one - two).abs() <= nondet_tol).all())
        for one, two in zip(jacobians, again, strict=True)
    )
    return jacobians, reentrant, sizes_ok, types_ok


_NO_COMPLEX = (
    "Expected output to be non-complex. {} no longer supports functions that return complex "
    "outputs."
)


def _only_ones(grad_out: float, name: str) -> None:
    if grad_out != 1.0:
        raise ValueError(
            f"Expected grad_out to be 1.0. {name} no longer supports values of grad_out != 1.0."
        )


def _is_differentiable_dtype(value: Any) -> bool:
    return bool(is_tensor_like(value) and (value.is_floating_point() or value.is_complex()))


def _requiring_grad(inputs: Any) -> Iterator[torch.Tensor]:
    if is_tensor_like(inputs):
        if inputs.requires_grad:
            yield inputs
    elif isinstance(inputs, (tuple, list)):
        for value in inputs:
            yield from _requiring_grad(value)


def _entries(
    tensor: torch.Tensor,
) -> Iterator[tuple[int, torch.Tensor, Callable[[], torch.Tensor] | None]]:
    """(row of the Jacobian, writable 0-dimensional view, makes what to pass instead, if anything).

    `.data` gets around the version counter: the graph of `fn` must not notice the perturbation.
    """
    if tensor.layout is MKLDNN:
        dense = tensor.detach().to_dense()  # mkldnn tensors cannot be indexed
        for row, index in enumerate(itertools.product(*map(range, dense.shape))):
            yield row, dense[index], lambda: dense.to_mkldnn().requires_grad_()
        return
    values = tensor.data if tensor.layout is torch.strided else values_of(tensor).data
    rows = _rows(tensor)
    for position, index in enumerate(itertools.product(*map(range, values.shape))):
        yield int(rows[position]), values[index], None


def _rows(tensor: torch.Tensor) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Position in the flattened dense tensor of every stored value, in the order of storage."""
    if tensor.layout is torch.strided:
        return np.arange(tensor.numel())
    return in_c_order(entries_of(tensor), tuple(tensor.shape))


@contextlib.contextmanager
def _moved(entry: torch.Tensor, step: complex) -> Iterator[None]:
    original = entry.clone()
    with restored(functools.partial(entry.copy_, original)):
        entry.copy_(original + step)
        yield


def _central_difference(
    call: Callable[[], Any], entry: torch.Tensor, step: complex, eps: float
) -> list[torch.Tensor]:
    """(F(entry + step) - F(entry - step)) / (2 eps), flat, for each floating or complex output."""
    with _moved(entry, -step):
        below = [output.clone() for output in as_tuple(call()) if _is_differentiable_dtype(output)]
    with _moved(entry, step):
        above = [output.clone() for output in as_tuple(call()) if _is_differentiable_dtype(output)]
    slopes = []
    for low, high in zip(below, above, strict=True):
        for what, one, two in (("shape", low.shape, high.shape), ("dtype", low.dtype, high.dtype)):
            require(
                one == two,
                f"Expected `func` to return outputs with the same {what} when inputs are "
                f"perturbed by {eps}, but got: {what}s {one} and {two}.",
            )
        slopes.append(((high - low) / (2 * eps)).detach().reshape(-1))
    return slopes


def _reverse_rows(output: torch.Tensor, wrt: list[torch.Tensor]) -> list[Sequence[Any]]:
    """For each element of `output`, its gradient, or None, for every tensor of `wrt`."""
    rows: list[Sequence[Any]] = []
    for position in range(output.numel()):
        cotangent = torch.zeros(output.numel(), dtype=output.dtype, device=output.device)
        cotangent[position] = 1.0
        grads: Sequence[Any] = torch.autograd.grad(
            output, wrt, cotangent.reshape(output.shape), retain_graph=True, allow_unused=True
        )
        rows.append([None if grad is None else grad.clone() for grad in grads])
    return rows


def _assemble(
    rows: list[Sequence[Any]], wrt: list[torch.Tensor], output: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    jacobians = []
    for position, tensor in enumerate(wrt):
        jacobian = tensor.new_zeros((tensor.numel(), output.numel()), layout=torch.strided)
        for column, row in enumerate(rows):
            if row[position] is not None:
                grad = row[position]
                dense = grad if grad.layout is torch.strided else grad.to_dense()
                require(
                    dense.numel() == tensor.numel(),
                    f"Expected a gradient of {tensor.numel()} elements, but got {dense.numel()}",
                )
                jacobian[:, column] = dense.reshape(-1)
        jacobians.append(jacobian)
    return tuple(jacobians)
