"""What a report looks like. A form's module is imported when a report first takes that form."""

from __future__ import annotations

import importlib

from gradproof._data.records import Report

_FUNCTIONS = {
    "txt": ("text", "render"),
    "details": ("text", "details"),
    "json": ("json", "dump"),
    "html": ("html", "render"),
}


def render(report: Report, form: str) -> str:
    """The report in one of the forms that `_FUNCTIONS` names."""
    module, function = _FUNCTIONS[form]
    made: str = getattr(importlib.import_module(f"{__name__}.{module}"), function)(report)
    return made
