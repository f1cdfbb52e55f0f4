"""Several reports in one file."""

from __future__ import annotations

import json as plain

import pytest

from example_reports import REPORTS
from gradproof._render import json
from gradproof.errors import UsageError


def test_many_reports_come_back_as_they_were():
    named = list(REPORTS.items())
    assert repr(json.load_many(json.dump_many(named))) == repr(named)


def test_a_file_with_one_report_is_read_too():
    report = REPORTS["passed"]
    assert repr(json.load_many(json.dump(report))) == repr([(report.target, report)])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "written by gradproof as JSON"),
        ("[" * 5_000, "written by gradproof as JSON"),
        ("[]", "written by gradproof"),
        (plain.dumps({"format_version": 99, "reports": []}), "format_version 1, got 99"),
        (plain.dumps({"format_version": [1], "reports": []}), r"format_version 1, got \[1\]"),
        (plain.dumps({"format_version": 1, "reports": {}}), r"file\.reports: expected an array"),
        (plain.dumps({"format_version": 1, "reports": [3]}), r"reports\[0\]: expected an object"),
        (
            plain.dumps({"format_version": 1, "reports": [{"name": "x"}]}),
            r"reports\[0\] has no 'report'",
        ),
        (
            plain.dumps({"format_version": 1, "reports": [{"name": 1, "report": {}}]}),
            r"reports\[0\]\.name: expected a string",
        ),
        (
            plain.dumps({"format_version": 1, "reports": [{"name": "x", "report": []}]}),
            r"reports\[0\]\.report: .* written by gradproof",
        ),
    ],
)
def test_what_is_no_report_is_refused_in_one_sentence(text, says):
    with pytest.raises(UsageError, match=says):
        json.load_many(text)
