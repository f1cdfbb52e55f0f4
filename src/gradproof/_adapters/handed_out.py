"""Gradients that a backward handed out, which the next one must leave as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradproof._data.space import KEPT, Array, Space, are_equal

OVERWRITTEN = "a later {} wrote into {} that an earlier one had returned"


class HandedOut:
    """What the first backward of a call returned, held until one of another cotangent has run.

    A backward may hand out a work space of its own. Whoever keeps that, as autograd does where it
    adds gradients up, finds it overwritten.
    """

    _first: tuple[Array, Sequence[Any], Array] | None = None
    pair: tuple[Array, Array] | None = None  # its numbers: then, and after that other backward

    def watch_gradients(
        self, v: Array, returned: Sequence[Any], numbers: Array, read: Callable[[Any], Array]
    ) -> None:
        """Take what a backward of v returned, and its numbers, which `read` made; while no pair."""
        if max(numbers.shape[0], v.shape[0]) > KEPT:
            return
        if self._first is None:
            self._first = v, returned, numbers
        elif v is not self._first[0]:
            _, held, then = self._first
            self._first, self.pair = None, (then, read(held))

    def overwritten_gradients(self, space: Space) -> list[tuple[str, str]]:
        """Gradients that another backward wrote into, as effects: (kind, sentence) each."""
        return [
            ("gradient", OVERWRITTEN.format("backward", f"the gradient of {name}"))
            for name in (changed_slots(space, *self.pair) if self.pair else ())
        ]


def changed_slots(space: Space, then: Array, now: Array) -> Sequence[str]:
    """Names of the slots in which a vector is another one than before."""
    if are_equal(then, now):
        return ()
    spans = [(slot.name, space.span(place)) for place, slot in enumerate(space.slots)]
    pairs = [(name, then[span], now[span]) for name, span in spans]
    return [name for name, old, new in pairs if not np.array_equal(old, new, equal_nan=True)]
