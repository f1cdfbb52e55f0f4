"""A check takes its turn, and leaves everything as it found it, also where it is interrupted.

Frameworks keep random state, modes and stacks that belong to the whole process, and a check lends
a layer private copies of its parameters for the time of a call. `guard_face` is around every face:
one check at a time, and at its end everything is what it was. `restored` is around whatever is
put in place for a while. Both note in a `contextlib.ExitStack` what they have to put back.

Ctrl-C may arrive between any two steps, also while things are being put back. So while a check
runs SIGINT comes here: within a function that `defer_interrupts` marks it waits, and is handed
to the handler of the user when what was put in place is put back; anywhere else, as in the user's
function, it is handed on at once.
"""

from __future__ import annotations

import contextvars
import functools
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import CodeType, FrameType
from typing import Any, ParamSpec, TypeVar

from gradproof._guard.random import GLOBAL, RandomState, Source

P = ParamSpec("P")
Result = TypeVar("Result")
Restore = Callable[[], object]
Context = Callable[[], AbstractContextManager[object]]

# Re-entrant: a function under test may check another one.
_turns = threading.RLock()
_running: list[_Turn] = []
_contexts: list[Context] = []
_open: list[restored] = []  # blocks that have not ended

_uninterrupted_code: set[CodeType] = set()


def guard_face(face: Callable[P, Result]) -> Callable[P, Result]:
    """The same function; calls of all such take turns, and each leaves what it did not make.

    Afterwards the random states, warning filters, context variables and what `keep_context` names
    are what they were. An interrupt while they are put back is raised when that is done.
    """

    @functools.wraps(face)
    def run_alone(*args: P.args, **kwargs: P.kwargs) -> Result:
        __tracebackhide__ = True
        with _turns, _Turn():
            _interrupts.deliver_interrupt(sys._getframe())
            return contextvars.copy_context().run(face, *args, **kwargs)

    return run_alone


def take_turn() -> threading.RLock:
    """The lock that every check holds, for a face that puts everything back by itself."""
    return _turns


def defer_interrupts(function: Callable[P, Result]) -> Callable[P, Result]:
    """The same function, during which an interrupt waits."""
    _uninterrupted_code.add(function.__code__)
    return function


@defer_interrupts
def keep_context(context: Context) -> None:
    """Let every check from now on, also the running one, run in a context manager.

    Args:
        context: makes the context manager, which sets a state of the process to the usual one and
            puts it back.
    """
    _contexts.append(context)
    for turn in _running[-1:]:
        turn.undo.enter_context(context())


@defer_interrupts
def keep_generator(name: str, source: Source) -> None:
    """Let every check from now on, also the running one, put back a generator of random numbers."""
    GLOBAL[name] = source
    for turn in _running[-1:]:
        turn.undo.callback(source.set, source.get())


class restored:  # named as a function, of which contextlib would make one that takes nine calls
    """Call each when the block ends, the last first; also where an interrupt keeps it from ending.

    What is put in place belongs inside the block, so that it is known how to put it back first.
    """

    def __init__(self, *changes: Restore) -> None:
        self._changes = list(changes)

    @defer_interrupts
    def __enter__(self) -> None:
        _open.append(self)

    @defer_interrupts
    def __exit__(self, *_: object) -> None:
        try:
            self.close()
        finally:
            if self in _open:
                _open.remove(self)
        _interrupts.deliver_interrupt(sys._getframe(1))

    def close(self) -> None:
        """Call those that have not been called; each, also where another one raises."""
        try:
            while self._changes:
                self._changes.pop()()
        finally:
            if self._changes:
                self.close()


class _Turn:
    """One check: the context in which it runs.

    Attributes:
        undo: what puts back the states of the process.
    """

    @defer_interrupts
    def __enter__(self) -> None:
        self._start = len(_open)
        with ExitStack() as undo:
            undo.enter_context(_interrupts.hold_interrupts())
            undo.callback(RandomState().restore)
            undo.enter_context(keep_warnings())
            for context in list(_contexts):
                undo.enter_context(context())
            undo.callback(self._close_blocks)
            self.undo = undo.pop_all()
        _running.append(self)

    @defer_interrupts
    def __exit__(self, *_: object) -> None:
        _running.remove(self)
        self.undo.close()
        _interrupts.deliver_interrupt(sys._getframe(1))

    def _close_blocks(self) -> None:
        """End the blocks of `restored` that were left without, as in a generator that is kept."""
        with ExitStack() as undo:
            for block in _open[self._start :]:
                undo.callback(block.close)
            del _open[self._start :]


class _Interrupts:
    """Interrupts that came while a check ran, and the handler of the user that waits for them."""

    def __init__(self) -> None:
        self._handler: Callable[[int, FrameType | None], Any] | None = None
        self._waiting: tuple[int, FrameType | None] | None = None

    @contextmanager
    def hold_interrupts(self) -> Iterator[None]:
        """SIGINT comes here meanwhile, in the main thread, which alone gets it."""
        theirs = signal.getsignal(signal.SIGINT)
        main = threading.current_thread() is threading.main_thread()
        if not main or not callable(theirs) or self._handler is not None:
            yield
            return
        self._handler, self._waiting = theirs, None
        try:
            signal.signal(signal.SIGINT, self._note_interrupt)
            yield
        finally:
            self._handler = None  # first: from the next line on an interrupt is raised at once
            if signal.getsignal(signal.SIGINT) == self._note_interrupt:
                signal.signal(signal.SIGINT, theirs)

    def _note_interrupt(self, number: int, frame: FrameType | None) -> None:
        self._waiting = number, frame
        self.deliver_interrupt(frame)

    def deliver_interrupt(self, frame: FrameType | None) -> None:
        """Call the user's handler where an interrupt waits, and this frame may be interrupted."""
        while self._waiting and frame is not None:
            if frame.f_code in _uninterrupted_code:
                return
            frame = frame.f_back
        if self._waiting:
            waiting, self._waiting = self._waiting, None
            handler = self._handler or signal.getsignal(signal.SIGINT)
            if callable(handler):
                handler(*waiting)


_interrupts = _Interrupts()


@contextmanager
def keep_warnings() -> Iterator[None]:
    """The filters of warnings are at the end what they were at the beginning."""
    filters, show = warnings.filters, warnings.showwarning
    try:
        yield
    finally:
        if warnings.filters is not filters:  # inside a block that has its own
            warnings.filters = filters
            with warnings.catch_warnings():  # which tells Python that they changed
                pass
        warnings.showwarning = show
