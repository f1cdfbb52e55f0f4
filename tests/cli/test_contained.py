"""Whatever a case does, it is told as that case's, and the command line goes on."""

from __future__ import annotations

import json as plain
import os
import subprocess
import sys

import pytest

from gradproof import cli
from gradproof._cases.targets import Exited, contained
from gradproof._render import json as codec
from user_files import WRONG_SINE

CASES = (
    """
import multiprocessing, os, subprocess, sys, torch
from gradproof import case
"""
    + WRONG_SINE
    + """
FORKED = []

class Own(BaseException):
    def __str__(self):
        raise ValueError("no text either")

@case(inputs="float64[3]", checks=["backward"])
def wrong(x):
    return Wrong.apply(x)

@case(inputs="float64[3]", checks=["backward"])
def exits(x):
    sys.exit(0)

@case(inputs="float64[3]", checks=["backward"])
def leaves(x):
    os._exit(0)

@case(inputs="float64[3]", checks=["backward"])
def own(x):
    raise Own

@case(inputs="float64[3]", checks=["backward"])
def recurses(x):
    return recurses(x)

@case(inputs="float64[3]", checks=["backward"])
def forks(x):
    if not FORKED:  # once: the other process goes on like this one, and must not fork again
        FORKED.append(os.fork())
        if FORKED[0]:
            os.wait()
    return x.sin()

@case(inputs="float64[3]", checks=["backward"])
def starts(x):
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()
    assert process.exitcode == 0
    return x.sin()

@case(inputs="float64[3]", checks=["backward"])
def prints(x):
    print("printed")
    os.write(1, b"written")
    subprocess.run(["echo", "echoed"])
    return x.sin()

@case(inputs="float64[3]", checks=["backward"])
def moves(x):
    os.chdir("/")
    return x.sin()

@case(inputs="float64[3]", checks=["backward"])
def right(x):
    return x.sin()
"""
)
ERRORS = {
    "exits": "it raised SystemExit: 0",
    "leaves": "it raised Exited: os._exit(0)",
    "own": "it raised Own",
    "recurses": "it raised RecursionError",
}
OTHERS = ["wrong", "forks", "starts", "prints", "moves", "right"]

pytestmark = [
    pytest.mark.needs("torch"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is of POSIX"),
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "ops.py").write_text(CASES)
    return tmp_path


def gradproof(folder, *argv: str) -> subprocess.CompletedProcess[str]:
    """The command line as a process of its own: what counts is its status and its output."""
    source = f"import sys; from gradproof.cli import main; sys.exit(main({list(argv)!r}))"
    command = [sys.executable, "-W", "ignore", "-c", source]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", "2"])
def test_each_case_is_told_for_itself_and_the_others_are_kept(folder, processes):
    found = gradproof(folder, "run", "ops.py", "-j", processes, "--json", "-", "--seed", "3")
    assert found.returncode == 1, found.stderr
    reports = dict(codec.load_many(found.stdout))
    assert list(reports) == [f"ops.py::{name}" for name in OTHERS]
    verdicts = {name: report.verdict.value for name, report in reports.items()}
    assert verdicts.pop("ops.py::wrong") == "failed"
    assert set(verdicts.values()) == {"passed"}
    for name, says in ERRORS.items():
        assert f"ops.py::{name}: {says}" in found.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ERRORS)
def test_a_run_that_could_not_finish_its_only_case_is_never_0(folder, name):
    assert gradproof(folder, "run", f"ops.py::{name}").returncode == 2


@pytest.mark.slow
def test_what_a_function_prints_does_not_land_in_the_json(folder):
    argv = ["check", "ops.py:prints", "float64[3]", "--json", "-", "--checks", "backward"]
    found = gradproof(folder, *argv)
    assert found.returncode == 0, found.stderr
    assert plain.loads(found.stdout)["reports"][0]["report"]["verdict"] == "passed"
    for said in ("printed", "written", "echoed"):
        assert said in found.stderr


@pytest.mark.parametrize("name", ERRORS)
def test_one_function_that_ends_the_process_is_told_in_a_sentence(folder, here, capsys, name):
    assert cli.main(["check", "ops.py:" + name, "float64[3]"]) == 2
    said = capsys.readouterr().err
    assert f"gradproof: ops.py:{name} {ERRORS[name].removeprefix('it ')}" in said


def test_reports_are_written_where_they_were_asked_for(folder, here):
    argv = ["check", "ops.py:moves", "float64[3]", "--checks", "backward", "--json", "new/a.json"]
    assert cli.main(argv) == 0
    assert (here / "new" / "a.json").is_file()
    assert os.getcwd() == str(here)


def _ends() -> None:
    with contained():
        os.chdir("/")
        os._exit(3)


def test_everything_is_put_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = os._exit, sys.stdout
    with pytest.raises(Exited, match=r"os\._exit\(3\)"):
        _ends()
    assert (os._exit, sys.stdout) == before
    assert os.getcwd() == str(tmp_path)
