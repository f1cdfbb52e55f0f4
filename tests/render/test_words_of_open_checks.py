"""What a report that decides nothing says to try, and what summaries of many say."""

from __future__ import annotations

import math

import pytest

from example_reports import report
from gradproof import Cause, CheckResult, Verdict
from gradproof._data.visible import escape_invisible
from gradproof._render import summary, text


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
    shown = " ".join(text.render(report(*checks)).split())
    assert shown.count(words) == 1


def test_a_spent_budget_says_what_to_raise_in_its_summary_alone():
    why = "the budget of 3 calls is spent; raise budget="
    assert " try " not in text.render(report(CheckResult("backward", Verdict.INCONCLUSIVE, why)))


def test_no_general_advice_stands_beside_a_cause_that_another_check_names():
    first = CheckResult("forward", Verdict.FAILED, "30 of 36 entries wrong")
    cause = Cause("tangent ignored", "the same for every tangent", advice="multiply by it")
    other = CheckResult("linearity", Verdict.FAILED, "not linear", causes=(cause,))
    shown = text.render(report(first, other))
    assert shown.count(" try ") == 1
    assert "multiply by it" in shown


def test_a_line_of_many_is_not_set_by_the_coarsest_alone():
    bars = [1e-9] * 10
    assert summary.tally([(Verdict.PASSED, bar) for bar in bars]).endswith("verified to 1e-09")
    line = summary.tally([(Verdict.PASSED, bar) for bar in (*bars, 2e-2)])
    assert line == "11 derivatives verified to 1e-09, the coarsest to 2e-02"
    assert summary.tally([(Verdict.PASSED, math.nan)]) == "1 derivative verified"


@pytest.mark.parametrize(
    "text_",
    ["::error::stolen", "no\n::set-output name=a::b", "no\n  ::add-mask::x", "##[error]no"],
)
def test_commands_of_github_actions_are_broken(text_):
    for line in escape_invisible(text_).splitlines():
        assert not line.lstrip().startswith(("::", "##["))


@pytest.mark.parametrize("text_", ["x[::2]", "mylib::op", "a :: b", "std::vector<int> ::swap"])
def test_other_colons_stay(text_):
    assert escape_invisible(text_) == text_
