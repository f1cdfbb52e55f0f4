"""The command line, in process."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import gradproof
from example_reports import REPORTS
from gradproof import cli

LAYER_NORM = ["check", "torch.nn.functional:layer_norm", "float64[8,16]", "[16]"]

OPS = """
import os

def breaks(x):
    raise RuntimeError("no such luck")

def exits(x):
    raise SystemExit(0)

def prints(x):
    print("printed")
    return x.sin()

def moves(x):
    os.chdir("/")
    return x.sin()

runs = []

def stops(x):
    runs.append(x)
    if len(runs) == 3:
        raise KeyboardInterrupt
    return x.sin()
"""
BY_HAND = """
import numpy as np

def model(x):
    return np.sin(x)

def backward(x, v):
    return v * np.cos(x)

import gradproof
by_hand = gradproof.by_hand(model, vjp=backward)
"""


@pytest.fixture
def ops(tmp_path, monkeypatch):
    file = tmp_path / "ops.py"
    file.write_text(OPS)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    return file


@pytest.fixture
def calls(monkeypatch):
    """Replaces the check; records how it is called."""
    seen = []

    def check(function, inputs, kwargs=None, **options):
        seen.append((function, inputs, kwargs, options))
        return REPORTS["passed"]

    monkeypatch.setattr(gradproof, "check", check)
    return seen


def reports_in(file: Path) -> dict[str, dict]:
    """The reports of a file of several, by name."""
    return {each["name"]: each["report"] for each in json.loads(file.read_text())["reports"]}


# What is printed, and the exit status.


@pytest.mark.parametrize(
    ("name", "status"),
    [("passed", 0), ("one_failure", 1), ("inconclusive", 3), ("all_skipped", 3), ("no_checks", 3)],
)
def test_the_exit_status_is_the_verdict(name, status, monkeypatch, capsys):
    monkeypatch.setattr(gradproof, "check", lambda *args, **kwargs: REPORTS[name])
    argv = [*LAYER_NORM, "--seed", "7"]
    assert cli.main(argv) == status
    expected = replace(REPORTS[name], repeat=shlex.join(["gradproof", *argv]))
    assert capsys.readouterr().out.rstrip() == str(expected)


def test_the_line_that_repeats_the_run_holds_the_seed_that_was_drawn(calls, ops):
    cli.main([*LAYER_NORM, "--json", "r.json"])
    assert reports_in(ops.parent / "r.json")["layer_norm"]["repeat"] == (
        "gradproof check torch.nn.functional:layer_norm 'float64[8,16]' '[16]' --json r.json "
        f"--seed {calls[0][3]['seed']}"
    )


def test_an_interrupted_check_prints_no_report(capsys, ops):
    assert cli.main(["check", f"{ops}:stops", "float64[3]"]) == 130
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "gradproof: interrupted\n")


@pytest.mark.parametrize("form", ["json", pytest.param("html", marks=pytest.mark.needs("jinja2"))])
def test_reports_are_written_to_files_where_they_were_asked_for(form, ops, capsys):
    argv = ["check", "ops.py:moves", "float64[3]", "--checks", "backward", "--quiet"]
    assert cli.main([*argv, f"--{form}", f"new/r.{form}"]) == 0
    assert "moves" in (ops.parent / "new" / f"r.{form}").read_text(encoding="utf-8")
    assert capsys.readouterr().out == ""


def test_what_a_function_prints_does_not_land_in_the_report(ops, capsys):
    assert cli.main(["check", "ops.py:prints", "float64[3]"]) == 0
    out, err = capsys.readouterr()
    assert "printed" not in out
    assert "printed" in err


def test_the_package_is_a_command_too():
    done = subprocess.run(
        [sys.executable, "-m", "gradproof", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"gradproof {gradproof.__version__}\n"


# The function, its arguments and the options.


def test_options_reach_the_check(calls):
    given = "--order 2 --seed 7 --rtol 1e-4 --atol 1e-9 --checks forward,batched --budget 50"
    more = "--budget-seconds 2.5 --reference torch:sin --sweep --transforms --wrt input"
    assert cli.main([*LAYER_NORM, *given.split(), *more.split()]) == 0
    [(function, (x, shape), kwargs, options)] = calls
    assert function is torch.nn.functional.layer_norm
    assert x.shape == (8, 16)
    assert shape == [16]
    assert kwargs == {}
    assert options == {
        "order": 2,
        "seed": 7,
        "rtol": 1e-4,
        "atol": 1e-9,
        "checks": ("forward", "batched"),
        "budget": 50,
        "budget_seconds": 2.5,
        "sweep": True,
        "transforms": True,
        "wrt": ["input"],
        "reference": torch.sin,
    }


def test_arguments_are_arrays_literals_words_and_files(calls, ops):
    np.save("x.npy", np.arange(3.0))
    torch.save(torch.ones(2, dtype=torch.bfloat16), "y.pt")
    words = ["bool[4]", "x.npy", "y.pt", "-0.5", "None", "sum", "'a b'", "[1, 2]"]
    named = ["--kwarg", "weight=complex64[]", "--kwarg", "mode=sum"]
    assert cli.main(["check", f"{ops}:prints", *words, *named]) == 0
    [(_, (mask, x, y, *others), kwargs, _)] = calls
    assert (mask.dtype, mask.requires_grad) == (torch.bool, False)
    assert torch.equal(x, torch.arange(3, dtype=torch.float64))
    assert (y.dtype, y.requires_grad) == (torch.bfloat16, True)
    assert others == [-0.5, None, "sum", "a b", [1, 2]]
    assert (kwargs["weight"].dtype, kwargs["weight"].shape) == (torch.complex64, ())
    assert kwargs["mode"] == "sum"


def test_the_device_is_the_users_choice(calls):
    assert cli.main(["check", "torch:sin", "float64[3]", "--device", "meta", "--quiet"]) == 0
    assert calls[0][1][0].device.type == "meta"


@pytest.mark.needs("jax")
def test_arrays_are_of_the_framework_that_the_module_imports(calls, ops):
    Path("ops_in_jax.py").write_text("from jax.numpy import sin\ndef f(x):\n    return sin(x)\n")
    assert cli.main(["check", "ops_in_jax.py:f", "float64[3]"]) == 0
    assert cli.main(["check", "ops_in_jax.py:f", "float64[3]", "--framework", "torch"]) == 0
    modules = [type(inputs[0]).__module__.partition(".")[0] for _, inputs, _, _ in calls]
    assert modules == ["jaxlib", "torch"]


@pytest.mark.needs("jax")
def test_a_derivative_in_jax_is_checked_in_double_precision(ops, capsys):
    Path("rule_in_jax.py").write_text(
        "import jax\nimport jax.numpy as jnp\nwrong = jax.custom_vjp(jnp.sin)\n"
        "wrong.defvjp(lambda x: (jnp.sin(x), x), lambda x, v: (1.1 * v * jnp.cos(x),))\n"
    )
    argv = ["check", "rule_in_jax.py:wrong", "float64[3]", "--checks", "backward"]
    assert cli.main(argv) == 1
    assert "x: float64[3]" in capsys.readouterr().out


WITHOUT = """
import sys
sys.modules.update(torch=None, jax=None)
from gradproof.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("argv", "status", "says"),
    [
        (["hand.py:model", "float64[3]"], 2, "say what the derivative is"),
        (["hand.py:by_hand", "float64[3]"], 0, ""),
        (["hand.py:model", "float64[3]", "--framework", "torch"], 2, "pip install torch"),
        (["plain.py:f", "float64[3]"], 2, "pip install torch"),
        (["hand.py:model", "float64[3]", "--framework", "numpy"], 2, "say what the derivative is"),
        (["hand.py:by_hand", "x.pt"], 2, "'x.pt' is of PyTorch"),
    ],
)
def test_without_pytorch_and_jax_it_works_by_hand_or_says_so(tmp_path, argv, status, says):
    (tmp_path / "hand.py").write_text(BY_HAND)
    (tmp_path / "plain.py").write_text("def f(x):\n    return x * x\n")
    command = [sys.executable, "-c", WITHOUT, "check", *argv]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == (status == 2)
    assert done.stdout.startswith("gradproof  model  passed") == (status == 0)


