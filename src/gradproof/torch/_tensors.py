"""Tensors of PyTorch as flat vectors of float64 coordinates, and as slots of a space.

Vectors are NumPy's and on the host; tensors are moved to and from their devices here. Which kinds
of tensors cannot be checked is said here too.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from gradproof._data.formats import Grain
from gradproof._data.space import Array, Slot

PLAIN = (torch.Tensor, torch.nn.Parameter)  # a subclass may do anything when it is copied
SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def private_vector(vector: Array) -> Array:
    """A copy in float64: tensors may share its memory, and a function may write into them."""
    return np.array(vector, dtype=np.float64, order="C")


def comparable_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in a dtype that PyTorch compares: complex32 as complex64."""
    return tensor.to(torch.complex64) if tensor.dtype is torch.complex32 else tensor


def is_differentiable(value: Any) -> bool:
    """Whether a value is a tensor of numbers that can have a derivative."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def is_floating(dtype: torch.dtype) -> bool:
    """Whether it is one of real or complex numbers."""
    return dtype.is_floating_point or dtype.is_complex


@functools.cache
def grain(dtype: torch.dtype) -> Grain:
    """How finely a dtype's numbers lie."""
    limits = torch.finfo(dtype)
    tiny = float(limits.smallest_normal) * float(limits.eps)
    return Grain(float(limits.eps) / 2, tiny, float(limits.max))


def slot_like(name: str, tensor: torch.Tensor, *, detached: bool = False) -> Slot:
    """The slot of a tensor's entries."""
    return _slot(name, tensor.shape, tensor.dtype, tensor.layout, detached=detached)


@functools.lru_cache(maxsize=1024)
def _slot(
    name: str, shape: torch.Size, dtype: torch.dtype, layout: torch.layout, *, detached: bool
) -> Slot:
    """A slot of these, of which a suite has few: to make one takes as long as a small function."""
    text = f"{str(dtype).removeprefix('torch.')}{list(shape)}"
    if layout is not torch.strided:
        text += f" {str(layout).removeprefix('torch.').removeprefix('_')}"
    parts = ("real", "imag") if dtype.is_complex else ("",)
    return Slot(name, tuple(shape), parts, None, detached, text, grain(dtype))


def to_vector(tensor: torch.Tensor, dtype: torch.dtype) -> Array:
    """Flat float64 coordinates of a tensor on the host, as those of a tensor of `dtype`.

    They may share the memory of the tensor: every caller copies.
    """
    # force resolves conjugations, negations and PyTorch's symbolic zeros, and leaves the graph.
    plain = type(tensor) is torch.Tensor and tensor.dtype is dtype is torch.float64
    if plain and tensor.is_cpu and tensor.layout is torch.strided:
        return tensor.numpy(force=True).ravel()
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if dtype.is_complex:
        flat = tensor.to("cpu", torch.complex128).numpy(force=True).ravel()
        return flat.view(np.float64)
    if tensor.is_complex():
        tensor = tensor.real
    return tensor.to("cpu", torch.float64).numpy(force=True).ravel()


def to_tensor(piece: Array, shape: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A contiguous tensor from flat float64 coordinates, whose memory it shares where it can.

    Its address is a multiple of 16, as that of every tensor that PyTorch makes: vectorised kernels
    of complex numbers, which a function may view it as, crash on others.
    """
    if piece.__array_interface__["data"][0] % 16 or not piece.flags.c_contiguous:
        piece = piece.copy()
    if dtype.is_complex:
        piece = piece.view(np.complex128)
    tensor = torch.from_numpy(piece.reshape(shape))  # NumPy takes less to view than PyTorch
    return tensor.to(device, dtype)


def unsupported_kind(tensor: torch.Tensor) -> str:
    """Why a tensor cannot be checked, as the end of a sentence; "" where it can."""
    if type(tensor) in PLAIN and not (tensor.is_meta or tensor.is_nested or tensor.is_mkldnn):
        return ""
    if tensor.is_mkldnn:
        return "an MKLDNN tensor, which cannot be perturbed; pass its .to_dense()"
    if is_lazy(tensor):
        return "not initialised and has no shape yet: call the layer once, then check it"
    if tensor.is_meta or hasattr(tensor, "fake_mode"):
        return "a meta or fake tensor, which has no numbers; pass one that has"
    if tensor.is_nested:
        return (
            "a nested tensor, whose entries have no common shape; check what is done to the plain "
            "tensor that it is made of, its .values()"
        )
    if type(tensor).__name__ == "MaskedTensor":
        return (
            "a MaskedTensor, which has no value where it is masked; check the same of plain "
            "tensors, torch.where(mask, data, 0)"
        )
    return ""
