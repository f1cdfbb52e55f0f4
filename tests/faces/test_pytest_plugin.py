"""The pytest plugin, in runs of pytest of its own.

They replace `gradproof.check` by one that returns the verdict it is asked for, so that no framework
is loaded; the example of docs/pytest.md checks real derivatives.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import gradproof
from gradproof import pytest_plugin

CONFTEST = """
import gradproof
from gradproof import CheckResult, Report, Verdict

def check(fn, inputs, kwargs=None, *, seed=None, order=1, budget=None):
    fn(*inputs)
    word = f"order {order}, budget {budget}, kwargs {kwargs}"
    result = CheckResult("backward", Verdict(inputs[0]), word, resolution=inputs[1])
    return Report(fn.__name__, ("x",), ("y",), (result,), {}, 0.0, 5 if seed is None else seed)

gradproof.check = check
"""

VERDICTS = """
def op(verdict, bar):
    pass

def test_right(check_derivatives):
    report = check_derivatives(op, ("passed", 2e-9))
    assert str(report.verdict) == "passed"
    assert report.repeat == f"pytest test_it.py::test_right --gradproof-seed={report.seed}"
    check_derivatives(op, ("passed", 1e-12))

def test_wrong(check_derivatives):
    check_derivatives(op, ("failed", 1.0))

def test_undecided(check_derivatives):
    check_derivatives(op, ("inconclusive", 1.0))
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs pytest on a test file, in a process of its own where asked to; returns its result."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setattr(gradproof, "check", gradproof.check)  # and takes back what conftest does

    def run(source: str, *options: str, ini: str = "", apart: bool = False) -> pytest.RunResult:
        pytester.makeconftest(CONFTEST)
        pytester.makepyfile(test_it=source)
        pytester.makeini(f"[pytest]\n{ini}\n")
        start = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
        return start("-p", "no:cacheprovider", "-p", "no:hypothesispytest", *options)

    return run


def reports_in(file: Path) -> list[tuple[str, dict]]:
    """The names and reports of a file."""
    document = json.loads(file.read_text(encoding="utf-8"))
    return [(row["name"], row["report"]) for row in document["reports"]]


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_verdicts_are_shown_counted_and_written(run, pytester, workers):
    file = pytester.path / "made" / "report.json"
    result = run(VERDICTS, *workers, f"--gradproof-report={file}", "--gradproof-seed=7", apart=True)
    assert result.ret == 1
    outcomes = result.parseoutcomes()
    assert [outcomes[word] for word in ("passed", "failed", "inconclusive")] == [1, 1, 1]
    result.stdout.fnmatch_lines(
        [
            "*DerivativeWarning: inconclusive: op: backward: order 1*",
            "gradproof: 2 derivatives verified to 2e-09, 1 failed, 1 inconclusive",
            "FAILED test_it.py::test_wrong - op: backward: order 1*",
        ]
    )
    reports = reports_in(file)
    assert [(name, report["verdict"]) for name, report in reports] == [
        ("test_it.py::test_right", "passed"),
        ("test_it.py::test_right #2", "passed"),
        ("test_it.py::test_undecided", "inconclusive"),
        ("test_it.py::test_wrong", "failed"),
    ]
    assert {report["seed"] for _, report in reports} == {7}


def test_a_failure_shows_the_test_and_our_text_and_none_of_our_frames(run):
    result = run(VERDICTS, "-k", "wrong")
    result.stdout.fnmatch_lines(
        [
            ">       check_derivatives(op, (*",
            "E       gradproof.DerivativeError: gradproof  op  FAILED*",
        ]
    )
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


@pytest.mark.parametrize(("way", "word"), [("error", "failed"), ("ignore", "passed")])
def test_what_inconclusive_does_to_a_test_is_the_users_choice(run, way, word):
    result = run(VERDICTS, "-k", "undecided", ini=f"gradproof_inconclusive = {way}")
    assert result.parseoutcomes() == {word: 1, "deselected": 2}
    result.stdout.fnmatch_lines(["gradproof: 0 derivatives verified, 1 inconclusive"])
    if way == "error":
        result.stdout.fnmatch_lines(["FAILED test_it.py::test_undecided - inconclusive: op: *"])


