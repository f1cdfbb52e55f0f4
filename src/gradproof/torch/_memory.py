"""Where the entries of tensors lie in memory: copies of the same layout, overlapping entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gradproof.errors import UsageError
from gradproof.torch._compat import neg_view
from gradproof.torch._tensors import PLAIN

_MOST_SORTED = 1_000_000  # entries whose places in memory are sorted, within a second


class OverlapError(UsageError, RuntimeError):
    """An input whose entries share memory: perturbing one would change another."""


def extent(tensor: torch.Tensor) -> int:
    """Number of elements of storage that a strided tensor reaches, from the storage's start."""
    start = int(tensor.storage_offset())
    if not tensor.numel():
        return start
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return start + 1 + sum((size - 1) * stride for size, stride in steps)


def placed_like(
    values: torch.Tensor, like: torch.Tensor, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """A private tensor with these values and exactly the strides, offset and bits of `like`.

    It has the dtype of `like`, or `dtype`.
    """
    if like.is_conj() or like.is_neg():
        # `like` and the values without that bit, and the bit again: what is in memory.
        turned = torch.conj if like.is_conj() else neg_view
        return turned(placed_like(turned(values), turned(like.detach()), dtype))
    if type(like) not in PLAIN:
        private = like.detach().clone()
        private = private if dtype is None else private.to(dtype)
        return private.copy_(values)
    buffer = torch.zeros(extent(like), dtype=dtype or like.dtype, device=like.device)
    # set_, unlike as_strided, makes a tensor that is no view: a real leaf, also in forward mode.
    private = buffer.new_empty(0).set_(
        buffer.untyped_storage(), like.storage_offset(), like.size(), like.stride()
    )
    if 0 in like.stride():  # expanded: what is repeated is written once
        once = tuple(slice(None) if step else slice(1) for step in like.stride())
        private[once].copy_(values[once])
        return private
    return private.copy_(values)


def private_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A detached copy that shares no memory and has the same memory layout."""
    tensor = tensor.detach()
    if tensor.layout is torch.strided and not tensor.is_quantized:
        return placed_like(tensor, tensor)
    return tensor.clone()


def give_class(tensor: torch.Tensor, original: torch.Tensor) -> torch.Tensor:
    """A private tensor, given the class and the attributes of the user's, as `nn.Parameter`.

    In place, so that it stays the leaf that a graph knows, and a dual number keeps its tangent.
    Classes that decide in `__torch_dispatch__` are more than a name, and are copied by themselves.
    """
    kind = type(original)
    if tensor is not original and kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
        if type(tensor) is not kind:
            tensor.__class__ = kind
        vars(tensor).update(vars(original))
    return tensor


def _offsets(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Where the entries of a strided tensor lie, in entries after the first; in its shape."""
    offsets = np.zeros((), dtype=np.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        offsets = np.add.outer(offsets, stride * np.arange(size))
    return offsets


def require_no_overlap(tensor: torch.Tensor, name: str) -> None:
    """OverlapError where two entries of a strided tensor share memory."""
    if tensor.is_contiguous():
        return
    pairs = [
        (stride, size)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        if size > 1
    ]
    if not tensor.numel():
        return
    if any(stride == 0 for stride, _ in pairs):
        raise OverlapError(
            f"{name} has a dimension with stride 0, so entries share memory and cannot be "
            "perturbed one by one; pass its .contiguous() copy"
        )
    reach = 0
    for stride, size in sorted(pairs):
        if stride <= reach:
            break
        reach += (size - 1) * stride
    else:
        return
    # Interleaved strides may still be disjoint; small tensors are counted exactly.
    if tensor.numel() <= _MOST_SORTED and np.unique(_offsets(tensor)).size == tensor.numel():
        return
    raise OverlapError(
        f"{name} has entries that share memory and cannot be perturbed one by one; "
        "pass its .contiguous() copy"
    )


def share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two strided tensors lie in one memory, as a tensor and a view of it do."""
    where = _address_of(one)
    return where is not None and where == _address_of(other)


def _address_of(tensor: torch.Tensor) -> tuple[str, int] | None:
    """The memory of a strided tensor; None where it has none that is known."""
    if type(tensor) not in PLAIN or tensor.layout is not torch.strided or not tensor.numel():
        return None
    if tensor._is_zerotensor():  # PyTorch's symbolic zeros have no memory
        return None
    return str(tensor.device), tensor.untyped_storage().data_ptr()
