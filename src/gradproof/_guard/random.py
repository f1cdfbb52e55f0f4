"""Where random numbers come from: global generators and those that a function is handed."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np


class Source(NamedTuple):
    """A generator of random numbers."""

    get: Callable[[], Any]  # its state
    set: Callable[[Any], object]  # makes a state that of the generator
    same: Callable[[Any, Any], bool]  # whether two states are the same
    draw: Callable[[], object] = lambda: None  # draws a number


def _is_same_numpy_state(one: Any, other: Any) -> bool:
    """Whether two states as NumPy gives them, dicts with arrays in them, are the same."""
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            _is_same_numpy_state(one[k], other[k]) for k in one
        )
    return bool(np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other)


# By whose they are; an adapter adds those of its framework.
GLOBAL = {
    "Python": Source(random.getstate, random.setstate, operator.eq, random.random),
    "NumPy": Source(
        partial(np.random.get_state, legacy=False),
        np.random.set_state,
        _is_same_numpy_state,
        np.random.random_sample,
    ),
}


GENERATORS = (random.Random, np.random.RandomState, np.random.Generator, np.random.BitGenerator)


def source_of(value: object) -> Source | None:
    """A generator of Python's or NumPy's as a source; None for anything else."""
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return Source(value.getstate, value.setstate, operator.eq)
    if isinstance(value, np.random.RandomState):
        return Source(partial(value.get_state, legacy=False), value.set_state, _is_same_numpy_state)
    if isinstance(value, np.random.Generator):
        value = value.bit_generator
    if isinstance(value, np.random.BitGenerator):
        return Source(
            partial(getattr, value, "state"), partial(setattr, value, "state"), _is_same_numpy_state
        )
    return None


def draw_numbers() -> None:
    """Draw from every global generator, so that each is in another state than before."""
    for source in GLOBAL.values():
        source.draw()


class RandomState:
    """The state of every global generator at one moment, and of some others."""

    def __init__(self, others: Iterable[Source] = ()) -> None:
        self._global = {name: (source, source.get()) for name, source in GLOBAL.items()}
        self._others = [(source, source.get()) for source in others] if others else []

    def restore(self) -> None:
        """Make this the state again."""
        for source, state in (*self._global.values(), *self._others):
            source.set(state)

    def has_changed(self) -> bool:
        """Whether somebody drew, or set a state, since then."""
        for source, state in self._others:
            if not source.same(source.get(), state):
                return True
        return bool(self.moved_generators())

    def moved_generators(self) -> list[str]:
        """Whose global generators were drawn from, or set, since then."""
        return [
            name
            for name, (source, state) in self._global.items()
            if not source.same(source.get(), state)
        ]


def effect_on(
    who: str, begun: RandomState, again: Callable[[], object]
) -> Iterator[tuple[str, str]]:
    """What a run did to the global generators since `begun`: ("random" or "drawn", sentence).

    A seed sets the same state wherever a second run, `again`, starts from. It is nobody's choice;
    a draw is one that a function may make.
    """
    names = begun.moved_generators()
    if not names:
        return
    after = RandomState()
    draw_numbers()
    again()
    state = " and ".join(f"{name}'s" for name in names) + " global random state"
    if set(names) & set(after.moved_generators()):
        yield "drawn", f"{who} drew from {state}"
    else:
        yield "random", f"{who} set {state}"
