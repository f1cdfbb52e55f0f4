"""Rules that raise: in double precision only, which is no fault, or whenever they are asked."""

from __future__ import annotations

from typing import Any

import numpy as np

from exhibits.portable import Portable, normal, product, sine


def _in_single() -> tuple[Any, ...]:
    return tuple(normal(6, seed=seed).astype(np.float32) for seed in (1, 2))


def _kernel(xp: Any, g: Any, x: Any, w: Any, factor: float) -> tuple[Any, ...]:
    """A backward that takes float32 only, as code in C does; one entry of it multiplied."""
    if g.dtype != xp.float32:
        raise TypeError(f"expected float32, got {g.dtype}")
    return g * w, g * x * xp.asarray([factor if k == 3 else 1.0 for k in range(6)], dtype=g.dtype)


def _not_implemented(xp: Any, g: Any, x: Any) -> tuple[Any, ...]:
    raise NotImplementedError("the backward of the sine is not implemented")


def _in_the_words_of_a_framework(xp: Any, g: Any, x: Any) -> tuple[Any, ...]:
    raise ValueError("Differentiation rule for 'sine' not implemented; it must be linear")


WRONG = (
    Portable(
        name="wrong_entry_of_a_rule_that_raises_in_double_precision",
        inputs=_in_single,
        value=product,
        right=lambda xp, g, x, w: _kernel(xp, g, x, w, 1.0),
        wrong=lambda xp, g, x, w: _kernel(xp, g, x, w, 1.1),
        place=(1, (3,), (3,)),
    ),
    Portable(
        name="rule_that_says_it_is_not_implemented",
        inputs=lambda: (normal(4),),
        value=sine,
        right=lambda xp, g, x: (g * xp.cos(x),),
        wrong=_not_implemented,
    ),
    Portable(
        name="rule_that_raises_in_the_words_of_a_framework",
        inputs=lambda: (normal(4),),
        value=sine,
        right=lambda xp, g, x: (g * xp.cos(x),),
        wrong=_in_the_words_of_a_framework,
    ),
)
