"""Whatever a report says, it can be kept, read and shown: explain gets files of others."""

from __future__ import annotations

import dataclasses
import enum
import importlib.util
import io
import types
import typing

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gradproof import Patch, Report
from gradproof._data.visible import UNSEEN
from gradproof._render import html, json, terminal, text

SAID = [
    "\\lambda",
    "\\g<1>",
    "$x^2$",
    "{{x}}",
    "%s",
    "<b>",
    "[red]",
    "\x1b[31m",
    "\u202e",
    "\ud800",
]
PLAIN = {
    str: st.sampled_from(SAID) | st.text(max_size=8),
    int: st.integers(1 - 2**64, 2**64 - 1),
    float: st.floats(),
    bool: st.booleans(),
}


def row(items: st.SearchStrategy, size: int) -> st.SearchStrategy:
    return st.lists(items, min_size=size, max_size=size).map(tuple)


def patch(shape: tuple[int, int]) -> st.SearchStrategy:
    tables = dict.fromkeys(("claimed", "measured", "error"), float) | {"wrong": bool}
    return st.builds(
        Patch,
        outputs=row(PLAIN[str], shape[0]),
        inputs=row(PLAIN[str], shape[1]),
        **{name: row(row(PLAIN[kind], shape[1]), shape[0]) for name, kind in tables.items()},
    )


def of(kind: typing.Any) -> st.SearchStrategy:
    """Any value of a type of the records."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return st.none() | of(next(one for one in inner if one is not type(None)))
    if origin is tuple:
        return st.lists(of(inner[0]), max_size=3).map(tuple)
    if origin is not None:
        return st.dictionaries(PLAIN[str], of(inner[1]), max_size=3)
    if kind is Patch:
        return st.tuples(st.integers(0, 3), st.integers(0, 3)).flatmap(patch)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return st.builds(
            kind, **{f.name: of(hints[f.name]) for f in dataclasses.fields(kind) if f.compare}
        )
    return st.sampled_from(list(kind)) if issubclass(kind, enum.Enum) else PLAIN[kind]


@pytest.mark.slow
@hypothesis.settings(max_examples=25, suppress_health_check=list(hypothesis.HealthCheck))
@given(of(Report), PLAIN[str])
def test_every_report_can_be_kept_and_shown(report, name):
    assert json.dump(json.load(json.dump(report))) == json.dump(report)
    console = Console(file=io.StringIO())
    console.print(terminal.OnTerminal(report), soft_wrap=True)
    console.print(terminal.table_of_reports([(name, report, ""), (name, None, name)]))
    forms = [text.render(report), text.html_text(report), console.file.getvalue()]
    if importlib.util.find_spec("jinja2") is not None:
        forms.append(html.render_many([(name, report)]))
    for form in forms:
        assert not UNSEEN.search(form)
