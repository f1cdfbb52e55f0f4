"""The report as JSON, and back: exact, and portable where numbers are not finite.

One codec for all records: a record is an object of its attributes, a tuple an array, a verdict its
word, and a float a number or one of the strings "nan", "inf", "-inf". `report.schema.json`
describes the document; `format_version` comes first, `verdict` is for readers and derived.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from gradproof._data.records import Compared, Report, Verdict
from gradproof._data.visible import UNSEEN
from gradproof.errors import UsageError

FORMAT_VERSION = 4
HEAD = ("format_version", "verdict")  # of the document; the verdict is derived
LARGEST = 2**64  # no number in a report is larger, but for floating ones
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def dump(report: Report) -> str:
    """The report as a JSON text. `load(dump(report))` equals it."""
    return _written(encoded(report), indent=1)


def _written(document: Any, indent: int) -> str:
    """A document as a JSON text: what is not seen is escaped, all else is written as it is."""
    text = json.dumps(document, indent=indent, allow_nan=False, ensure_ascii=False)
    return UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def load(text: str) -> Report:
    """The report that `dump` wrote. UsageError if the text is none, or of another version."""
    report: Report = _decoded(Report, _parsed(text), "report")
    return report


def _parsed(text: str) -> Any:
    """The document of a JSON text. UsageError where it is none that could be a report."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # numbers of 5,000 digits, 5,000 levels
        raise UsageError("text: expected a report written by gradproof as JSON") from error


def _without_head(document: Any, path: str) -> dict[str, Any]:
    """The attributes of a report. UsageError where it is none, or of another version."""
    if not isinstance(document, dict) or "format_version" not in document:
        raise UsageError(f"text: {path}: expected a report written by gradproof as JSON")
    version = document["format_version"]
    if type(version) is not int or version != FORMAT_VERSION:
        raise UsageError(
            f"text: a report of format_version {version!r:.40}, and this gradproof reads "
            f"{FORMAT_VERSION}; read it with the gradproof that wrote it"
        )
    _decoded(Verdict, document.get("verdict"), f"{path}.verdict")
    return {name: value for name, value in document.items() if name not in HEAD}


def encoded(value: Any) -> Any:
    """A record, or what one holds, in plain dicts, lists, strings and numbers."""
    if dataclasses.is_dataclass(value):
        items = {field.name: encoded(getattr(value, field.name)) for field in _fields(value)}
        if isinstance(value, Report):
            return {"format_version": FORMAT_VERSION, "verdict": value.verdict.value, **items}
        return items
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [encoded(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): encoded(item) for key, item in value.items()}
    if value is None or isinstance(value, str):
        return value
    number = value.item() if hasattr(value, "item") else value  # NumPy's numbers
    if isinstance(number, float) and not math.isfinite(number):
        return str(number)
    return number


def _fields(record: Any) -> list[dataclasses.Field[Any]]:
    """The attributes that are written: those that make two records equal."""
    return [field for field in dataclasses.fields(record) if field.compare]


@functools.cache
def _types(record: type) -> dict[str, Any]:
    hints = typing.get_type_hints(record)
    return {field.name: hints[field.name] for field in _fields(record)}


def _decoded(kind: Any, value: Any, path: str) -> Any:
    """The value of a type. UsageError, with the path to it, where it is none.

    The records are the schema: what `report.schema.json` refuses is refused here, and what it
    cannot say as well, such as tables whose rows differ in length.
    """
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (one for one in typing.get_args(kind) if one is not type(None))
        return None if value is None else _decoded(inner, value, path)
    if origin is tuple:
        inner = typing.get_args(kind)[0]
        rows = enumerate(_expected(list, value, path))
        return tuple(_decoded(inner, item, f"{path}[{place}]") for place, item in rows)
    if dataclasses.is_dataclass(kind):
        items = _without_head(value, path) if kind is Report else _expected(dict, value, path)
        return _record(kind, items, path)
    if origin is not None:  # a mapping from strings
        inner = typing.get_args(kind)[1]
        pairs = _expected(dict, value, path).items()
        return {key: _decoded(inner, item, f"{path}[{key!r}]") for key, item in pairs}
    if issubclass(kind, enum.Enum):
        if isinstance(value, str) and value in {member.value for member in kind}:
            return kind(value)
        raise _wrong(path, "one of " + ", ".join(member.value for member in kind), value)
    if kind is float:
        number = NOT_FINITE.get(value, value) if isinstance(value, str) else value
        if type(number) is int and abs(number) < LARGEST:
            return float(number)
        return _expected(float, number, path)
    if kind is int and type(value) is int and abs(value) >= LARGEST:
        raise UsageError(f"text: not a report: {path}: expected a number of at most 64 bits")
    return _expected(kind, value, path)


def _record(kind: Any, items: dict[str, Any], path: str) -> Any:
    hints, given = _types(kind), {}
    for name, value in items.items():
        if name not in hints:
            raise UsageError(f"text: not a report: {path} has an unknown {name!r:.40}")
        given[name] = _decoded(hints[name], value, f"{path}.{name}")
    for field in _fields(kind):
        if field.name not in given:
            raise UsageError(f"text: not a report: {path} has no {field.name!r}")
    try:
        return kind(**given)
    except UsageError as error:
        raise UsageError(f"text: not a report: {path}: {error}") from None


NAMES = {list: "an array", dict: "an object", float: "a number", int: "an integer", str: "a string"}


def _expected(kind: type, value: Any, path: str) -> Any:
    if type(value) is not kind:
        raise _wrong(path, NAMES.get(kind, "true or false"), value)
    return value


def _wrong(path: str, expected: str, value: Any) -> UsageError:
    return UsageError(f"text: not a report: {path}: expected {expected}, got {value!r:.40}")


# Several reports in one file, version 1: `format_version`, and `Many` as an object.

VERSION_OF_MANY = 1


@dataclasses.dataclass(frozen=True)
class Named:
    """A report, and what it is called in a file."""

    name: str
    report: Report


@dataclasses.dataclass(frozen=True)
class Many:
    """What a file holds."""

    reports: tuple[Named, ...]
    compared: tuple[Compared, ...] | None = None  # calls of gradcheck answered twice; then alone


def dump_many(
    reports: Sequence[tuple[str, Report]], compared: Sequence[Compared] | None = None
) -> str:
    """Named reports, and calls that were answered twice, if any were to be, as a JSON text."""
    several = tuple(Named(name, report) for name, report in reports)
    items = encoded(Many(several, None if compared is None else tuple(compared)))
    if compared is None:
        del items["compared"]
    return _written({"format_version": VERSION_OF_MANY, **items}, indent=2)


def compared_in(text: str) -> tuple[Compared, ...] | None:
    """The calls answered twice in a text of `dump_many`, None without; else UsageError."""
    return _many(text).compared


def load_many(text: str) -> list[tuple[str, Report]]:
    """The named reports of a text that `dump_many`, or `dump`, wrote; else UsageError."""
    return [(each.name, each.report) for each in _many(text).reports]


def _many(text: str) -> Many:
    document = _parsed(text)
    if not (isinstance(document, dict) and "reports" in document):
        report: Report = _decoded(Report, document, "report")
        return Many((Named(report.target, report),))
    version = document.pop("format_version", None)
    if type(version) is not int or version != VERSION_OF_MANY:
        raise UsageError(f"expected format_version {VERSION_OF_MANY}, got {version!r:.40}")
    found: Many = _decoded(Many, {"compared": None, **document}, "file")
    return found
