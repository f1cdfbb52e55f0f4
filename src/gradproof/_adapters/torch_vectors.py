"""Where the flat vectors of a map live: in NumPy's arrays, or in tensors on a device.

Inputs on an accelerator keep their vectors there: what is drawn, moved and compared is then as
long as the inputs, and nothing of that length crosses to the host but the probes, each once, whole.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gradproof._space import Array

# "host": NumPy's arrays for inputs on a device too. "device": tensors for those on the CPU too, as
# tests do it. Read whenever a map is built.
SWITCH = "GRADPROOF_TORCH_VECTORS"
PLAIN = (torch.Tensor, torch.nn.Parameter)  # a subclass may do anything when it is copied


def home_of(originals: Sequence[torch.Tensor]) -> torch.device | None:
    """The device on which the vectors of these inputs live; None for NumPy's arrays on the host.

    It is that of the first input: maps made of another begin with the same inputs. Vectors are in
    double precision, which some devices (MPS) have not; and what is not plain and strided is taken
    apart on the host.
    """
    asked = os.environ.get(SWITCH, "")
    if asked == "host" or not originals:
        return None
    if any(type(each) not in PLAIN or each.layout is not torch.strided for each in originals):
        return None
    device = originals[0].device
    if device.type == "cpu":
        return device if asked == "device" else None
    return device if _has_double(device) else None


@functools.cache
def _has_double(device: torch.device) -> bool:
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except (TypeError, RuntimeError, NotImplementedError):
        return False
    return device.type != "meta"


def full(shape: int | tuple[int, ...], value: float, home: torch.device | None) -> Array:
    """A vector, or rows of vectors, of one number."""
    if home is None:
        return np.full(shape, value) if value else np.zeros(shape)
    shape = (shape,) if isinstance(shape, int) else shape
    return torch.full(shape, value, dtype=torch.float64, device=home)


def own(vector: Array) -> Array:
    """A vector whose memory may be lent to tensors; those made of a tensor never share it."""
    return vector.copy() if isinstance(vector, np.ndarray) else vector


def lendable(vector: Array, *, long: int | None = None) -> Array:
    """A vector in double precision of which tensors can be made that nobody else reads.

    Those of NumPy share its memory; those of a tensor are made in memory of their own. A vector
    of more than `long` entries was made for one call and is not copied: whoever made it does not
    read it again.
    """
    if not isinstance(vector, np.ndarray):
        return vector
    if long is not None and vector.size > long and vector.dtype == np.float64:
        return vector
    return np.array(vector, dtype=np.float64, order="C")


def joined(pieces: Sequence[Array], home: torch.device | None) -> Array:
    """One private vector of the flat coordinates of several tensors."""
    if not pieces:
        return full(0, 0.0, home)
    if len(pieces) == 1:
        return own(pieces[0])
    return np.concatenate(pieces) if home is None else torch.cat(list(pieces))


def taken(tensor: torch.Tensor, dtype: torch.dtype, home: torch.device) -> Array:
    """Flat float64 coordinates of a plain dense tensor, as of one of `dtype`, in new memory there.

    Writing into new memory resolves conjugations, negations and PyTorch's symbolic zeros.
    """
    kind = torch.complex128 if dtype.is_complex else torch.float64
    if tensor.is_complex() and not dtype.is_complex:
        tensor = tensor.real
    found = torch.empty(tensor.shape, dtype=kind, device=home)
    found.copy_(tensor)
    return torch.view_as_real(found).reshape(-1) if dtype.is_complex else found.reshape(-1)


def given(piece: Any, shape: Any, dtype: torch.dtype, device: torch.device | None) -> torch.Tensor:
    """A private contiguous tensor from flat coordinates on a device; on the CPU by default."""
    made = torch.empty(shape, dtype=dtype, device=device or "cpu")
    if dtype.is_complex:
        torch.view_as_real(made).copy_(piece.reshape((*shape, 2)))
        return made
    return made.copy_(piece.reshape(shape))
