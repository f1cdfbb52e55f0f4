"""Work in several processes, of which any may crash.

A crash ends the job that the process was at, and nothing else: another process takes its place.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, NamedTuple, TypeVar

from gradproof._data.frames import sentence

Job = TypeVar("Job")
Result = TypeVar("Result")


class Crashed(NamedTuple):
    """In place of a result: how the process ended, in words."""

    how: str


class _Worker(NamedTuple):
    process: BaseProcess
    connection: Connection


class Pool(Generic[Job, Result]):
    """At most `size` processes that apply one function to jobs.

    It is of a module, so that it can be named to them; its jobs and results can be sent.
    """

    def __init__(self, function: Callable[[Job], Result], size: int) -> None:
        self._function, self._size = function, size
        self._context = multiprocessing.get_context("spawn")  # threads do not survive a fork
        self._idle: list[_Worker] = []

    def at_once(self) -> int:
        return self._size

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        # Not a daemon, which may start no process of its own: a job may.
        process = self._context.Process(target=_serve, args=(theirs, self._function))
        with interrupts_held():
            process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        return _Worker(process, ours)

    def results(
        self, jobs: Sequence[Job], starts: Callable[[Job], None]
    ) -> Generator[tuple[Job, Result | Crashed], None, None]:
        """Each job with its result, in the order in which they end; `starts` is told of each."""
        waiting = list(reversed(jobs))
        busy: dict[object, tuple[_Worker, Job]] = {}
        try:
            while waiting or busy:
                while waiting and len(busy) < self._size:
                    worker = self._idle.pop() if self._idle else self._start()
                    job = waiting.pop()
                    starts(job)
                    busy[worker.connection] = worker, job
                    try:
                        worker.connection.send(job)
                    except OSError:
                        pass  # it died idle: the read below says so
                    except (pickle.PicklingError, AttributeError, TypeError) as error:
                        self._idle.append(busy.pop(worker.connection)[0])
                        yield job, Crashed(f"it cannot be sent to a process: {sentence(error)}")
                for ready in wait([worker.connection for worker, _ in busy.values()]):
                    worker, job = busy.pop(ready)
                    yield job, self._result(worker)
        finally:
            self._idle += [worker for worker, _ in busy.values()]

    def _result(self, worker: _Worker) -> Result | Crashed:
        try:
            result: Result = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join()
            worker.connection.close()
            return Crashed(_ending(worker.process.exitcode))
        self._idle.append(worker)
        return result

    def close(self) -> None:
        """End every process, at work or not."""
        for worker in self._idle:
            worker.process.terminate()
            worker.process.join()
            worker.connection.close()
        self._idle.clear()


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """A process started meanwhile inherits that: an interrupt of all finds it still importing."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # which would let them through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"its process crashed ({signal.Signals(-code).name})"
    return f"its process ended with status {code}"


def _follow_parent(leave: Callable[[int], object]) -> None:
    """End this process, whatever it is at, once its parent has ended."""
    if parent := multiprocessing.parent_process():
        parent.join()
        leave(1)


def _serve(connection: Connection, function: Callable[[Any], Any]) -> None:
    """What a process does: the interrupt is the parent's to handle, and it ends with that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, args=(os._exit,), daemon=True).start()
    if hasattr(signal, "pthread_sigmask"):  # held while it started
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        connection.send(function(job))
