"""Described arrays as tensors of PyTorch."""

from __future__ import annotations

import numpy as np
import torch

from gradproof._specs import ArraySpec, draw


def tensor_from_spec(spec: ArraySpec, rng: np.random.Generator) -> torch.Tensor:
    """The described tensor, a leaf on the CPU; `rng` draws its values."""
    dtype: torch.dtype = getattr(torch, spec.dtype)
    tensor = torch.from_numpy(draw(spec, rng)).to(dtype)
    return tensor.requires_grad_(spec.requires_grad)
