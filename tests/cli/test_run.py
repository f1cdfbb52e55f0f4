"""`gradproof run`: every function that says @gradproof.case."""

from __future__ import annotations

import json as plain
import sys

import pytest
import torch

from gradproof import Verdict, cli
from gradproof._render import json as codec
from gradproof._survey import pieces
from user_files import WRONG_SINE

OPS = (
    """
import torch
from gradproof import case
"""
    + WRONG_SINE
    + """
@case(inputs="float64[3]", checks=["backward"])
def wrong(x):
    return Wrong.apply(x)

@case(inputs=("float64[3]", "float64[2,3]"), checks=["backward"])
@case(inputs=("float64[3]", "float64[3]"), checks=["backward"])
def right(x, y):
    return x * y

@case(inputs="float64[3]", checks=["backward"], budget=1)
def undecided(x):
    return x.tanh()
"""
)
NAMES = ["wrong", "right", "right[1]", "undecided"]


@pytest.fixture
def folder(here):
    """An empty working directory; what is imported in it is forgotten."""
    return here


@pytest.fixture
def ops(folder):
    (folder / "ops.py").write_text(OPS)
    return "ops.py"


def reports(text: str) -> dict[str, object]:
    return dict(codec.load_many(text))


def test_every_case_is_checked_and_the_refuted_ones_are_explained(ops, capsys, folder):
    assert cli.main(["run", ops, "--json", "all.json", "--seed", "3"]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert "claimed" in out
    assert "FAILED" in out
    assert "2 derivatives verified to" in out
    assert "1 failed, 1 inconclusive" in out
    found = reports((folder / "all.json").read_text(encoding="utf-8"))
    assert list(found) == [f"ops.py::{name}" for name in NAMES]
    assert {report.seed for report in found.values()} == {3}
    assert found["ops.py::right[1]"].repeat == "gradproof run 'ops.py::right[1]' --seed 3"
    assert "budget of 1 calls" in found["ops.py::undecided"]["backward"].summary


@pytest.mark.parametrize(
    ("named", "status", "names"),
    [
        ("ops.py::right", 0, ["right", "right[1]"]),
        ("ops.py::right[1]", 0, ["right[1]"]),
        ("ops.py::undecided", 3, ["undecided"]),
        ("ops.py::wrong", 1, ["wrong"]),
    ],
)
def test_one_function_can_be_named(ops, capsys, named, status, names):
    assert cli.main(["run", named, "--json", "-"]) == status
    assert list(reports(capsys.readouterr().out)) == [f"ops.py::{name}" for name in names]


def test_limits_of_the_command_line_reach_every_case(ops, capsys):
    assert cli.main(["run", "ops.py::right", "--budget", "2", "--json", "-"]) == 3
    for report in reports(capsys.readouterr().out).values():
        assert report["backward"].summary == "the budget of 2 calls is spent; raise --budget"


def test_seconds_are_told_by_their_option(ops, capsys):
    assert cli.main(["run", "ops.py::right", "--budget-seconds", "1e-9", "--json", "-"]) == 3
    for report in reports(capsys.readouterr().out).values():
        assert report["backward"].summary.endswith("seconds is spent; raise --budget-seconds")


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_the_time_of_all_cases_together_is_limited(ops, capsys, jobs):
    """A limit that is spent leaves open what it does not decide, and names its own option."""
    assert cli.main(["run", ops, "--total-seconds", "1e-9", "--json", "-", "-j", jobs]) == 3
    found = reports(capsys.readouterr().out)
    assert Verdict.FAILED not in {report.verdict for report in found.values()}
    assert found["ops.py::wrong"]["backward"].summary.endswith("raise --total-seconds")
    assert cli.main(["run", ops, "--total-seconds", "3600", "--quiet", "-j", jobs]) == 1
    assert cli.main(["run", ops, "--total-seconds", "-1"]) == 2
    assert "total_seconds: expected" in capsys.readouterr().err


def test_github_is_told_which_line_each_failure_belongs_to(ops, capsys, monkeypatch, folder):
    (folder / "broken.py").write_text("from gradproof import case\n1 / 0\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(folder))
    assert cli.main(["run", ops, "broken.py", "--seed", "3", "--quiet"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    first = OPS.splitlines().index("def wrong(x):")  # its decorator's line, counted from 1
    assert lines == [
        "::error file=broken.py,title=gradproof::importing it raised ZeroDivisionError: division "
        "by zero",
        f"::error file=ops.py,line={first},title=gradproof::wrong: backward: 3 of 9 entries wrong"
        "%0Amultiplied by 1.1%0Agradproof run ops.py::wrong --seed 3",
    ]
    monkeypatch.setenv("GITHUB_ACTIONS", "")
    cli.main(["run", ops, "--seed", "3", "--quiet"])
    assert capsys.readouterr().out == ""


def test_the_same_seed_draws_the_same_inputs(folder):
    seen = []
    (folder / "ops.py").write_text(
        "import torch\nfrom gradproof import case\nseen = []\n"
        "@case(inputs=lambda: (torch.randn(3, dtype=torch.float64, requires_grad=True),))\n"
        "def f(x):\n    seen.append(x.detach().clone())\n    return x.sin()\n"
    )
    for seed in ("1", "1", "2"):
        pieces._imported.cache_clear()
        assert cli.main(["run", "ops.py", "--quiet", "--seed", seed]) == 0
        seen.append(sys.modules["_gradproof_target_ops"].seen[0])
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])


def test_a_folder_imports_only_files_that_may_have_cases(folder, capsys):
    (folder / "a").mkdir()
    (folder / ".hidden").mkdir()
    (folder / "venv").mkdir()
    (folder / "venv" / "pyvenv.cfg").write_text("")
    (folder / "a" / "ops.py").write_text(OPS)
    for place in ("other.py", ".hidden/x.py", "venv/x.py"):
        (folder / place).write_text("raise SystemExit  # gradproof " + "." * (place != "other.py"))
    (folder / "venv" / "x.py").write_text("1 / 0  # gradproof case")
    (folder / ".hidden" / "x.py").write_text("1 / 0  # gradproof case")
    assert cli.main(["run", ".", "--json", "-", "--budget", "1"]) == 3
    assert list(reports(capsys.readouterr().out)) == [f"a/ops.py::{name}" for name in NAMES]


def test_errors_of_the_users_code_are_theirs_and_the_others_go_on(folder, capsys):
    (folder / "broken.py").write_text("from gradproof import case\n1 / 0\n")
    (folder / "ops.py").write_text(
        OPS.split("class")[0]
        + '@case(inputs="float64[3]")\ndef boom(x):\n'
        + '    raise RuntimeError("no such luck")\n'
        + '@case(inputs="float64[3]", rtoll=1)\ndef misspelt(x):\n'
        + "    return x.sin()\n"
        + '@case(inputs="float64[3]", checks=["backward"])\ndef fine(x):\n'
        + "    return x.sin()\n"
    )
    assert cli.main(["run", "."]) == 2
    out, err = capsys.readouterr()
    assert "1 derivative verified" in out
    assert "3 could not run" in out
    assert 'broken.py", line 2, in <module>' in err
    assert "broken.py: importing it raised ZeroDivisionError: division by zero" in err
    assert ", in boom" in err
    assert "ops.py::boom: it raised RuntimeError: no such luck" in err
    assert (
        "ops.py::misspelt: case: unknown 'rtoll' (did you mean 'rtol'?); choose from kwargs, "
        in err
    )
    assert "gradproof/" not in err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["run"], "FILE_OR_DIR"),
        (["run", "missing.py"], "there is no 'missing.py'"),
        (["run", "."], "no @gradproof.case in ."),
        (["run", ".", "-j", "-1"], "-j: expected 0 or more"),
        (["run", ".", "--seed", "-1"], "--seed"),
    ],
)
def test_wrong_usage_is_told_in_one_sentence(folder, capsys, argv, says):
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert says in err


