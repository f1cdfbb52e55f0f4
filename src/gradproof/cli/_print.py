"""Reports in the words of the command line, and `gradproof explain FILE`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, RenderableType

from gradproof import _output
from gradproof._data import files as written
from gradproof._data.records import Compared, Report, Verdict
from gradproof._data.visible import visible
from gradproof._output import Named
from gradproof._render import json as codec
from gradproof._render import suite, terminal
from gradproof.errors import UsageError

# Reports on the standard output: in colour on a terminal, plain where it is piped.


def report(found: Report, after: str = "") -> None:
    """One report in full."""
    console = Console(highlight=False)
    console.print(terminal.OnTerminal(found), soft_wrap=True)
    console.print(after, end="", soft_wrap=True)


def many(rows: Sequence[terminal.Row]) -> None:
    """Each report that did not pass in full, then all of them, a line each."""
    for _, found, _ in rows:
        if found is not None and found.verdict is not Verdict.PASSED:
            report(found, after="\n")
    show(terminal.many_rich(rows))


def refuse_early(json: str | None, html: str | None) -> None:
    """UsageError, before anything is run, where a file cannot be written or a page not be made."""
    if html is not None:
        _output.format_of(html, "--html", ("html",))
    for file, option in ((json, "--json"), (html, "--html")):
        if file is not None and (file, option) != ("-", "--json"):
            written.prepare(file, option)


def files(
    reports: Named,
    json: str | None,
    html: str | None,
    *,
    compared: Sequence[Compared] | None = None,
) -> None:
    """The files that --json and --html ask for; `-` prints the JSON."""
    if json == "-":
        print(_output.as_json(reports), end="")
    for form, file in (("json", None if json == "-" else json), ("html", html)):
        if file is not None:
            _output.save(reports, file, f"--{form}", form=form, compared=compared)


def error(name: str, sentence: str, trace: str) -> None:
    """An error of the user's code, as they would see it without us."""
    text = f"{trace}\n{name}: {sentence}\n" if trace else f"{name}: {sentence}\n"
    print(visible(text), file=sys.stderr)


def show(what: RenderableType, *, soft_wrap: bool = False) -> None:
    """A table, or a remark at the end."""
    Console(highlight=False).print(what, soft_wrap=soft_wrap)


def explain(arguments: argparse.Namespace, argv: Sequence[str]) -> int:  # noqa: ARG001 # as all
    """Run `gradproof explain`; its exit status is 0 whatever the verdicts."""
    refuse_early(None, arguments.html)
    reports, compared = _read(arguments.file, "FILE")
    last = None if arguments.against is None else _read(arguments.against, "--against")[0]
    if last is not None:
        show(terminal.changes_rich(reports, last))
    elif len(reports) == 1:
        report(reports[0][1])
    else:
        many([(name, found, "") for name, found in reports])
    if compared is not None and last is None:
        show(suite.render(compared), soft_wrap=True)
    files(reports, None, arguments.html, compared=compared)
    return 0


def _read(file: str, option: str) -> tuple[Sequence[tuple[str, Report]], Sequence[Compared] | None]:
    """The reports of a file, and the calls that were answered twice."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # no text in UTF-8; a name with a NUL
        raise UsageError(f"{option}: cannot read {file!r}: {error}") from error
    try:
        return codec.load_many(text), codec.compared_in(text)
    except UsageError as error:
        raise UsageError(f"{option}: {file!r}: {error}") from None
