"""The text of a report, compared with golden files."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import pytest

from example_reports import BACKWARD_FAILED, BACKWARD_PASSED, REPORTS, entry, report
from gradproof import CaseResult, Cause, CheckResult, Finding, Report, SurveyReport, Verdict

GOLDEN = Path(__file__).parent / "golden"


def one_line(*checks: CheckResult, **changes) -> str:
    """The text of a report with these checks, its white space folded."""
    return " ".join(str(report(*checks, **changes)).split())


# Whole reports: what one form shows that no other does.
TEXTS = [
    *((name, str) for name in ("all_passed", "many_inputs", "one_failure", "explained")),
    *((name, str) for name in ("many_findings", "not_a_number", "few_bits_wrong")),
    *((name, str) for name in ("inconclusive", "repeated_in_a_shell")),
    *((name, Report.details) for name in ("all_passed", "kinks", "few_bits_in_many_arrays")),
]


@pytest.mark.parametrize(("name", "form"), TEXTS)
def test_text_is_the_golden_file(name, form, request):
    file = golden_file(name, form)
    rendered = form(REPORTS[name]) + "\n"
    if request.config.getoption("--update-golden"):
        file.write_text(rendered, encoding="utf-8")
    assert rendered == file.read_text(encoding="utf-8")


def golden_file(name, form):
    return GOLDEN / f"{name}{'-details' if form is Report.details else ''}.txt"


def test_no_golden_file_is_left_over():
    assert set(GOLDEN.iterdir()) == {golden_file(name, form) for name, form in TEXTS}


@pytest.mark.parametrize(
    "name", [name for name, each in REPORTS.items() if each.verdict == "passed"]
)
@pytest.mark.parametrize("extra", [0, 1, 40])
def test_a_pass_takes_at_most_8_lines_and_says_what_passed_and_what_did_not(name, extra):
    more = [
        CheckResult(f"check_{k}", Verdict(word), f"for reason {k}", notes=(f"remark {k}",))
        for k in range(extra)
        for word in ("passed", "skipped")
    ]
    asked = dataclasses.replace(REPORTS[name], checks=(*REPORTS[name].checks, *more))
    shown = str(asked).splitlines()
    assert len(shown) <= 8
    labels = {line[:11].strip() for line in shown[1:]} - {""}
    assert {"inputs", "outputs", "passed"} <= labels
    assert ("skipped" in labels) == any(each.verdict == "skipped" for each in asked)
    assert ("note:" in str(asked)) == bool(asked.notes)


def test_reasons_that_do_not_fit_are_in_the_details():
    skipped = [CheckResult(f"check {k}", Verdict.SKIPPED, f"reason {k}") for k in range(9)]
    asked = report(*REPORTS["all_passed"].checks, *skipped)
    *_, last = str(asked).splitlines()
    assert "report.details()" in last
    assert all(f"check {k}: reason {k}" in asked.details() for k in range(9))


@pytest.mark.parametrize("name", REPORTS)
def test_lines_fit_80_columns_unless_a_name_is_longer_and_a_failure_takes_25_at_most(name):
    lines = str(REPORTS[name]).splitlines()
    assert len(lines) <= 25 or REPORTS[name]
    for line in lines:
        is_for_a_shell = line.startswith("  repeat")
        assert len(line) <= 80 or max(map(len, line.split())) > 50 or is_for_a_shell
        assert line == line.rstrip()


def test_a_name_that_is_longer_than_a_line_is_shown_whole():
    name = "encoder" + 10 * ".layer" + ".weight"
    assert name in str(report(*REPORTS["passed"].checks, inputs=(f"{name}: float64[3]",) * 2))


def test_a_failure_that_several_checks_see_takes_at_most_25_lines():
    everything = REPORTS["explained"].checks
    long = f"{'a batch differs from the loop, as ' * 4}it should not"
    checks = [
        dataclasses.replace(everything[0], name=f"check {k}", summary=long, causes=())
        for k in range(8)
    ]
    shown = str(report(*everything, *checks, repeat="pytest test_it.py::test_layer_norm"))
    assert len(shown.splitlines()) <= 25
    assert max(map(len, shown.splitlines())) <= 80
    assert "check 0, check 1," in shown.split("  FAILED   ")[-1]
    assert "cause   every entry" in shown


def test_a_line_for_a_shell_can_be_copied():
    shown = str(REPORTS["repeated_in_a_shell"]).splitlines()[-1]
    assert shown.split(maxsplit=1) == ["repeat", REPORTS["repeated_in_a_shell"].repeat]


def test_the_digits_shown_reveal_the_gap():
    for gap in (1e-3, 1e-7, 1e-10, 1e-13):
        found = entry(0, 0, 1.0 + gap, 1.0, math.nan)
        shown = one_line(CheckResult("backward", Verdict.FAILED, "", findings=(found,)))
        claimed, measured = map(float, re.search(r"claimed (\S+) .*measured (\S+)", shown).groups())
        assert claimed - measured == pytest.approx(gap, rel=0.05)


def test_a_name_with_line_breaks_stays_on_one_line():
    assert "gradproof  a b  " in str(report(target="a\n b"))


def test_a_failure_in_full_is_what_is_printed_where_that_fits():
    shown, whole = str(REPORTS["one_failure"]), REPORTS["one_failure"].details()
    assert whole.partition("  skipped")[0] == shown.partition("  skipped")[0]
    assert "forward: no jvp rule" in whole
    cut, full = str(REPORTS["explained"]), REPORTS["explained"].details()
    assert len(full.splitlines()) > 25 >= len(cut.splitlines())


@pytest.mark.parametrize(
    ("name", "others", "words"),
    [
        ("backward", {}, "compare the formula with the function, term by term"),
        ("backward", {"forward": "passed"}, "forward mode is right here: compare the two formulas"),
        ("backward", {"forward": "failed"}, "both modes are wrong"),
        ("forward", {"backward": "passed"}, "backward mode is right here"),
        ("linearity", {}, "call the backward, or the JVP, twice by hand"),
        ("third_order", {}, "differentiate the backward's formula"),
    ],
)
def test_a_failure_without_a_cause_says_what_to_try(name, others, words):
    checks = [
        CheckResult(each, Verdict(verdict), "wrong", (entry(0, 0, 1.0, 2.0),))
        for each, verdict in {name: "failed", **others}.items()
    ]
    shown = one_line(*checks)
    assert "try " in shown
    assert words in shown


@pytest.mark.parametrize("causes", [(), (Cause("undefined cotangent", "None is not zero"),)])
def test_what_raised_is_to_be_called_by_hand_whatever_cause_another_check_names(causes):
    said = "it raised ValueError: no"
    raised = Finding("backward", "ValueError: no, in backward (ops.py:7)", "raised")
    first = CheckResult("backward", Verdict.FAILED, said, (raised,))
    other = CheckResult("missing_grad_output", Verdict.FAILED, said, causes=causes)
    shown = one_line(first, other)
    assert "call it by hand, with the same inputs: the traceback names the line" in shown
    assert "term by term" not in shown


def test_what_was_allowed_is_not_cut_off_where_one_check_alone_is_shown():
    """Of many checks that fail nothing but the first is shown, and that in full."""
    sentence = f"x[0]: {'two parts of a cotangent against the whole ' * 3}allowed 5.6e+04"
    finding = Finding("linearity", sentence, "linearity")
    names = ["linearity", *(f"check {k}" for k in range(6))]
    failed = [CheckResult(name, Verdict.FAILED, "not", (finding,) * 4) for name in names]
    inputs = tuple(f"x{k}: float64[2, 3]" for k in range(40))
    assert "allowed 5.6e+04" in one_line(*failed, inputs=inputs)


def test_the_place_of_a_single_entry_is_reported_once():
    found = entry(0, 1, 1.0, 2.0)
    for where in (f"{found.input}", f"{found.output} with respect to {found.input}"):
        failed = CheckResult("backward", Verdict.FAILED, "wrong", (found,), where=where)
        assert "    where " not in str(report(failed))
        assert "    where " in str(report(dataclasses.replace(failed, findings=(found,) * 2)))


def test_a_cause_that_is_the_summary_is_not_reported_twice():
    said = "the backward reads what the last call left, not its own"
    cause = Cause("last call", said, advice="keep it with the call itself")
    failed = CheckResult("second_point", Verdict.FAILED, said, causes=(cause,))
    shown = one_line(failed)
    assert shown.count(said) == 1
    assert "try keep it with the call itself" in shown


# What a report that decides nothing says to try, and what summaries of many say.


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
    shown = one_line(*checks)
    assert shown.count(words) == 1


def test_a_spent_budget_says_what_to_raise_in_its_summary_alone():
    why = "the budget of 3 calls is spent; raise budget="
    assert " try " not in str(report(CheckResult("backward", Verdict.INCONCLUSIVE, why)))


def test_no_general_advice_stands_beside_a_cause_that_another_check_names():
    cause = Cause("tangent ignored", "the same for every tangent", advice="multiply by it")
    other = CheckResult("linearity", Verdict.FAILED, "not linear", causes=(cause,))
    shown = one_line(BACKWARD_FAILED, other)
    assert shown.count(" try ") == 1
    assert "multiply by it" in shown


def summary_of(*bars: float) -> str:
    """The last line about many derivatives that are verified to these bars."""
    passed = [report(dataclasses.replace(BACKWARD_PASSED, resolution=bar)) for bar in bars]
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
