"""Where entries of tensors lie in memory: copies of the same layout, and cells that are shared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from gradproof.errors import UsageError
from gradproof.torch._compat import neg_view
from gradproof.torch._tensors import PLAIN

SORTED = 1_000_000  # entries up to which their places in memory are sorted, within a second


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


def copies_in_one_memory(
    values: Sequence[torch.Tensor], like: Sequence[torch.Tensor]
) -> Iterator[torch.Tensor]:
    """Private tensors with these values, in one memory, where others lie in theirs."""
    size = max(_span(each)[1] for each in like)
    memory = torch.zeros(size, dtype=torch.uint8, device=like[0].device).untyped_storage()
    for one, other in zip(values, like, strict=True):
        private = one.new_empty(0).set_(
            memory, other.storage_offset(), other.size(), other.stride()
        )
        yield private.copy_(one)


def private_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A detached copy that shares no memory and has the same memory layout."""
    tensor = tensor.detach()
    if tensor.layout is torch.strided and not tensor.is_quantized:
        return placed_like(tensor, tensor)
    return tensor.clone()


def in_kind(tensor: torch.Tensor, original: torch.Tensor) -> torch.Tensor:
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


def offsets_in(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
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
    if tensor.numel() <= SORTED and np.unique(offsets_in(tensor)).size == tensor.numel():
        return
    raise OverlapError(
        f"{name} has entries that share memory and cannot be perturbed one by one; "
        "pass its .contiguous() copy"
    )


def share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two strided tensors have a cell of memory in common."""
    where = memory_of(a)
    return where is not None and where == memory_of(b) and _overlap(a, b)


def memory_sharing_pairs(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """Positions of every two tensors that have a cell of memory in common, in order."""
    if len(tensors) < 2:
        return []
    together: dict[tuple[str, int], list[int]] = {}
    for position, tensor in enumerate(tensors):
        if (where := memory_of(tensor)) is not None:
            together.setdefault(where, []).append(position)
    pairs = []
    for places in together.values():
        spans = [(*_span(tensors[place]), place) for place in places] if places[1:] else []
        open_: list[tuple[int, int]] = []  # those that reach beyond where the next one begins
        for first, last, position in sorted(spans):
            open_ = [(end, other) for end, other in open_ if end > first]
            near = [other for _, other in open_ if _overlap(tensors[other], tensors[position])]
            pairs += [(min(other, position), max(other, position)) for other in near]
            open_.append((last, position))
    return sorted(pairs)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Where in its memory a tensor begins and ends, in bytes."""
    size = tensor.element_size()
    return int(tensor.storage_offset()) * size, extent(tensor) * size


def memory_of(tensor: torch.Tensor) -> tuple[str, int] | None:
    """Which memory a strided tensor lies in; None where that is not known."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return None
    if not tensor.numel():
        return None
    if tensor._is_zerotensor():  # PyTorch's symbolic zeros have no memory
        return "zero", id(tensor)
    return str(tensor.device), tensor.untyped_storage().data_ptr()


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one memory have a cell in common."""
    return a is b or bool(np.isin(_cells(a), _cells(b)).any())


def _cells(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Where the entries begin, in bytes from the start of their memory."""
    return (offsets_in(tensor) + int(tensor.storage_offset())) * tensor.element_size()
