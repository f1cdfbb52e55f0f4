"""Side effects of a function of arrays and its backward, both written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradproof._guard import restored
from gradproof._guard.random import RandomState, draw_numbers, effect_on


def side_effects_of(
    forward: Callable[[], Any],
    backward: Callable[[], Any],
    names: Sequence[str],
    arrays: Sequence[Any],
    cotangents: Sequence[Any],
    constants: Sequence[Any],
) -> list[tuple[str, str]]:
    """What a run of the function and its backward changed, each as (kind, sentence).

    The global random states are put back.
    """
    random = RandomState()
    told = [
        *((each, "input", f"input {name}") for each, name in zip(arrays, names, strict=True)),
        *((each, "cotangent", "cotangent, which others may use") for each in cotangents),
        *((each, "input", "argument that is not tested") for each in constants),
    ]
    watched = [(each, each.copy(), *said) for each, *said in told if isinstance(each, np.ndarray)]
    found: list[tuple[str, str]] = []

    def run() -> None:
        forward()
        backward()

    with restored(random.restore):
        draw_numbers()  # earlier runs may have set a state
        begun = RandomState()
        for who, part in (("function", forward), ("backward", backward)):
            part()
            for k, (array, kept, kind, what) in enumerate(watched):
                if not np.array_equal(array, kept, equal_nan=kept.dtype.kind in "fc"):
                    found.append((kind, f"the {who} changed its {what}"))
                    watched[k] = array, array.copy(), kind, what
        found += effect_on("a run", begun, run)
    return found
