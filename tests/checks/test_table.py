"""The table of the checks: one row says all that differs from check to check."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import gradproof
from gradproof._checks import check_function
from gradproof._data.checks import LAST, TABLE, Check, row
from gradproof._data.settings import CHECK_NAMES, TRANSFORM_NAMES
from gradproof._render import summary

SOURCE = Path(gradproof.__file__).parent
ROWS = SOURCE / "_data" / "checks.py"


@pytest.mark.parametrize("check", TABLE, ids=lambda check: check.name)
def test_every_row_has_a_function_of_measurements(check: Check) -> None:
    parameters = list(inspect.signature(check_function(check)).parameters)
    assert parameters == ["measurements"]


def test_names_are_those_of_the_rows_each_once():
    assert tuple(check.name for check in TABLE) == CHECK_NAMES
    assert len(set(CHECK_NAMES)) == len(CHECK_NAMES)
    assert set(TRANSFORM_NAMES) < set(CHECK_NAMES)
    assert row("memory_layout") in TABLE
    assert row("no such check") is None


def test_a_rank_is_that_of_one_check():
    ranks = [check.rank for check in TABLE if check.rank != LAST]
    assert len(set(ranks)) == len(ranks)
    assert max(ranks) < LAST


def test_names_that_a_renderer_spells_out_have_rows():
    assert set(summary.ORDERS) <= set(CHECK_NAMES)


@pytest.mark.needs("jax")
def test_names_that_a_face_spells_out_have_rows():
    from gradproof import jax as face

    spelt = {name for names in face._CHECKS.values() for name in names}
    assert spelt <= set(CHECK_NAMES)


# One file and one row: the file is a module made here, the row is added before anything reads it.
ADDED = """
import importlib.util, sys, types
spec = importlib.util.spec_from_file_location("gradproof._data.checks", TABLE)
checks = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(checks)

checks.TABLE += (
    checks.Check(
        name="added",
        run="added.check",
        derivative=True,
        elsewhere=True,
        rank=0,
        option="backward",
        advice="look at what was added",
    ),
)

import numpy as np
import gradproof
from gradproof._data.records import Finding
from gradproof._checks.outcome import failed_check, passed_check

module = types.ModuleType("gradproof._checks.added")
def check(measurements):
    map_ = measurements.map
    if float(map_.vjp(np.ones(map_.codomain.size))[0]) == 1.0 and map_.point[0] == 3.0:
        return passed_check("added", "it is one")
    return failed_check("added", "it is not one", (Finding("added", "it is not", "other"),))
module.check = check
sys.modules["gradproof._checks.added"] = module

def fn(x):
    return 1.0 * x

def vjp(x, v):
    return 1.0 * v

hand = gradproof.by_hand(fn, vjp=vjp)
x = np.array([3.0, 3.0])
"""


def added(program: str) -> list[str]:
    """What a program prints that knows one more check."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"TABLE = {str(ROWS)!r}\n{ADDED}{program}"],
        env={"PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_check_that_is_added_by_a_row_runs_and_is_in_every_list():
    told = added(
        """
report = gradproof.check(hand, [x], seed=0)
print(report["added"].verdict, report.verdict)
print(gradproof.check(hand, [x], seed=0, checks=["added"])["added"].verdict)
wrong = gradproof.check(hand, [2 * x], seed=0, checks=["backward", "added"])
print(wrong["added"].verdict, wrong["backward"].verdict)
print("look at what was added" in str(wrong))
swept = gradproof.check(hand, [x], seed=0, checks=["added"], sweep=True)
print("added" in swept["sweep"].summary)
print("checks=[\\"added\\"]" in swept.repeat)
try:
    gradproof.check(hand, [x], checks=["aded"])
except gradproof.errors.UsageError as error:
    print("added" in str(error))
from gradproof import cli
print("added" in cli.CHECK_NAMES)
"""
    )
    assert told == [
        "passed passed",
        "passed",
        "failed passed",
        "True",
        "True",
        "True",
        "True",
        "True",
    ]


def test_what_a_row_says_of_a_check_is_what_a_report_makes_of_it():
    told = added(
        """
from gradproof._data.records import Cause, CheckResult, Report, Verdict
def made(name, verdict, *causes):
    return CheckResult(name, verdict, "told", causes=tuple(Cause(one, one) for one in causes))
def verdict(*results):
    return Report("f", (), (), results, {}, 0.0, 0).verdict
print(verdict(made("added", Verdict.SKIPPED), made("grad_metadata", Verdict.PASSED)))
print(verdict(made("second_point", Verdict.SKIPPED), made("grad_metadata", Verdict.PASSED)))
"""
    )
    assert told == ["skipped", "passed"]


@pytest.mark.needs("torch")
def test_a_face_that_stops_at_the_first_failure_goes_by_the_rows():
    told = added(
        """
from gradproof._data.records import Finding
from gradproof.torch._judge import Options
from gradproof.torch._messages import findings_in_order
options = Options(1e-6, 1e-5, 1e-3, 0.0, False, False, False, True, False, "warn")
print("added" in options.settings().checks)
findings = [Finding("grad_metadata", ""), Finding("added", "")]
print([one.check for one in findings_in_order(findings)])
"""
    )
    assert told == ["True", "['added', 'grad_metadata']"]
