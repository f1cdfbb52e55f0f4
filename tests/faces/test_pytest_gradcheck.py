"""`--gradproof-gradcheck`: somebody's tests, of which no line is changed, with our gradcheck."""

from __future__ import annotations

import inspect
import json
import shlex

import pytest
from torch.autograd import gradcheck, gradgradcheck

# Pytester forgets modules that a run of it imports first: this one has to stay the same.
import gradproof.torch._suite  # noqa: F401

# Held before anything is exchanged, as a default, in a closure, by another of PyTorch's helpers.
HELPER = """
import functools
from torch.autograd import gradcheck, gradgradcheck
from torch.testing._internal import common_utils

def by_default(fn, inputs, check=gradcheck):
    return check(fn, inputs)

by_partial = functools.partial(gradcheck, raise_exception=False)

def by_pytorch(fn, inputs):
    return common_utils.gradcheck(fn, inputs)
"""

SUITE = """
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError

import helper

class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 1.1 * grad_output * x.cos()

class Layout(torch.autograd.Function):  # right for contiguous cotangents, as PyTorch's are
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        flat = grad_output.as_strided((grad_output.numel(),), (1,), grad_output.storage_offset())
        return 2 * flat.reshape(grad_output.shape)

@pytest.fixture
def x():
    return torch.linspace(1, 2, 6, dtype=torch.float64).reshape(2, 3).requires_grad_()

def test_imported_before(x):
    assert gradcheck(torch.sin, (x,)) is True
    assert gradgradcheck(torch.sin, (x,)) is True

def test_by_attribute(x):
    assert torch.autograd.gradcheck(torch.sin, x)

@pytest.mark.parametrize("way", ["by_default", "by_partial", "by_pytorch"])
def test_by_a_helper(x, way):
    assert getattr(helper, way)(torch.cos, (x,))

def test_refusal(x):
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        gradcheck(Wrong.apply, (x,))
    assert gradcheck(Wrong.apply, (x,), raise_exception=False) is False

def test_raises(x):
    with pytest.raises(ValueError, match="require"):
        gradcheck(torch.sin, (x.detach(),))

def test_layout(x):
    assert gradcheck(Layout.apply, (x,))

def test_random_numbers_are_those_of_pytorchs_alone(x):
    torch.manual_seed(3)
    assert gradcheck(lambda x: x * torch.rand(()).round().mul(0).add(2), (x,), nondet_tol=1.0)
    drawn = torch.rand(())
    torch.manual_seed(3)
    assert gradcheck(lambda x: x * torch.rand(()).round().mul(0).add(2), (x,), nondet_tol=1.0)
    assert torch.equal(drawn, torch.rand(()))
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs pytest on the suite, in a process of its own; returns its result."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(test_it=SUITE, helper=HELPER)
    pytester.makeini("[pytest]\npythonpath = .\n")

    def run(*options: str) -> pytest.RunResult:
        start = pytester.runpytest_subprocess if "-n" in options else pytester.runpytest_inprocess
        return start("-p", "no:cacheprovider", "-p", "no:hypothesispytest", *options)

    return run


def document(pytester, name="report.json"):
    return json.loads((pytester.path / name).read_text(encoding="utf-8"))


def test_without_the_option_pytorchs_own_answers(run):
    result = run()
    assert result.parseoutcomes() == {"passed": 9}
    result.stdout.no_fnmatch_line("gradproof: *")


def test_ours_answers_whoever_holds_the_name_and_however(run, pytester):
    result = run("--gradproof-gradcheck=replace", "--gradproof-report=report.json")
    assert result.parseoutcomes() == {"passed": 8, "failed": 1}  # theirs does not see the mistake
    result.stdout.fnmatch_lines(
        [
            "gradproof: 8 derivatives verified to *, 3 failed",
            "FAILED test_it.py::test_layout - Layout.apply: memory_layout: *",
        ]
    )
    names = [row["name"].split("::")[1] for row in document(pytester)["reports"]]
    assert names == [
        *(f"test_by_a_helper[{way}]" for way in ("by_default", "by_partial", "by_pytorch")),
        "test_by_attribute",
        *("test_imported_before", "test_imported_before #2", "test_layout"),
        *(f"test_random_numbers_are_those_of_pytorchs_alone{nth}" for nth in ("", " #2")),
        *("test_refusal", "test_refusal #2"),
    ]


def test_the_line_that_repeats_one_does(run, pytester):
    run("--gradproof-gradcheck=replace", "--gradproof-report=report.json", "-k", "layout")
    [row] = document(pytester)["reports"]
    line = row["report"]["repeat"]
    seed = row["report"]["seed"]
    assert line == (
        f"pytest test_it.py::test_layout --gradproof-gradcheck=replace --gradproof-seed={seed}"
    )
    run(*shlex.split(line)[1:], "--gradproof-report=report.json")
    assert [again["report"]["seed"] for again in document(pytester)["reports"]] == [seed]


KINK = """
import torch
from torch.autograd import gradcheck

def test_kink():
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    answer = gradcheck(torch.nn.functional.leaky_relu, (x,), raise_exception=False)
    assert answer in (True, False)
"""


def test_a_doubt_warns_at_the_line_of_the_test(run, pytester):
    pytester.makepyfile(test_it=KINK)
    result = run("--gradproof-gradcheck=replace", "-W", "default")
    line = [" gradcheck(" in line for line in KINK.strip().splitlines()].index(True)
    result.stdout.fnmatch_lines([f"*test_it.py:{line + 1}: DerivativeWarning: leaky_relu: *"])


def test_everything_is_as_it_was_after_the_run(run):
    code, signature = gradcheck.__code__, inspect.signature(gradcheck)
    run("--gradproof-gradcheck=replace", "-k", "refusal")
    assert gradcheck.__code__ is code
    assert inspect.signature(gradcheck) == signature
    assert "__signature__" not in vars(gradgradcheck)


COUNTED = """
import pytest
import torch
import gradproof.torch
from gradproof import assert_derivatives
from gradproof.torch import gradcheck, gradgradcheck

@pytest.fixture(scope="module")
def checked_once():
    gradcheck(torch.exp, (x(),))

def x():
    return torch.ones(2, dtype=torch.float64, requires_grad=True)

def test_drop_in(checked_once):
    assert gradcheck(torch.sin, (x(),)) and gradgradcheck(torch.sin, (x(),))

def test_assert():
    assert_derivatives(torch.sin, (x(),))

def test_refused():
    assert not gradcheck(lambda x: x.detach() * x, (x(),), raise_exception=False)
"""


def test_faces_that_assert_are_counted_reported_and_repeated_without_any_option(run, pytester):
    pytester.makepyfile(test_it=COUNTED)
    result = run("--gradproof-report=report.json", "--gradproof-seed=11")
    assert result.parseoutcomes() == {"passed": 3}
    result.stdout.fnmatch_lines(["gradproof: 4 derivatives verified to *, 1 failed"])
    reports = [row["report"] for row in document(pytester)["reports"]]
    assert {report["seed"] for report in reports} == {11}
    assert reports[-1]["repeat"] == "pytest test_it.py::test_refused --gradproof-seed=11"