WAYS = """
import gradproof, pytest

def op(verdict, bar):
    pass

def undecided(check_derivatives, **options):
    check_derivatives(op, ("inconclusive", 1.0), **options)

def test_call(check_derivatives):
    undecided(check_derivatives, inconclusive="error")

@pytest.mark.gradproof(inconclusive="ignore")
def test_mark(check_derivatives):
    undecided(check_derivatives)

@pytest.mark.gradproof(inconclusive="ignore")
def test_nearest(check_derivatives):
    undecided(check_derivatives, inconclusive="warn")

def test_assert():
    gradproof.assert_derivatives(op, ("inconclusive", 1.0))

def test_word(check_derivatives):
    undecided(check_derivatives, inconclusive="maybe")

def test_skipped(check_derivatives):
    check_derivatives(op, ("skipped", 1.0))
"""


def test_what_inconclusive_does_is_said_by_the_call_the_mark_and_the_ini_option(run):
    result = run(WAYS, "-rA", "-W", "ignore")
    words = {"passed": 1, "inconclusive": 2, "failed": 3}
    assert {word: result.parseoutcomes()[word] for word in words} == words
    result.stdout.fnmatch_lines_random(
        [
            "PASSED test_it.py::test_mark",
            "FAILED test_it.py::test_call - inconclusive: op: backward: *",
            "FAILED test_it.py::test_word - *UsageError: inconclusive: exp*",
            "FAILED test_it.py::test_skipped - *UsageError: checks: nothin*",
        ]
    )
    result = run(WAYS, "-rA", "-k", "assert", ini="gradproof_inconclusive = error")
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_assert - inconclusive: op: backward: *"])


MARKS = """
import pytest

pytestmark = pytest.mark.gradproof(order=2, budget=10)

def op(verdict, bar):
    pass

def summary(report):
    return report["backward"].summary

@pytest.mark.gradproof(order=3)
class TestOp:
    def test_class(self, check_derivatives):
        report = check_derivatives(op, ("passed", 1e-9))
        assert summary(report) == "order 3, budget 10, kwargs None"

    @pytest.mark.gradproof(order=4)
    def test_function(self, check_derivatives):
        report = check_derivatives(op, ("passed", 1e-9), {"a": 1})
        assert summary(report) == "order 4, budget 10, kwargs {'a': 1}"
        report = check_derivatives(op, ("passed", 1e-9), order=5, budget=6)
        assert summary(report) == "order 5, budget 6, kwargs None"

def test_module(check_derivatives):
    assert summary(check_derivatives(op, ("passed", 1e-9))) == "order 2, budget 10, kwargs None"

@pytest.mark.gradproof(rtoll=1)
def test_misspelt(check_derivatives):
    check_derivatives(op, ("passed", 1e-9))

@pytest.mark.gradproof(3)
def test_nameless(check_derivatives):
    check_derivatives(op, ("passed", 1e-9))

def breaks(*arguments):
    raise RuntimeError("no such luck")

def test_breaks(check_derivatives):
    check_derivatives(breaks, ("passed", 1e-9))
"""


def test_marks_give_defaults_the_nearest_first_and_errors_are_the_users(run):
    result = run(MARKS, "--strict-markers")
    assert result.parseoutcomes() == {"passed": 3, "failed": 3}
    result.stdout.fnmatch_lines(
        [
            "E*TypeError: check() got an unexpected keyword argument 'rtoll'*",
            "E*UsageError: pytest.mark.gradproof: options have names, got 3",
            ">       check_derivatives(breaks, *",
            ">       raise RuntimeError(*",
            "E       RuntimeError: no such luck",
        ]
    )
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")
    result.stdout.no_fnmatch_line("*conftest.py*: RuntimeError")


