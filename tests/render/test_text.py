"""The text of a report, compared with golden files."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from example_reports import REPORTS, entry, report
from gradproof._records import CheckResult, Verdict
from gradproof._render import text

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", REPORTS)
def test_text_is_the_golden_file(name, request):
    file = GOLDEN / f"{name}.txt"
    rendered = text.render(REPORTS[name]) + "\n"
    if request.config.getoption("--update-golden"):
        file.write_text(rendered, encoding="utf-8")
    assert rendered == file.read_text(encoding="utf-8")


def test_no_golden_file_is_left_over():
    assert {file.stem for file in GOLDEN.iterdir()} == set(REPORTS)


@pytest.mark.parametrize("name", REPORTS)
def test_lines_fit_80_columns_unless_a_name_is_longer(name):
    for line in text.render(REPORTS[name]).splitlines():
        longest = max(map(len, line.split()), default=0)
        assert len(line) <= 80 or longest > 50
        assert line == line.rstrip()


def test_one_failure_takes_at_most_25_lines():
    assert len(text.render(REPORTS["one_failure"]).splitlines()) <= 25


def test_of_arrays_in_few_bits_only_the_wrong_ones_are_tabled():
    shown = text.render(REPORTS["few_bits_wrong"])
    assert "x, in eps: slope 12 of 4 (!)" in shown
    assert "mean nan of 4 (!)" in shown
    assert "weight, in eps" not in shown


def test_an_empty_report_renders():
    assert "skipped" in text.render(report(target=""))


def test_the_digits_shown_reveal_the_gap():
    for gap in (1e-3, 1e-7, 1e-10, 1e-13):
        result = CheckResult(
            "backward", Verdict.FAILED, "", findings=(entry(0, 0, 1.0 + gap, 1.0, math.nan),)
        )
        shown = text.render(report(result))
        claimed, measured = (
            float(line.split()[1])
            for line in shown.splitlines()
            if line.split()[:1] in (["claimed"], ["measured"])
        )
        assert claimed - measured == pytest.approx(gap, rel=0.05)


def test_a_name_with_line_breaks_stays_on_one_line():
    assert "gradproof  a b  " in text.render(report(target="a\n b"))


def test_str_of_a_report_is_its_text():
    import gradproof  # noqa: F401  # sets the renderer

    assert str(REPORTS["passed"]) == text.render(REPORTS["passed"])
