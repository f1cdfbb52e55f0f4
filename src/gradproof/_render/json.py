"""The report as JSON, and back, by cattrs: exact, and portable where numbers are not finite.

A record is an object of its attributes, a tuple an array, a verdict its word, and a float a number
or one of the strings "nan", "inf", "-inf". The records in `_data/records.py` are the only
description of the format. A report begins with `format_version` and with its `verdict`, which
readers may use and `load` derives anew.
"""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
import types
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args

from cattrs import Converter, ForbiddenExtraKeysError, transform_error
from cattrs.cols import is_mapping, mapping_structure_factory
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from gradproof._data.records import Compared, Report, Verdict
from gradproof._data.visible import UNSEEN
from gradproof.errors import UsageError

FORMAT_VERSION = 4
VERSION_OF_MANY = 1  # of a file with several reports
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
NO_REPORT = "expected a report written by gradproof as JSON"

Record = TypeVar("Record")


@dataclasses.dataclass(frozen=True)
class Named:
    """A report, and its name in a file of several."""

    name: str
    report: Report


@dataclasses.dataclass(frozen=True)
class Many:
    """A file of several reports, and the calls of gradcheck that were answered twice, if any."""

    reports: tuple[Named, ...]
    compared: tuple[Compared, ...] | None = None


def dump(report: Report) -> str:
    """The report as a JSON text. `load(dump(report))` equals it."""
    return _json_text(_CONVERTER.unstructure(report))


def load(text: str) -> Report:
    """The report that `dump` wrote. UsageError if the text is none, or of another version."""
    return _structured(_parsed(text), Report)


def dump_many(
    reports: Sequence[tuple[str, Report]], compared: Sequence[Compared] | None = None
) -> str:
    """Named reports, and calls that were answered twice, if any were to be, as a JSON text."""
    named = tuple(Named(name, report) for name, report in reports)
    items = _CONVERTER.unstructure(Many(named, None if compared is None else tuple(compared)))
    if compared is None:
        del items["compared"]
    return _json_text({"format_version": VERSION_OF_MANY, **items})


def load_many(text: str) -> list[tuple[str, Report]]:
    """The named reports of a text that `dump_many`, or `dump`, wrote; else UsageError."""
    return [(each.name, each.report) for each in _loaded_file(text).reports]


def compared_in(text: str) -> tuple[Compared, ...] | None:
    """The calls answered twice in a text of `dump_many`, None without; else UsageError."""
    return _loaded_file(text).compared


def _loaded_file(text: str) -> Many:
    document = _parsed(text)
    if not (isinstance(document, dict) and "reports" in document):
        report = _structured(document, Report)
        return Many((Named(report.target, report),))
    version = document.pop("format_version", None)
    if type(version) is not int or version != VERSION_OF_MANY:
        raise UsageError(
            f"text: expected format_version {VERSION_OF_MANY}, got {reprlib.repr(version)}"
        )
    return _structured(document, Many)


def _json_text(document: Any) -> str:
    """A document as a JSON text in which characters that are not seen are escaped."""
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)
    return UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _parsed(text: str) -> Any:
    """The document of a JSON text. UsageError where it is none that could be a report."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of 5,000 digits, 5,000 levels
        raise UsageError(f"text: {NO_REPORT}") from error


def _structured(document: Any, kind: type[Record]) -> Record:
    """The record of a document. UsageError with the path of the first value that is wrong."""
    try:
        return _CONVERTER.structure(document, kind)
    except Exception as error:  # cattrs collects in groups whatever a hook raised
        messages = transform_error(error, format_exception=_error_message)
        raise UsageError(f"text: not a report: {messages[0]}") from None


def _error_message(error: BaseException, kind: type | None) -> str:  # noqa: ARG001 # as cattrs asks
    if isinstance(error, KeyError):
        return f"missing {error.args[0]!r}"
    if isinstance(error, ForbiddenExtraKeysError):
        return f"unknown {min(error.extra_fields)!r:.40}"
    return str(error)


# Hooks for cattrs, which by itself takes a string for an array, 1 for true and "7" for 7.

NAMES = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
}
Hook = Callable[[Any, Any], Any]  # JSON, type of the record -> value


def _same(value: Any, kind: Any) -> Any:  # noqa: ARG001 # a hook
    return value


def _strict_hook(given: type, structure: Hook = _same) -> Hook:
    """A hook that refuses JSON of another type than `given`."""

    def hook(value: Any, kind: Any) -> Any:
        if type(value) is not given:
            raise UsageError(f"expected {NAMES[given]}, got {reprlib.repr(value)}")
        return structure(value, kind)

    return hook


def _float_of(value: Any, kind: Any) -> Any:
    number = NOT_FINITE.get(value, value) if isinstance(value, str) else value
    return _strict_hook(float)(float(number) if type(number) is int else number, kind)


def _tuple_hook(kind: Any) -> Hook:
    items: Any = types.GenericAlias(list, get_args(kind)[:1])
    return _strict_hook(list, lambda value, _: tuple(_CONVERTER.structure(value, items)))


def _record_hook(kind: Any) -> Hook:
    structure: Hook = make_dict_structure_fn(
        kind, _CONVERTER, _cattrs_forbid_extra_keys=True, **_left_out(kind)
    )
    if kind is Report:
        return _strict_hook(dict, lambda value, kind: structure(_without_head(value), kind))
    return _strict_hook(dict, structure)


def _without_head(document: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a report. UsageError if it is of another version, or none."""
    if "format_version" not in document:
        raise UsageError(NO_REPORT)
    version = document["format_version"]
    if type(version) is not int or version != FORMAT_VERSION:
        raise UsageError(
            f"format_version {reprlib.repr(version)}, and this gradproof reads {FORMAT_VERSION}; "
            "read it with the gradproof that wrote it"
        )
    head = ("format_version", "verdict")
    return {name: value for name, value in document.items() if name not in head}


def _record_items(kind: Any) -> Callable[[Any], Any]:
    items: Callable[[Any], Any] = make_dict_unstructure_fn(kind, _CONVERTER, **_left_out(kind))
    if kind is not Report:
        return items
    return lambda report: {
        "format_version": FORMAT_VERSION,
        "verdict": report.verdict.value,
        **items(report),
    }


def _left_out(kind: Any) -> dict[str, Any]:
    """Attributes that do not belong to the value of a record are not written."""
    fields = dataclasses.fields(kind)
    return {field.name: override(omit=True) for field in fields if not field.compare}


_CONVERTER = Converter()
_CONVERTER.register_unstructure_hook(int, int)  # NumPy's numbers are none of JSON
_CONVERTER.register_unstructure_hook(bool, bool)
_CONVERTER.register_unstructure_hook(
    float, lambda x: float(x) if math.isfinite(x) else str(float(x))
)
for _kind in (str, bool, int):
    _CONVERTER.register_structure_hook(_kind, _strict_hook(_kind))
_CONVERTER.register_structure_hook(float, _float_of)
_CONVERTER.register_structure_hook(Verdict, lambda value, _: Verdict(value))
_CONVERTER.register_structure_hook_factory(is_mapping)(
    lambda kind: _strict_hook(dict, mapping_structure_factory(kind, _CONVERTER))
)
_CONVERTER.register_structure_hook_factory(lambda kind: getattr(kind, "__origin__", None) is tuple)(
    _tuple_hook
)
_CONVERTER.register_structure_hook_factory(dataclasses.is_dataclass)(_record_hook)
_CONVERTER.register_unstructure_hook_factory(dataclasses.is_dataclass)(_record_items)
