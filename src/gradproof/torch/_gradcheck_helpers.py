"""Support of functions with sparse outputs, by the name that PyTorch has for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from gradproof.torch._tensors import SPARSE


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

        def dense_output(output: Any) -> Any:
            tensor = isinstance(output, torch.Tensor) and output.layout in SPARSE
            return (
                output.to_dense(masked_grad=masked) if tensor and output.requires_grad else output
            )

        @functools.wraps(func, updated=())
        def with_dense_outputs(*arguments: Any, **kwargs: Any) -> Any:
            outputs = func(*arguments, **kwargs)
            several = isinstance(outputs, (tuple, list))
            return tuple(map(dense_output, outputs)) if several else dense_output(outputs)

        return gradcheck(with_dense_outputs, inputs, **options)

    return gradcheck_with_sparse_support
