"""Where random numbers come from: global generators and those that a function is handed."""

from __future__ import annotations

import ctypes
import operator
import random
import sys
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
    if one is other or (type(one) is bytes and one == other):
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            _is_same_numpy_state(one[k], other[k]) for k in one
        )
    return bool(np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other)


# The global generators of Python and NumPy are Mersenne Twisters of 624 numbers. To write these
# down takes 10 and 30 us, longer than an operation that is checked takes, and a check asks several
# times: so a state is the memory that it lies in.

_, _NUMBERS, _ = random.getstate()  # as Python tells them, and the place among them
_LENGTH = np.asarray(_NUMBERS, np.uint32).nbytes
_Memory = ctypes.c_char * _LENGTH


class _OfPython:
    """The state of Python's global generator: its memory, and a normal number that waits.

    CPython has the memory behind the head of the object, the place first, as another generator is
    asked to show. Elsewhere the state is what Python writes down.
    """

    def __init__(self) -> None:
        self._generator: Any = getattr(random.getstate, "__self__", None)
        self._start = getattr(object, "__basicsize__", 0)  # PyPy has none
        self._is_known = isinstance(self._generator, random.Random) and self._lies_there()
        if self._is_known:
            self._memory: Any = _Memory.from_address(id(self._generator) + self._start)

    def _lies_there(self) -> bool:
        shown, kind = random.Random(0), random.Random.__base__
        room = kind is not None and kind.__basicsize__ >= self._start + _LENGTH
        if sys.implementation.name != "cpython" or not room:
            return False
        *numbers, place = shown.getstate()[1]
        memory = np.array([place, *numbers], np.uint32).tobytes()
        return ctypes.string_at(id(shown) + self._start, _LENGTH) == memory

    def get(self) -> Any:
        if not self._is_known:
            return random.getstate()
        return self._memory.raw, self._generator.gauss_next

    def set(self, state: Any) -> None:
        if not self._is_known:
            random.setstate(state)
        elif self.get() != state:
            self._memory.raw, self._generator.gauss_next = state


class _OfNumpy:
    """The state of NumPy's global generator, which is the user's: the memory that it lies in.

    A second normal number that waits to be drawn lies elsewhere: memory of which it is not known
    that there is none is asked for in NumPy's way, and where there is one that is the state.
    """

    def __init__(self) -> None:
        self._alone = b""  # memory beside which no number waits
        self._generator: Any = None  # whose memory was asked for last
        self._memory: Any = None

    def get(self) -> Any:
        generator = np.random.get_bit_generator()  # type: ignore[attr-defined]  # not in its stubs
        if generator is not self._generator:
            known = type(generator) is np.random.MT19937
            self._memory = _Memory.from_address(generator.ctypes.state_address) if known else None
            self._generator = generator
        if self._memory is None:
            return self._state_of_numpy()
        found = self._memory.raw
        if found != self._alone:
            state = self._state_of_numpy()
            if state["has_gauss"]:
                return state
            self._alone = found
        return found

    def set(self, state: Any) -> None:
        now = self.get()
        if now is state or (type(now) is bytes and now == state):
            return
        if type(now) is bytes and type(state) is bytes:
            with self._generator.lock:
                self._memory.raw = self._alone = state
            return
        if type(state) is bytes:
            numbers = np.frombuffer(state, np.uint32)
            state = ("MT19937", numbers[:-1], int(numbers[-1]), 0, 0.0)
        np.random.set_state(state)  # noqa: NPY002  # the user's generator

    def draw(self) -> None:
        """Draw a number, beside which none waits that did not before."""
        alone = type(self.get()) is bytes
        np.random.random_sample()  # noqa: NPY002  # likewise
        if alone:
            self._alone = self._memory.raw

    @staticmethod
    def _state_of_numpy() -> Any:
        return np.random.get_state(legacy=False)  # noqa: NPY002  # likewise


_OF_PYTHON, _OF_NUMPY = _OfPython(), _OfNumpy()

# By whose they are; an adapter adds those of its framework.
GLOBAL = {
    "Python": Source(_OF_PYTHON.get, _OF_PYTHON.set, operator.eq, random.random),
    "NumPy": Source(
        _OF_NUMPY.get,
        _OF_NUMPY.set,
        _is_same_numpy_state,
        _OF_NUMPY.draw,
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
