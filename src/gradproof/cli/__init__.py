"""The command line: `gradproof check`, `run`, `record`, `explain`, `completion`.

Exit status: 0 passed, 1 failed, 2 usage, or the user's code could not be run, 3 inconclusive or
nothing but skipped checks, 130 interrupted. What a command needs is imported when it runs, so that
`--help` and `--version` answer at once.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from gradproof._data.visible import visible
from gradproof.cli import _interrupts as interrupts
from gradproof.cli._errors import TheirError
from gradproof.cli._parser import make_parser
from gradproof.errors import UsageError

USAGE = 2
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. `argv` defaults to the process's arguments."""
    given = sys.argv[1:] if argv is None else list(argv)
    try:
        # What follows -- is the script's, whatever it looks like.
        ours = given.index("--") if given[:1] == ["record"] and "--" in given else len(given)
        arguments = make_parser().parse_args(given[:ours])
        command = importlib.import_module(f"gradproof.cli._{arguments.command}")
        with interrupts.once():
            status: int = command.run(arguments, given)
        return status
    except UsageError as error:
        if isinstance(error, TheirError) and error.trace:
            print(visible(error.trace), file=sys.stderr)
        print(visible(f"gradproof: {error}"), file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("gradproof: interrupted", file=sys.stderr)
        return INTERRUPTED
