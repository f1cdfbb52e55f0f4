"""One interrupt is one, however often the signal comes."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

_SAME = 0.5  # seconds within which a signal is another copy of the one before


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
