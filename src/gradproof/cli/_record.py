"""`gradproof record SCRIPT`."""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from gradproof.cli import _print
from gradproof.cli._check import seed_of
from gradproof.cli._errors import TheirError
from gradproof.cli._run import status, tell
from gradproof.errors import UsageError


def run(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Run the command; its exit status."""
    _print.refuse_early(arguments.json, arguments.html)
    if not Path(arguments.script).is_file():
        raise UsageError(f"SCRIPT: no such file: {arguments.script}")
    try:
        from gradproof.torch import record
    except ModuleNotFoundError as error:
        raise UsageError(f"record: {error.name} is needed: pip install torch") from error
    before = sys.argv, sys.path[:]
    theirs = argv[argv.index("--") + 1 :] if "--" in argv else []
    sys.argv = [arguments.script, *theirs]
    sys.path.insert(0, str(Path(arguments.script).resolve().parent))
    try:
        with record() as seen:
            runpy.run_path(arguments.script, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise TheirError(arguments.script, end) from end
    except Exception as error:  # whatever the script raises
        raise TheirError(arguments.script, error) from error
    finally:
        sys.argv, sys.path[:] = before
    found = seen.check(
        seed=seed_of(arguments.seed), budget=arguments.budget, budget_seconds=arguments.seconds
    )
    tell(found, arguments)
    return status(found)
