"""Reports as JSON: exact there and back, and readable by any JSON parser."""

from __future__ import annotations

import dataclasses
import json as stdlib_json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_reports import REPORTS, entry, report
from gradproof._records import CheckResult, Statistic, Verdict
from gradproof._render import json
from gradproof.errors import UsageError


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_comes_back_as_it_was(name):
    original = REPORTS[name]
    # repr, because NaN is unequal to itself
    assert repr(json.load(json.dump(original))) == repr(original)


@given(st.floats(), st.floats(), st.floats())
def test_every_float_comes_back_exactly(claimed, measured, error):
    finding = dataclasses.replace(entry(0, 1, claimed, measured), error=error, allowed=error)
    original = report(CheckResult("backward", Verdict.FAILED, "é ✓", findings=(finding,)))
    assert repr(json.load(json.dump(original))) == repr(original)


@given(st.floats(), st.floats(), st.floats(), st.text(), st.text())
def test_statistics_come_back_exactly(value, allowed, eps, oracle, array):
    row = Statistic(oracle, array, "row slope", value, allowed, eps)
    result = CheckResult("backward", Verdict.PASSED, "", oracle=oracle, statistics=(row, row))
    assert repr(json.load(json.dump(report(result)))) == repr(report(result))


def test_a_report_from_before_there_were_oracles_is_read():
    document = stdlib_json.loads(json.dump(REPORTS["few_bits"]))
    for item in document["checks"]:
        del item["oracle"], item["statistics"]
    (result,) = json.load(stdlib_json.dumps(document)).checks
    assert (result.oracle, result.statistics) == ("", ())


def test_the_text_is_strict_json():
    def refuse(constant):
        raise AssertionError(constant)

    document = stdlib_json.loads(json.dump(REPORTS["many_findings"]), parse_constant=refuse)
    claimed = [finding["claimed"] for finding in document["checks"][0]["findings"]]
    assert claimed == [1.1, 1.0000021, "nan", "inf", "-inf"]
    assert document["format_version"] == json.FORMAT_VERSION == 1
    assert document["verdict"] == "failed"


def test_numpy_numbers_are_written_as_numbers():
    original = report(calls={"function": np.int64(3)}, seed=np.int64(7), seconds=np.float64(0.5))
    assert json.load(json.dump(original)) == report(calls={"function": 3}, seed=7, seconds=0.5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected a report"),
        ("[]", "expected a report"),
        ("{}", "expected a report"),
        ('{"format_version": 2}', "expected format_version 1, got 2"),
        ('{"format_version": 1}', "not a report"),
    ],
)
def test_what_is_no_report_is_refused_in_a_sentence(text, says):
    with pytest.raises(UsageError, match=says):
        json.load(text)
