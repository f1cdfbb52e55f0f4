"""Reports in one line."""

from __future__ import annotations

import math

import pytest

from example_reports import REPORTS
from gradproof import Verdict
from gradproof._render.summary import headline, resolution, tally

PASSED, FAILED, OPEN = Verdict.PASSED, Verdict.FAILED, Verdict.INCONCLUSIVE


@pytest.mark.parametrize("name", REPORTS)
def test_a_headline_is_one_line_that_names_the_function_and_what_decided(name):
    report = REPORTS[name]
    text = headline(report)
    assert "\n" not in text
    assert text.startswith(" ".join(report.target.split()))
    if report.checks:
        deciding = next(r for r in report.checks if r.verdict is report.verdict)
        assert f": {deciding.name}: " in text
    else:
        assert text.endswith(": nothing was checked")


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([], "0 derivatives verified"),
        ([(PASSED, 1e-9)], "1 derivative verified to 1e-09"),
        ([(PASSED, 1e-9), (PASSED, 3.1e-9)], "2 derivatives verified to 4e-09"),
        ([(PASSED, 9.5e-9)], "1 derivative verified to 1e-08"),
        ([(PASSED, math.nan)], "1 derivative verified"),
        (
            [(PASSED, 1e-9), (PASSED, 40.0)],
            "2 derivatives verified to 1e-09 (1 along random directions only)",
        ),
        (
            [(PASSED, 2e-9), (FAILED, 0.5), (OPEN, 1.0), (OPEN, math.nan), (Verdict.SKIPPED, 1)],
            "1 derivative verified to 2e-09, 1 failed, 2 inconclusive, 1 skipped",
        ),
    ],
)
def test_many_reports_in_one_line(rows, text):
    assert tally(rows) == text


def test_the_resolution_of_a_report_is_its_largest_error_bar():
    assert resolution(REPORTS["passed"]) == 3e-11
    assert math.isnan(resolution(REPORTS["no_checks"]))
