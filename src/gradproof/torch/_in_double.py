"""A function that is written for few bits, run in double precision: its arguments, and a mode."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gradproof._adapters.double import convert_partial
from gradproof.torch._compat import pytree
from gradproof.torch._memory import placed_like
from gradproof.torch._modes import DispatchMode, FunctionMode, tensors_among
from gradproof.torch._tensors import grain, is_floating

# Random numbers. A function draws others in another dtype, and its twin in double precision would
# be another function. With an underscore: what writes them into a tensor.
_DRAW_NAMES = """
    rand rand_like randn randn_like normal bernoulli poisson
    uniform_ normal_ bernoulli_ exponential_ cauchy_ log_normal_ geometric_
"""
_DRAWS = frozenset(_DRAW_NAMES.split())
# Methods of a tensor that are named for a dtype, and those that take the dtype of another tensor.
_CASTS = {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16}
_LIKE = frozenset(("to", "type_as"))
_REAL, _COMPLEX = torch.float64, torch.complex128
_WIDE = frozenset({_REAL, _COMPLEX})
_EPSILON = torch.finfo(torch.float32).eps


class InDouble:
    """How a function that is written for few bits runs in double precision.

    Random numbers are those that it draws in its own precision, that of its inputs where they have
    one, and an epsilon that goes by the dtype is its own. Arrays in few bits that it holds itself
    are widened where they meet doubles: a product of the two is none to PyTorch. Where it casts
    doubles to few bits, as `softmax(dtype=torch.float32)` does, they stay doubles; what it makes of
    no tensor in few bits, as `torch.zeros(3)`, is made of doubles.

    Attributes:
        needed: whether a run that was made would have been another without it.
        cast_unit: unit round-off of the coarsest format that doubles were to be cast to, or that
            something was made in; 0.0 without any.
        forward: a mode for runs of a function, forward mode included.
        backward: one for runs of its backward, where PyTorch heeds none of the other kind.
    """

    def __init__(self, dtype: torch.dtype | None) -> None:
        pairs = torch.complex32 if dtype is torch.float16 else torch.complex64
        self._narrow = {} if dtype is None else {_REAL: dtype, _COMPLEX: pairs}
        self.needed, self.cast_unit = False, 0.0
        self.forward = FunctionMode(self._run_in_double)
        self.backward = DispatchMode(self._run_in_double)

    def _run_in_double(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What a function or an operator of PyTorch returns."""
        name = getattr(func, "__name__", "").partition(".")[0]  # an operator's: mul.Tensor
        if name in _DRAWS and self._narrow:
            self.needed = True
            return self._draw_result(func, name, args, kwargs)
        if name == "rms_norm" and self._narrow and (*args, *[None] * 4)[3] is None:
            # Left out, it is the spacing of the numbers that the sum of squares is made in.
            self.needed = True
            kwargs = {"eps": _EPSILON, **{k: v for k, v in kwargs.items() if v is not None}}
            args = args[:3]
        if name == "view" or name.endswith("__") or "out" in kwargs:
            return func(*args, **kwargs)
        is_write = name.endswith("_")
        if is_write and not (isinstance(args[0], torch.Tensor) and args[0].dtype in _WIDE):
            return func(*args, **kwargs)  # a buffer in few bits stays one
        given = *args, *kwargs.values()
        kinds = {tensor.dtype for tensor in tensors_among(given)}
        if not kinds:
            return self._made_in_double(func(*args, **kwargs))
        asked = {value for value in given if isinstance(value, torch.dtype)}
        asked |= {_CASTS[name]} if name in _CASTS else kinds if name in _LIKE else set()
        narrow = [kind for kind in kinds | asked if _is_narrow(kind)]
        if kinds.isdisjoint(_WIDE) or not narrow:
            return func(*args, **kwargs)
        self.needed = True
        self.cast_unit = max(self.cast_unit, *(grain(kind).unit for kind in asked & {*narrow}), 0.0)
        args, kwargs = pytree.tree_map(_double_precision_value, (tuple(args), dict(kwargs)))
        found = args[0].double() if name in _CASTS else func(*args, **kwargs)
        is_same = bool(args) and found is args[0] and not is_write
        return found.clone() if is_same else found  # a cast is another tensor

    def _made_in_double(self, found: Any) -> Any:
        """What is made of no tensor, as a buffer that sums are kept in."""
        if not isinstance(found, torch.Tensor) or not _is_narrow(found.dtype):
            return found
        self.needed, self.cast_unit = True, max(self.cast_unit, grain(found.dtype).unit)
        return _double_precision_value(found)

    def _draw_result(
        self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        narrow, named = pytree.tree_map(self._narrow_value, (tuple(args), dict(kwargs)))
        found = func(*narrow, **named)
        if name.endswith("_"):
            return args[0] if found is args[0] else args[0].copy_(found)
        return _double_precision_value(found)

    def _narrow_value(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            dtype = self._narrow.get(value.dtype)
            return value if dtype is None else value.detach().to(dtype)
        return self._narrow.get(value, value) if isinstance(value, torch.dtype) else value


def _is_narrow(dtype: torch.dtype) -> bool:
    return is_floating(dtype) and dtype not in _WIDE


def _double_precision_value(value: Any) -> Any:
    """A tensor in double precision, or the dtype of that; other values as they are."""
    if isinstance(value, torch.dtype):
        return double_dtype(value)
    return value.to(double_dtype(value.dtype)) if isinstance(value, torch.Tensor) else value


def double_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of double precision of the same kind; others stay."""
    if dtype.is_complex:
        return _COMPLEX
    return _REAL if dtype.is_floating_point else dtype


def tensor_in_double(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in double precision, at the same strides and offset."""
    wide = tensor.to(double_dtype(tensor.dtype))
    is_placed = wide is tensor or tensor.layout is not torch.strided
    return wide if is_placed else placed_like(wide, tensor)


def value_in_double(value: Any) -> Any:
    """An argument, or the function itself, in double precision; what has no precision stays."""
    if isinstance(value, torch.Tensor):
        return tensor_in_double(value.detach()).requires_grad_(value.requires_grad)
    if isinstance(value, torch.dtype):
        return double_dtype(value)
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).to(torch.float64)
    owner = getattr(value, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        return getattr(value_in_double(owner), value.__name__)
    return convert_partial(value, value_in_double)
