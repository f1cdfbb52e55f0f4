"""Tensors of PyTorch made of numbers: those of a call with others, and described ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from gradproof._adapters.torch.call import as_numpy
from gradproof._adapters.torch.leaves import PLAIN, in_kind
from gradproof._data.specs import ArraySpec, draw


def values_of(given: Any) -> Any:
    """The values of a tensor that a sweep varies; None for anything else."""
    if type(given) not in PLAIN or given.layout is not torch.strided or given.is_quantized:
        return None
    return np.array(as_numpy(given))


def made_like(given: torch.Tensor, values: np.ndarray[Any, Any]) -> torch.Tensor:
    """A contiguous leaf like `given` of other values."""
    made = torch.from_numpy(np.ascontiguousarray(values).copy()).to(given.device, given.dtype)
    made = in_kind(made.reshape(values.shape), given)
    return made.requires_grad_() if given.requires_grad else made


# Described arrays, and the layers that take them.


def array_from_spec(
    spec: ArraySpec, rng: np.random.Generator, device: str | None = None
) -> torch.Tensor:
    """The described tensor, a leaf, on the CPU unless told otherwise; `rng` draws its values."""
    dtype: torch.dtype = getattr(torch, spec.dtype)
    tensor = torch.from_numpy(draw(spec, rng)).to(device=device, dtype=dtype)
    return tensor.requires_grad_(spec.requires_grad)


def construct(
    factory: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    seed: int,
    dtype: str | None = None,
    device: str | None = None,
) -> Any:
    """What `factory` makes of its arguments, PyTorch's random numbers on the CPU seeded.

    A module is moved to the device, and its floating parameters and buffers to the dtype. The
    random state is afterwards what it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        made = factory(*arguments, **keywords)
    if isinstance(made, torch.nn.Module):
        made = made.to(device=device, dtype=None if dtype is None else getattr(torch, dtype))
    return made
