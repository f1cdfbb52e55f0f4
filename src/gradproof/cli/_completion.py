"""`gradproof completion SHELL`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gradproof.cli._parser import make_parser
from gradproof.errors import UsageError

FILES = ("FILE", "SCRIPT", "FILE_OR_DIR", "TARGET")


def run(arguments: argparse.Namespace, argv: Sequence[str]) -> int:  # noqa: ARG001 # as all
    """Run the command; its exit status."""
    try:
        import shtab
    except ModuleNotFoundError as error:
        raise UsageError("shtab is needed: pip install 'gradproof[completion]'") from error
    parser = make_parser()
    for command in _parsers(parser):
        for action in command._actions:
            if action.metavar in FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab reads it
    print(shtab.complete(parser, shell=arguments.shell))
    return 0


def _parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    [commands] = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return list(commands.choices.values())
