"""Signs of life: on a terminal, after a while; none anywhere else."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from example_reports import REPORTS
from gradproof._render import progress
from gradproof._render.progress import CheckProgress, show_progress


def drawn(followed: CheckProgress) -> str:
    screen = io.StringIO()
    Console(file=screen, width=100).print(followed.renderable())
    return screen.getvalue()


def test_a_check_tells_which_one_runs_and_the_calls_so_far():
    follow = CheckProgress("ops.py:softmax")
    assert "ops.py:softmax, 0 calls" in drawn(follow)
    calls = {"value": 12}
    follow.check_started("softmax", "backward", (1, 13), calls)
    calls["vjp"] = 1000
    assert "softmax: backward (1 of 13), 1,012 calls" in drawn(follow)


def test_an_interrupted_report_is_kept():
    follow = CheckProgress("softmax")
    follow.run_interrupted(REPORTS["passed"])
    assert follow.partial is REPORTS["passed"]


class Followed:
    """Tells when it has been drawn."""

    def __init__(self) -> None:
        self.seen = threading.Event()

    def renderable(self) -> str:
        self.seen.set()
        return "softmax: backward"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_long_run_is_shown_on_a_terminal_only(terminal, monkeypatch):
    monkeypatch.setattr(progress, "AFTER", 0.0)
    screen, followed = io.StringIO(), Followed()
    with show_progress(followed, Console(file=screen, force_terminal=terminal)):
        assert followed.seen.wait(10 if terminal else 0.2) is terminal
    assert ("softmax: backward" in screen.getvalue()) is terminal


def test_a_short_run_shows_nothing(monkeypatch):
    monkeypatch.setattr(progress, "AFTER", 3600.0)
    screen, followed = io.StringIO(), Followed()
    with show_progress(followed, Console(file=screen, force_terminal=True)):
        pass
    assert screen.getvalue() == ""
