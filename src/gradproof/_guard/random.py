"""Where random numbers come from: global generators and those that a function is handed."""

from __future__ import annotations

import ctypes
import operator
import pickle
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
    return one is other or pickle.dumps(one) == pickle.dumps(other)


_LENGTH = 625 * 4  # of a Mersenne Twister in memory: 624 numbers, and the place among them


class _NumpyState:
    """The state of NumPy's global generator, written down only where it is another than before.

    NumPy takes 30 us to write it down, longer than a small operation that is checked, and a check
    asks several times. The memory of the generator, which is read in 1 us, tells whether it moved.
    A second normal number that waits to be drawn lies elsewhere, so that a state with one is always
    written down.
    """

    def __init__(self) -> None:
        self._memory: bytes | None = None  # in which it has the state that was written down
        self._state: Any = None

    def get(self) -> Any:
        """The state, as `numpy.random.set_state` takes it."""
        if self._memory is None or self._memory != self._read_memory():
            self._keep(np.random.get_state(legacy=False))  # noqa: NPY002  # the user's generator
        return self._state

    def set(self, state: Any) -> None:
        """Make this the state, where it is another one."""
        if self.get() is not state:
            np.random.set_state(state)  # noqa: NPY002  # likewise
            self._keep(state)

    def _keep(self, state: Any) -> None:
        self._state = state
        self._memory = None if state["has_gauss"] else self._read_memory()

    @staticmethod
    def _read_memory() -> bytes | None:
        """The memory of the generator; None where it was replaced by another kind."""
        generator = np.random.get_bit_generator()  # type: ignore[attr-defined]  # not in its stubs
        if type(generator) is not np.random.MT19937:
            return None
        return ctypes.string_at(generator.ctypes.state_address, _LENGTH)


_NUMPY = _NumpyState()

# By whose they are; an adapter adds those of its framework.
GLOBAL = {
    "Python": Source(random.getstate, random.setstate, operator.eq, random.random),
    "NumPy": Source(_NUMPY.get, _NUMPY.set, _is_same_numpy_state, np.random.random_sample),
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
        named = [*GLOBAL.items(), *(("a given generator", source) for source in others)]
        self._states = [(name, source, source.get()) for name, source in named]

    def restore(self) -> None:
        """Make this the state again."""
        for _, source, state in self._states:
            source.set(state)

    def moved_generators(self) -> list[str]:
        """Names of the generators that somebody drew from, or set, since then."""
        return [name for name, source, old in self._states if not source.same(source.get(), old)]


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
