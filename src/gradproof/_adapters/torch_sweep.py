"""The arrays of a call of a PyTorch function, taken out as NumPy's and put in again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from gradproof._adapters.torch_call import parameter_names
from gradproof._adapters.torch_leaves import is_differentiable
from gradproof._adapters.torch_tree import Tree, input_name
from gradproof._numerics.regimes import Sample, Values

_MOST = 64  # entries that are written out


class Samples:
    """What of the arguments of a call can be varied: plain tensors, floats and flags.

    Attributes:
        found: one sample each.
    """

    def __init__(
        self, fn: Callable[..., Any], inputs: Sequence[Any], kwargs: Mapping[str, Any] | None
    ) -> None:
        self._tree = Tree((tuple(inputs), dict(kwargs or {})))
        self._places: list[int] = []
        self.found: list[Sample] = []
        parameters = parameter_names(fn)
        for place, (path, leaf) in enumerate(zip(self._tree.paths, self._tree.leaves, strict=True)):
            kind = _kind(leaf)
            if kind:
                values = _values(leaf)
                self._places.append(place)
                self.found.append(Sample(input_name(path, parameters), values, kind))

    def call(self, arrays: Sequence[Values]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments with these values; fresh leaves, contiguous."""
        leaves = list(self._tree.leaves)
        for place, sample, array in zip(self._places, self.found, arrays, strict=True):
            leaves[place] = _made(leaves[place], sample, array)
        inputs, kwargs = self._tree.rebuilt(leaves)
        return inputs, kwargs

    def written(self, arrays: Sequence[Values]) -> list[str]:
        """One line of Python for each tensor; floats and flags are written in the call."""
        lines = []
        for place, sample, array in zip(self._places, self.found, arrays, strict=True):
            leaf = self._tree.leaves[place]
            if isinstance(leaf, torch.Tensor):
                lines.append(f"{_variable(sample.name)} = {_source(leaf, array)}")
        return lines


def _variable(name: str) -> str:
    """`x0` for `input 0`."""
    return name.replace("input ", "x", 1) if name.startswith("input ") else name


def _kind(leaf: Any) -> str:
    """The kind of a sample; "" for what is not varied."""
    if isinstance(leaf, torch.Tensor):
        plain = type(leaf) in (torch.Tensor, torch.nn.Parameter)
        if not plain or leaf.layout is not torch.strided or leaf.is_quantized:
            return ""
        return "float" if is_differentiable(leaf) else "integer"
    if isinstance(leaf, bool):
        return "flag"
    return "number" if isinstance(leaf, float) else ""


def _values(leaf: Any) -> Values:
    if not isinstance(leaf, torch.Tensor):
        return np.asarray(leaf)
    tensor = leaf.detach().cpu()
    if tensor.is_complex():
        tensor = tensor.to(torch.complex128)
    elif tensor.is_floating_point():
        tensor = tensor.to(torch.float64)
    found: Values = tensor.numpy(force=True).copy()
    return found


def _made(leaf: Any, sample: Sample, array: Values) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return array.item()
    if array is sample.values:
        return leaf
    made = torch.from_numpy(np.ascontiguousarray(array).copy()).to(leaf.device, leaf.dtype)
    made = made.reshape(array.shape)
    return made.requires_grad_() if leaf.requires_grad else made


def _source(leaf: torch.Tensor, array: Values) -> str:
    more = ", requires_grad=True" if leaf.requires_grad else ""
    end = f"dtype={leaf.dtype}{more})"
    shape = tuple(array.shape)
    if not array.size:
        return f"torch.zeros({shape}, {end}"
    flat = array.reshape(-1)
    if array.size > 1 and bool((flat == flat[0]).all()):
        return f"torch.full({shape}, {flat[0].item()!r}, {end}"
    ramp = np.linspace(0.5, 1.5, array.size)
    if array.size > _MOST and np.array_equal(flat, ramp) and not leaf.requires_grad:
        return f"torch.linspace(0.5, 1.5, {array.size}, dtype={leaf.dtype}).reshape({shape})"
    if array.size > _MOST and np.array_equal(flat, ramp):
        plain = f"torch.linspace(0.5, 1.5, {array.size}, dtype={leaf.dtype}).reshape({shape})"
        return f"{plain}.requires_grad_()"
    return f"torch.tensor({array.tolist()}, {end}"
