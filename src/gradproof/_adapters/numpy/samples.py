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

    def __init__(
        self, fn: Callable[..., Any], inputs: Sequence[Any], kwargs: Mapping[str, Any] | None
    ) -> None:
        options, parameters, count = dict(kwargs or {}), parameter_names(fn), len(inputs)
        names = [*(name_at(parameters, place) for place in range(count)), *options]
        leaves = list(zip(names, [*inputs, *options.values()], strict=True))

        def rebuilt(new: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            return tuple(new[:count]), dict(zip(options, new[count:], strict=True))

        super().__init__(leaves, rebuilt, _WORDS)


def _kind(leaf: Any) -> str:
    if not isinstance(leaf, (np.ndarray, np.generic)):
        return ""
    return _KINDS.get(leaf.dtype.kind, "")


def _made(leaf: Any, array: Values) -> Any:
    made = array.astype(leaf.dtype)
    return made[()] if isinstance(leaf, np.generic) else made


_WORDS = samples.Words(
    _kind, samples.on_host, _made, "np", "array", lambda leaf: f"np.{leaf.dtype}"
)


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
