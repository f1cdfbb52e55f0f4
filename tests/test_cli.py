"""The command line, in process."""

from __future__ import annotations

import io
import sys
import time

import pytest
import torch
from rich.console import Console

import gradproof
from example_reports import REPORTS
from gradproof import cli
from gradproof._render import json, text

LAYER_NORM = ["check", "torch.nn.functional:layer_norm", "float64[8,16]", "--arg", "[16]"]

OPS = """
import torch
from rich.console import Console

class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 1.1 * grad_output * x.cos()

wrong = Wrong.apply
constant = 3

class Nested:
    @staticmethod
    def double(x):
        return 2 * x

def scaled(x, *, factor, mode):
    assert mode == "plain"
    return factor * x

def breaks(x):
    raise RuntimeError("no such luck")
"""


@pytest.fixture
def ops(tmp_path, monkeypatch):
    file = tmp_path / "ops.py"
    file.write_text(OPS)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return file


@pytest.fixture
def calls(monkeypatch):
    """Replaces the check; records how it is called."""
    seen = []

    def check(function, inputs, kwargs=None, **options):
        seen.append((function, inputs, kwargs, options))
        return REPORTS["passed"]

    monkeypatch.setattr(cli, "check", check)
    return seen


def refused(capsys, *argv: str) -> str:
    """The sentence with which a command line is refused."""
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gradproof: ")
    assert err.count("\n") == 1
    return err


def test_a_right_derivative_exits_with_0_and_a_report(capsys):
    assert cli.main(LAYER_NORM) == 0
    out, err = capsys.readouterr()
    assert "layer_norm" in out
    assert "passed" in out
    assert err == ""


def test_a_wrong_derivative_exits_with_1_and_is_explained(capsys, ops):
    assert cli.main(["check", f"{ops}:wrong", "float64[3]"]) == 1
    out = capsys.readouterr().out
    assert "FAILED" in out
    assert "claimed" in out
    assert "measured" in out


@pytest.mark.parametrize(
    ("name", "status"),
    [("passed", 0), ("one_failure", 1), ("inconclusive", 3), ("all_skipped", 3), ("no_checks", 3)],
)
def test_the_exit_status_is_the_verdict(name, status, monkeypatch, capsys):
    monkeypatch.setattr(cli, "check", lambda *args, **kwargs: REPORTS[name])
    assert cli.main(LAYER_NORM) == status
    assert capsys.readouterr().out.rstrip() == text.render(REPORTS[name])


def test_options_reach_the_check(calls):
    argv = [
        *LAYER_NORM,
        "--order",
        "2",
        "--seed",
        "7",
        "--rtol",
        "1e-4",
        "--checks",
        "forward,batched",
    ]
    assert cli.main(argv) == 0
    [(function, (x, shape), kwargs, options)] = calls
    assert function is torch.nn.functional.layer_norm
    assert x.shape == (8, 16)
    assert shape == [16]
    assert kwargs == {}
    assert options == {"order": 2, "seed": 7, "rtol": 1e-4, "checks": ("forward", "batched")}


def test_what_is_not_asked_for_keeps_its_default(calls):
    assert cli.main(LAYER_NORM) == 0
    assert set(calls[0][3]) == {"order", "seed"}


def test_one_seed_makes_inputs_and_probes(calls):
    for seed in ("7", "7", "8"):
        cli.main([*LAYER_NORM, "--seed", seed])
    first, again, other = (inputs[0] for _, inputs, _, _ in calls)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_without_a_seed_a_fresh_one_is_drawn_and_handed_over(calls):
    cli.main(LAYER_NORM)
    cli.main(LAYER_NORM)
    first, second = (options["seed"] for *_, options in calls)
    assert first != second


def test_the_global_random_state_is_left_alone(calls):
    before = torch.random.get_rng_state()
    cli.main(LAYER_NORM)
    assert torch.equal(before, torch.random.get_rng_state())


def test_keyword_arguments_are_literals(calls, ops):
    argv = [
        "check",
        f"{ops}:scaled",
        "float64[3]",
        "--kwarg",
        "factor=2",
        "--kwarg",
        "mode='plain'",
    ]
    assert cli.main(argv) == 0
    assert calls[0][2] == {"factor": 2, "mode": "plain"}


