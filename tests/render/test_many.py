"""Several reports in one file."""

from __future__ import annotations

import json as plain

import pytest

from example_reports import REPORTS
from gradproof._render import json
from gradproof.errors import UsageError


def test_many_reports_come_back_as_they_were():
    named = list(REPORTS.items())
    assert json.load_many(json.dump_many(named)) == named


def test_a_file_with_one_report_is_read_too():
    report = REPORTS["passed"]
    assert json.load_many(json.dump(report)) == [(report.target, report)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "written by gradproof as JSON"),
        ("[" * 200_000, "written by gradproof as JSON"),
        ("[]", "written by gradproof as JSON"),
        (plain.dumps({"format_version": 99, "reports": []}), "format_version 99"),
        (plain.dumps({"format_version": [1], "reports": []}), r"format_version \[1\]"),
        (plain.dumps({"format_version": 1, "reports": {}}), "another type"),
        (plain.dumps({"format_version": 1, "reports": [3]}), r"@ \$\[0\]"),
        (
            plain.dumps({"format_version": 1, "reports": [{"name": "x"}]}),
            r"required field missing @ \$\[0\]\.report",
        ),
        (
            plain.dumps({"format_version": 1, "reports": [{"name": 1, "report": {}}]}),
            "another type",
        ),
        (
            plain.dumps({"format_version": 1, "reports": [{"name": "x", "report": []}]}),
            "written by gradproof as JSON",
        ),
    ],
)
def test_what_is_no_report_is_refused_in_one_sentence(text, says):
    with pytest.raises(UsageError, match=says):
        json.load_many(text)
