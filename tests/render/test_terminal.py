"""The report for a terminal: the same content, in colour where colour is welcome."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from example_reports import REPORTS
from gradproof._render import terminal, text


def printed(name: str, **options) -> str:
    stream = io.StringIO()
    console = Console(file=stream, highlight=False, **options)
    console.print(terminal.OnTerminal(REPORTS[name]), soft_wrap=True)
    return stream.getvalue()


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [20, 80, 200])
def test_piped_it_is_the_plain_text_whatever_the_width(name, width):
    lines = printed(name, width=width).splitlines()
    assert [line.rstrip() for line in lines] == text.render(REPORTS[name]).splitlines()


def test_a_terminal_shows_the_verdict_in_colour(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;31mFAILED" in printed(
        "one_failure", force_terminal=True, color_system="standard"
    )


def test_no_color_is_honoured(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert "[1;31m" not in printed("one_failure", force_terminal=True, color_system="standard")


def test_a_name_that_looks_like_markup_is_shown_as_it_is():
    assert "params['a'][0].imag" in printed("many_findings")


@pytest.mark.parametrize(("width", "widest"), [(70, 70), (100, 100), (300, 120)])
def test_a_report_is_as_wide_as_the_terminal_and_no_wider_than_is_read(width, widest):
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None)
    console.print(terminal.OnTerminal(REPORTS["many_findings"]), soft_wrap=True)
    longest = max(map(len, file.getvalue().splitlines()))
    assert 0.8 * widest <= longest <= widest


def test_a_file_has_eighty_columns_whatever_the_console():
    file = io.StringIO()
    Console(file=file, width=200).print(terminal.OnTerminal(REPORTS["passed"]), soft_wrap=True)
    assert file.getvalue().rstrip("\n") == text.render(REPORTS["passed"])
