"""Reports as files: what `--html`, `--json` and `--gradproof-report` have in common."""

from __future__ import annotations

from collections.abc import Sequence

from gradproof._data import files
from gradproof._data.records import Report
from gradproof._render import html, json


def save(reports: Sequence[tuple[str, Report]], file: str, option: str) -> None:
    """Write named reports to a file that an option names, in the form of its ending."""
    as_page = format_of(file, option) == "html"
    made = html.render_many(reports) if as_page else json.dump_many(reports)
    files.write_file(file, made, option)


def format_of(file: str, option: str, forms: Sequence[str] = ("html", "json")) -> str:
    """The format that the ending of a name asks for. UsageError where it cannot be written."""
    form = files.form_of(file, option, forms)
    if form == "html":
        html.page_template()  # it says at once that Jinja2 is missing
    return form
