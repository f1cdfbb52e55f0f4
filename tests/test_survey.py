"""A survey in this process and in others: every case has one result, whatever becomes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import gradproof
from gradproof import SurveyReport, cli
from gradproof.errors import UsageError
from survey_cases import case_of, dies, interrupts, leaves, raises, right, sine_case, wrong


@pytest.fixture
def processes():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        yield executor


def verdicts(results):
    return {each.name: str(each.report.verdict) for each in results if each.report is not None}


def test_every_case_has_a_result_under_a_name_of_its_own():
    cases = [sine_case(name="sin[1]"), sine_case(), sine_case(wrong), sine_case(name="named")]
    results = list(gradproof.survey(cases))
    assert verdicts(results) == {
        "sin[1]": "passed",
        "sin": "passed",
        "sin[2]": "failed",
        "named": "passed",
    }
    assert {each.report.seed for each in results} == {3}


def test_results_come_as_soon_as_they_are_known():
    called = []

    def noted(x):
        called.append(x)
        return np.sin(x)

    results = gradproof.survey([case_of(noted), case_of(noted)])
    next(results)
    first = len(called)
    next(results)
    assert 0 < first < len(called)


def test_what_a_case_raises_is_its_error_and_the_others_go_on():
    cases = [case_of(raises), case_of(leaves), sine_case(vjpp=right), sine_case()]
    results = {each.name: each for each in gradproof.survey(cases)}
    assert results["raises"].error == "it raised RuntimeError: no such luck"
    assert ", in raises\n" in results["raises"].trace
    assert "gradproof/_" not in results["raises"].trace
    assert results["leaves"].error == "it raised SystemExit: 0"
    assert "vjpp" in results["sin"].error
    assert verdicts(results.values()) == {"sin[1]": "passed"}


def test_an_interrupt_keeps_what_is_known_and_names_the_rest():
    results = list(gradproof.survey([sine_case(), case_of(interrupts), case_of(np.sin)]))
    assert [each.name for each in results] == ["sin", "interrupts", "sin[1]"]
    assert results[0].report
    assert {each.error for each in results[1:]} == {"interrupted before it was finished"}


def test_a_report_of_all_is_printed_and_saved(tmp_path):
    found = SurveyReport(gradproof.survey([sine_case(), sine_case(wrong), case_of(raises)]))
    assert not found
    assert list(found.reports) == ["sin", "sin[1]"]
    assert list(found.errors) == ["raises"]
    text = str(found)
    assert text.startswith("gradproof  sin  FAILED")
    assert text.endswith("1 failed, 1 could not run")
    assert found.save(tmp_path / "all.json").exists()
    assert cli.main(["explain", str(tmp_path / "all.json")]) == 0
    with pytest.raises(UsageError, match=r"path: expected a name that ends in \.html or \.json"):
        found.save("all.txt")
    assert SurveyReport(gradproof.survey([sine_case()]))


@pytest.mark.parametrize(
    ("cases", "says"),
    [
        ([], "cases: expected at least one"),
        (["kernels/"], "cases: expected records gradproof.Case"),
        (sine_case(), "cases: expected several"),
        ([gradproof.Case(np.sin, 1.0, ["order"])], "options: expected a dict"),
    ],
)
def test_what_are_no_cases_is_refused_at_once(cases, says):
    with pytest.raises(UsageError, match=says):
        gradproof.survey(cases)


def test_processes_find_the_same_and_what_cannot_be_sent_is_an_error(processes):
    cases = [sine_case(), sine_case(wrong), case_of(interrupts), case_of(lambda x: x)]
    found = SurveyReport(gradproof.survey(cases, processes))
    assert verdicts(found.results) == {"sin": "passed", "sin[1]": "failed"}
    assert found.errors["interrupts"].startswith("it raised KeyboardInterrupt")
    assert "could not be run: " in found.errors["<lambda>"]
    here = SurveyReport(gradproof.survey(cases[:2]))
    for name, report in here.reports.items():
        other = found.reports[name]
        assert [(c.name, c.verdict, c.summary, c.findings) for c in report.checks] == [
            (c.name, c.verdict, c.summary, c.findings) for c in other.checks
        ]


@pytest.mark.skipif(sys.platform == "win32", reason="a process is killed by a signal")
def test_a_case_that_kills_its_process_is_an_error_and_the_others_go_on(processes):
    cases = [sine_case(name=f"before {k}") for k in range(3)]
    cases += [case_of(dies), *(sine_case(wrong, name=f"after {k}") for k in range(3))]
    found = SurveyReport(gradproof.survey(cases, processes))
    assert len(found.results) == len(cases)
    assert found.errors == {"dies": "its process died"}
    for name, report in found.reports.items():
        assert str(report.verdict) == ("passed" if name.startswith("before") else "failed")


SCRIPT = """
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
import numpy as np
from gradproof import Case, by_hand, survey

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it

def right(x, v):
    return v * np.cos(x)

def sleeps(x):
    time.sleep(60)

if __name__ == "__main__":
    cases = [Case(by_hand(np.sin, vjp=right), np.ones(3))]
    cases += [Case(by_hand(sleeps, vjp=right), np.ones(3)) for _ in range(4)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        for result in survey(cases, executor):
            print(result.name, result.error or result.report.verdict, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the user interrupts by a signal")
def test_an_interrupt_ends_a_survey_in_processes(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # Ctrl-C reaches all processes of a terminal
    )
    with process:
        try:
            assert process.stdout.readline() == "sin passed\n"
            time.sleep(2)  # now it waits for the next result
            os.killpg(process.pid, signal.SIGINT)
            lines = [process.stdout.readline() for _ in range(4)]
            assert time.monotonic() - started < 50  # no case has slept to its end
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert {line.split()[0] for line in lines} == {"sleeps", "sleeps[1]", "sleeps[2]", "sleeps[3]"}
    assert all("interrupted" in line or "KeyboardInterrupt" in line for line in lines)


def test_the_class_of_an_executor_is_none():
    with pytest.raises(UsageError, match=r"executor: expected one with submit\(\), got <class"):
        gradproof.survey([gradproof.Case(np.sin, np.ones(2))], ProcessPoolExecutor)
