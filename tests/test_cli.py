"""The command line, in process."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import gradproof
from example_reports import REPORTS
from gradproof import Report, cli
from gradproof._data.settings import TRANSFORM_NAMES
from gradproof._render import json as codec
from gradproof._render import text
from gradproof.cli import _run
from user_files import WRONG_SINE

LAYER_NORM = ["check", "torch.nn.functional:layer_norm", "float64[8,16]", "--arg", "[16]"]

OPS = (
    """
import torch
from rich.console import Console
"""
    + WRONG_SINE
    + """
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

runs = []

def stops(x):
    runs.append(x)
    if len(runs) == 3:
        raise KeyboardInterrupt
    return x.sin()

def scaler(factor):
    return lambda x: factor * x
"""
)


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

    monkeypatch.setattr(gradproof, "check", check)
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
    monkeypatch.setattr(gradproof, "check", lambda *args, **kwargs: REPORTS[name])
    argv = [*LAYER_NORM, "--seed", "7"]
    assert cli.main(argv) == status
    expected = replace(REPORTS[name], repeat=shlex.join(["gradproof", *argv]))
    assert capsys.readouterr().out.rstrip() == text.render(expected)


def only(written: str) -> Report:
    """The one report of a text that --json wrote."""
    [(_, report)] = codec.load_many(written)
    return report


def test_the_line_that_repeats_the_run_holds_the_seed_that_was_drawn(calls, capsys):
    cli.main([*LAYER_NORM, "--json", "-"])
    [(*_, options)] = calls
    line = only(capsys.readouterr().out).repeat
    assert line == (
        "gradproof check torch.nn.functional:layer_norm 'float64[8,16]' --arg '[16]' --json - "
        f"--seed {options['seed']}"
    )


def test_options_reach_the_check(calls):
    given = "--order 2 --seed 7 --rtol 1e-4 --atol 1e-9 --checks forward,batched"
    limits = (
        "--budget 50 --budget-seconds 2.5 --reference torch:sin --sweep --transforms --wrt input"
    )
    assert cli.main([*LAYER_NORM, *given.split(), *limits.split()]) == 0
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


@pytest.mark.parametrize(
    ("mode", "kept", "left"),
    [
        ("forward", {"forward", "batched_forward"}, {"backward", "adjoint", "layout"}),
        ("reverse", {"backward", "layout"}, {"forward", "adjoint", "batched_forward"}),
    ],
)
def test_a_mode_leaves_out_the_checks_of_the_other(calls, mode, kept, left):
    assert cli.main([*LAYER_NORM, "--mode", mode]) == 0
    checks = set(calls[0][3]["checks"])
    assert kept <= checks
    assert not left & checks


@pytest.mark.parametrize("more", [[], ["--order", "2"], ["--transforms"]])
def test_one_mode_asks_for_nothing_that_both_would_not_ask_for(calls, more):
    cli.main([*LAYER_NORM, "--mode", "reverse", *more])
    asked = set(calls[0][3]["checks"])
    assert bool(asked & set(TRANSFORM_NAMES)) == ("--transforms" in more)
    assert ("symmetry" in asked) == ("2" in more)
    assert "third_order" not in asked


def test_both_modes_are_the_default(calls):
    assert cli.main([*LAYER_NORM, "--mode", "both"]) == 0
    assert "checks" not in calls[0][3]


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


def test_json_is_written_beside_the_report(calls, tmp_path, capsys, monkeypatch):
    file = tmp_path / "report.json"
    monkeypatch.setattr(_run, "_repeat", lambda argv, seed: "again")
    assert cli.main([*LAYER_NORM, "--json", str(file)]) == 0
    assert repr(only(file.read_text())) == repr(replace(REPORTS["passed"], repeat="again"))
    assert "layer_norm" in capsys.readouterr().out


def test_json_to_stdout_replaces_the_report(calls, capsys):
    assert cli.main([*LAYER_NORM, "--json", "-"]) == 0
    assert only(capsys.readouterr().out).target == REPORTS["passed"].target


@pytest.mark.needs("jinja2")
def test_a_page_is_written(calls, tmp_path, capsys):
    file = tmp_path / "report.html"
    assert cli.main([*LAYER_NORM, "--quiet", "--html", str(file)]) == 0
    page = file.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "layer_norm" in page


def test_quiet_prints_nothing(calls, capsys):
    assert cli.main([*LAYER_NORM, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_the_package_is_a_command_too():
    told = subprocess.run(
        [sys.executable, "-m", "gradproof", "--version"], capture_output=True, text=True, check=True
    )
    assert told.stdout == f"gradproof {gradproof.__version__}\n"


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
        (["check", "torch:sin", "float64[2]", "--dtype", "int64"], "--dtype"),
        (["check", "torch:sin", "complex64[2]", "--dtype", "bfloat16"], "no complex bfloat16"),
        (["check", "torch:sin", "float64[2]", "--inputs", "x.json"], "not both"),
        (["check", "torch:sin", "float64[2]", "--html", "x.txt"], ".html"),
        (["check", "torch:sin(x y)", "float64[2]"], "no literals"),
        (["check", "torch:Size([2])", "float64[2]"], "no function"),
        (["check", "torch:sin", "float64[2]", "--budget-seconds", "0"], "budget_seconds"),
        (["check", "torch:sin", "float64[2]", "--mode", "forward", "--checks", "layout"], "--mode"),
        (["check", "torch:sin", "float64"], "not of the form"),
        (["check", "torch", "float64[2]"], "expected package.module:name"),
        (["check", ":sin", "float64[2]"], "expected package.module:name"),
        (["check", "torch:", "float64[2]"], "expected package.module:name"),
        (["check", "torch:sine", "float64[2]"], "'torch' has no 'sine'\n"),
        (["check", "torch:sin", "3,4"], "[!nograd]: float64[3,4]"),
        (["check", "torch:pi", "float64[2]"], "cannot be called"),
        (["check", "no_such_module:sin", "float64[2]"], "ModuleNotFoundError"),
        (["check", "no_such_file.py:sin", "float64[2]"], "there is no file 'no_such_file.py'"),
        (["check", "torch:sin", "float64[2]", "--arg", "nonsense"], "no Python literal"),
        (["check", "torch:sin", "float64[2]", "--kwarg", "3"], "expected NAME=VALUE"),
        (["check", "torch:sin", "float64[2]", "--kwarg", "a=b"], "no Python literal"),
        (["check", "torch:sin", "float64[2]", "--order", "4"], "invalid choice"),
        (["check", "torch:sin", "float64[2]", "--seed", "-1"], "--seed"),
        (["check", "torch:sin", "float64[2]", "--checks", "backwards"], "unknown 'backwards'"),
        (["check", "torch:sin", "float64[2]", "--rtol", "-1"], "rtol"),
        (["check", "torch:sin", "float64[999999999999999999]"], "cannot make"),
    ],
)
def test_wrong_usage_is_told_in_one_sentence(argv, says, capsys):
    assert says in refused(capsys, *argv)


def test_a_file_that_cannot_be_written_is_wrong_usage(calls, capsys, tmp_path):
    (tmp_path / "no").touch()
    assert cli.main([*LAYER_NORM, "--quiet", "--json", str(tmp_path / "no" / "file")]) == 2
    assert calls == []  # refused before anything is run
    assert "cannot write" in capsys.readouterr().err


def theirs(capsys, *argv: str) -> str:
    """What stderr says where the user's code raised: their frames, then one sentence."""
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "gradproof/" not in err
    assert "importlib" not in err
    assert err.splitlines()[-1].startswith("gradproof: ")
    return err


