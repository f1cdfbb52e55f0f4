"""The report for a terminal: the same content, in colour where colour is welcome, and harmless."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from example_reports import BACKWARD_FAILED, REPORTS, report
from gradproof import CheckResult, Report, Verdict
from gradproof._render import terminal


def printed(shown: Report, **options) -> str:
    stream = io.StringIO()
    console = Console(file=stream, highlight=False, **options)
    console.print(terminal.styled_text(shown), crop=False)
    return stream.getvalue()


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [20, 200])
@pytest.mark.parametrize("force_terminal", [False, True])
def test_it_is_the_plain_text_whatever_the_width(name, width, force_terminal):
    options = {"width": width, "force_terminal": force_terminal, "color_system": None}
    lines = printed(REPORTS[name], **options).splitlines()
    assert [line.rstrip() for line in lines] == str(REPORTS[name]).splitlines()


@pytest.mark.parametrize("refused", [False, True])
def test_a_terminal_shows_the_verdict_in_colour_unless_no_color_is_set(refused, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    if refused:
        monkeypatch.setenv("NO_COLOR", "1")
    shown = printed(REPORTS["one_failure"], force_terminal=True, color_system="standard")
    assert ("\x1b[1;31mFAILED" in shown) is not refused


ESCAPES = "\x1b[31m", "\x1b]8;;http://a\x07b", "\x9d0;title\x9c", "\u202egnp", "\u2066x\u2069", "\r"


@pytest.mark.parametrize("said", ESCAPES)
def test_names_and_messages_cannot_steer_a_terminal_nor_turn_a_line(said, tmp_path):
    check = CheckResult("backward", Verdict.INCONCLUSIVE, said, notes=(said,))
    found = report(check, BACKWARD_FAILED, target=said, inputs=(said,), repeat=said)
    stored = found.save(tmp_path / "report.json").read_text("utf-8")
    for form in (str(found), found.details(), printed(found), stored):
        assert not set(form) & set("\x1b\x07\x9d\x9c\r\u202e\u2066\u2069")
        assert said == "\r" or re.search(r"\\[ux]", form)  # a return is a space


def test_brackets_in_a_name_are_no_markup():
    assert "f[red]" in printed(report(CheckResult("backward", Verdict.PASSED, ""), target="f[red]"))
