"""`gradproof explain FILE`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from gradproof._data.records import Compared, Report
from gradproof._render import many, suite, table
from gradproof.cli import _print
from gradproof.errors import UsageError


def run(arguments: argparse.Namespace, argv: Sequence[str]) -> int:  # noqa: ARG001 # as all
    """Run the command; its exit status is 0 whatever the verdicts."""
    _print.refuse_early(None, arguments.html)
    reports, compared = _read(arguments.file, "FILE")
    last = None if arguments.against is None else _read(arguments.against, "--against")[0]
    if last is not None:
        _print.show(table.changes_rich(reports, last))
    elif len(reports) == 1:
        _print.report(reports[0][1])
    else:
        _print.many([(name, report, "") for name, report in reports])
    if compared is not None and last is None:
        _print.show(suite.render(compared), soft_wrap=True)
    _print.files(reports, None, arguments.html, compared=compared)
    return 0


def _read(file: str, option: str) -> tuple[list[tuple[str, Report]], list[Compared] | None]:
    """The reports of a file, and the calls that were answered twice."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # no text in UTF-8; a name with a NUL
        raise UsageError(f"{option}: cannot read {file!r}: {error}") from error
    try:
        return many.load(text), many.compared_in(text)
    except UsageError as error:
        raise UsageError(f"{option}: {file!r}: {error}") from None
