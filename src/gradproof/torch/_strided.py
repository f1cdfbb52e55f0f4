"""Functions of sparse tensors, as functions of the strided tensors that hold their values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from gradproof._adapters.torch.leaves import SPARSE
from gradproof._adapters.torch.sparse import block_size, values_of, with_values
from gradproof.torch._guards import as_tuple

Rebuild = Callable[[torch.Tensor], torch.Tensor]


def as_sparse_gradcheck(gradcheck: Callable[..., Any]) -> Callable[..., Any]:
    """Extend a gradcheck that knows only strided tensors to sparse inputs and outputs.

    As `torch.sparse.as_sparse_gradcheck`: each sparse input that requires grad is replaced by its
    values, each sparse output by a dense tensor. With ``masked=True`` the values are those that
    are specified, otherwise all of them. The positions of the arguments stay as they are.

    Args:
        gradcheck: ours, PyTorch's, or a `functools.partial` of either.

    Returns:
        A function of func, inputs and the options of `gradcheck`.
    """

    def gradcheck_with_sparse_support(func: Callable[..., Any], inputs: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        masked = bool(options.pop("masked", False))
        pairs = [_strided(value, masked=masked) for value in as_tuple(inputs)]

        @functools.wraps(func, updated=())
        def strided_func(*arguments: Any, **kwargs: Any) -> Any:
            restored = (
                rebuild(value) if rebuild else value
                for value, (_, rebuild) in zip(arguments, pairs, strict=True)
            )
            outputs = func(*restored, **kwargs)
            if not isinstance(outputs, (tuple, list)):
                return _dense(outputs, masked=masked)
            return tuple(_dense(output, masked=masked) for output in outputs)

        return gradcheck(strided_func, tuple(value for value, _ in pairs), **options)

    return gradcheck_with_sparse_support


def _is_sparse_with_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad and value.layout in SPARSE


def _strided(value: Any, *, masked: bool) -> tuple[Any, Rebuild | None]:
    """The values of a sparse tensor and what makes a tensor like it of other values."""
    if not _is_sparse_with_grad(value):
        return value, None
    tensor = value.detach()
    pattern = tensor if masked else _with_every_entry(tensor)
    return values_of(pattern).requires_grad_(), functools.partial(with_values, pattern)


def _with_every_entry(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor with all its zeros specified."""
    everywhere = torch.ones(tensor.shape, dtype=torch.bool, device=tensor.device).to_sparse(
        layout=tensor.layout, blocksize=block_size(tensor), dense_dim=tensor.dense_dim()
    )
    return tensor.to_dense().sparse_mask(everywhere)


def _dense(output: Any, *, masked: bool) -> Any:
    return output.to_dense(masked_grad=masked) if _is_sparse_with_grad(output) else output
