"""Reports as files: what `--html`, `--json` and `--gradproof-report` have in common."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from gradproof._records import Report
from gradproof._render import json, many
from gradproof.errors import UsageError

Named = Sequence[tuple[str, Report]]


def as_json(reports: Named, *, one: bool = False) -> str:
    """The reports as JSON; with `one`, the only one without its name."""
    return (json.dump(reports[0][1]) if one else many.dump(reports)) + "\n"


def as_html(reports: Named) -> str:
    """The reports as one page."""
    text: str = _page_maker().render_many(reports)
    return text


def _page_maker() -> ModuleType:
    """The module that makes pages. UsageError where what it needs is not installed."""
    try:
        return importlib.import_module("gradproof._render.html")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"HTML reports need {error.name}: pip install 'gradproof[report]'"
        ) from error


def format_of(file: str, option: str) -> str:
    """What to write by the end of the name: html or json. UsageError where it cannot be."""
    ending = os.path.splitext(file)[1].lower()
    if ending not in (".html", ".json"):
        raise UsageError(f"{option}: expected a name that ends in .html or .json, got {file!r}")
    if ending == ".html":
        _page_maker()
    return ending.removeprefix(".")


def write(file: str, text: str, option: str) -> None:
    """Write a text. UsageError, which names the option, where that fails."""
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{option}: cannot write {file!r}: {error}") from error
