"""Names, messages and loaded reports cannot steer a terminal, nor turn the direction of a line."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from example_reports import BACKWARD_FAILED, REPORTS, report
from gradproof._data.records import CheckResult, Verdict
from gradproof._data.visible import UNSEEN, escape_invisible, visible_in
from gradproof._render import json, summary, terminal, text

ESCAPES = "\x1b[31m", "\x1b]8;;http://a\x07b", "\x9d0;title\x9c", "\u202egnp", "\u2066x\u2069", "\r"


def hostile(said: str):
    check = CheckResult("backward", Verdict.INCONCLUSIVE, said, notes=(said,))
    return report(check, BACKWARD_FAILED, target=said, inputs=(said,), repeat=said)


def printed(shown) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(shown)
    return console.file.getvalue()


@pytest.mark.parametrize("said", ESCAPES)
def test_no_form_of_a_report_holds_what_is_not_seen(said):
    found = hostile(said)
    forms = [
        text.render(found),
        text.html_text(found),
        summary.headline(found),
        json.dump(found),
        printed(terminal.OnTerminal(found)),
        printed(terminal.table_of_reports([(said, found, ""), (said, None, said)])),
    ]
    for form in forms:
        assert not UNSEEN.search(form)
        assert re.search(r"\\[uxr]", form)
    assert json.load(json.dump(found)) == found


@given(st.text())
def test_what_is_seen_stays_and_what_is_escaped_stays_so(said):
    assert escape_invisible(escape_invisible(said)) == escape_invisible(said)
    if said.isprintable():
        assert escape_invisible(said) == said
    escape_invisible(said).encode()


def test_a_report_without_any_is_as_it_was():
    for found in REPORTS.values():
        assert repr(visible_in(found)) == repr(found)


def test_brackets_in_a_name_are_no_markup():
    assert "f[red]" in printed(terminal.table_of_reports([("f[red]", None, "it raised [bold]")]))
    assert "[bold]" in printed(terminal.table_of_reports([("f[red]", None, "it raised [bold]")]))
