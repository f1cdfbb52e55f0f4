"""What a report that decides nothing says to try, and what summaries of many say."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from example_reports import BACKWARD_PASSED, report
from gradproof import CaseResult, Cause, CheckResult, SurveyReport, Verdict


@pytest.mark.parametrize(
    ("why", "words"),
    [
        ("nothing was tested: claimed and measured are both zero", "where the function varies"),
        ("3 outputs of 3 could not be resolved", "where the function is smooth"),
        ("honest rounding is as large as the derivative itself (x)", "a format of more bits"),
        ("something that no rule knows", "another seed and another point"),
    ],
)
def test_a_check_that_is_open_says_what_to_try_once(why, words):
    checks = [CheckResult(name, Verdict.INCONCLUSIVE, why) for name in ("backward", "forward")]
    shown = " ".join(str(report(*checks)).split())
    assert shown.count(words) == 1


def test_a_spent_budget_says_what_to_raise_in_its_summary_alone():
    why = "the budget of 3 calls is spent; raise budget="
    assert " try " not in str(report(CheckResult("backward", Verdict.INCONCLUSIVE, why)))


def test_no_general_advice_stands_beside_a_cause_that_another_check_names():
    first = CheckResult("forward", Verdict.FAILED, "30 of 36 entries wrong")
    cause = Cause("tangent ignored", "the same for every tangent", advice="multiply by it")
    other = CheckResult("linearity", Verdict.FAILED, "not linear", causes=(cause,))
    shown = str(report(first, other))
    assert shown.count(" try ") == 1
    assert "multiply by it" in shown


def summary_of(*bars: float) -> str:
    """The last line about many derivatives that are verified to these bars."""
    passed = [report(replace(BACKWARD_PASSED, resolution=bar)) for bar in bars]
    results = [CaseResult(f"case {k}", each) for k, each in enumerate(passed)]
    return str(SurveyReport(results)).splitlines()[-1]


def test_a_line_of_many_is_not_set_by_the_coarsest_alone():
    assert summary_of(*[1e-9] * 10).endswith("verified to 1e-09")
    line = summary_of(*[1e-9] * 10, 2e-2)
    assert line == "11 derivatives verified to 1e-09, the coarsest to 2e-02"
    assert summary_of(math.nan) == "1 derivative verified"


@pytest.mark.parametrize(
    "words",
    ["::error::stolen", "no\n::set-output name=a::b", "no\n  ::add-mask::x", "##[error]no"],
)
def test_commands_of_github_actions_are_broken(words):
    shown = report(CheckResult("backward", Verdict.FAILED, words, notes=(words,)), target=words)
    for form in (str(shown), shown.details()):
        for line in form.splitlines():
            assert not line.lstrip().startswith(("::", "##["))


@pytest.mark.parametrize("words", ["x[::2]", "mylib::op", "a :: b", "std::vector<int> ::swap"])
def test_other_colons_stay(words):
    assert words in str(report(CheckResult("backward", Verdict.FAILED, words)))
