"""Inputs whose entries share memory: one coordinate for each cell of the memory they lie in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gradproof._adapters.torch_leaves import (
    Leaf,
    describe,
    extent,
    grain,
    offsets_in,
    parts_of,
    to_tensor,
    to_vector,
)
from gradproof._space import Array, Slot


def share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two strided tensors have a cell of memory in common."""
    where = _memory(a)
    return where is not None and where == _memory(b) and _overlap(a, b)


def sharing(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """Positions of every two tensors that have a cell of memory in common, in order."""
    together: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for position, tensor in enumerate(tensors):
        if (where := _memory(tensor)) is not None:
            first = int(tensor.storage_offset()) * tensor.element_size()
            last = extent(tensor) * tensor.element_size()
            together.setdefault(where, []).append((first, last, position))
    pairs = []
    for spans in together.values():
        open_: list[tuple[int, int]] = []  # those that reach beyond where the next one begins
        for first, last, position in sorted(spans):
            open_ = [(end, other) for end, other in open_ if end > first]
            near = [other for _, other in open_ if _overlap(tensors[other], tensors[position])]
            pairs += [(min(other, position), max(other, position)) for other in near]
            open_.append((last, position))
    return sorted(pairs)


def _memory(tensor: torch.Tensor) -> tuple[str, int] | None:
    """Which memory a strided tensor lies in; None where that is not known."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
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


class SharedLeaf(Leaf):
    """A strided tensor with fewer cells than entries, as `.expand()` and `.unfold()` make them.

    Moving a cell moves every entry that lies in it, so its derivative is the sum of theirs. A cell
    has the name of its first entry.
    """

    def __init__(self, original: torch.Tensor, name: str) -> None:
        super().__init__(original)
        shape, self._dtype = tuple(original.shape), original.dtype
        cells, first, self._cell = np.unique(
            offsets_in(original).reshape(-1), return_index=True, return_inverse=True
        )
        self._first = first
        self._places = torch.from_numpy(cells)
        entries = np.stack(np.unravel_index(first, shape), axis=-1).astype(np.int64)
        text = f"{describe(original)}, {len(cells)} cells of memory"
        parts, fine = parts_of(self._dtype), grain(self._dtype)
        self.slot = Slot(name, (len(cells),), parts, entries, describe=text, grain=fine)

    def _pairs(self, vector: Array) -> Array:
        return vector.reshape(-1, len(self.slot.parts))

    def point(self) -> Array:
        return self._pairs(to_vector(self.original, self._dtype))[self._first].reshape(-1).copy()

    def tensor(self, piece: Array) -> torch.Tensor:
        like = self.original
        values = to_tensor(piece, self.slot.shape, self._dtype, like.device)
        buffer = torch.zeros(extent(like), dtype=like.dtype, device=like.device)
        buffer[self._places.to(like.device) + like.storage_offset()] = values
        return buffer.new_empty(0).set_(
            buffer.untyped_storage(), like.storage_offset(), like.size(), like.stride()
        )

    def copy(self) -> torch.Tensor:
        return self.tensor(self.point())

    def gradient(self, gradient: torch.Tensor) -> Array:
        entries = self._pairs(to_vector(gradient, self._dtype))
        total = np.zeros((len(self._first), entries.shape[1]))
        np.add.at(total, self._cell.reshape(-1), entries)
        return total.reshape(-1)
