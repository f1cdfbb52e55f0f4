"""One result for every check asked for, whatever the user's function does; then a report."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import gradproof
from exhibits.frame import ruled
from gradproof import CheckResult, DerivativeError, Report, Verdict
from gradproof.errors import DerivativeWarning, UsageError

POINT = np.linspace(0.1, 1.0, 8)
ORDER = ["backward", "forward_vs_backward", "linearity", "determinism", "side_effects"]


def cosine(x, v):
    return np.cos(x) * v


def sine_with(vjp=cosine, jvp=None):
    return gradproof.by_hand(lambda x: np.sin(x), vjp=vjp, jvp=jvp)


def raising(error: BaseException):
    def backward(x, v):
        raise error

    return backward


def report_of(fn, *checks: str, seed: int = 0, **options) -> Report:
    return gradproof.check(fn, POINT, checks=list(checks), seed=seed, **options)


def report_with(**verdicts: Verdict) -> Report:
    checks = tuple(CheckResult(name, verdict, "") for name, verdict in verdicts.items())
    return Report("f", (), (), checks, {}, 0.0, 0)


# Which checks run --------------------------------------------------------------------------------


def test_every_check_asked_for_has_a_result_in_one_order() -> None:
    report = report_of(sine_with(), *reversed(ORDER))
    assert [result.name for result in report.checks] == ORDER


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("second_order", "not asked for; order=2 asks for it"),
        ("forward", "give jvp= or jac="),
        ("forward_vs_backward", "give jvp= or jac="),
    ],
)
def test_what_is_not_there_or_not_asked_for_is_skipped_with_its_reason(name, why) -> None:
    result = report_of(sine_with(), name)[name]
    assert result.verdict is Verdict.SKIPPED
    assert why in result.summary


# Budgets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [2, 5, 9])
def test_a_spent_budget_is_inconclusive_and_says_so(budget: int) -> None:
    runs = []
    hand = gradproof.by_hand(lambda x: runs.append(1) or np.sin(x), vjp=cosine)
    result = report_of(hand, "backward", budget=budget)["backward"]
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.summary == f"the budget of {budget} calls is spent; raise budget="
    assert len(runs) <= budget + 1  # F once more, for its shape


def test_a_budget_spent_by_one_check_leaves_the_others_inconclusive() -> None:
    report = report_of(sine_with(), "backward", "linearity", "determinism", budget=10)
    assert {str(result.verdict) for result in report.checks} == {"inconclusive"}


# What the user's code raises ---------------------------------------------------------------------


def test_a_backward_that_raises_is_a_failed_finding_and_not_the_end_of_the_run() -> None:
    hand = sine_with(raising(RuntimeError("no kernel for half")), jvp=cosine)
    report = report_of(hand, "backward", "forward", "linearity")
    assert report["backward"].verdict is Verdict.FAILED
    assert report["forward"].verdict is Verdict.PASSED
    (finding,) = report["backward"].findings
    assert finding.kind == "raised"
    said, place = finding.message.split(", in backward ")
    assert said == "RuntimeError: no kernel for half"
    assert place.startswith("(test_engine.py:")
    assert "no kernel for half" in report["backward"].summary


@pytest.mark.parametrize("error", [UsageError("names: two inputs"), MemoryError()])
def test_errors_that_are_not_about_the_derivative_end_the_run(error: Exception) -> None:
    with pytest.raises(type(error)):
        report_of(sine_with(raising(error)), "backward")


# Seeds -------------------------------------------------------------------------------------------


def without_times(report: Report) -> Report:
    checks = tuple(replace(result, seconds=0.0) for result in report.checks)
    return replace(report, seconds=0.0, checks=checks)


def test_one_seed_gives_one_report() -> None:
    wrong = sine_with(lambda x, v: 1.01 * cosine(x, v), jvp=cosine)
    first, second = (without_times(report_of(wrong, *ORDER, seed=17)) for _ in range(2))
    assert first == second
    assert first.seed == 17


def test_without_a_seed_every_run_draws_and_records_its_own() -> None:
    seeds = {report_of(sine_with(), "linearity", seed=None).seed for _ in range(8)}
    assert len(seeds) == 8


# The report --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ((), "skipped"),
        (("skipped", "skipped"), "skipped"),
        (("skipped", "passed"), "passed"),
        (("passed", "inconclusive", "skipped"), "inconclusive"),
        (("inconclusive", "failed", "passed"), "failed"),
    ],
)
def test_the_worst_verdict_is_that_of_the_report(verdicts: tuple[str, ...], expected: str) -> None:
    report = report_with(**{f"check {k}": Verdict(each) for k, each in enumerate(verdicts)})
    assert report.verdict == expected
    assert bool(report) == (expected != "failed")


def test_nothing_passes_where_no_mode_of_differentiation_could_be_asked() -> None:
    skipped, passed = Verdict.SKIPPED, Verdict.PASSED
    neither = report_with(backward=skipped, forward=skipped, side_effects=passed)
    assert neither.verdict == "skipped"
    assert report_with(side_effects=passed).verdict == "passed"
    assert report_with(backward=passed, forward=skipped, side_effects=passed).verdict == "passed"


# How inputs are handed over ----------------------------------------------------------------------


@pytest.mark.parametrize("inputs", [(), (1.0, "a"), np.ones(3), None, {"x": 2}])
def test_inputs_without_an_array_of_a_framework_are_refused(inputs: object) -> None:
    with pytest.raises(UsageError, match="inputs: expected at least one array"):
        gradproof.check(lambda x: x, inputs)


def leaf() -> torch.Tensor:
    return torch.linspace(0.1, 1, 4, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("key", ["a", "params"])
def test_a_dict_is_the_one_argument_whatever_its_keys(key: str) -> None:
    report = gradproof.check(lambda params: params[key][0].sin(), {key: [leaf()]}, seed=0)
    assert report.verdict is Verdict.PASSED
    assert report.inputs[0].startswith(f"params['{key}'][0]")


# Asserting ---------------------------------------------------------------------------------------


def test_asserting_raises_with_the_report_of_a_wrong_derivative() -> None:
    with pytest.raises(DerivativeError) as caught:
        gradproof.assert_derivatives(ruled(torch.clone, lambda v, x: 2 * v), leaf())
    assert isinstance(caught.value, AssertionError)
    assert caught.value.report["backward"].verdict is Verdict.FAILED
    assert str(caught.value) == str(caught.value.report)


def test_asserting_warns_of_what_is_undecided_or_raises_or_says_nothing() -> None:
    """A gradient 25 % too large, in a precision whose differences do not resolve it."""
    fn = ruled(torch.tanh, lambda v, x: 1.25 * v * (1 - x.tanh() ** 2))
    x = torch.linspace(0.1, 1, 5, dtype=torch.bfloat16).requires_grad_()
    native = gradproof.Settings(references=["native"])
    options = {"settings": native, "checks": ["backward"], "seed": 1}
    with pytest.warns(DerivativeWarning, match="^inconclusive: .*tanh: backward: ") as warned:
        report = gradproof.assert_derivatives(fn, (x,), **options)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert warned[0].filename == __file__
    with pytest.raises(DerivativeError) as caught:
        gradproof.assert_derivatives(fn, (x,), inconclusive="error", **options)
    assert caught.value.report.verdict is Verdict.INCONCLUSIVE
    gradproof.assert_derivatives(fn, (x,), inconclusive="ignore", **options)
    with pytest.raises(UsageError, match="inconclusive: expected one of warn, error, ignore"):
        gradproof.assert_derivatives(fn, (x,), inconclusive=True, **options)


@pytest.mark.parametrize(
    ("checks", "why"),
    [([], "nothing was checked"), (["sparse"], "sparse: every entry of every input")],
)
def test_asserting_refuses_to_test_nothing(checks: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=f"checks: nothing of sin was tested: {why}"):
        gradproof.assert_derivatives(torch.sin, leaf(), checks=checks)


# Tracebacks --------------------------------------------------------------------------------------


def theirs_raises(x):
    raise ValueError("theirs") from KeyError("cause")


def test_an_error_of_the_users_function_shows_no_frame_of_ours_but_the_first() -> None:
    with pytest.raises(ValueError, match="theirs") as caught:
        gradproof.assert_derivatives(theirs_raises, (leaf(),))
    names = [entry.name for entry in caught.traceback]
    assert names[1:] == ["assert_derivatives", "theirs_raises"]
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(UsageError) as caught:
        gradproof.assert_derivatives(theirs_raises, (leaf(),), order=7)
    assert [entry.name for entry in caught.traceback][1:] == ["assert_derivatives"]
