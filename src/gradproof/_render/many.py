"""Several reports in one JSON file, and back.

Schema, version 1: an object with `format_version` and `reports`, a list of objects with `name`
and `report`, which is an object as `_render.json` writes it; where calls of gradcheck were answered
twice, also `compared`, a list of `_data.records.Compared` as objects.
"""

from __future__ import annotations

import json as _json
from collections.abc import Sequence
from typing import Any

from gradproof._data.records import Compared, Report
from gradproof._render import json
from gradproof.errors import UsageError

FORMAT_VERSION = 1


def dump(reports: Sequence[tuple[str, Report]], compared: Sequence[Compared] | None = None) -> str:
    """Named reports, and calls that were answered twice, if any were to be, as a JSON text."""
    rows = [{"name": name, "report": _json.loads(json.dump(report))} for name, report in reports]
    document: dict[str, Any] = {"format_version": FORMAT_VERSION, "reports": rows}
    if compared is not None:
        document["compared"] = [json.encoded(each) for each in compared]
    return json.written(document, indent=2)


def compared_in(text: str) -> list[Compared] | None:
    """The calls answered twice in a text of `dump`, None without; UsageError if they are none."""
    document = json.parsed(text)
    rows = document.get("compared") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        return None
    return [json.record(Compared, row, f"compared[{place}]") for place, row in enumerate(rows)]


def load(text: str) -> list[tuple[str, Report]]:
    """The named reports of a text that `dump`, or `_render.json.dump`, wrote; else UsageError."""
    document = json.parsed(text)
    if not (isinstance(document, dict) and "reports" in document):
        report = json.decoded(document)
        return [(report.target, report)]
    version = document.get("format_version")
    if type(version) is not int or version != FORMAT_VERSION:
        raise UsageError(f"expected format_version {FORMAT_VERSION}, got {version!r:.40}")
    if not isinstance(document["reports"], list):
        raise UsageError(f"not reports of format_version {FORMAT_VERSION}: expected a list of them")
    return [_row(row, place) for place, row in enumerate(document["reports"])]


def _row(row: Any, place: int) -> tuple[str, Report]:
    if not (isinstance(row, dict) and row.keys() == {"name", "report"}):
        raise UsageError(f"reports[{place}]: expected an object with a name and a report")
    if not isinstance(row["name"], str):
        raise UsageError(f"reports[{place}]: its name is no text")
    try:
        return row["name"], json.decoded(row["report"])
    except UsageError as error:
        raise UsageError(f"reports[{place}]: {error}") from None