def test_a_function_that_raises_is_shown_with_its_own_frames(capsys, ops):
    err = theirs(capsys, "check", f"{ops}:breaks", "float64[3]")
    assert ", in breaks\n" in err
    assert err.splitlines()[-1] == f"gradproof: {ops}:breaks raised RuntimeError: no such luck"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("1 / 0", 'broken.py", line 1, in <module>'),
        ("def f(:\n", 'broken.py", line 1'),
        ("import sys\nsys.exit(3)", "SystemExit"),
    ],
)
def test_a_file_that_fails_to_import_is_shown_with_its_own_frames(
    capsys, tmp_path, monkeypatch, source, says
):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "broken.py").write_text(source)
    assert says in theirs(capsys, "check", f"{tmp_path}/broken.py:f", "float64[3]")


def test_what_is_known_when_the_user_interrupts_is_printed(capsys, ops):
    argv = ["check", f"{ops}:stops", "float64[3]", "--json", f"{ops.parent}/r.json"]
    assert cli.main(argv) == 130
    out = capsys.readouterr().out
    assert "interrupted before it was decided" in out
    assert only((ops.parent / "r.json").read_text()).target == "stops"


def test_an_interrupt_before_anything_is_known_says_so(capsys, ops, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(_run, "target", stop)
    assert cli.main(["check", f"{ops}:wrong", "float64[3]"]) == 130
    assert capsys.readouterr() == ("", "gradproof: interrupted\n")


def test_a_class_is_made_first_and_gets_the_dtype_of_the_arrays(calls):
    argv = ["check", "torch.nn:LayerNorm(16, eps=1e-3)", "float64[8,16]"]
    assert cli.main(argv) == 0
    [(made, _, _, _)] = calls
    assert isinstance(made, torch.nn.LayerNorm)
    assert made.eps == 1e-3
    assert made.weight.dtype == torch.float64


def test_constructor_arguments_may_stand_behind_the_name(calls):
    for seed in ("3", "3", "4"):
        cli.main(["check", "torch.nn:Linear(4, 2, bias=False)", "float32[4]", "--seed", seed])
    first, again, other = (made.weight for made, *_ in calls)
    assert first.dtype == torch.float32
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_function_that_makes_the_function_is_called(calls, ops):
    assert cli.main(["check", f"{ops}:scaler(3)", "float64[3]"]) == 0
    assert calls[0][0](2) == 6


def test_keyword_arguments_may_be_arrays_and_trees(calls, ops):
    argv = ["check", f"{ops}:wrong", "{'h': 'float64[3]', 'c': ['int64[2]', 1]}"]
    argv += ["--kwarg", "weight=float32[8]!nograd", "--kwarg", "batch.mask[0]=bool[4]"]
    assert cli.main([*argv, "--kwarg", "batch.name='x'", "--dtype", "bfloat16"]) == 0
    [(_, (tree,), kwargs, _)] = calls
    assert tree["h"].dtype == torch.bfloat16
    assert tree["h"].requires_grad
    assert tree["c"][0].dtype == torch.int64
    assert tree["c"][1] == 1
    assert kwargs["weight"].shape == (8,)
    assert not kwargs["weight"].requires_grad
    assert kwargs["batch"]["mask"][0].dtype == torch.bool
    assert kwargs["batch"]["name"] == "x"


def test_the_device_is_the_users_choice(calls, capsys):
    assert cli.main(["check", "torch:sin", "float64[3]", "--device", "meta", "--quiet"]) == 0
    assert calls[0][1][0].device.type == "meta"
    assert "--device" in refused(capsys, "check", "torch:sin", "float64[3]", "--device", "nowhere")


def test_a_framework_without_described_arrays_is_refused(capsys, monkeypatch):
    from gradproof._cases import arrays

    monkeypatch.setattr(arrays.importlib.util, "find_spec", lambda name: None)
    argv = ["check", "torch:sin", "float64[3]", "--framework", "jax"]
    assert "--framework: arrays of 'jax' cannot be made" in refused(capsys, *argv)


OPERATOR = """
import torch

@torch.library.custom_op("gradproofcli::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()

sine.register_autograd(
    lambda ctx, g: g * ctx.saved_tensors[0].cos(),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
"""


def test_an_operator_of_torch_library_is_named_with_two_colons(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "operators_of_mine.py"
    file.write_text(OPERATOR)
    asked = ["float64[3]", "--checks", "backward", "--seed", "0"]
    assert cli.main(["check", f"{file}:gradproofcli::sine", *asked]) == 0
    assert cli.main(["check", "aten::sin", *asked]) == 0
    assert cli.main(["check", "gradproofcli::cosine", *asked]) == 2
    assert "no operator 'gradproofcli::cosine' is registered" in capsys.readouterr().err
