"""Where the entries of tensors lie in memory: copies of the same layout, overlapping entries."""

from __future__ import annotations

import torch

from gradproof.errors import UsageError
from gradproof.torch._compat import neg_view
from gradproof.torch._tensors import PLAIN


class OverlapError(UsageError, RuntimeError):
    """An input whose entries share memory: perturbing one would change another."""


def placed_like(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A private tensor with these values and exactly the strides, offset and bits of `like`."""
    if like.is_conj() or like.is_neg():
        # `like` and the values without that bit, and the bit again: what is in memory.
        turned = torch.conj if like.is_conj() else neg_view
        return turned(placed_like(turned(values), turned(like.detach())))
    if type(like) not in PLAIN:
        return like.detach().clone().to(values.dtype).copy_(values)
    steps = zip(like.shape, like.stride(), strict=True)
    reach = 1 + sum((size - 1) * stride for size, stride in steps) if like.numel() else 0
    buffer = values.new_zeros(like.storage_offset() + reach)
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


def require_no_overlap(tensor: torch.Tensor, name: str) -> None:
    """OverlapError where two entries of a strided tensor may share memory."""
    if tensor.is_contiguous() or not tensor.numel():
        return
    reach = 0  # of the dimensions with smaller strides, in entries
    extents = zip(tensor.stride(), tensor.shape, strict=True)
    for stride, size in sorted((stride, size) for stride, size in extents if size > 1):
        if stride <= reach:
            why = "" if stride else "a dimension with stride 0, so that it has "
            raise OverlapError(
                f"{name} has {why}entries that share memory and cannot be perturbed one by one; "
                "pass its .contiguous() copy"
            )
        reach += (size - 1) * stride


def share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two strided tensors lie in one memory, as a tensor and a view of it do."""
    for tensor in (one, other):
        strided = type(tensor) in PLAIN and tensor.layout is torch.strided
        # PyTorch's symbolic zeros have no memory.
        if not strided or tensor._is_zerotensor() or not tensor.numel():
            return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
