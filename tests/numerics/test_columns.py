"""Columns of a Jacobian that are moved together are what they are alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

from gradproof._data.settings import Settings
from gradproof._measure import jacobian
from numpy_map import FunctionMap, Linear

torch = pytest.importorskip("torch")

import gradproof  # noqa: E402  (of the inputs below)
from gradproof.errors import DerivativeWarning  # noqa: E402
from gradproof.torch import gradcheck  # noqa: E402

Vector = np.ndarray


def windows(x: Vector) -> Vector:
    return np.sin(x).reshape(-1, 3).max(1)


ALIKE = {
    "waves": (np.sin, 12, np.eye(12)),
    "corners": (np.abs, 12, np.zeros((12, 12))),
    "jumps": (np.floor, 12, np.zeros((12, 12))),
    "windows": (windows, 12, np.kron(np.eye(4), np.asarray([1.0, 0, 0]))),
    "sums of neighbours": (lambda x: x**2 + np.roll(x, 1), 12, np.eye(12)),
    "one output": (lambda x: np.sum(np.abs(x), keepdims=True), 12, np.zeros((1, 12))),
}


def counted(fn: Callable[[Vector], Vector], x: Vector) -> tuple[FunctionMap, list[int]]:
    calls: list[int] = []

    def value(x: Vector) -> Vector:
        calls.append(1)
        return fn(x)

    return FunctionMap(value, x.tolist(), Linear.diagonal(np.ones(x.shape[0]))), calls


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # which the engine ignores too
@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.parametrize("at", ["zero", "elsewhere"])
def test_columns_moved_together_are_what_they_are_alone(name: str, at: str) -> None:
    fn, size, claimed = ALIKE[name]
    x = np.zeros(size) if at == "zero" else np.linspace(0.5, 1.5, size)
    apart, slow = counted(fn, x)
    shared, fast = counted(fn, x)
    one = jacobian.columns(apart, Settings(seed=0))
    other = jacobian.columns(shared, Settings(seed=0), claimed=claimed)
    np.testing.assert_allclose(one.value, other.value, atol=1e-9)
    np.testing.assert_allclose(one.kink, other.kink, atol=1e-9)
    assert (np.isfinite(one.error) == np.isfinite(other.error)).all()
    if name in ("waves", "corners", "windows"):
        assert len(fast) < 0.75 * len(slow)
    for j in (0, size - 1):
        alone, here = (jacobian.sides(map_, Settings(seed=0), j) for map_ in (apart, shared))
        np.testing.assert_allclose(alone.left, here.left, atol=1e-9)
        np.testing.assert_allclose(alone.right, here.right, atol=1e-9)
        assert (alone.kind == here.kind).all()


def test_fifty_corners_cost_little_more_than_one() -> None:
    x = torch.zeros(50, dtype=torch.float64, requires_grad=True)
    report = gradproof.check(torch.relu, (x,), checks=["backward"], seed=0)
    assert report.verdict == "passed", str(report)
    assert len(report["backward"].kinks) == 50
    assert report.calls["function"] <= 150  # 8 and 14 for each alone


def test_jumps_in_half_of_the_inputs_cost_no_more_than_slow_mode() -> None:
    x = torch.linspace(0.2, 0.8, 25, dtype=torch.float64).requires_grad_()
    target = torch.tensor([1.0, -1.0] * 12 + [1.0], dtype=torch.float64, requires_grad=True)
    runs = []

    def hinge(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return torch.nn.functional.hinge_embedding_loss(x, target, reduction="none")

    with pytest.warns(DerivativeWarning, match="plain central difference"):
        assert gradcheck(hinge, (x, target))
    assert len(runs) <= 101


HALF = torch.linspace(0.2, 0.8, 25, dtype=torch.float64)
SIGNS = torch.tensor([1.0, -1.0] * 12 + [1.0], dtype=torch.float64)


def _near_few_zeros(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x - HALF[[3, 9]].repeat_interleave(len(x) // 2)).sum()


@pytest.mark.parametrize(
    ("loss", "inputs", "slow", "times"),
    [
        (torch.nn.functional.hinge_embedding_loss, (HALF, SIGNS), 102, 4),
        (torch.nn.functional.l1_loss, (HALF, torch.cat([HALF[:3], HALF[3:] + 0.1])), 102, 4),
        (_near_few_zeros, (HALF.repeat(2),), 102, 4),
    ],
)
def test_jumps_and_kinks_that_are_added_up_cost_a_few_times_slow_mode(
    loss: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...], slow: int, times: int
) -> None:
    """All columns meet in one output: they are measured in parts, alone only beside a kink."""
    runs = []

    def counted(*given: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return loss(*given)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DerivativeWarning)
        assert gradcheck(counted, tuple(x.clone().requires_grad_() for x in inputs))
    assert len(runs) <= times * slow


class HalfRelu(torch.autograd.Function):
    """The sum of relu with half of its slope at zero, one other slope times `factor`."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return (x.relu() * (1 + x.square())).sum()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        slope = torch.where(x == 0, 0.5, (x > 0) * (1 + 3 * x.square()))
        slope[5] *= ctx.factor
        return g * slope, None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, "passed"), (1.001, "failed"), (0.0, "failed")]
)
def test_a_part_of_the_inputs_beside_kinks_is_held_to_account(
    factor: float, verdict: str, seed: int
) -> None:
    x = (torch.arange(-10, 31, dtype=torch.float64) / 10).roll(11).requires_grad_()
    report = gradproof.check(
        lambda x: HalfRelu.apply(x, factor), (x,), checks=["backward"], seed=seed
    )
    assert report.verdict == verdict, str(report)
    if verdict == "failed":
        assert [str(found.input) for found in report["backward"].findings] == ["x[5]"]


