"""The report as JSON, and back, by cattrs: exact, and portable where numbers are not finite.

A record is an object of its attributes, a tuple an array, a verdict its word, and a float a number
or one of the strings "nan", "inf", "-inf". The records in `_data/records.py` are the only
description of the format. A report begins with `format_version` and with its `verdict`, which
readers may use and `load` derives anew.
"""

from __future__ import annotations

import json
import math
import operator
import reprlib
from collections.abc import Sequence
from typing import Any

from cattrs import Converter, transform_error
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from gradproof._data.records import CheckResult, Report
from gradproof.errors import UsageError

FORMAT_VERSION = 8
_NO_REPORT = "expected a report written by gradproof as JSON"

_CONVERTER = Converter(forbid_extra_keys=True)
_CONVERTER.register_unstructure_hook(float, lambda x: x if math.isfinite(x) else str(float(x)))
# The one NaN of `math`, so that what is loaded equals what was dumped.
_CONVERTER.register_structure_hook(float, lambda x, _: math.nan if x == "nan" else float(x))
# Evidence belongs to the explanation of a failure, and no report has any.
_OMITTED = override(omit=True)
_CONVERTER.register_unstructure_hook(
    CheckResult, make_dict_unstructure_fn(CheckResult, _CONVERTER, evidence=_OMITTED)
)
_CONVERTER.register_structure_hook(
    CheckResult, make_dict_structure_fn(CheckResult, _CONVERTER, evidence=_OMITTED)
)


def dump(report: Report) -> str:
    """The report as a JSON text. `load(dump(report))` equals it."""
    return _text_of(_document_of(report))


def dump_many(reports: Sequence[tuple[str, Report]]) -> str:
    """Named reports as a JSON text."""
    rows = [{"name": name, "report": _document_of(report)} for name, report in reports]
    return _text_of({"format_version": FORMAT_VERSION, "reports": rows})


def load(text: str) -> Report:
    """The report that `dump` wrote. UsageError if the text is none, or of another version."""
    return _report_of(_parsed_document(text))


def load_many(text: str) -> list[tuple[str, Report]]:
    """The named reports of a text that `dump_many`, or `dump`, wrote; else UsageError."""
    document = _parsed_document(text)
    if "reports" not in document:
        report = _report_of(document)
        return [(report.target, report)]
    try:
        rows = [(str(row["name"]), row["report"]) for row in document["reports"]]
    except (KeyError, TypeError) as error:
        raise UsageError(f"text: {_NO_REPORT}") from error
    return [(name, _report_of(report)) for name, report in rows]


def _document_of(report: Report) -> dict[str, Any]:
    head = {"format_version": FORMAT_VERSION, "verdict": report.verdict.value}
    return {**head, **_CONVERTER.unstructure(report)}


def _text_of(document: dict[str, Any]) -> str:
    # NumPy's numbers are none of JSON's. In ASCII no character steers a terminal.
    return json.dumps(document, indent=1, allow_nan=False, default=operator.methodcaller("item"))


def _parsed_document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of 5,000 digits, 5,000 levels
        raise UsageError(f"text: {_NO_REPORT}") from error
    if not isinstance(document, dict) or "format_version" not in document:
        raise UsageError(f"text: {_NO_REPORT}")
    version = document.get("format_version")
    if version != FORMAT_VERSION:
        raise UsageError(
            f"text: format_version {reprlib.repr(version)}, and this gradproof reads "
            f"{FORMAT_VERSION}; read it with the gradproof that wrote it"
        )
    return document


def _report_of(document: Any) -> Report:
    """The report. UsageError with the path of the first value that is wrong."""
    try:
        head = ("format_version", "verdict")
        items = {name: value for name, value in document.items() if name not in head}
        return _CONVERTER.structure(items, Report)
    except Exception as error:  # cattrs collects in groups whatever a hook raised
        raise UsageError(f"text: not a report: {transform_error(error)[0]}") from None
