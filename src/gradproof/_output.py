"""Reports as files: what `--html`, `--json` and `--gradproof-report` have in common."""

from __future__ import annotations

from collections.abc import Sequence

from gradproof._data import files
from gradproof._data.records import Report
from gradproof._render import html, json

_FORMS = ("html", "json")


def save_reports(reports: Sequence[tuple[str, Report]], file: str, option: str) -> None:
    """Write named reports to a file that an option names, in the form of its ending."""
    as_page = files.form_of(file, option, _FORMS) == "html"
    made = html.render_many(reports) if as_page else json.dump_many(reports)
    files.write_file(file, made, option)


def prepare_file(file: str, option: str, forms: Sequence[str] = _FORMS) -> None:
    """Refuse now a file that cannot be written at the end, with a UsageError; make its folder."""
    if files.form_of(file, option, forms) == "html":
        html.page_template()  # it says at once that Jinja2 is missing
    files.prepare_folder(file, option)
