"""Gradients that a backward handed out, which the next one must leave as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradproof._data.space import Array, Space
from gradproof._data.vectors import KEPT
from gradproof._measure.evaluate import same_values

OVERWRITTEN = "a later {} wrote into {} that an earlier one had returned"


class HandedOut:
    """What the first backward of a call returned, held until one of another cotangent has run.

    A backward may hand out a work space of its own. Whoever keeps that, as autograd does where it
    adds gradients up, finds it overwritten.
    """

    _first: tuple[Array, Sequence[Any], Array] | None = None
    _pair: tuple[Array, Array] | None = None  # its numbers: then, and after that other backward

    def watch(self, v: Array, returned: Sequence[Any], read: Callable[[Any], Array]) -> Array:
        """The numbers, which `read` makes, of what a backward of v returned."""
        numbers = read(returned)
        if self._pair is not None or max(numbers.shape[0], v.shape[0]) > KEPT:
            return numbers
        if self._first is None:
            self._first = v, returned, numbers
        elif v is not self._first[0]:
            _, held, then = self._first
            self._first, self._pair = None, (then, read(held))
        return numbers

    def overwritten(self, space: Space) -> list[tuple[str, str]]:
        """Gradients that another backward wrote into, as effects: (kind, sentence) each."""
        if self._pair is None:
            return []
        then, now = self._pair
        spans = [space.span(position) for position in range(len(space.slots))]
        return [
            ("gradient", OVERWRITTEN.format("backward", f"the gradient of {slot.name}"))
            for slot, span in zip(space.slots, spans, strict=True)
            if not same_values(now[span], then[span])
        ]
