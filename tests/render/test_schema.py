"""The schema that is shipped describes every attribute of every record, and no more."""

from __future__ import annotations

import copy
import dataclasses
import enum
import inspect
import json as stdlib_json
import re
import types
import typing
from pathlib import Path

import hypothesis
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_reports import REPORTS
from gradproof import _output
from gradproof._data import records
from gradproof._render import json
from gradproof.errors import UsageError

OF_NO_REPORT = {"Answer", "Compared"}  # beside reports, in a file of many
RECORDS = [
    record
    for name, record in vars(records).items()
    if dataclasses.is_dataclass(record) and f"\nclass {name}" in inspect.getsource(records)
    if name not in OF_NO_REPORT
]
FLOAT = {"oneOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]}
PLAIN = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    float: {"$ref": "#/$defs/float"},
}


def described(record: type) -> dict[str, str]:
    """What the docstring says of each attribute."""
    text = record.__doc__.split("Attributes:\n")[1]
    parts = re.split(r"^ {8}(\w+): ", text, flags=re.MULTILINE)[1:]
    return {
        name: " ".join(said.split()) for name, said in zip(parts[::2], parts[1::2], strict=True)
    }


def of_type(kind) -> dict:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return {
            "oneOf": [of_type(one) for one in inner if one is not type(None)] + [{"type": "null"}]
        }
    if origin is tuple:
        return {"type": "array", "items": of_type(inner[0])}
    if origin is not None:
        return {"type": "object", "additionalProperties": of_type(inner[1])}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    return PLAIN.get(kind) or {"$ref": f"#/$defs/{kind.__name__}"}


def of_record(record: type) -> dict:
    hints, said = typing.get_type_hints(record), described(record)
    fields = dataclasses.fields(record)
    assert set(said) == {each.name for each in fields}, f"{record.__name__}: document every one"
    names = [each.name for each in fields if each.compare]
    return {
        "description": record.__doc__.split("\n")[0],
        "type": "object",
        "additionalProperties": False,
        "required": names,
        "properties": {name: {"description": said[name], **of_type(hints[name])} for name in names},
    }


def schema() -> dict:
    """Made of the records, so that it can't fall behind them."""
    defs = {record.__name__: of_record(record) for record in RECORDS}
    root = defs.pop("Report")
    head = {
        "format_version": {"const": json.FORMAT_VERSION, "description": "of this schema"},
        "verdict": {"description": "of all checks together", **of_type(records.Verdict)},
    }
    root["properties"] = {**head, **root["properties"]}
    root["required"] = [*head, *root["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A report of gradproof",
        **root,
        "$defs": {
            "float": {"description": "a number, or a string for one that is not finite", **FLOAT},
            **defs,
            "Reports": {
                "description": "What `--json` and `--gradproof-report` write: named reports.",
                "type": "object",
                "required": ["format_version", "reports"],
                "properties": {
                    "format_version": {"const": json.VERSION_OF_MANY, "description": "of the list"},
                    "reports": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["name", "report"],
                            "properties": {
                                "name": {"type": "string", "description": "the test, or function"},
                                "report": {"$ref": "#"},
                            },
                        },
                    },
                },
            },
        },
    }


SCHEMA = Path(json.__file__).with_name("report.schema.json")
SHIPPED = stdlib_json.loads(SCHEMA.read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SHIPPED)


def test_the_schema_describes_every_attribute_of_every_record(request):
    made = stdlib_json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"
    if request.config.getoption("--update-golden"):
        SCHEMA.write_text(made, encoding="utf-8")
    assert stdlib_json.loads(SCHEMA.read_text(encoding="utf-8")) == schema()


def test_what_commands_write_is_described_beside_a_report():
    several = VALIDATOR.evolve(schema=SHIPPED["$defs"]["Reports"])
    several.validate(stdlib_json.loads(_output.as_json(list(REPORTS.items()))))
    with pytest.raises(jsonschema.ValidationError):
        several.validate(stdlib_json.loads(json.dump(REPORTS["passed"])))


def test_it_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SHIPPED)


@pytest.mark.parametrize("name", REPORTS)
def test_every_report_is_described_by_it(name):
    VALIDATOR.validate(stdlib_json.loads(json.dump(REPORTS[name])))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("verdict",), "maybe"),
        (("format_version",), 1),
        (("seed",), 1.5),
        (("colour",), "red"),
        (("checks", 0, "findings", 0, "claimed"), "NaN"),
        (("checks", 0, "patch", "claimed"), [1.0]),
        (("checks", 0, "causes", 0, "score"), None),
    ],
)
def test_what_it_does_not_describe_is_refused(path, value):
    document = copy.deepcopy(stdlib_json.loads(json.dump(REPORTS["explained"])))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    assert not VALIDATOR.is_valid(document)


WHOLE = stdlib_json.loads(json.dump(REPORTS["explained"]))
OTHERS = (None, True, 7, 0.5, "nan", "x", [], [[0.5]], {}, {"x": 1})


def places(value, path=()):
    """The path to every value inside a document."""
    inside = value.items() if isinstance(value, dict) else ()
    inside = enumerate(value) if isinstance(value, list) else inside
    for key, item in inside:
        yield (*path, key)
        yield from places(item, (*path, key))


def is_even(document) -> bool:
    """Whether tables have rows of one length, which a schema cannot say."""
    check = document["checks"][0]
    patch = check["patch"]
    rows = [len(row) for name in ("claimed", "measured", "error", "wrong") for row in patch[name]]
    named = len(patch["outputs"]), len(patch["inputs"])
    tables = {len(patch[name]) for name in ("claimed", "measured", "error", "wrong")}
    series = [
        {len(curve[name]) for name in ("steps", "values", "forward", "backward")}
        for curve in check["curves"]
    ]
    even = tables == {named[0]} and set(rows) <= {named[1]}
    return even and all(len(lengths) == 1 for lengths in series)


@hypothesis.settings(max_examples=300)
@given(st.sampled_from(list(places(WHOLE))), st.sampled_from(OTHERS), st.booleans())
def test_the_loader_takes_what_the_schema_describes_and_nothing_else(path, other, lacking):
    document = copy.deepcopy(WHOLE)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    if lacking:
        del inner[path[-1]]
    else:
        inner[path[-1]] = other
    try:
        loaded = repr(json.load(stdlib_json.dumps(document)))
    except UsageError:
        loaded = ""
    valid = VALIDATOR.is_valid(document)
    if not valid or loaded:
        assert bool(loaded) is valid
    else:
        assert not is_even(document)
