"""What a verdict costs, counted by the function itself: the promises of the README in calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.autograd.function import once_differentiable

import gradproof
from exhibits.frame import normal, spoilt
from gradproof.torch import GradcheckError, gradcheck

SIZES = (10, 1000, 100_000)
ROW, COLUMN, ERROR = 31_415, 92_653, 0.125


class Counted:
    """A function that counts its runs and those of its backward.

    Args:
        fn: the function.
    """

    def __init__(self, fn: Callable[..., torch.Tensor]) -> None:
        self.fn, self.runs, self.backwards = fn, 0, 0

    def __call__(self, *arguments: torch.Tensor) -> torch.Tensor:
        self.runs += 1
        y = self.fn(*arguments)
        if y.requires_grad:
            y.register_hook(self._pulled)
        return y

    def _pulled(self, gradient: torch.Tensor) -> None:
        self.backwards += 1


class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, v):
        (y,) = ctx.saved_tensors
        return v * (1 - y * y)


class WrongTanh(Tanh):
    @staticmethod
    def backward(ctx, v):
        """One entry of the Jacobian is too large."""
        error = torch.zeros_like(v)
        error[COLUMN] = ERROR
        return Tanh.backward(ctx, v) + error * v[ROW]


class OnceTanh(Tanh):
    backward = staticmethod(once_differentiable(Tanh.backward))


class OnceWrongTanh(Tanh):
    backward = staticmethod(once_differentiable(WrongTanh.backward))


RIGHT = {"tanh": torch.tanh, "custom": Tanh.apply, "once differentiable": OnceTanh.apply}
WRONG = {"twice differentiable": WrongTanh.apply, "once differentiable": OnceWrongTanh.apply}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_costs_40_runs_and_50_vjps_at_any_size(name: str, size: int) -> None:
    counted = Counted(RIGHT[name])
    report = gradproof.check(counted, normal(size), seed=0)
    assert report.verdict == "passed", str(report)
    assert report.calls["function"] <= 40
    assert report.calls["vjp"] <= 50
    assert counted.runs == report.calls["function"]
    assert counted.backwards <= 50


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_entry_of_ten_to_the_ten_is_found_in_60_runs_and_60_vjps(name: str) -> None:
    counted = Counted(WRONG[name])
    report = gradproof.check(counted, normal(100_000), seed=0, checks=["backward"])
    (finding,) = report["backward"].findings
    assert (finding.output_index, finding.input_index) == ((ROW,), (COLUMN,))
    assert finding.claimed == ERROR
    assert abs(finding.measured) <= finding.error < 1e-9
    assert report.calls["function"] <= 60
    assert report.calls["vjp"] <= 60
    assert counted.runs == report.calls["function"]
    assert counted.backwards <= 60


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", RIGHT)
def test_gradcheck_of_a_right_function_costs_22_runs_and_30_vjps_at_any_size(
    name: str, size: int
) -> None:
    counted = Counted(RIGHT[name])
    assert gradcheck(counted, normal(size))
    assert counted.runs <= 22
    assert counted.backwards <= 30


def _layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias)


SEVERAL = {
    "matmul": (torch.matmul, (normal(8, 8), normal(8, 5))),
    "layer_norm": (_layer_norm, (normal(4, 16), normal(16), normal(16))),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_of_several_inputs_each_subset_costs_one_run_and_one_vjp_more(name: str) -> None:
    fn, inputs = SEVERAL[name]
    calls = gradproof.check(fn, inputs, seed=0).calls
    subsets = 2 ** len(inputs) - 2
    together = subsets - len(inputs)  # sets of two inputs or more without a tangent
    assert calls["function"] <= 40 + subsets + together
    assert calls["vjp"] <= 35 + subsets


# What a refusal costs beside PyTorch's slow mode, which runs the function twice for every input.

MISTAKES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "every entry by a factor": lambda g: 1.1 * g,
    "one entry": lambda g: torch.cat([g[:6], 1.1 * g[6:7], g[7:]]),
    "a tail of zeros": lambda g: torch.cat([g[:-4], 0 * g[-4:]]),
}
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "by entries": torch.sin,
    "dense": lambda x: torch.softmax(x, 0),
    "of one output": lambda x: torch.sin(x).sum(),
}


@pytest.mark.parametrize("size", [20, 100])
@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_refusal_of_the_drop_in_takes_four_times_the_runs_of_slow_mode(
    name: str, mistake: str, size: int
) -> None:
    mistaken = spoilt(FUNCTIONS[name], MISTAKES[mistake])
    with pytest.raises(GradcheckError) as caught:
        gradcheck(mistaken, (normal(size, seed=size),))
    report = caught.value.report
    assert report.calls["function"] <= 8 * size + 80
    assert {cause.name for cause in report["backward"].causes} <= {"factor", "zero"}
    assert report["backward"].where


def test_what_cannot_be_decided_costs_twice_the_runs_of_slow_mode() -> None:
    verdicts = set()
    for seed in range(1, 5):  # which of them is decided depends on the rounding of the machine
        counted = Counted(lambda x: torch.cdist(x, x))  # once differentiable; noise at infinity
        verdicts.add(gradproof.check(counted, normal(30, 2, seed=seed), seed=0).verdict)
        assert counted.runs + counted.backwards <= 2 * (2 * 60 + 2 * 900)
    assert "inconclusive" in verdicts
    assert "failed" not in verdicts


def test_the_checks_share_the_first_products_of_both_modes() -> None:
    report = gradproof.check(torch.tanh, normal(25), seed=0)
    assert report.verdict == "passed", str(report)
    assert report["forward"].calls == {"function": 1, "jvp": 1}
    assert not report["forward_vs_backward"].calls
    assert report["determinism"].calls == {"vjp": 4}
