"""Sparse tensors of PyTorch as pieces of a flat real vector: a choice of domain, nothing else."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from gradproof._data.space import Array, Indices
from gradproof.torch._leaves import Leaf
from gradproof.torch._tensors import slot_like, to_tensor, to_vector


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    """The stored values, also of a COO tensor that is not coalesced."""
    tensor = tensor.detach()
    return tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()


def tensor_with_values(like: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
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
    if like.layout in (torch.sparse_csr, torch.sparse_bsr):
        indices = like.crow_indices(), like.col_indices()
    else:
        indices = like.ccol_indices(), like.row_indices()
    return torch.sparse_compressed_tensor(
        *indices, values, like.shape, layout=like.layout, check_invariants=False
    )


def entries_of(tensor: torch.Tensor) -> Indices:
    """Multi-indices of the stored values, one row per value, in the order of storage."""
    tensor = tensor.detach().cpu()
    if tensor.layout is torch.sparse_coo:  # which may store an entry several times
        inner = tuple(tensor._values().shape[1:])
        inside = np.indices(inner).reshape(len(inner), math.prod(inner)).T
        stored = tensor._indices().numpy().T
        rows = np.repeat(stored, len(inside), axis=0)
        return np.concatenate([rows, np.tile(inside, (len(stored), 1))], axis=1)
    # Numbers from 1, so that no stored value looks like one that is not.
    values = values_of(tensor)
    numbers = torch.arange(1, values.numel() + 1, dtype=torch.float64).view(values.shape)
    dense = tensor_with_values(tensor, numbers).to_dense().numpy()
    places = np.flatnonzero(dense)
    places = places[np.argsort(dense.reshape(-1)[places])]
    return np.stack(np.unravel_index(places, dense.shape), axis=1)


class SpecifiedLeaf(Leaf):
    """The stored values of a sparse tensor, duplicates of a COO tensor each on their own."""

    def __init__(self, original: torch.Tensor, name: str) -> None:
        super().__init__(original)
        self._shape = tuple(values_of(original).shape)
        entries = entries_of(original)
        strides = torch.empty(original.shape, device="meta").stride()
        self._places = entries @ np.array(strides, dtype=np.int64)  # in the flattened dense tensor
        self.slot = replace(slot_like(name, original), shape=self._shape, entries=entries)

    def point(self) -> Array:
        return to_vector(values_of(self.original), self._dtype)

    def tensor(self, piece: Array) -> torch.Tensor:
        values = to_tensor(piece, self._shape, self._dtype, self.original.device)
        return tensor_with_values(self.original, values)

    def gradient(self, gradient: torch.Tensor) -> Array:
        return self._dense_entries(gradient).reshape(-1)[self._places].view(np.float64)

    def entries_outside(self, gradient: torch.Tensor) -> list[tuple[tuple[int, ...], float]]:
        dense = self._dense_entries(gradient).copy()
        dense.reshape(-1)[self._places] = 0
        found = [tuple(index) for index in np.argwhere(dense).tolist()]  # NaN is not zero
        if self._dtype.is_complex:
            dense = np.abs(dense)
        return [(index, float(dense[index])) for index in found]

    def _dense_entries(self, gradient: torch.Tensor) -> Array:
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
        self._full, self._order = _full_structure(original)
        self.slot = slot_like(name, original)

    def tensor(self, piece: Array) -> torch.Tensor:
        dense = to_tensor(piece, (len(self._order),), self._dtype, self.original.device)
        values = dense[self._order].view(values_of(self._full).shape)
        return tensor_with_values(self._full, values)

    def copy(self) -> torch.Tensor:
        return tensor_with_values(self.original, values_of(self.original).clone())


def _full_structure(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor of the same layout that stores every entry, and each value's place in C order."""
    numbers = torch.arange(1, tensor.numel() + 1, dtype=torch.float64, device=tensor.device)
    numbers = numbers.view(tensor.shape)  # from 1: the conversion leaves out zeros
    dense, blocks = tensor.dense_dim(), None
    if tensor.layout in (torch.sparse_bsr, torch.sparse_bsc):
        extents = tensor.values().shape
        blocks = extents[len(extents) - dense - 2 : len(extents) - dense]
    full = numbers.to_sparse(layout=tensor.layout, blocksize=blocks, dense_dim=dense)
    return full, (full.values().reshape(-1) - 1).to(torch.int64)
