"""Explanation runs last: from the evidence of a failure, and never in the way of a verdict."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gradproof._data.records import CheckResult, Verdict
from gradproof._data.settings import CHECK_NAMES
from gradproof._explain.evidence import explain
from gradproof._verdict import other_points
from numpy_map import FunctionMap, Linear, report_of

POINT = np.linspace(0.2, 1.4, 6)


def wrong_sine() -> FunctionMap:
    return FunctionMap(np.sin, POINT, Linear.diagonal(2 * np.cos(POINT)))


def test_no_result_of_a_report_holds_evidence():
    report = report_of(wrong_sine(), *CHECK_NAMES)
    assert [result.name for result in report.checks if result.causes]
    assert all(result.evidence is None for result in report.checks)


@pytest.mark.parametrize("verdict", [each for each in Verdict if each is not Verdict.FAILED])
def test_only_a_failure_is_explained(verdict):
    result = CheckResult("backward", verdict, "told", evidence=object())
    assert explain(result) == CheckResult("backward", verdict, "told")
    assert explain(result).evidence is None


def test_evidence_that_nobody_explains_is_a_mistake_of_ours():
    result = CheckResult("backward", Verdict.FAILED, "told", evidence=object())
    with pytest.raises(TypeError, match="no explanation is registered for object"):
        explain(result)


def test_a_failure_at_a_neighbour_keeps_the_evidence_of_that_point():
    beside = CheckResult("backward", Verdict.FAILED, "told", evidence=(marker := object()))
    here = dataclasses.replace(beside, verdict=Verdict.PASSED, evidence=None)
    assert other_points._refuted(here, beside).evidence is marker
