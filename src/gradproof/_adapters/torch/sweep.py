"""The arrays of a call of a PyTorch function, for a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from gradproof._adapters import samples
from gradproof._adapters.torch.call import parameter_names
from gradproof._adapters.torch.leaves import in_kind, is_differentiable
from gradproof._adapters.torch.tree import Tree, input_name
from gradproof._measure.regimes import Values


class _AsManyKeysAsValues(TorchFunctionMode):
    """Refuses attention over other numbers of keys and values, as all but one of its kernels do.

    On the CPU PyTorch 2.13 takes the number of keys from the values, and reads and writes memory
    that is not the keys' (pull request 193728): its backward may end the process.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Any,  # PyTorch's signature
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
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

    guard = _AsManyKeysAsValues

    def __init__(
        self, fn: Callable[..., Any], inputs: Sequence[Any], kwargs: Mapping[str, Any] | None
    ) -> None:
        tree, parameters = Tree((tuple(inputs), dict(kwargs or {}))), parameter_names(fn)
        names = [input_name(path, parameters) for path in tree.paths]
        super().__init__(list(zip(names, tree.leaves, strict=True)), tree.rebuilt, _WORDS)


def _kind(leaf: Any) -> str:
    if type(leaf) not in (torch.Tensor, torch.nn.Parameter):
        return ""
    if leaf.layout is not torch.strided or leaf.is_quantized:
        return ""
    return "float" if is_differentiable(leaf) else "integer"


def _values(leaf: torch.Tensor) -> Values:
    tensor = leaf.detach().cpu()
    if tensor.is_complex():
        tensor = tensor.to(torch.complex128)
    elif tensor.is_floating_point():
        tensor = tensor.to(torch.float64)
    found: Values = tensor.numpy(force=True).copy()
    return found


def _made(leaf: torch.Tensor, array: Values) -> torch.Tensor:
    made = torch.from_numpy(np.ascontiguousarray(array).copy()).to(leaf.device, leaf.dtype)
    made = in_kind(made.reshape(array.shape), leaf)
    return made.requires_grad_() if leaf.requires_grad else made


def _asking(leaf: torch.Tensor) -> tuple[str, str]:
    return (", requires_grad=True", ".requires_grad_()") if leaf.requires_grad else ("", "")


_WORDS = samples.Words(
    _kind, _values, _made, "torch", "tensor", lambda leaf: str(leaf.dtype), _asking
)
