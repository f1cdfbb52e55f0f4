"""The arrays of a call of a function of NumPy, for a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradproof._adapters import samples
from gradproof._adapters.arrays import name_at, parameter_names
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
