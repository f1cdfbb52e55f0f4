"""What a report looks like, and the files that reports are written to.

A form's module is imported when a report first takes that form.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from gradproof._data import files
from gradproof._data.records import Report

_FUNCTIONS = {
    "txt": ("text", "render"),
    "details": ("text", "details"),
    "json": ("json", "dump"),
    "html": ("html", "render"),
}
_OF_MANY = {"html": "render_many", "json": "dump_many"}


def render(report: Report, form: str) -> str:
    """The report in one of the forms that `_FUNCTIONS` names."""
    module, function = _FUNCTIONS[form]
    made: str = getattr(_module(module), function)(report)
    return made


def save_reports(reports: Sequence[tuple[str, Report]], file: str, option: str) -> None:
    """Write named reports to a file that an option names, in the form of its ending."""
    form = files.form_of(file, option, tuple(_OF_MANY))
    files.write_file(file, getattr(_module(form), _OF_MANY[form])(reports), option)


def prepare_file(file: str, option: str, forms: Sequence[str] = tuple(_OF_MANY)) -> None:
    """Refuse now a file that cannot be written at the end, with a UsageError; make its folder."""
    if files.form_of(file, option, forms) == "html":
        _module("html").page_template()  # it says at once that Jinja2 is missing
    files.prepare_folder(file, option)


def _module(name: str) -> Any:
    return import_module(f"{__name__}.{name}")
