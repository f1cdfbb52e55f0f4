"""Work in several processes."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from gradproof._survey.pool import Crashed, Pool, _serve


def double_or_die(job: int) -> int:
    if job == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if job == 4:
        os._exit(7)
    return 2 * job


class Pipe:
    """One end of a pipe, by hand."""

    def __init__(self, jobs: list[int]) -> None:
        self.jobs, self.sent = jobs, []

    def recv(self) -> int:
        if not self.jobs:
            raise EOFError
        return self.jobs.pop(0)

    def send(self, result: int) -> None:
        self.sent.append(result)


def test_a_process_serves_until_its_pipe_is_closed_and_leaves_interrupts_to_its_parent(monkeypatch):
    handlers = []
    monkeypatch.setattr(signal, "signal", lambda *pair: handlers.append(pair))
    pipe = Pipe([1, 2])
    _serve(pipe, double_or_die)
    assert pipe.sent == [2, 4]
    assert handlers == [(signal.SIGINT, signal.SIG_IGN)]


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals have no mask there")
def test_an_interrupt_of_all_leaves_a_process_that_is_still_starting_alone(monkeypatch):
    """It would print a traceback of its imports."""
    held = []

    def started(self: object) -> None:
        held.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    pool = Pool(double_or_die, 1)
    monkeypatch.setattr(pool._context.Process, "start", started)
    pool._start().connection.close()
    assert held == [True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="it kills itself by a signal")
def test_a_crash_ends_its_job_and_nothing_else(monkeypatch):
    monkeypatch.setattr(sys, "path", [os.path.dirname(__file__), *sys.path])
    monkeypatch.setattr(double_or_die, "__module__", "test_pool")
    monkeypatch.setitem(sys.modules, "test_pool", sys.modules[__name__])
    pool, started = Pool(double_or_die, 2), []
    try:
        found = dict(pool.results([1, 2, 3, 4, 5, 6], started.append))
        again = dict(pool.results([7], started.append))
    finally:
        pool.close()
    assert found == {
        1: 2,
        2: 4,
        3: Crashed("its process crashed (SIGKILL)"),
        4: Crashed("its process ended with status 7"),
        5: 10,
        6: 12,
    }
    assert again == {7: 14}
    assert started == [1, 2, 3, 4, 5, 6, 7]