# What is wrong is said in one sentence.


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "COMMAND"),
        (["nothing", "ops.py"], "invalid choice: 'nothing'"),
        (["check", "torch:sin"], "ARGUMENT: give at least one array"),
        (["check", "torch:sin", "3.0"], "ARGUMENT: give at least one array"),
        (["check", "torch:sin", "float6[2]"], "unknown dtype 'float6'"),
        (["check", "torch:sin", "float64[-1]"], "sizes are integers"),
        (["check", "torch:sin", "float64[2]:positive"], "expected DTYPE[SIZE,...]"),
        (["check", "torch:sin", "float64[999999999999999999]"], "cannot make an array"),
        (["check", "torch:sin", "no.npy"], "cannot make an array of 'no.npy'"),
        (["check", "torch:sin", "no.pt"], "cannot make an array of 'no.pt'"),
        (["check", "torch:sin", "float64[2]", "a b"], "a literal of Python or a word, got 'a b'"),
        (["check", "torch:sin", "float64[2]", "--kwarg", "3"], "expected NAME=ARGUMENT"),
        (["check", "torch:sin", "float64[2]", "--device", "nowhere"], "cannot make an array"),
        (["check", "torch:sin", "float64[2]", "--html", "x.txt"], ".html"),
        (["check", "torch:sin", "float64[2]", "--budget-seconds", "0"], "budget_seconds"),
        (["check", "torch:sin", "float64[2]", "--nothing"], "unrecognized arguments: --nothing"),
        (["check", "torch:sin", "float64[2]", "--order", "4"], "invalid choice"),
        (["check", "torch:sin", "float64[2]", "--seed", "-1"], "--seed"),
        (["check", "torch:sin", "float64[2]", "--checks", "backwards"], "unknown 'backwards'"),
        (["check", "torch", "float64[2]"], "expected package.module:name"),
        (["check", "\udc80", "float64[2]"], "expected package.module:name"),
        (["check", "torch:sin", f"float64[{'9' * 5000}]"], "at most 18 digits"),
        (["check", "torch:sine", "float64[2]"], "'torch' has no 'sine'\n"),
        (["check", "torch:pi", "float64[2]"], "cannot be called"),
        (["check", "no_such_module:sin", "float64[2]"], "ModuleNotFoundError"),
        (["check", "no_such_file.py:sin", "float64[2]"], "there is no file 'no_such_file.py'"),
        (["explain", "no.json"], "FILE: cannot read 'no.json'"),
    ],
)
def test_wrong_usage_is_reported_in_one_sentence(argv, says, capsys):
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gradproof: ")
    assert err.count("\n") == 1
    assert says in err


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(calls, capsys, tmp_path):
    (tmp_path / "no").touch()
    assert cli.main([*LAYER_NORM, "--json", str(tmp_path / "no" / "file.json")]) == 2
    assert calls == []
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "says"),
    [("breaks", "RuntimeError: no such luck"), ("exits", "SystemExit: 0")],
)
def test_a_function_that_raises_is_shown_with_its_own_frames(capsys, ops, name, says):
    assert cli.main(["check", f"{ops}:{name}", "float64[3]"]) == 2
    err = capsys.readouterr().err
    assert f", in {name}\n" in err
    assert "gradproof/" not in err
    assert err.splitlines()[-1] == f"gradproof: {ops}:{name} raised {says}"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("1 / 0", 'broken.py", line 1, in <module>'),
        ("def f(:\n", 'broken.py", line 1'),
        ("import sys\nsys.exit(3)", "SystemExit"),
    ],
)
def test_a_file_that_fails_to_import_is_shown_with_its_own_frames(ops, capsys, source, says):
    (ops.parent / "broken.py").write_text(source)
    assert cli.main(["check", "broken.py:f", "float64[3]"]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert "gradproof/" not in err
    assert "importlib" not in err


# Reports that were kept.


def test_one_report_is_explained_as_it_was_printed(tmp_path, capsys):
    file = REPORTS["one_failure"].save(tmp_path / "r.json")
    assert cli.main(["explain", str(file)]) == 0
    assert capsys.readouterr().out.rstrip() == str(REPORTS["one_failure"])
