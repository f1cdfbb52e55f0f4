"""Several reports in one JSON file, and back.

Schema, version 1: an object with `format_version` and `reports`, a list of objects with `name`
and `report`, which is an object as `_render.json` writes it.
"""

from __future__ import annotations

import json as _json
from collections.abc import Sequence
from typing import Any

from gradproof._records import Report
from gradproof._render import json
from gradproof.errors import UsageError

FORMAT_VERSION = 1


def dump(reports: Sequence[tuple[str, Report]]) -> str:
    """Named reports as a JSON text. `load(dump(reports))` equals them."""
    rows = [{"name": name, "report": _json.loads(json.dump(report))} for name, report in reports]
    document = {"format_version": FORMAT_VERSION, "reports": rows}
    return _json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)


def load(text: str) -> list[tuple[str, Report]]:
    """The named reports of a text that `dump`, or `_render.json.dump`, wrote.

    Raises:
        UsageError: the text is neither.
    """
    try:
        document: Any = _json.loads(text)
    except ValueError as error:
        raise UsageError(f"not JSON: {error}") from None
    if not (isinstance(document, dict) and "reports" in document):
        report = json.load(text)
        return [(report.target, report)]
    if document.get("format_version") != FORMAT_VERSION:
        raise UsageError(
            f"expected format_version {FORMAT_VERSION}, got {document.get('format_version')!r}"
        )
    try:
        return [
            (str(row["name"]), json.load(_json.dumps(row["report"]))) for row in document["reports"]
        ]
    except (TypeError, KeyError) as error:
        raise UsageError(f"not reports of format_version {FORMAT_VERSION}: {error!r}") from None
