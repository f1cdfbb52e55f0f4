"""Sparse tensors of PyTorch as pieces of a flat real vector: a choice of domain, nothing else."""

from __future__ import annotations

import math

import numpy as np
import torch

from gradproof._adapters.torch.leaves import Leaf, slot_like, to_tensor, to_vector
from gradproof._data.space import Array, Indices

BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)
BY_ROW = (torch.sparse_csr, torch.sparse_bsr)


def sparse_leaf(original: torch.Tensor, name: str, masked: bool) -> Leaf:
    """The specified entries of a sparse tensor if `masked`, else all of its entries."""
    return SpecifiedLeaf(original, name) if masked else EveryLeaf(original, name)


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    """The stored values, also of a COO tensor that is not coalesced."""
    tensor = tensor.detach()
    return tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()


def with_values(like: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A sparse tensor with the structure of `like` and other stored values."""
    like = like.detach()
    if like.layout is torch.sparse_coo:
        return torch.sparse_coo_tensor(
            like._indices(),
            values,
            like.shape,
            is_coalesced=like.is_coalesced(),
            check_invariants=False,
        )
    compressed, plain = compressed_indices(like)
    return torch.sparse_compressed_tensor(
        compressed, plain, values, like.shape, layout=like.layout, check_invariants=False
    )


def compressed_indices(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compressed and plain indices of a CSR, CSC, BSR or BSC tensor."""
    if tensor.layout in BY_ROW:
        return tensor.crow_indices(), tensor.col_indices()
    return tensor.ccol_indices(), tensor.row_indices()


def block_size(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Extent of the blocks of a blocked layout; None for the other layouts."""
    if tensor.layout not in BLOCKED:
        return None
    batch = compressed_indices(tensor)[0].dim() - 1
    return tuple(tensor.values().shape[batch + 1 : batch + 3])


def in_c_order(entries: Indices, shape: tuple[int, ...]) -> Indices:
    """Places in the flattened dense tensor of multi-indices, one a row; () is a shape too."""
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    return entries @ np.array(strides, dtype=np.int64)


def entries_of(tensor: torch.Tensor) -> Indices:
    """Multi-indices of the stored values, one row per value, in the order of storage."""
    tensor = tensor.detach().cpu()
    if tensor.layout is torch.sparse_coo:
        inner = tuple(tensor._values().shape[1:])
        inside = np.indices(inner).reshape(len(inner), math.prod(inner)).T
        stored = tensor._indices().numpy().T
        rows = np.repeat(stored, len(inside), axis=0)
        return np.concatenate([rows, np.tile(inside, (len(stored), 1))], axis=1)
    return _entries_compressed(tensor)


def _entries_compressed(tensor: torch.Tensor) -> Indices:
    compressed, plain = (indices.numpy() for indices in compressed_indices(tensor))
    batch = compressed.ndim - 1
    stored = plain.shape[-1]
    starts = compressed.reshape(-1, compressed.shape[-1])
    # The compressed index of each stored element: how often each row (or column) occurs.
    along = np.stack([np.repeat(np.arange(len(row) - 1), np.diff(row)) for row in starts])
    major = along.reshape(*plain.shape[:-1], stored)
    shape = tensor.values().shape
    places = np.indices(shape)  # batch dims, stored element, block dims, dense dims
    element = tuple(places[: batch + 1])
    row, column = major[element], plain[element]
    if tensor.layout not in BY_ROW:
        row, column = column, row
    rest = batch + 1
    block = block_size(tensor)
    if block is not None:
        row = row * block[0] + places[rest]
        column = column * block[1] + places[rest + 1]
        rest += 2
    index = [*places[:batch], row, column, *places[rest:]]
    return np.stack([axis.reshape(-1) for axis in index], axis=1).astype(np.int64)


class SpecifiedLeaf(Leaf):
    """The stored values of a sparse tensor, duplicates of a COO tensor each on their own."""

    def __init__(self, original: torch.Tensor, name: str) -> None:
        super().__init__(original)
        self._shape = tuple(values_of(original).shape)
        self._entries = entries_of(original)
        self._places = in_c_order(self._entries, tuple(original.shape))
        self._dtype = original.dtype
        self.slot = slot_like(name, original, self._shape, entries=self._entries)

    def point(self) -> Array:
        return to_vector(values_of(self.original), self._dtype).copy()

    def tensor(self, piece: Array) -> torch.Tensor:
        values = to_tensor(piece, self._shape, self._dtype, self.original.device)
        return with_values(self.original, values)

    def copy(self) -> torch.Tensor:
        return with_values(self.original, values_of(self.original).clone())

    def gradient(self, gradient: torch.Tensor) -> Array:
        return self._dense(gradient).reshape(-1)[self._places].view(np.float64)

    def outside(self, gradient: torch.Tensor) -> list[tuple[tuple[int, ...], float]]:
        dense = self._dense(gradient).copy()
        dense.reshape(-1)[self._places] = 0
        found = np.argwhere(dense != 0)  # NaN counts as non-zero
        values = dense[dense != 0]
        magnitudes = np.abs(values) if np.iscomplexobj(values) else values
        return [
            (tuple(int(i) for i in index), float(value))
            for index, value in zip(found, magnitudes, strict=True)
        ]

    def _dense(self, gradient: torch.Tensor) -> Array:
        flat = to_vector(gradient, self._dtype)
        if self._dtype.is_complex:
            flat = np.ascontiguousarray(flat).view(np.complex128)
        return flat.reshape(tuple(self.original.shape))


class EveryLeaf(Leaf):
    """Every entry of a sparse tensor, zero where it stores none.

    Measured on a tensor of the same layout that stores every entry; the claimed gradient is that
    of the user's own structure.
    """

    def __init__(self, original: torch.Tensor, name: str) -> None:
        super().__init__(original)
        self._dtype = original.dtype
        self._full, self._order = _full_structure(original)
        self.slot = slot_like(name, original)

    def point(self) -> Array:
        return to_vector(self.original, self._dtype).copy()

    def tensor(self, piece: Array) -> torch.Tensor:
        dense = to_tensor(piece, (len(self._order),), self._dtype, self.original.device)
        values = dense[self._order].view(values_of(self._full).shape)
        return with_values(self._full, values)

    def copy(self) -> torch.Tensor:
        return with_values(self.original, values_of(self.original).clone())


def _full_structure(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor of the same layout that stores every entry, and each value's place in C order."""
    shape, device = tuple(tensor.shape), tensor.device
    count = math.prod(shape)
    if tensor.layout is torch.sparse_coo:
        indices = torch.ones(shape[: tensor.sparse_dim()], device=device).nonzero().t()
        values = torch.arange(count, device=device)
        values = values.view(indices.shape[1], *shape[tensor.sparse_dim() :])
        full = torch.sparse_coo_tensor(
            indices, values, shape, is_coalesced=True, check_invariants=False
        )
        return full, values.reshape(-1)
    # Numbers from 1, so that the conversion finds no zero to leave out.
    numbers = torch.arange(1, count + 1, dtype=torch.float64, device=device).view(shape)
    full = numbers.to_sparse(
        layout=tensor.layout, blocksize=block_size(tensor), dense_dim=tensor.dense_dim()
    )
    return full, (full.values().reshape(-1) - 1).to(torch.int64)
