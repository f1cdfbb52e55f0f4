"""Reports as JSON: exact there and back, and readable by any JSON parser."""

from __future__ import annotations

import dataclasses
import json as stdlib_json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_reports import REPORTS, entry, report
from gradproof._data.records import CheckResult, Statistic, Verdict
from gradproof._render import json
from gradproof.errors import UsageError


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_comes_back_as_it_was(name):
    original = REPORTS[name]
    assert json.load(json.dump(original)) == original


@given(st.floats(), st.floats(), st.floats())
def test_every_float_comes_back_exactly(claimed, measured, error):
    finding = dataclasses.replace(entry(0, 1, claimed, measured), error=error, allowed=error)
    original = report(CheckResult("backward", Verdict.FAILED, "é ✓", findings=(finding,)))
    # repr, because NaN is unequal to itself
    assert repr(json.load(json.dump(original)).checks) == repr(original.checks)


@given(st.floats(), st.floats(), st.floats(), st.text(), st.text())
def test_statistics_come_back_exactly(value, allowed, eps, oracle, array):
    row = Statistic(oracle, array, "row slope", value, allowed, eps)
    result = CheckResult("backward", Verdict.PASSED, "", oracle=oracle, statistics=(row, row))
    assert repr(json.load(json.dump(report(result))).checks) == repr((result,))


def test_the_text_is_strict_json():
    def refuse(constant):
        raise AssertionError(constant)

    document = stdlib_json.loads(json.dump(REPORTS["many_findings"]), parse_constant=refuse)
    claimed = [finding["claimed"] for finding in document["checks"][0]["findings"]]
    assert claimed == [1.1, 1.0000021, "nan", "inf", "-inf"]
    assert document["format_version"] == json.FORMAT_VERSION == 4
    assert document["verdict"] == "failed"


def test_numpy_numbers_are_written_as_numbers():
    original = report(calls={"function": np.int64(3)}, seed=np.int64(7), seconds=np.float64(0.5))
    assert json.load(json.dump(original)) == report(calls={"function": 3}, seed=7, seconds=0.5)


def test_evidence_is_neither_compared_nor_printed_nor_written():
    bare = CheckResult("backward", Verdict.FAILED, "one entry wrong")
    result = dataclasses.replace(bare, evidence=object())
    assert result == bare
    assert repr(result) == repr(bare)
    assert json.dump(report(result)) == json.dump(report(bare))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected a report"),
        ("[]", "expected a report"),
        ("{}", "expected a report"),
        ("[" * 200_000, "expected a report"),
        ("[" * 200_000 + "]" * 200_000, "expected a report"),
        ('{"format_version": 5}', "format_version 5, and this gradproof reads 4"),
        ('{"format_version": 3}', "format_version 3, and this gradproof reads 4"),
        ('{"format_version": true}', "format_version True"),
        ('{"format_version": [2]}', r"format_version \[2\]"),
        ('{"format_version": 1e400}', "format_version inf"),
        ('{"seed": ' + "1" * 5000 + "}", "expected a report"),
        ('{"a": ' * 5000 + "1" + "}" * 5000, "expected a report"),
        ('{"format_version": 4}', r"required field missing @ \$\.target"),
        ('{"format_version": 4, "target": ' + "[" * 900 + "]" * 900 + "}", "not a report"),
    ],
)
def test_what_is_no_report_is_refused_in_a_sentence(text, says):
    with pytest.raises(UsageError, match=says):
        json.load(text)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("checks",), {}, "another type"),
        (("target",), 7, "another type"),
        (("seed",), "7", "another type"),
        (("calls", "vjp"), 1.5, "another type"),
        (("seconds",), 10**400, "int too large to convert to float) @ $.seconds"),
        (("checks", 0, "verdict"), "maybe", "expected Verdict @ $.checks[0].verdict"),
        (("checks", 0, "verdict"), ["passed"], "expected Verdict @ $.checks[0].verdict"),
        (("checks", 0, "findings", 0), 3, "expected Finding @ $.checks[0].findings[0]"),
        (("checks", 0, "findings", 0, "gap"), 1.0, "(gap) @ $.checks[0].findings[0]"),
        (("checks", 0, "findings", 0, "error"), "big", "float @ $.checks[0].findings[0].error"),
        (("checks", 0, "findings", 0, "error"), "1", "another type"),
        (("checks", 0, "findings", 0, "input"), "x", "@ $.checks[0].findings[0].input"),
        (("checks", 0, "patch", "error"), [[1.0]], "invalid value @ $.checks[0].patch"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(path, value, says):
    document = stdlib_json.loads(json.dump(REPORTS["explained"]))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(UsageError, match=re.escape(says)) as raised:
        json.load(stdlib_json.dumps(document))
    assert "\n" not in str(raised.value)
