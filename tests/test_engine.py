"""The engine: one result for every check asked for, whatever the map does; then a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

import gradproof
from gradproof import CheckResult, DerivativeError, Report, Verdict
from gradproof._data.settings import CHECK_NAMES, RunSettings, run_settings
from gradproof._data.watch import Observer, observe_runs
from gradproof._engine import run_checks
from gradproof._maps import contract
from gradproof._maps.contract import Unsupported
from gradproof.errors import DerivativeWarning, UsageError
from numpy_map import FunctionMap, Linear, report_of

POINT = np.linspace(0.1, 1.0, 8)
RIGHT = Linear.diagonal(np.cos(POINT))


def _map(claimed: Linear = RIGHT, **options: object) -> FunctionMap:
    return FunctionMap(np.sin, POINT, claimed, **options)


def _raising(error: Exception) -> Linear:
    def backward(v: np.ndarray) -> np.ndarray:
        raise error

    return Linear(RIGHT.forward, backward)


def _timeless(report: Report) -> Report:
    checks = tuple(replace(result, seconds=0.0) for result in report.checks)
    return replace(report, seconds=0.0, checks=checks)


def _report(*verdicts: Verdict) -> Report:
    checks = tuple(CheckResult(f"check {k}", v, "") for k, v in enumerate(verdicts))
    return Report("f", (), (), checks, {}, 0.0, 0)


def test_every_check_asked_for_has_a_result_in_the_order_of_the_table() -> None:
    report = report_of(_map(), *reversed(CHECK_NAMES))
    assert tuple(result.name for result in report.checks) == CHECK_NAMES


def test_only_the_checks_asked_for_run() -> None:
    map_ = _map(forward=True)
    report = report_of(map_, "backward", "linearity")
    assert [result.name for result in report.checks] == ["backward", "linearity"]
    assert map_.calls["jvp"] == 0


@pytest.mark.parametrize("budget", [2, 5, 9])
def test_a_spent_budget_is_inconclusive_and_says_so(budget: int) -> None:
    map_ = _map(transposes=True)
    result = report_of(map_, "backward", budget=budget)["backward"]
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.summary == f"the budget of {budget} calls is spent; raise budget="
    assert map_.calls.total() <= budget + 1  # F once more, for its shape


def test_a_budget_spent_by_one_check_leaves_the_others_inconclusive() -> None:
    report = report_of(_map(), "backward", "linearity", "determinism", budget=10)
    assert {str(result.verdict) for result in report.checks} == {"inconclusive"}


def test_a_spent_budget_in_seconds_is_inconclusive_and_says_so() -> None:
    map_ = _map(transposes=True)
    report = report_of(map_, "backward", "linearity", budget_seconds=1e-12)
    for result in report.checks:
        assert result.verdict is Verdict.INCONCLUSIVE
        assert result.summary == "the budget of 1e-12 seconds is spent; raise budget_seconds="
    assert map_.calls.total() == 0


def test_a_budget_in_seconds_holds_for_what_is_made_from_the_map(monkeypatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(contract, "monotonic", lambda: next(clock))
    map_ = FunctionMap(np.sin, POINT, RIGHT, jacobian=lambda x: RIGHT)
    map_.counts.limit(99, 3.5)
    moved = map_.map_at(POINT)
    for _ in range(3):
        moved.value(POINT)
    with pytest.raises(contract.BudgetSpent, match=r"3\.5 seconds"):
        moved.value(POINT)
    assert map_.counts["function"] == 3


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_budget_in_seconds_is_positive_and_finite(seconds: float) -> None:
    with pytest.raises(UsageError, match="budget_seconds"):
        run_settings(budget_seconds=seconds)


def test_a_wide_budget_is_never_mentioned() -> None:
    assert report_of(_map(), "backward", budget=1000)["backward"].verdict is Verdict.PASSED


def test_a_backward_that_raises_is_a_failed_finding_and_not_the_end_of_the_run() -> None:
    map_ = _map(_raising(RuntimeError("no kernel for half")), forward=True)
    report = report_of(map_, "backward", "forward", "linearity")
    assert report["backward"].verdict is Verdict.FAILED
    assert report["forward"].verdict is Verdict.PASSED
    (finding,) = report["backward"].findings
    assert finding.kind == "raised"
    said, place = finding.message.split(", in backward ")
    assert said == "RuntimeError: no kernel for half"
    assert place.startswith("(test_engine.py:")
    assert "no kernel for half" in report["backward"].summary


def test_an_error_without_message_is_worded_all_the_same() -> None:
    (finding,) = report_of(_map(_raising(KeyError())), "backward")["backward"].findings
    assert finding.message.startswith("KeyError")


@pytest.mark.parametrize("error", [UsageError("names: two inputs"), MemoryError()])
def test_errors_that_are_not_about_the_derivative_end_the_run(error: Exception) -> None:
    with pytest.raises(type(error)):
        report_of(_map(_raising(error)), "backward")


def test_an_interrupt_ends_the_run() -> None:
    def backward(v: np.ndarray) -> np.ndarray:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        report_of(_map(Linear(RIGHT.forward, backward)), "backward")


class Seen(Observer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.checks: list[tuple[str, str, tuple[int, int]]] = []
        self.calls: Mapping[str, int] = {}
        self.reports: list[Report] = []

    def check_started(
        self, target: str, check: str, position: tuple[int, int], calls: Mapping[str, int]
    ) -> None:
        self.checks.append((target, check, position))
        self.calls = calls

    def run_interrupted(self, report: Report) -> None:
        self.reports.append(report)


def test_an_observer_is_told_of_every_check_and_sees_the_calls() -> None:
    seen = Seen()
    with observe_runs(seen):
        report = report_of(_map(), "backward", "linearity")
    assert seen.checks == [("f", "backward", (1, 2)), ("f", "linearity", (2, 2))]
    assert seen.calls["function"] == report.calls["function"]
    assert seen.reports == []


def test_nobody_is_told_outside_the_block_and_the_innermost_inside() -> None:
    outer, inner = Seen(), Seen()
    with observe_runs(outer):
        with observe_runs(inner):
            report_of(_map(), "linearity")
        assert outer.checks == []
    report_of(_map(), "linearity")
    assert len(inner.checks) == 1
    assert outer.checks == []


def test_an_interrupt_hands_over_what_is_known_and_carries_on() -> None:
    def gradient_traits(v: np.ndarray) -> None:
        raise KeyboardInterrupt

    seen, closed = Seen(), []
    map_ = _map(RIGHT.with_entries({(1, 2): 0.3}), extra={"gradient_traits": gradient_traits})
    map_.close = lambda: closed.append(True)  # type: ignore[attr-defined]
    with observe_runs(seen), pytest.raises(KeyboardInterrupt):
        report_of(map_, "backward", "grad_metadata", "determinism", "side_effects")
    [report] = seen.reports
    assert closed == [True]
    assert [(r.name, str(r.verdict)) for r in report.checks] == [
        ("backward", "failed"),
        ("grad_metadata", "inconclusive"),
        ("determinism", "skipped"),
        ("side_effects", "skipped"),
    ]
    assert "interrupted" in report["grad_metadata"].summary
    assert "not reached" in report["side_effects"].summary
    assert not report


@pytest.mark.parametrize("error", [None, UsageError("stop")])
def test_a_map_is_closed_whatever_happens(error: Exception | None) -> None:
    closed = []
    map_ = _map(_raising(error) if error else RIGHT)
    map_.close = lambda: closed.append(True)  # type: ignore[attr-defined]
    if error is None:
        report_of(map_, "backward")
    else:
        with pytest.raises(UsageError):
            report_of(map_, "backward")
    assert closed == [True]


def test_one_seed_gives_one_report() -> None:
    wrong = RIGHT.with_entries({(3, 5): 0.1})
    reports = [
        _timeless(report_of(_map(wrong, forward=True), *CHECK_NAMES, seed=17)) for _ in range(2)
    ]
    assert reports[0] == reports[1]
    assert reports[0].seed == 17


def test_another_seed_measures_along_another_direction() -> None:
    moves = []
    for seed in (1, 2):
        points: list[np.ndarray] = []
        map_ = FunctionMap(lambda x, seen=points: seen.append(x) or np.sin(x), POINT, RIGHT)
        report_of(map_, "backward", seed=seed)
        moves.append(np.stack(points))
    assert not np.array_equal(moves[0][3], moves[1][3])


def test_without_a_seed_every_run_draws_and_records_its_own() -> None:
    seeds = {
        run_checks(_map(), RunSettings(checks=("linearity",)), target="f").seed for _ in range(8)
    }
    assert len(seeds) == 8


def test_what_is_unsupported_is_skipped_with_its_reason() -> None:
    def refusing(v: np.ndarray) -> tuple[()]:
        raise Unsupported("this framework has no dtype")

    result = report_of(_map(extra={"gradient_traits": refusing}), "grad_metadata")["grad_metadata"]
    assert result.verdict is Verdict.SKIPPED
    assert result.summary == "this framework has no dtype"


def test_what_is_required_and_unsupported_fails() -> None:
    result = report_of(_map(), "forward", required=frozenset({"forward"}))["forward"]
    assert result.verdict is Verdict.FAILED
    assert [finding.kind for finding in result.findings] == ["unsupported"]
    assert result.summary == "no forward mode"


def test_forward_mode_is_not_asked_again_once_it_is_refused() -> None:
    asked = []

    def refusing(u: np.ndarray) -> np.ndarray:
        asked.append(1)
        raise Unsupported("no jvp formula")

    map_ = _map(extra={"jvp": refusing})
    report = report_of(map_, "forward", "forward_vs_backward", "batched_forward")
    assert {result.summary for result in report.checks} == {"no jvp formula"}
    assert len(asked) <= 3  # once by each check


def test_second_order_is_skipped_unless_asked_for() -> None:
    result = report_of(_map(), "second_order")["second_order"]
    assert result.verdict is Verdict.SKIPPED
    assert "order=2" in result.summary


def _with_derivative(claimed: Linear) -> FunctionMap:
    """sin, whose backward is (x, v) -> v cos(x)."""

    def derivative(v: np.ndarray) -> FunctionMap:
        made = FunctionMap(
            lambda xv: xv[8:] * np.cos(xv[:8]),
            np.concatenate([POINT, v]),
            claimed if claimed is not RIGHT else _second(v),
        )
        made.counts = map_.counts
        return made

    map_ = _map(extra={"derivative": derivative})
    return map_


def _second(v: np.ndarray) -> Linear:
    return Linear.dense(np.hstack([np.diag(-v * np.sin(POINT)), np.diag(np.cos(POINT))]))


def test_order_two_judges_the_derivative_of_the_backward() -> None:
    right = report_of(_with_derivative(RIGHT), "second_order", order=2)["second_order"]
    assert right.verdict is Verdict.PASSED
    assert right.calls["function"] > 0
    detached = Linear.dense(np.hstack([np.zeros((8, 8)), np.diag(np.cos(POINT))]))
    wrong = report_of(_with_derivative(detached), "second_order", order=2)["second_order"]
    assert wrong.verdict is Verdict.FAILED
    assert {finding.check for finding in wrong.findings} == {"second_order"}
    assert {f.input_index[0] - f.output_index[0] for f in wrong.findings} == {0}


def test_calls_are_counted_as_they_are_made() -> None:
    map_ = _map(forward=True, transposes=True)
    report = report_of(
        map_, "backward", "forward", "forward_vs_backward", "linearity", "determinism"
    )
    assert report.calls == {
        "function": map_.calls["value"],
        "jvp": map_.calls["jvp"],
        "vjp": map_.calls["vjp"],
    }
    by_check = sum(result.calls.get("function", 0) for result in report.checks)
    assert by_check == report.calls["function"]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ((), "skipped"),
        (("skipped", "skipped"), "skipped"),
        (("skipped", "passed"), "passed"),
        (("passed", "inconclusive", "skipped"), "inconclusive"),
        (("inconclusive", "failed", "passed"), "failed"),
        (("passed", "failed"), "failed"),
    ],
)
def test_the_worst_verdict_is_that_of_the_report(verdicts: tuple[str, ...], expected: str) -> None:
    report = _report(*map(Verdict, verdicts))
    assert report.verdict == expected
    assert bool(report) == (expected != "failed")


def test_nothing_passes_where_no_mode_of_differentiation_could_be_asked() -> None:
    names = {
        "backward": Verdict.SKIPPED,
        "forward": Verdict.SKIPPED,
        "side_effects": Verdict.PASSED,
    }
    report = replace(_report(), checks=tuple(CheckResult(n, v, "") for n, v in names.items()))
    assert report.verdict == "skipped"
    alone = replace(report, checks=report.checks[2:])
    assert alone.verdict == "passed"
    both = (replace(report.checks[0], verdict=Verdict.PASSED), *report.checks[1:])
    assert replace(report, checks=both).verdict == "passed"


def test_a_result_is_had_by_the_name_of_its_check() -> None:
    report = report_of(_map(), "backward", "linearity")
    assert report["linearity"] is report.checks[1]
    with pytest.raises(KeyError, match="forward"):
        report["forward"]


def test_findings_and_notes_are_those_of_all_checks() -> None:
    report = report_of(_map(RIGHT.scaled(2.0), forward=True), "backward", "forward")
    counts = [len(result.findings) for result in report.checks]
    assert counts == [8, 8]
    assert len(report.findings) == 16


def test_the_report_names_what_was_checked() -> None:
    report = run_checks(
        _map(inputs=[(2, 2), (4,)]), RunSettings(checks=("backward",), seed=0), target="mine"
    )
    assert report.target == "mine"
    assert [line.split(":")[0] for line in report.inputs] == ["x0", "x1"]
    assert [line.split(":")[0] for line in report.outputs] == ["y"]


def _leaf() -> torch.Tensor:
    return torch.linspace(0.1, 1, 4, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checks": ["backward", "sideways"]}, "checks: unknown 'sideways'; choose from value"),
        ({"order": 4}, "order: expected 1, 2 or 3, got 4"),
        ({"order": 0}, "order: expected 1, 2 or 3, got 0"),
        ({"rtol": -1e-3}, "rtol: expected a number >= 0, got -0.001"),
        ({"rtol": float("nan")}, "rtol: expected a number >= 0, got nan"),
        ({"atol": -1.0}, "atol: expected a number >= 0, got -1.0"),
        ({"budget": 0}, "budget: expected at least 1 call, got 0"),
        ({"budget": 1.5}, "budget: expected a whole number, got 1.5"),
        ({"rtol": "small"}, "rtol: expected a number, got 'small'"),
        ({"seed": "one"}, "seed: expected a whole number, got 'one'"),
        ({"seed": -1}, "seed: expected 0 <= seed"),
        ({"checks": "backward"}, "checks: expected a list of names, got 'backward'"),
    ],
)
def test_a_bad_option_is_refused_by_name(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        gradproof.check(torch.sin, _leaf(), **options)


@pytest.mark.parametrize("inputs", [(), (1.0, "a"), np.ones(3), None, {"x": 2}])
def test_inputs_without_an_array_of_a_framework_are_refused(inputs: object) -> None:
    with pytest.raises(UsageError, match="inputs: expected at least one array"):
        gradproof.check(lambda x: x, inputs)


@pytest.mark.parametrize("fn", [None, 3, torch.ones(2)])
def test_what_cannot_be_called_is_refused(fn: object) -> None:
    with pytest.raises(UsageError, match="fn: expected a function"):
        gradproof.check(fn, _leaf())  # type: ignore[arg-type]


def test_a_usage_error_is_a_value_error() -> None:
    assert issubclass(UsageError, ValueError)


def test_asserting_returns_the_report_of_a_right_derivative() -> None:
    report = gradproof.assert_derivatives(torch.sin, _leaf(), seed=1)
    assert report.verdict is Verdict.PASSED
    assert report.seed == 1


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx, v: torch.Tensor) -> torch.Tensor:
        return 2 * v


def test_asserting_raises_with_the_report_of_a_wrong_derivative() -> None:
    with pytest.raises(DerivativeError) as caught:
        gradproof.assert_derivatives(_Doubled.apply, _leaf())
    assert isinstance(caught.value, AssertionError)
    assert caught.value.report["backward"].verdict is Verdict.FAILED
    assert str(caught.value) == str(caught.value.report)


def _undecided() -> tuple[object, tuple[torch.Tensor, ...]]:
    """A gradient 25 % too large, in a precision whose differences do not resolve it."""

    class Tanh(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.tanh()

        @staticmethod
        def backward(ctx, v: torch.Tensor) -> torch.Tensor:
            return 1.25 * v * (1 - ctx.saved_tensors[0].tanh() ** 2)

    return Tanh.apply, (torch.linspace(0.1, 1, 5, dtype=torch.bfloat16).requires_grad_(),)


def test_asserting_warns_of_what_is_undecided_or_raises_or_says_nothing() -> None:
    fn, inputs = _undecided()
    native = gradproof.Settings(oracles=["native"])
    options = {"settings": native, "checks": ["backward"], "seed": 1}
    with pytest.warns(DerivativeWarning, match="^inconclusive: Tanh.apply: backward: ") as warned:
        report = gradproof.assert_derivatives(fn, inputs, **options)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert warned[0].filename == __file__
    with pytest.raises(DerivativeError) as caught:
        gradproof.assert_derivatives(fn, inputs, inconclusive="error", **options)
    assert caught.value.report.verdict is Verdict.INCONCLUSIVE
    gradproof.assert_derivatives(fn, inputs, inconclusive="ignore", **options)
    with pytest.raises(UsageError, match="inconclusive: expected one of warn, error, ignore"):
        gradproof.assert_derivatives(fn, inputs, inconclusive=True, **options)


@pytest.mark.parametrize(
    ("checks", "why"),
    [([], "nothing was checked"), (["sparse"], "sparse: every entry of every input")],
)
def test_asserting_refuses_to_test_nothing(checks: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=f"checks: nothing of sin was tested: {why}"):
        gradproof.assert_derivatives(torch.sin, _leaf(), checks=checks)


def test_checking_returns_the_report_of_a_wrong_derivative() -> None:
    report = gradproof.check(_Doubled.apply, _leaf(), checks=["backward"])
    assert not report
    assert {finding.claimed for finding in report.findings} == {2.0}


class TestHowInputsAreHandedOver:
    """A dict is one argument; keyword arguments go in kwargs."""

    def test_keyword_arguments_are_checked_likewise(self) -> None:
        x, weight = (torch.ones(3, dtype=torch.float64, requires_grad=True) for _ in range(2))

        def scaled(x: torch.Tensor, *, weight: torch.Tensor) -> torch.Tensor:
            return x.sin() * weight

        report = gradproof.check(scaled, x, {"weight": weight}, seed=0)
        assert report.verdict is Verdict.PASSED
        assert [line.split(":")[0] for line in report.inputs] == ["x", "weight"]

    def test_a_dict_whose_key_is_the_name_of_the_parameter_is_one_argument(self) -> None:
        x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        report = gradproof.check(lambda params: params["params"].sin(), {"params": x}, seed=0)
        assert report.verdict is Verdict.PASSED
        assert report.inputs[0].startswith("params['params']")

    def test_a_dict_is_the_one_argument(self) -> None:
        tree = {"a": [torch.ones(3, dtype=torch.float64, requires_grad=True)]}
        report = gradproof.check(lambda params: params["a"][0].sin(), tree, seed=0)
        assert report.verdict is Verdict.PASSED
        assert report.inputs[0].startswith("params['a'][0]")