class BesideLarger(torch.autograd.Function):
    """A kink, a square of size 3, and a sine of 1e-8 whose slope is wrong by a factor."""

    @staticmethod
    def forward(ctx, x, z, factor):
        ctx.save_for_backward(x, z)
        ctx.factor = factor
        return x.relu().sum() + 10 * z[0].square() + 1e-8 * z[1].sin() + z[2].sin()

    @staticmethod
    def backward(ctx, g):
        x, z = ctx.saved_tensors
        slopes = torch.stack([20 * z[0], 1e-8 * ctx.factor * z[1].cos(), z[2].cos()])
        return g * torch.where(x == 0, 0.5, (x > 0).to(x.dtype)), g * slopes, None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "passed"), (1.1, "failed")])
def test_a_column_that_is_lost_in_its_part_is_measured_alone(
    factor: float, verdict: str, seed: int
) -> None:
    x = torch.tensor([0.0, 1.0, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    z = torch.tensor([0.3, 0.4, 0.5], dtype=torch.float64, requires_grad=True)
    report = gradproof.check(
        lambda x, z: BesideLarger.apply(x, z, factor), (x, z), checks=["backward"], seed=seed
    )
    assert report.verdict == verdict, str(report)
    wrong = [str(found.input) for found in report["backward"].findings]
    assert wrong == (["z[1]"] if verdict == "failed" else [])


class Shifted(torch.autograd.Function):
    """Half of the slope of relu at zero, and `share` of the slope of the input before."""

    @staticmethod
    def forward(ctx, x, share):
        ctx.save_for_backward(x)
        ctx.share = share
        return x.relu() + 0.3 * x.roll(1)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        before = torch.where(x.roll(-1) == 0, ctx.share, 0.3) * g.roll(-1)
        slope = torch.where(x == 0, 0.5, (x > 0).to(x.dtype))
        return before + slope * g, None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("share", "verdict"), [(0.3, "passed"), (0.0, "failed")])
def test_what_is_claimed_to_act_on_nothing_is_asked_of_the_function(
    share: float, verdict: str, seed: int
) -> None:
    """A slope of 0.3 that is forgotten hides between 0 and 1, where columns are moved together."""
    x = torch.zeros(8, dtype=torch.float64, requires_grad=True)
    report = gradproof.check(
        lambda x: Shifted.apply(x, share), (x,), checks=["backward"], seed=seed
    )
    assert report.verdict == verdict, str(report)
