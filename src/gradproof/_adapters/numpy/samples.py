"""Arrays of NumPy made of numbers: those of a call with others, and described ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradproof._data.specs import FLOATS, ArraySpec, draw
from gradproof._guard import restored
from gradproof._guard.random import RandomState


def values_of(given: Any) -> Any:
    """The values of an array that a sweep varies; None for anything else."""
    is_array = isinstance(given, (np.ndarray, np.generic)) and given.dtype.kind in "fciub"
    return np.array(given) if is_array else None


def made_like(given: Any, values: np.ndarray[Any, Any]) -> Any:
    """An array like `given` of other values."""
    made = values.astype(given.dtype)
    return made[()] if isinstance(given, np.generic) else made


# Described arrays, and the layers that take them.


def array_from_spec(
    spec: ArraySpec, rng: np.random.Generator, device: str | None = None
) -> np.ndarray[Any, Any]:
    """The described array; `rng` draws its values. ValueError where NumPy has none like it."""
    if device is not None:
        raise ValueError("arrays of NumPy have no device")
    if spec.dtype == "bfloat16":
        raise ValueError("NumPy has no bfloat16")
    if spec.dtype in FLOATS and not spec.requires_grad:
        raise ValueError("floating arrays of NumPy are differentiated; hand others over by keyword")
    return draw(spec, rng).astype(spec.dtype)


def construct(
    factory: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    seed: int,
    dtype: str | None = None,  # noqa: ARG001 # as for other frameworks
    device: str | None = None,  # noqa: ARG001 # likewise
) -> Any:
    """What `factory` makes of its arguments, NumPy's global random numbers seeded."""
    with restored(RandomState().restore):
        np.random.seed(seed % 2**32)  # noqa: NPY002 # what their code draws from
        return factory(*arguments, **keywords)
