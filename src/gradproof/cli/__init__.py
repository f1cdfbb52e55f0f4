"""The command line: `gradproof check`, `run`, `record`, `explain`, `completion`.

Exit status: 0 passed, 1 failed, 2 usage, or the user's code could not be run, 3 inconclusive or
nothing but skipped checks, 130 interrupted. What a command needs is imported when it runs, so that
`--help` and `--version` answer at once.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from gradproof._cases.targets import TheirError
from gradproof._data.visible import visible
from gradproof.cli._parser import make_parser
from gradproof.errors import UsageError

USAGE = 2
INTERRUPTED = 130
_SAME = 0.5  # seconds within which a signal of an interrupt is another copy of the one before


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. `argv` defaults to the process's arguments."""
    given = sys.argv[1:] if argv is None else list(argv)
    try:
        # What follows -- is the script's, whatever it looks like.
        ours = given.index("--") if given[:1] == ["record"] and "--" in given else len(given)
        arguments = make_parser().parse_args(given[:ours])
        module, _, function = arguments.place.partition(".")
        run = getattr(importlib.import_module(f"gradproof.cli.{module}"), function)
        with once():
            status: int = run(arguments, given)
        return status
    except UsageError as error:
        if isinstance(error, TheirError) and error.trace:
            print(visible(error.trace), file=sys.stderr)
        print(visible(f"gradproof: {error}"), file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("gradproof: interrupted", file=sys.stderr)
        return INTERRUPTED


@contextlib.contextmanager
def once(clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Signals that follow an interrupt at once do not cut short what it prints.

    A terminal sends it to all processes, and `timeout` or a script that started this one passes it
    on. Later ones count again. Where the handler is not Python's own, it stays.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    last = -math.inf

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal last
        before, last = last, clock()
        if last - before > _SAME:
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
