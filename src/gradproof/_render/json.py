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
from dataclasses import dataclass
from typing import Any

from cattrs import Converter, transform_error
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from gradproof._data.records import CheckResult, Report
from gradproof._data.visible import UNSEEN
from gradproof.errors import UsageError

FORMAT_VERSION = 4
VERSION_OF_MANY = 1  # of a file with several reports
NO_REPORT = "expected a report written by gradproof as JSON"

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


@dataclass(frozen=True)
class Named:
    """A report as a document, and its name in a file of several."""

    name: str
    report: Any


def dump(report: Report) -> str:
    """The report as a JSON text. `load(dump(report))` equals it."""
    return _text_of(_document_of(report))


def load(text: str) -> Report:
    """The report that `dump` wrote. UsageError if the text is none, or of another version."""
    return _report_of(_document_in(text))


def dump_many(reports: Sequence[tuple[str, Report]]) -> str:
    """Named reports as a JSON text."""
    rows = [{"name": name, "report": _document_of(report)} for name, report in reports]
    return _text_of({"format_version": VERSION_OF_MANY, "reports": rows})


def load_many(text: str) -> list[tuple[str, Report]]:
    """The named reports of a text that `dump_many`, or `dump`, wrote; else UsageError."""
    document = _document_in(text)
    if not (isinstance(document, dict) and "reports" in document):
        report = _report_of(document)
        return [(report.target, report)]
    _require_version(document, VERSION_OF_MANY)
    rows = _record_of(document["reports"], tuple[Named, ...])
    return [(row.name, _report_of(row.report)) for row in rows]


def _document_of(report: Report) -> dict[str, Any]:
    head = {"format_version": FORMAT_VERSION, "verdict": report.verdict.value}
    return {**head, **_CONVERTER.unstructure(report)}


def _report_of(document: Any) -> Report:
    if not (isinstance(document, dict) and "format_version" in document):
        raise UsageError(f"text: {NO_REPORT}")
    _require_version(document, FORMAT_VERSION)
    head = ("format_version", "verdict")
    items = {name: value for name, value in document.items() if name not in head}
    report: Report = _record_of(items, Report)
    return report


def _require_version(document: dict[str, Any], expected: int) -> None:
    version = document.get("format_version")
    if type(version) is not int or version != expected:
        raise UsageError(
            f"text: format_version {reprlib.repr(version)}, and this gradproof reads {expected}; "
            "read it with the gradproof that wrote it"
        )


def _text_of(document: Any) -> str:
    """A document as a JSON text in which characters that are not seen are escaped."""
    # NumPy's numbers are none of JSON.
    as_number = operator.methodcaller("item")
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False, default=as_number)
    return UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _document_in(text: str) -> Any:
    """The document of a JSON text. UsageError where it is none that could be a report."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of 5,000 digits, 5,000 levels
        raise UsageError(f"text: {NO_REPORT}") from error


def _record_of(document: Any, kind: Any) -> Any:
    """The record of a document. UsageError with the path of the first value that is wrong."""
    try:
        record = _CONVERTER.structure(document, kind)
        again = json.loads(_text_of(_CONVERTER.unstructure(record, kind)))
    except Exception as error:  # cattrs collects in groups whatever a hook raised
        raise UsageError(f"text: not a report: {transform_error(error)[0]}") from None
    # cattrs takes a string for an array and "7" for 7, which gradproof never writes.
    if again != document:
        raise UsageError("text: not a report: a value is of another type than gradproof writes")
    return record
