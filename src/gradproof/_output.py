"""Reports as files: what `--html`, `--json` and `--gradproof-report` have in common."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from gradproof._data import files
from gradproof._data.records import Compared, Report
from gradproof._render import html, json, many
from gradproof.errors import UsageError

Named = Sequence[tuple[str, Report]]


def repeated(report: Report, line: str) -> Report:
    """The report, repeated by a line for a shell.

    Where the check itself has written a smaller case that fails, in several lines of Python, that
    stays below it.
    """
    smaller = f"\n{report.repeat}" if "\n" in report.repeat else ""
    return replace(report, repeat=f"{line}{smaller}")


def as_json(
    reports: Named, compared: Sequence[Compared] | None = None, *, one: bool = False
) -> str:
    """The reports, and calls that were answered twice, as JSON; with `one`, the only report."""
    return (json.dump(reports[0][1]) if one else many.dump(reports, compared)) + "\n"


def as_html(reports: Named, compared: Sequence[Compared] | None = None) -> str:
    """The reports, and calls that were answered twice, as one page."""
    return html.render_many(reports, compared=compared)


def format_of(file: str, option: str) -> str:
    """What to write by the end of the name: html or json. UsageError where it cannot be."""
    ending = os.path.splitext(file)[1].lower()
    if ending not in (".html", ".json"):
        raise UsageError(f"{option}: expected a name that ends in .html or .json, got {file!r}")
    if ending == ".html":
        html.ready()
    return ending.removeprefix(".")


def prepare(file: str, option: str) -> None:
    """Make the folder of a file, before anything is run. UsageError where it can't be written."""
    try:
        files.prepare(file)
    except (OSError, ValueError) as error:  # a name with a NUL
        raise UsageError(f"{option}: cannot write {file!r}: {error}") from error


def write(file: str, text: str, option: str) -> None:
    """Write a text, whole or not at all. UsageError, which names the option, where that fails."""
    try:
        files.write(file, text)
    except (OSError, ValueError) as error:
        raise UsageError(f"{option}: cannot write {file!r}: {error}") from error