def test_an_interrupt_prints_what_is_finished_and_what_is_known(folder, capsys):
    (folder / "ops.py").write_text(
        OPS
        + """
runs = []

@case(inputs="float64[3]")
def stops(x):
    runs.append(x)
    if len(runs) == 3:
        raise KeyboardInterrupt
    return x.sin()

@case(inputs="float64[3]")
def never(x):
    return x.sin()
"""
    )
    assert cli.main(["run", "ops.py", "--json", "all.json"]) == 130
    out = capsys.readouterr().out
    assert "interrupted: 2 not finished" in out
    found = reports((folder / "all.json").read_text(encoding="utf-8"))
    assert list(found) == [f"ops.py::{name}" for name in [*NAMES, "stops"]]
    assert found["ops.py::stops"].verdict is Verdict.INCONCLUSIVE


@pytest.mark.slow
def test_several_processes_find_the_same_and_outlive_a_crash(ops, capsys, folder):
    (folder / "crash.py").write_text(
        'import os\nfrom gradproof import case\n\n@case(inputs="float64[3]")\n'
        "def crash(x):\n    os.abort()\n"
    )
    assert cli.main(["run", ".", "-j", "2", "--json", "all.json", "--seed", "3"]) == 1
    out, err = capsys.readouterr()
    assert "crash.py::crash: its process crashed (SIGABRT)" in err
    assert "2 derivatives verified to" in out
    assert "1 could not run" in out
    found = reports((folder / "all.json").read_text(encoding="utf-8"))
    assert list(found) == [f"ops.py::{name}" for name in NAMES]
    assert plain.loads((folder / "all.json").read_text())["format_version"] == 1
