"""Tensors of PyTorch made of numbers: those of a call with others, and described ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from gradproof._adapters import samples
from gradproof._adapters.torch.call import as_numpy
from gradproof._adapters.torch.leaves import PLAIN, in_kind, is_differentiable
from gradproof._adapters.torch.rounding import FunctionMode
from gradproof._adapters.torch.tree import Tree, input_name
from gradproof._data.inputs import parameter_names
from gradproof._data.specs import ArraySpec, draw
from gradproof._measure.regimes import Values


def _as_many_keys_as_values(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Refuse attention over other numbers of keys and values, as all but one of its kernels do.

    On the CPU PyTorch 2.13 takes the number of keys from the values, and reads and writes memory
    that is not the keys' (pull request 193728): its backward may end the process.
    """
    if func is torch.nn.functional.scaled_dot_product_attention:
        named = {**dict(zip(("query", "key", "value"), args, strict=False)), **kwargs}
        keys, values = (named[name].shape[-2] for name in ("key", "value"))
        if keys != values:
            raise ValueError(f"attention over {keys} keys and {values} values")
    return func(*args, **kwargs)


class Samples(samples.Samples):
    """What of the arguments of a call can be varied: plain tensors, floats and flags.

    Tensors are made anew as leaves, contiguous.
    """

    guard = partial(FunctionMode, _as_many_keys_as_values)
    module, array = "torch", "tensor"

    def taken_apart(
        self, fn: Callable[..., Any], inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[samples.Leaves, samples.Rebuilt]:
        tree, parameters = Tree((inputs, kwargs)), parameter_names(fn)
        names = [input_name(path, parameters) for path in tree.paths]
        return list(zip(names, tree.leaves, strict=True)), tree.rebuilt

    def kind(self, leaf: Any) -> str:
        if type(leaf) not in PLAIN or leaf.layout is not torch.strided or leaf.is_quantized:
            return ""
        return "float" if is_differentiable(leaf) else "integer"

    def values(self, leaf: Any) -> Values:
        return super().values(as_numpy(leaf))

    def made(self, leaf: torch.Tensor, array: Values) -> torch.Tensor:
        made = torch.from_numpy(np.ascontiguousarray(array).copy()).to(leaf.device, leaf.dtype)
        made = in_kind(made.reshape(array.shape), leaf)
        return made.requires_grad_() if leaf.requires_grad else made

    def dtype(self, leaf: torch.Tensor) -> str:
        return str(leaf.dtype)

    def asking(self, leaf: torch.Tensor) -> tuple[str, str]:
        return (", requires_grad=True", ".requires_grad_()") if leaf.requires_grad else ("", "")


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