def test_an_attribute_of_an_attribute_is_found(calls, ops):
    assert cli.main(["check", f"{ops}:Nested.double", "float64[3]"]) == 0
    assert calls[0][0](4) == 8


def test_a_module_in_the_working_directory_is_found(calls, ops, monkeypatch):
    monkeypatch.chdir(ops.parent)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    assert cli.main(["check", "ops:Nested.double", "float64[3]"]) == 0


def test_json_is_written_beside_the_report(calls, tmp_path, capsys):
    file = tmp_path / "report.json"
    assert cli.main([*LAYER_NORM, "--json", str(file)]) == 0
    assert repr(json.load(file.read_text())) == repr(REPORTS["passed"])
    assert "layer_norm" in capsys.readouterr().out


def test_json_to_stdout_replaces_the_report(calls, capsys):
    assert cli.main([*LAYER_NORM, "--json", "-"]) == 0
    assert repr(json.load(capsys.readouterr().out)) == repr(REPORTS["passed"])


def test_quiet_prints_nothing(calls, capsys):
    assert cli.main([*LAYER_NORM, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"gradproof {gradproof.__version__}\n"


def test_help_explains_the_grammar(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["check", "--help"])
    assert "uniform(low,high)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "COMMAND"),
        (["prove"], "invalid choice"),
        (["check", "torch:sin"], "SPEC"),
        (["check", "torch:sin", "float64"], "not of the form"),
        (["check", "torch", "float64[2]"], "expected package.module:name"),
        (["check", ":sin", "float64[2]"], "expected package.module:name"),
        (["check", "torch:", "float64[2]"], "expected package.module:name"),
        (["check", "torch:sine", "float64[2]"], "has no 'sine'"),
        (["check", "torch:pi", "float64[2]"], "cannot be called"),
        (["check", "no_such_module:sin", "float64[2]"], "ModuleNotFoundError"),
        (["check", "no_such_file.py:sin", "float64[2]"], "FileNotFoundError"),
        (["check", "torch:sin", "float64[2]", "--arg", "nonsense"], "no Python literal"),
        (["check", "torch:sin", "float64[2]", "--kwarg", "3"], "expected NAME=VALUE"),
        (["check", "torch:sin", "float64[2]", "--kwarg", "a=b"], "no Python literal"),
        (["check", "torch:sin", "float64[2]", "--order", "3"], "invalid choice"),
        (["check", "torch:sin", "float64[2]", "--seed", "-1"], "--seed"),
        (["check", "torch:sin", "float64[2]", "--checks", "backwards"], "unknown 'backwards'"),
        (["check", "torch:sin", "float64[2]", "--rtol", "-1"], "rtol"),
        (["check", "torch:sin", "float64[99999999999999999999]"], "cannot make"),
    ],
)
def test_wrong_usage_is_told_in_one_sentence(argv, says, capsys):
    assert says in refused(capsys, *argv)


def test_a_file_that_cannot_be_written_is_wrong_usage(calls, capsys, tmp_path):
    assert cli.main([*LAYER_NORM, "--quiet", "--json", str(tmp_path / "no" / "file")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_a_function_that_raises_is_told_in_one_sentence(capsys, ops):
    assert "no such luck" in refused(capsys, "check", f"{ops}:breaks", "float64[3]")


def test_a_file_that_fails_to_import_is_told_in_one_sentence(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "broken.py").write_text("1 / 0")
    assert "ZeroDivisionError" in refused(capsys, "check", f"{tmp_path}/broken.py:f", "float64[3]")


@pytest.mark.parametrize(("seconds", "shown"), [(0.3, True), (0.0, False)])
def test_a_long_run_on_a_terminal_shows_a_sign_of_life(seconds, shown, monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(cli, "SPINNER_AFTER", 0.1)
    monkeypatch.setattr(cli, "Console", lambda **_: Console(file=screen, force_terminal=True))
    with cli._spinner("layer_norm"):
        time.sleep(seconds)
    assert ("checking layer_norm" in screen.getvalue()) is shown


def test_a_long_run_without_a_terminal_shows_nothing(monkeypatch, capsys):
    monkeypatch.setattr(cli, "SPINNER_AFTER", 0.0)
    with cli._spinner("layer_norm"):
        time.sleep(0.1)
    assert capsys.readouterr() == ("", "")
