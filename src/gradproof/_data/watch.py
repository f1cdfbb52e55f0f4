"""Who is told what a run does while it runs: progress, and what is known when it is stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar

from gradproof._data.records import Report


class Observer:
    """Told of every run inside `observe_runs`. Its methods do nothing unless overridden.

    None of them may call the function under test, change what it is handed, or raise.
    """

    def check_started(
        self, target: str, check: str, position: tuple[int, int], calls: Calls
    ) -> None:
        """A check begins, which one of how many; `calls`, the run's own count, keeps growing."""

    def run_interrupted(self, report: Report) -> None:
        """The user stopped the run; what was not finished is inconclusive or skipped in `report`.

        The KeyboardInterrupt carries on afterwards.
        """


Calls = Mapping[str, int]

NOBODY = Observer()
_CURRENT: ContextVar[Observer] = ContextVar("gradproof_observer", default=NOBODY)


def current_observer() -> Observer:
    """The observer of this context; one that does nothing where there is none."""
    return _CURRENT.get()


@contextlib.contextmanager
def observe_runs(observer: Observer) -> Iterator[None]:
    """Tell `observer` of every run in this block. Blocks nest; the innermost is told."""
    token = _CURRENT.set(observer)
    try:
        yield
    finally:
        _CURRENT.reset(token)
