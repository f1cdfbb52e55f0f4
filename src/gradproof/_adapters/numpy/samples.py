"""Arrays of NumPy made of numbers: those of a call with others, and described ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradproof._adapters import samples
from gradproof._adapters.arrays import name_at
from gradproof._data.inputs import parameter_names
from gradproof._data.specs import FLOATS, ArraySpec, draw
from gradproof._guard import restored
from gradproof._guard.random import RandomState
from gradproof._measure.regimes import Values

_KINDS = {"f": "float", "c": "float", "i": "integer", "u": "integer", "b": "integer"}


class Samples(samples.Samples):
    """What of the arguments of a call can be varied: arrays of NumPy, floats and flags."""

    module, array = "np", "array"

    def taken_apart(
        self, fn: Callable[..., Any], inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[samples.Leaves, samples.Rebuilt]:
        parameters, count = parameter_names(fn), len(inputs)
        names = [*(name_at(parameters, place) for place in range(count)), *kwargs]
        leaves = list(zip(names, [*inputs, *kwargs.values()], strict=True))
        return leaves, lambda new: (tuple(new[:count]), dict(zip(kwargs, new[count:], strict=True)))

    def kind(self, leaf: Any) -> str:
        if not isinstance(leaf, (np.ndarray, np.generic)):
            return ""
        return _KINDS.get(leaf.dtype.kind, "")

    def made(self, leaf: Any, array: Values) -> Any:
        made = array.astype(leaf.dtype)
        return made[()] if isinstance(leaf, np.generic) else made

    def dtype(self, leaf: Any) -> str:
        return f"np.{leaf.dtype}"


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
