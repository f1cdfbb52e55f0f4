"""A check takes its turn, and leaves everything as it found it, also where it is interrupted.

Frameworks keep random state, modes and stacks that belong to the whole process, and a check lends
a layer private copies of its parameters for the time of a call. `guarded` is around every face:
one check at a time, and at its end everything is what it was. `restored` is around whatever is
put in place for a while.

An interrupt may arrive between any two steps, also while things are being put back. So what was
there is recorded *before* anything is written; to put it back twice does no harm; and `guarded`
puts back what an interrupt left, with interrupts held for so long.
"""

from __future__ import annotations

import contextvars
import functools
import os
import signal
import threading
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from gradproof._guard.random import GLOBAL, RandomState, Source

P = ParamSpec("P")
Result = TypeVar("Result")
Restore = Callable[[], object]
Record = Callable[[], tuple[Restore, Callable[[], object]] | None]

# Re-entrant: a function under test may check another one.
_turns = threading.RLock()
_changes: list[Restore] = []  # of what is in place of something else, the first one first
_records: dict[str, Record] = {}
_running: list[_Turn] = []


def guarded(face: Callable[P, Result]) -> Callable[P, Result]:
    """The same function; calls of all such take turns, and each leaves what it did not make.

    Afterwards the random states, warning filters, context variables and what `kept` records are
    what they were. An interrupt while they are put back is raised when that is done.
    """

    @functools.wraps(face)
    def alone(*args: P.args, **kwargs: P.kwargs) -> Result:
        __tracebackhide__ = True
        with _turns:
            turn = _Turn()
            try:
                try:
                    turn.begin()
                    return contextvars.copy_context().run(face, *args, **kwargs)
                finally:
                    turn.end()
            finally:  # once more where an interrupt cut the first one short
                turn.end()

    return alone


def kept(name: str, record: Record) -> None:
    """Let every check from now on, also the running one, put back a state of the process.

    Args:
        name: of the state; a second one of the same name takes the place of the first.
        record: notes the state, and returns what puts it back, which may be called more than
            once, and what makes it the usual one; None where it is that, and stays.
    """
    _records[name] = record
    for turn in _running[-1:]:
        turn.record(record)


def drawn_from(name: str, source: Source) -> None:
    """Let every check from now on, also the running one, put back a generator of random numbers."""
    GLOBAL[name] = source
    for turn in _running[-1:]:
        turn.states.append(functools.partial(source.set, source.get()))


class restored:  # named as a function, of which contextlib would make one that takes nine calls
    """Call each when the block ends, the last first; again where an interrupt cut that short.

    What is put in place belongs inside the block, so that it is known how to put it back first.
    """

    def __init__(self, *changes: Restore) -> None:
        self._todo = changes

    def __enter__(self) -> None:
        self._start = len(_changes)
        _changes.extend(self._todo)

    def __exit__(self, *_: object) -> None:
        _undo(_changes, self._start)


def _undo(todo: list[Restore], start: int = 0) -> None:
    """Call and remove all from `start`, the last first; raise the first error after that."""
    errors = []
    while todo[start:]:
        try:
            todo[-1]()
        except Exception as error:  # of one that cannot be put back: the others can
            errors.append(error)
        del todo[-1]
    if errors:
        raise errors[0]


class _Turn:
    """One check: what it has to put back, and an interrupt that waits until it has.

    Attributes:
        states: what puts back the states of the process.
    """

    def __init__(self) -> None:
        self._start = len(_changes)
        self.states: list[Restore] = []
        self._ended, self._tried = False, False
        self._handler: Any = None
        self._waiting: list[tuple[int, FrameType | None]] = []

    def begin(self) -> None:
        """Record every state that is known of."""
        self.states += [RandomState().restore, _warnings_kept()]
        _running.append(self)
        for record in list(_records.values()):
            self.record(record)

    def record(self, record: Record) -> None:
        """Record one, and only then make it the usual one."""
        if (found := record()) is None:
            return
        restore, change = found
        self.states.append(restore)
        change()

    def end(self) -> None:
        """Put everything back that is not yet.

        A second time where an interrupt cut the first one short: further ones then wait.
        """
        if self._ended:
            return
        if self._tried:
            self._hold()
        self._tried = True
        try:
            _undo(_changes, self._start)
        finally:
            _undo(self.states)
        while self in _running:
            _running.remove(self)
        self._release()
        self._ended = True

    def _hold(self) -> None:
        """Let interrupts wait. They reach the main thread, and where no handler is Python's, C."""
        handler = signal.getsignal(signal.SIGINT)
        ours = threading.current_thread() is threading.main_thread()
        if self._handler is None and ours and callable(handler):
            self._handler = handler
            signal.signal(signal.SIGINT, lambda *signalled: self._waiting.append(signalled))

    def _release(self) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        handler, self._handler = self._handler, None
        while self._waiting:
            handler(*self._waiting.pop())


def _warnings_kept() -> Restore:
    filters, show = warnings.filters, warnings.showwarning

    def restore() -> None:
        if warnings.filters is not filters:  # inside a block that has its own
            warnings.filters = filters
            with warnings.catch_warnings():  # which tells Python that they changed
                pass
        warnings.showwarning = show

    return restore


def _alone_after_fork() -> None:
    """In a new process: the turn of another thread, which is not there, is over."""
    global _turns
    if _turns.acquire(blocking=False):
        _turns.release()
        return
    _turns = threading.RLock()
    for turn in reversed(_running):
        turn.end()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_alone_after_fork)