@pytest.mark.parametrize(
    ("options", "ini", "says"),
    [
        (["--gradproof-report=x.txt"], "", "*expected a name that ends in .html or .json*"),
        (["--gradproof-seed=-1"], "", "*--gradproof-seed: expected 0 <= seed*, got -1*"),
        (
            [],
            "gradproof_inconclusive = maybe",
            "*expected one of warn, error, ignore, got 'maybe'*",
        ),
    ],
)
def test_options_that_mean_nothing_end_the_run_before_it_starts(run, options, ini, says):
    result = run(VERDICTS, *options, ini=ini)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([says])


def test_pytest_works_without_the_plugin(run):
    result = run("def test_nothing(): pass", "-p", "no:gradproof", apart=True)
    assert result.parseoutcomes() == {"passed": 1}


def test_a_run_that_checks_nothing_is_not_mentioned_and_loads_nothing(run):
    source = """
import sys

def test_nothing():
    assert not {"numpy", "torch", "jax", "rich"} & set(sys.modules)
"""
    # Jaxtyping, which comes with Equinox, has a plugin that loads NumPy.
    result = run(source, "-p", "no:jaxtyping", apart=True)
    assert result.parseoutcomes() == {"passed": 1}
    result.stdout.no_fnmatch_line("gradproof: *")


@pytest.mark.parametrize("option", ["--collect-only", "--fixtures"])
def test_a_run_without_tests_leaves_the_report_of_the_last_one(run, pytester, option):
    file = pytester.path / "report.json"
    file.write_text("kept", encoding="utf-8")
    run(VERDICTS, f"--gradproof-report={file}", option)
    assert file.read_text(encoding="utf-8") == "kept"


@pytest.mark.needs("jinja2")
def test_the_report_may_be_a_page(run, pytester):
    run(VERDICTS, "--gradproof-report=report.html")
    page = (pytester.path / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "test_it.py::test_right #2" in page


@pytest.mark.slow
def test_what_a_crashed_worker_had_finished_is_kept(run, pytester):
    file = pytester.path / "report.json"
    source = VERDICTS + "\n\ndef test_zz_crash():\n    import os\n    os._exit(3)\n"
    result = run(
        source, "-n", "1", f"--gradproof-report={file}", "--max-worker-restart=0", apart=True
    )
    assert result.ret != 0
    verdicts = {report["verdict"] for _, report in reports_in(file)}
    assert verdicts == {"passed", "failed", "inconclusive"}


# docs/pytest.md: what it shows is what happens.

PAGE = (Path(__file__).parents[2] / "docs" / "pytest.md").read_text(encoding="utf-8")


def block(before: str) -> str:
    """The block behind a comment."""
    return PAGE.split(f"<!-- {before} -->\n")[1].split("\n", 1)[1].split("```")[0]


@pytest.mark.needs("torch")
def test_the_example_runs_and_fails_as_shown(pytester, monkeypatch):
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(test_ops=block("test_ops.py"))
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "test_ops.py")
    assert result.parseoutcomes() == {"passed": 1, "failed": 1}
    shown = [line for line in block("$ pytest test_ops.py").splitlines() if line != "..."]
    result.stdout.fnmatch_lines([line.replace("[", "[[]") for line in shown])


def test_every_way_of_the_ini_option_is_listed_and_its_example_is_one():
    table = PAGE.split("## Inconclusive checks")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == pytest_plugin.WAYS
    [example] = re.findall(r'^gradproof_inconclusive = "(\w+)"$', PAGE, re.MULTILINE)
    assert example in pytest_plugin.WAYS


@pytest.mark.parametrize("option", ["report", "seed", "gradcheck"])
def test_the_options_of_the_page_exist(option, pytestconfig):
    assert f"--gradproof-{option}" in PAGE
    assert pytestconfig.getoption(f"--gradproof-{option}", default="missing") != "missing"
