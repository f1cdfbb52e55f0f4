"""Code of the user's that may do anything: what it may not do to us, and what it raised."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

from gradproof._data.frames import as_told, sentence
from gradproof.errors import UsageError


class TheirError(UsageError):
    """The user's code raised.

    Attributes:
        trace: what Python prints of it, our frames left out; "" where none of theirs is in it.
    """

    def __init__(self, what: str, error: BaseException) -> None:
        super().__init__(f"{what} raised {sentence(error)}")
        self.trace = as_told(error)


class Exited(SystemExit):
    """The user's code called `os._exit`."""

    def __str__(self) -> str:
        return f"os._exit({self.code})"


@contextlib.contextmanager
def contained() -> Iterator[None]:
    """Run a piece of the user's code: it ends by an exception, or not at all.

    What it prints, also past Python, goes to the standard error: the standard output is the
    report's. The working directory is what it was afterwards. `os._exit` raises `Exited`, and a
    process that the code forked ends here: only one may tell what came of the piece.
    """
    here, leave = os.getpid(), os._exit
    folder = None
    with contextlib.suppress(OSError):  # it has been removed
        folder = os.getcwd()

    def exit_(status: int) -> NoReturn:
        if os.getpid() != here:  # of a process of its own: as multiprocessing ends them
            leave(status)
        raise Exited(status)

    os._exit = exit_
    try:
        with _printing_to_stderr():
            yield
    finally:
        os._exit = leave
        if os.getpid() != here:
            leave(0)
        if folder is not None:
            with contextlib.suppress(OSError):
                os.chdir(folder)


@contextlib.contextmanager
def _printing_to_stderr() -> Iterator[None]:
    """What is printed meanwhile, by Python or by what writes to descriptor 1 itself."""
    with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # one of the two is closed: nothing can be mixed
            sys.stdout.flush()
            kept = os.dup(1)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, 1)
            os.dup2(2, 1)
        yield
