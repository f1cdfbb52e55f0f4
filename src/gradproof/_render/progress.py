"""Signs of life on a terminal, once a run has taken a while; none anywhere else."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from gradproof._data.records import Report
from gradproof._data.watch import Calls, Observer

AFTER = 2.0  # seconds; a shorter run shows nothing but its report
PER_SECOND = 4


class CheckProgress(Observer):
    """Follows one run, and keeps what was known where it is interrupted."""

    def __init__(self, target: str) -> None:
        self.partial: Report | None = None
        self._started = time.monotonic()
        self._now = target
        self._calls: Calls = {}
        self._spinner = Spinner("dots")

    def check_started(
        self, target: str, check: str, position: tuple[int, int], calls: Calls
    ) -> None:
        self._now, self._calls = f"{target}: {check} ({position[0]} of {position[1]})", calls

    def run_interrupted(self, report: Report) -> None:
        self.partial = report

    def renderable(self) -> RenderableType:
        """`softmax: backward (1 of 13), 120 calls, 4 s`, behind a spinner."""
        calls = sum(dict(self._calls).values())
        seconds = time.monotonic() - self._started
        line = f"{self._now}, {calls:,} calls, {seconds:.0f} s"
        self._spinner.update(text=Text(line, no_wrap=True, overflow="ellipsis"))
        return self._spinner


@contextlib.contextmanager
def show_progress(followed: CheckProgress, console: Console | None = None) -> Iterator[None]:
    """Show what is followed while the block runs, after a while, where stderr is a terminal."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    live = Live(
        get_renderable=followed.renderable,
        console=console,
        refresh_per_second=PER_SECOND,
        transient=True,
    )
    timer = threading.Timer(AFTER, live.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        live.stop()
