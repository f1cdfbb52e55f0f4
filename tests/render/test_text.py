"""The text of a report, compared with golden files."""

from __future__ import annotations

import dataclasses
import math
import shlex
from pathlib import Path

import pytest

from example_reports import REPORTS, entry, report
from gradproof import Cause, CheckResult, Finding, Report, Verdict

GOLDEN = Path(__file__).parent / "golden"


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


def test_a_pass_says_to_what_it_is_verified_unless_that_is_unknown():
    assert "passed, verified to 3e-11 " in str(REPORTS["all_passed"]).splitlines()[0]
    assert "verified" not in str(REPORTS["few_bits_in_many_arrays"]).splitlines()[0]


def test_reasons_that_do_not_fit_are_in_the_details():
    skipped = [CheckResult(f"check {k}", Verdict.SKIPPED, f"reason {k}") for k in range(9)]
    asked = report(*REPORTS["all_passed"].checks, *skipped)
    *_, last = str(asked).splitlines()
    assert "report.details()" in last
    assert all(f"check {k}: reason {k}" in asked.details() for k in range(9))


@pytest.mark.parametrize("name", REPORTS)
def test_lines_fit_80_columns_unless_a_name_is_longer(name):
    for line in str(REPORTS[name]).splitlines():
        longest = max(map(len, line.split()), default=0)
        assert len(line) <= 80 or longest > 50
        assert line == line.rstrip()


@pytest.mark.parametrize("name", REPORTS)
def test_a_failure_takes_at_most_25_lines(name):
    lines = str(REPORTS[name]).splitlines()
    assert len(lines) <= 25 or REPORTS[name]


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
    assert "  batched              FAILED  a batch differs from the loop" in shown
    assert "check 5, check 6, check 7" in shown.split("  FAILED   ")[-1]
    assert "cause   every entry" in shown


def test_a_line_for_a_shell_is_the_same_when_it_is_copied_wrapped():
    _, shown = str(REPORTS["repeated_in_a_shell"]).split("repeat")
    assert shlex.split(shown.replace("\\\n", " ")) == shlex.split(
        REPORTS["repeated_in_a_shell"].repeat
    )


def test_an_empty_report_renders():
    assert "skipped" in str(report(target=""))


def test_the_digits_shown_reveal_the_gap():
    for gap in (1e-3, 1e-7, 1e-10, 1e-13):
        result = CheckResult(
            "backward", Verdict.FAILED, "", findings=(entry(0, 0, 1.0 + gap, 1.0, math.nan),)
        )
        shown = str(report(result))
        claimed, measured = (
            float(line.split()[1])
            for line in shown.splitlines()
            if line.split()[:1] in (["claimed"], ["measured"])
        )
        assert claimed - measured == pytest.approx(gap, rel=0.05)


def test_a_name_with_line_breaks_stays_on_one_line():
    assert "gradproof  a b  " in str(report(target="a\n b"))


def test_a_failure_in_full_is_what_is_printed_where_that_fits():
    shown, whole = str(REPORTS["one_failure"]), REPORTS["one_failure"].details()
    assert whole.partition("  skipped")[0] == shown.partition("  skipped")[0]
    assert "forward: no jvp rule" in whole
    cut, full = str(REPORTS["explained"]), REPORTS["explained"].details()
    assert len(full.splitlines()) > 25 >= len(cut.splitlines())


def _failing(name="backward", where="", *others):
    failed = CheckResult(name, Verdict.FAILED, "wrong", (entry(0, 0, 1.0, 2.0),), where=where)
    return str(report(failed, *others))


@pytest.mark.parametrize(
    ("name", "where", "others", "words"),
    [
        ("backward", "", (), "compare the formula with the function, term by term"),
        ("backward", "", ("forward",), "forward mode is right here: compare the two formulas"),
        ("forward", "x[2]", ("backward",), "backward mode is right here"),
        ("linearity", "", (), "call the backward twice by hand"),
        ("third_order", "", (), "differentiate the backward's formula"),
    ],
)
def test_a_failure_without_a_cause_says_what_to_try(name, where, others, words):
    passed = [CheckResult(other, Verdict.PASSED, "fine") for other in others]
    shown = " ".join(_failing(name, where, *passed).split())
    assert "try " in shown
    assert words in shown


def test_both_modes_wrong_point_at_what_they_share():
    other = CheckResult("forward", Verdict.FAILED, "wrong", (entry(0, 0, 1.0, 2.0),))
    assert "both modes are wrong" in _failing("backward", "", other)


def test_what_raised_is_to_be_called_by_hand():
    raised = Finding("backward", "ValueError: no", "raised")
    failed = CheckResult("backward", Verdict.FAILED, "it raised ValueError: no", (raised,))
    shown = " ".join(str(report(failed)).split())
    assert "call it by hand, with the same inputs: the traceback names the line" in shown
    assert "term by term" not in shown


def test_a_failure_with_a_cause_has_the_advice_of_that_alone():
    assert str(REPORTS["explained"]).count("    try     ") == 1
    assert "    try     " not in str(REPORTS["passed"])


def test_what_raised_has_advice_also_where_another_check_names_a_cause():
    raised = Finding("backward", "ValueError: no, in backward (ops.py:7)", "raised")
    first = CheckResult("backward", Verdict.FAILED, "it raised ValueError: no", (raised,))
    cause = Cause("undefined cotangent", "a cotangent that is None is not taken for zero")
    other = CheckResult(
        "missing_grad_output", Verdict.FAILED, "it raised ValueError: no", causes=(cause,)
    )
    assert "call it by hand" in " ".join(str(report(first, other)).split())


def test_what_was_allowed_is_not_cut_off_where_one_check_alone_is_shown():
    """Of many checks that fail nothing but the first is shown, and that in full."""
    sentence = (
        f"gradient of x[0]: {'two parts of a cotangent against the whole ' * 3}allowed 5.6e+04"
    )
    finding = Finding("linearity", sentence, "linearity")
    names = (
        "linearity",
        "memory_layout",
        "missing_grad_output",
        "second_point",
        "determinism",
        "batched",
        "grad_metadata",
    )
    failed = [CheckResult(name, Verdict.FAILED, "not", (finding,) * 4) for name in names]
    long = dataclasses.replace(
        report(*failed), inputs=tuple(f"x{k}: float64[2, 3]" for k in range(40))
    )
    assert "allowed 5.6e+04" in " ".join(str(long).split())


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
    shown = " ".join(str(report(failed)).split())
    assert shown.count(said) == 1
    assert "try keep it with the call itself" in shown
