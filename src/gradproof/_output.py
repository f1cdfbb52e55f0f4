"""Reports as files: what `--html`, `--json` and `--gradproof-report` have in common."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gradproof._data import files
from gradproof._data.records import CheckResult, ComparedCall, Report
from gradproof._render import html, json

Named = Sequence[tuple[str, Report]]

# Argument of `gradproof.check` that advice says to raise -> the option of the command line for it.
OPTIONS = {"budget": "--budget", "budget_seconds": "--budget-seconds"}


def report_for_shell(report: Report, line: str, options: Mapping[str, str]) -> Report:
    """The report, repeated by a line for a shell, whose advice names options of a program."""
    checks = tuple(_result_for_shell(result, options) for result in report.checks)
    return replace(report, checks=checks, repeat=line)


def _result_for_shell(result: CheckResult, options: Mapping[str, str]) -> CheckResult:
    for argument, option in options.items():
        advice = f"raise {argument}="
        if result.summary.endswith(advice):
            summary = f"{result.summary.removesuffix(advice)}raise {option}"
            return replace(result, summary=summary)
    return result


def json_text(reports: Named, compared: Sequence[ComparedCall] | None = None) -> str:
    """The reports, and calls that were answered twice, as JSON."""
    return json.dump_many(reports, compared) + "\n"


def save(
    reports: Named,
    file: str,
    option: str,
    *,
    form: str = "",
    compared: Sequence[ComparedCall] | None = None,
) -> None:
    """Write them to a file that an option names, in a form or in that of its ending."""
    as_page = (form or format_of(file, option)) == "html"
    made = html.render_many(reports, compared=compared) if as_page else json_text(reports, compared)
    files.write(file, made, option)


def format_of(file: str, option: str, forms: Sequence[str] = ("html", "json")) -> str:
    """What to write by the end of the name. UsageError where it cannot be."""
    form = files.form_of(file, option, forms)
    if form == "html":
        html.require_template_engine()
    return form


def is_on_github() -> bool:
    """Whether GitHub Actions reads what is printed, and shows it beside the lines of a change."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def annotation(level: str, place: tuple[str, int], message: str) -> str:
    """A line that GitHub Actions shows beside a line of a file; line 0 is the file as a whole."""
    file, line = os.path.abspath(place[0]), place[1]
    root = os.environ.get("GITHUB_WORKSPACE", os.getcwd())
    if os.path.commonpath([file, root]) == root:
        file = os.path.relpath(file, root)
    where = {"file": file.replace(os.sep, "/"), **({"line": str(line)} if line else {})}
    properties = {**where, "title": "gradproof"}
    listed = ",".join(f"{name}={_escape(text, ':,')}" for name, text in properties.items())
    return f"::{level} {listed}::{_escape(message)}"


def _escape(text: str, more: str = "") -> str:
    """As the runner of GitHub Actions unescapes it."""
    for character in f"%\r\n{more}":  # the per cent sign first
        text = text.replace(character, f"%{ord(character):02X}")
    return text
