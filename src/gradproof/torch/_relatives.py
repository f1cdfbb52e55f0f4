"""What PyTorch has beside gradcheck: three `get_..._jacobian` functions, and sparse outputs.

The Jacobians are PyTorch's own: plain central differences, and rows of reverse mode. They judge
nothing. Here nothing is left perturbed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd import gradcheck as _gradcheck
from torch.overrides import is_tensor_like

from gradproof._adapters.torch.leaves import MKLDNN, SPARSE
from gradproof._adapters.torch.sparse import values_of
from gradproof._guard import guarded, restored
from gradproof.torch._guards import as_tuple

# The module, which `torch.autograd` hides behind its function; without what says that two are old.
_theirs = inspect.unwrap(_gradcheck).__globals__


def _undone(tensors: Iterable[Any]) -> restored:
    """Around what perturbs these tensors in place: afterwards they are what they were."""
    kept = []
    for tensor in tensors:
        if is_tensor_like(tensor) and tensor.requires_grad and tensor.layout is not MKLDNN:
            # `.data`: the graph of the function must not notice.
            values = (values_of(tensor) if tensor.layout in SPARSE else tensor).data
            kept.append(functools.partial(values.copy_, values.clone()))
    return restored(*kept)


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
    with _undone(as_tuple(inputs if target is None else target)):
        found: tuple[torch.Tensor, ...] = inspect.unwrap(_theirs["get_numerical_jacobian"])(
            fn, inputs, target, eps, grad_out
        )
    return found


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
    with _undone([inputs[input_idx] if input is None else input]):
        found: tuple[torch.Tensor, ...] = _theirs["get_numerical_jacobian_wrt_specific_input"](
            fn, input_idx, inputs, outputs, eps, input, is_forward_ad
        )
    return found


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
    found, reentrant, types_ok, sizes_ok = inspect.unwrap(_theirs["get_analytical_jacobian"])(
        inputs, output, nondet_tol, grad_out
    )
    return found, reentrant, sizes_ok, types_ok


def as_sparse_gradcheck(gradcheck: Callable[..., Any]) -> Callable[..., Any]:
    """Extend a gradcheck to functions that return sparse tensors.

    As `torch.sparse.as_sparse_gradcheck`: each sparse output that requires grad is replaced by a
    dense tensor, whose gradient is with ``masked=True`` that of the specified entries. Sparse
    inputs need no help.

    Args:
        gradcheck: ours, PyTorch's, or a `functools.partial` of either.

    Returns:
        A function of func, inputs and the options of `gradcheck`.
    """

    def gradcheck_with_sparse_support(func: Callable[..., Any], inputs: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        masked = bool(options.get("masked", False))

        def dense(output: Any) -> Any:
            tensor = isinstance(output, torch.Tensor) and output.layout in SPARSE
            return (
                output.to_dense(masked_grad=masked) if tensor and output.requires_grad else output
            )

        @functools.wraps(func, updated=())
        def with_dense_outputs(*arguments: Any, **kwargs: Any) -> Any:
            outputs = func(*arguments, **kwargs)
            several = isinstance(outputs, (tuple, list))
            return tuple(map(dense, outputs)) if several else dense(outputs)

        return gradcheck(with_dense_outputs, inputs, **options)

    return gradcheck_with_sparse_support
