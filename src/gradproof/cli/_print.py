"""Reports in the words of the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from gradproof import _output
from gradproof._data.records import CheckResult, Compared, Report
from gradproof._data.visible import visible
from gradproof._output import Named
from gradproof._render import table as table_of
from gradproof._render import terminal
from gradproof._render.table import Row
from gradproof.errors import UsageError

# What a sentence says of an argument of `gradproof.check`, and of the option that sets it here.
_OPTIONS = (("raise budget=", "raise --budget"), ("raise budget_seconds=", "raise --seconds"))


def told(report: Report, line: str) -> Report:
    """The report, which a line for a shell repeats, and whose advice names options."""
    return _output.repeated(replace(report, checks=tuple(map(_told, report.checks))), line)


def _told(result: CheckResult) -> CheckResult:
    for argument, option in _OPTIONS:
        if result.summary.endswith(argument):
            summary = result.summary.removesuffix(argument) + option
            return replace(result, summary=summary)
    return result


# Reports on the standard output: in colour on a terminal, plain where it is piped.


def report(found: Report, after: str = "") -> None:
    """One report in full."""
    Console(highlight=False).print(terminal.render_rich(found), after, soft_wrap=True, sep="")


def refuse_early(json: str | None, html: str | None) -> None:
    """UsageError, before anything is run, where a file cannot be written or a page not be made."""
    if html is not None and _output.format_of(html, "--html") != "html":
        raise UsageError(f"--html: expected a name that ends in .html, got {html!r}")
    for file, option in ((json, "--json"), (html, "--html")):
        if file is not None and (file, option) != ("-", "--json"):
            _output.prepare(file, option)


def files(
    reports: Named,
    json: str | None,
    html: str | None,
    *,
    one: bool = False,
    compared: Sequence[Compared] | None = None,
) -> None:
    """The files that --json and --html ask for; `-` prints the JSON."""
    if json == "-":
        print(_output.as_json(reports, one=one), end="")
    elif json is not None:
        _output.write(json, _output.as_json(reports, one=one), "--json")
    if html is not None:
        _output.write(html, _output.as_html(reports, compared), "--html")


def error(name: str, sentence: str, trace: str) -> None:
    """An error of the user's code, as they would see it without us."""
    text = f"{trace}\n{name}: {sentence}\n" if trace else f"{name}: {sentence}\n"
    print(visible(text), file=sys.stderr)


def table(rows: Sequence[Row]) -> None:
    """Many reports, a line each."""
    Console(highlight=False).print(table_of.render_rich(rows))


def line(text: str) -> None:
    """A remark at the end."""
    Console(highlight=False).print(text, soft_wrap=True)
