"""Reports as JSON: exact there and back, and refused in a sentence with the place of an error."""

from __future__ import annotations

import dataclasses
import json as stdlib_json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_reports import REPORTS, entry, report
from gradproof import CheckResult, Statistic, Verdict
from gradproof._render import json
from gradproof.errors import UsageError


def test_reports_come_back_as_they_were_alone_and_together():
    for original in REPORTS.values():
        assert json.load(json.dump(original)) == original
    named = list(REPORTS.items())
    assert json.load_many(json.dump_many(named)) == named
    alone = REPORTS["passed"]
    assert json.load_many(json.dump(alone)) == [(alone.target, alone)]


@given(st.floats(), st.floats(), st.floats(), st.text())
def test_every_float_and_text_comes_back_exactly(claimed, measured, error, array):
    finding = dataclasses.replace(entry(0, 1, claimed, measured), error=error, allowed=error)
    row = Statistic("é ✓", array, "row slope", claimed, measured, error)
    result = CheckResult("backward", Verdict.FAILED, "", findings=(finding,), statistics=(row,))
    # repr, because NaN is unequal to itself
    assert repr(json.load(json.dump(report(result))).checks) == repr((result,))


def test_the_text_is_strict_json_also_of_what_is_not_finite():
    def refuse(constant):
        raise AssertionError(constant)

    document = stdlib_json.loads(json.dump(REPORTS["many_findings"]), parse_constant=refuse)
    claimed = [finding["claimed"] for finding in document["checks"][0]["findings"]]
    assert claimed == [1.1, 1.0000021, "nan", "inf", "-inf"]
    assert document["verdict"] == "failed"


def test_numpy_numbers_are_written_as_numbers():
    original = report(calls={"function": np.int64(3)}, seed=np.int64(7), seconds=np.float64(0.5))
    assert json.load(json.dump(original)) == report(calls={"function": 3}, seed=7, seconds=0.5)


def test_evidence_is_neither_compared_nor_printed_nor_written():
    bare = CheckResult("backward", Verdict.FAILED, "one entry wrong")
    result = dataclasses.replace(bare, evidence=object())
    assert (result, repr(result)) == (bare, repr(bare))
    assert json.dump(report(result)) == json.dump(report(bare))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "written by gradproof as JSON"),
        ("[]", "written by gradproof as JSON"),
        ("[" * 200_000, "written by gradproof as JSON"),
        ('{"format_version": 3}', "format_version 3, and this gradproof reads 8"),
        ('{"seed": ' + "1" * 5000 + "}", "written by gradproof as JSON"),
        ('{"format_version": 8}', r"required field missing @ \$\.target"),
        ('{"format_version": 99, "reports": []}', "format_version 99"),
        ('{"format_version": 8, "reports": [{"name": "x"}]}', "written by gradproof as JSON"),
    ],
)
def test_what_is_no_report_is_refused_in_a_sentence(text, says):
    with pytest.raises(UsageError, match=says) as refused:
        json.load_many(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("seed",), "seven", "@ $.seed"),
        (("seconds",), 10**400, "int too large to convert to float) @ $.seconds"),
        (("checks", 0, "verdict"), "maybe", "expected Verdict @ $.checks[0].verdict"),
        (("checks", 0, "findings", 0), 3, "expected Finding @ $.checks[0].findings[0]"),
        (("checks", 0, "findings", 0, "gap"), 1.0, "(gap) @ $.checks[0].findings[0]"),
        (("checks", 0, "findings", 0, "error"), "big", "float @ $.checks[0].findings[0].error"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(path, value, says):
    document = REPORTS["explained"].to_dict()
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(UsageError, match=re.escape(says)) as refused:
        json.load(stdlib_json.dumps(document))
    assert "\n" not in str(refused.value)
