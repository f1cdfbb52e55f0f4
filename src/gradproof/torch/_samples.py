"""Tensors made of arrays of NumPy and back: for sweeps, the command line and other adapters."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gradproof.torch._tensors import PLAIN, is_differentiable, is_floating


def values_of(given: Any) -> Any:
    """The values of a tensor that a sweep varies; None for anything else."""
    if type(given) not in PLAIN or given.layout is not torch.strided or given.is_quantized:
        return None
    return np.array(to_numpy(given))


def array_like(given: torch.Tensor, values: np.ndarray[Any, Any], dtype: str = "") -> torch.Tensor:
    """A contiguous leaf like `given` of other values; of another dtype where one is named."""
    kind = getattr(torch, dtype) if dtype else given.dtype
    made = torch.from_numpy(np.array(values, order="C")).to(given.device, kind)
    return made.requires_grad_(given.requires_grad)


def array_from_numpy(values: np.ndarray[Any, Any], dtype: str, device: str | None) -> torch.Tensor:
    """A leaf tensor of these values, which requires a gradient where the dtype can have one.

    `dtype` is a name in PyTorch, such as "bfloat16"; `device` such as "cuda", the CPU where None.
    """
    kind = getattr(torch, dtype)
    tensor = torch.from_numpy(values).to(device=device, dtype=kind, copy=True)
    return tensor.requires_grad_(is_floating(kind))


def array_from_file(path: str, device: str | None) -> torch.Tensor:
    """The tensor that `torch.save` wrote to a file, as a leaf like that of `array_from_numpy`.

    Raises:
        ValueError: there is something else in the file.
    """
    tensor = torch.load(path, map_location=device or "cpu", weights_only=True)
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"expected one tensor in it, got {type(tensor).__name__}")
    return tensor.detach().requires_grad_(is_differentiable(tensor))


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The same numbers in an array of NumPy, which knows fewer dtypes. May share memory."""
    tensor = tensor.detach().cpu().to_dense()
    if tensor.is_floating_point():
        tensor = tensor.double()
    return tensor.numpy(force=True)
