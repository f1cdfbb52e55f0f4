"""The functions that portable exhibits call, under one name each, for NumPy and for PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


class Names:
    """A module, with functions of its own for the names that it has not, or otherwise."""

    def __init__(self, module: ModuleType, **functions: Callable[..., Any]) -> None:
        self._module = module
        vars(self).update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def numpy_names() -> Names:
    import numpy as np

    return Names(  # NumPy 1.26 lacks these
        np,
        astype=lambda x, dtype: x.astype(dtype),
        concat=np.concatenate,
        cumulative_sum=lambda x, axis: np.cumsum(x, axis=axis),
    )


def torch_names() -> Names:
    import torch

    def every_axis(x: Any, axis: int | None) -> tuple[int, ...]:
        return tuple(range(x.ndim)) if axis is None else (axis,)

    return Names(
        torch,
        astype=lambda x, dtype: x.to(dtype),
        cumulative_sum=lambda x, axis: torch.cumsum(x, axis),
        flip=lambda x, axis=None: torch.flip(x, every_axis(x, axis)),
        max=lambda x, axis=None: torch.amax(x, every_axis(x, axis)),
        sort=lambda x: torch.sort(x).values,
        take=lambda x, places, axis: torch.index_select(x, axis, places),
    )
