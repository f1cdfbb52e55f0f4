"""Explanation runs last: from the evidence of a failure, and never in the way of a verdict."""

from __future__ import annotations

import numpy as np
import pytest

from gradproof._checks import backward, determinism, layout, linearity
from gradproof._data.records import CheckResult, Finding, Place, Verdict
from gradproof._data.settings import CHECK_NAMES
from gradproof._explain import evidence
from gradproof._explain.evidence import explain
from gradproof._judge import found
from gradproof._judge.opinion import Opinion
from gradproof._verdict import low_precision
from gradproof._verdict.conclude import Evidence, Source, Witness, conclude
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
    with pytest.raises(KeyError):
        explain(result)


def test_a_failure_at_a_neighbour_keeps_the_evidence_of_that_point():
    here = Opinion("backward", "told")
    beside = Opinion(
        "backward", "told", (Finding("backward", "wrong"),), evidence=(marker := object())
    )
    witness = Witness("differences", Source.ITSELF, here, beside=(beside,))
    assert conclude(Evidence("backward", (witness,))).evidence is marker


def test_every_class_of_evidence_has_its_explanation():
    classes = {
        value
        for module in (backward, determinism, layout, linearity, low_precision, found)
        for value in vars(module).values()
        if isinstance(value, type) and (value.__doc__ or "").startswith("Evidence")
    }
    assert len(classes) == 6
    assert classes <= set(evidence.explanations())


def finding(kind: str, name: str = "y") -> Finding:
    return Finding("backward", "told", kind, Place("x", 0, (0,)), Place(name, 0, (0,)))


@pytest.mark.parametrize(
    ("kinds", "names", "score"),
    [
        (("entry", "entry"), (), 0.0),
        (("kink", "kink"), ("not differentiable",), 1.0),
        (("kink", "entry", "entry", "entry"), ("not differentiable",), 0.25),
        (("saved", "input"), ("saved overwritten", "input overwritten"), 1.0),
        (("undefined", "undefined tangent"), ("undefined cotangent",), 1.0),
    ],
)
def test_kinds_of_findings_name_their_causes_as_far_as_the_findings_go(kinds, names, score):
    result = CheckResult("any", Verdict.FAILED, "told", tuple(map(finding, kinds)))
    causes = explain(result).causes
    assert tuple(cause.name for cause in causes) == names
    assert all(cause.score == score for cause in causes)


def test_outputs_that_are_detached_are_named():
    findings = (finding("detached", "loss"), finding("detached", "aux"))
    [cause] = explain(CheckResult("any", Verdict.FAILED, "told", findings)).causes
    assert cause.message == "loss, aux has a derivative and claims to have none"


@pytest.mark.parametrize(("slot", "named"), [(0, True), (1, False)])
def test_a_double_backward_that_is_wrong_in_the_inputs_only_lacks_an_intermediate(slot, named):
    place = Place("cotangent", slot, (0,))
    wrong = Finding("second_order", "told", "entry", place)
    left = backward.DoubleBackward(inputs=1, of=None)
    result = CheckResult("second_order", Verdict.FAILED, "told", (wrong,), evidence=left)
    assert [cause.name for cause in explain(result).causes] == ["saved intermediate"] * named
