"""Points that are not smooth: named, with both slopes, and judged beside them and others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import gradproof
from claims import MODES, Linear, judge
from exhibits.corners import relu, slope_of_relu
from exhibits.frame import leaf, ruled, spoilt
from gradproof import CheckResult, Verdict
from seeds import seeds

PASSED, FAILED, INCONCLUSIVE = Verdict.PASSED, Verdict.FAILED, Verdict.INCONCLUSIVE


def with_slope(value: Any, slope: Any) -> Any:
    """`value` with a backward that multiplies with `slope(x)`."""
    return ruled(value, lambda g, x: g * slope(x))


def backward(fn: Any, *inputs: Any, seed: int = 0) -> CheckResult:
    return gradproof.check(fn, inputs, checks=["backward"], seed=seed)["backward"]


def relu_claiming(at_zero: float) -> Any:
    return with_slope(relu, lambda x: slope_of_relu(x, at_zero))


@pytest.mark.parametrize("claim", [0.0, 0.25, 1.0])
def test_a_claim_between_the_slopes_passes_by_name(claim: float) -> None:
    result = backward(relu_claiming(claim), leaf(0.0, 1.0))
    assert result.verdict is PASSED
    (kink,) = result.kinks
    assert (kink.kind, kink.output.index, kink.input.index) == ("kink", (0,), (0,))
    assert (kink.low, kink.high) == pytest.approx((0, 1), abs=1e-9)
    assert kink.claimed == claim
    assert any("right at smooth neighbours" in note for note in result.notes)
    assert result.resolution < 1e-7


@pytest.mark.parametrize("claim", [-0.01, 1.01, 2.0, math.nan, math.inf])
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_a_claim_outside_the_slopes_fails_by_name(claim: float, size: int) -> None:
    x = [0.0, *np.linspace(0.5, 1, size - 1)]
    result = backward(relu_claiming(claim), leaf(*x))
    assert result.verdict is FAILED
    if size == 1 or math.isfinite(claim):  # NaN times a zero cotangent spoils other rows too
        (finding,) = result.findings
        assert (finding.output.index, finding.input.index) == ((0,), (0,))
        assert finding.gap >= 0.01 or not math.isfinite(claim)


JUMPS = {"floor": (torch.floor, 1.0), "round": (torch.round, 0.5), "sign": (torch.sign, 0.0)}


@pytest.mark.parametrize("name", JUMPS)
def test_a_claim_at_a_jump_is_never_passed_for_its_neighbours(name: str) -> None:
    fn, x = JUMPS[name]
    right = backward(fn, leaf(x))
    assert right.verdict is not FAILED
    straight_through = backward(with_slope(fn, torch.ones_like), leaf(x))
    assert straight_through.verdict is not PASSED


@pytest.mark.parametrize("claim", [0.0, 1.0, math.inf])
def test_an_infinite_slope_is_named_and_its_neighbours_decide(claim: float) -> None:
    def slope(x: Any) -> Any:
        return torch.where(x == 0, claim, 0.5 / x.sqrt())

    result = backward(with_slope(torch.sqrt, slope), leaf(0.0, 1.0))
    assert result.verdict is PASSED
    assert (result.kinks[0].kind, result.kinks[0].high) == ("infinite slope", math.inf)
    twice = backward(with_slope(torch.sqrt, lambda x: 2 * slope(x)), leaf(0.0))
    assert twice.verdict is FAILED


def test_both_modes_may_claim_an_infinite_slope() -> None:
    report = gradproof.check(torch.sqrt, (leaf(0.0, 1.0),), seed=0)
    assert report.verdict is PASSED, str(report)


def test_a_wide_layer_names_the_outputs_that_bend() -> None:
    x = [0.0 if j % 100 == 0 else (-1.0) ** j for j in range(1000)]
    result = backward(torch.relu, leaf(*x))
    assert result.verdict is PASSED, result.summary
    assert "not differentiable in 10 outputs" in " ".join(result.notes)


def test_both_sides_of_a_tie_of_differences_are_not_claimed_together() -> None:
    def minmod(u: Any) -> Any:
        a, b = u[1:-1] - u[:-2], u[2:] - u[1:-1]
        return torch.where(a * b > 0, torch.where(a.abs() < b.abs(), a, b), 0 * a)

    def gradient_of_both_sides(g: Any, u: Any) -> Any:
        a, b = u[1:-1] - u[:-2], u[2:] - u[1:-1]
        of_a, of_b = ((a * b > 0) & (x.abs() <= y.abs()) for x, y in ((a, b), (b, a)))
        of_a, of_b = of_a * g, of_b * g
        found = torch.zeros_like(u)
        found[1:-1] += of_a - of_b
        found[:-2] -= of_a
        found[2:] += of_b
        return found

    result = backward(
        ruled(minmod, gradient_of_both_sides), leaf(0.0, 1.0, 2.0, 3.0, 5.0, 6.0, 9.0)
    )
    assert result.verdict is FAILED


def test_a_smooth_point_has_no_kinks() -> None:
    assert backward(torch.relu, leaf(1.0, -1.0)).kinks == ()
    assert backward(torch.sin, leaf(0.0)).kinks == ()


# Without a framework -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_claim_at_a_kink_is_held_at_its_smooth_neighbours(mode: str, factor: float) -> None:
    def claimed(x: np.ndarray) -> Linear:
        return Linear.diagonal(np.where(x == 0, 0.5, factor * (x > 0)))

    result = judge(lambda x: np.maximum(x, 0), [0.0], claimed, mode)
    assert result.verdict is (PASSED if factor == 1 else FAILED)
    if factor == 1:
        assert "right at smooth neighbours" in result.notes[0]


@pytest.mark.parametrize("x", [38656.0, 38655.5, 1e8 + 0.5])
def test_counts_claimed_to_have_the_slope_of_the_whole_flight_never_pass(x: float) -> None:
    assert judge(np.floor, [x], Linear.diagonal(np.ones(1))).verdict is not PASSED
    if x < 1e8:  # there the bar is a hundred-millionth too narrow for the whole flight
        assert judge(np.floor, [x], Linear.diagonal(np.zeros(1))).verdict is not FAILED


def test_whole_numbers_that_move_with_their_input_pass() -> None:
    claimed = Linear.diagonal(np.full(2, 3.0))
    assert judge(lambda x: 3 * x, [38656.0, 2.0], claimed).verdict is PASSED


@pytest.mark.parametrize("factor", [1.0, -1.0, 1.1])
@pytest.mark.parametrize("seed", range(3, 6))  # with 3 both draws beside the point met it flat
def test_a_hinge_is_met_on_both_of_its_sides(factor: float, seed: int) -> None:
    x = torch.tensor([[1.0, 0, -3, -1], [-2, -1, 3, 0], [1, 2, -1, -3]], dtype=torch.float64)
    target = torch.tensor([0, 2, 1])

    def loss(x: Any) -> Any:
        return torch.nn.functional.multi_margin_loss(x, target)

    result = backward(spoilt(loss, lambda slope: factor * slope), x.requires_grad_(), seed=seed)
    assert result.verdict is (PASSED if factor == 1 else FAILED)


# Columns beside kinks and beside larger columns ------------------------------------------------


def half_relu(factor: float) -> Any:
    """The sum of relu with half of its slope at zero, one other slope times `factor`."""

    def gradient(g: Any, x: Any) -> Any:
        slope = torch.where(x == 0, 0.5, (x > 0) * (1 + 3 * x.square()))
        slope[5] *= factor
        return g * slope

    return ruled(lambda x: (x.relu() * (1 + x.square())).sum(), gradient, vmap=False)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("factor", [1.0, 1.001, 0.0])
def test_a_part_of_the_inputs_beside_kinks_is_held_to_account(factor: float, seed: int) -> None:
    x = (torch.arange(-10, 31, dtype=torch.float64) / 10).roll(11).requires_grad_()
    result = backward(half_relu(factor), x, seed=seed)
    assert result.verdict is (PASSED if factor == 1 else FAILED), result.summary
    assert [str(found.input) for found in result.findings] == ["x[5]"] * (factor != 1)


def beside_larger(factor: float) -> Any:
    """A kink, a square of size 3, and a sine of 1e-8 whose slope is wrong by a factor."""

    def value(x: Any, z: Any) -> Any:
        return x.relu().sum() + 10 * z[0].square() + 1e-8 * z[1].sin() + z[2].sin()

    def gradient(g: Any, x: Any, z: Any) -> Any:
        slopes = torch.stack([20 * z[0], 1e-8 * factor * z[1].cos(), z[2].cos()])
        return g * slope_of_relu(x, 0.5), g * slopes

    return ruled(value, gradient, vmap=False)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_a_column_that_is_lost_in_its_part_is_measured_alone(factor: float, seed: int) -> None:
    x, z = leaf(0.0, 1.0, -1.0, 2.0), leaf(0.3, 0.4, 0.5)
    result = backward(beside_larger(factor), x, z, seed=seed)
    assert result.verdict is (PASSED if factor == 1 else FAILED), result.summary
    assert [str(found.input) for found in result.findings] == ["z[1]"] * (factor != 1)


def shifted(share: float) -> Any:
    """Half of the slope of relu at zero, and `share` of the slope of the input before."""

    def gradient(g: Any, x: Any) -> Any:
        before = torch.where(x.roll(-1) == 0, share, 0.3) * g.roll(-1)
        return before + slope_of_relu(x, 0.5) * g

    return ruled(lambda x: x.relu() + 0.3 * x.roll(1), gradient, vmap=False)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.3, 0.0])
def test_a_slope_that_is_forgotten_beside_a_kink_never_passes(share: float, seed: int) -> None:
    """A slope of 0.3 may hide between 0 and 1, where one input has a kink of another output."""
    x = torch.zeros(8, dtype=torch.float64, requires_grad=True)
    result = backward(shifted(share), x, seed=seed)
    assert (result.verdict is PASSED) == (share == 0.3), result.summary


# Among 10^5 inputs some lie nearer to a kink than the steps of the screen, and all that those steps
# say of them is a wide bar: shorter steps to either side leave the kinks behind. ------------------

SIZE = 140_000  # outputs
NEAR = (3e-7, -9e-7, 2e-6, -4e-6, 5e-9)  # where kinks are put, between the steps that are tried
FIRST = 1000  # of these


def beside_kinks(mode: str, seed: int, wrong: int | None = None) -> CheckResult:
    """The relu, which may claim of one input the slope on the other side of its kink."""
    point = np.random.default_rng(seed).normal(size=SIZE)
    point[FIRST : FIRST + len(NEAR)] = NEAR

    def claimed(x: np.ndarray) -> Linear:
        slopes = (x > 0) * 1.0
        if wrong is not None:
            slopes[FIRST + wrong] = 1 - slopes[FIRST + wrong]
        return Linear.diagonal(slopes)

    return judge(lambda x: np.maximum(x, 0.0), point, claimed, mode, seed=seed)


@seeds(0, more=range(1, 5))
@pytest.mark.parametrize("mode", MODES)
def test_kinks_beside_the_point_are_left_behind(mode: str, seed: int) -> None:
    result = beside_kinks(mode, seed)
    assert result.verdict is PASSED, result.summary
    assert result.calls["function"] <= 220  # two neighbours too


@seeds(0, more=range(1, 5))
@pytest.mark.parametrize("wrong", [0, len(NEAR) - 1])
def test_a_wrong_column_beside_a_kink_is_told(seed: int, wrong: int) -> None:
    """By a rule that gives columns; by one that gives projections alone it is not accepted."""
    assert beside_kinks("backward", seed, wrong).verdict is not PASSED
    result = beside_kinks("forward", seed, wrong)
    assert result.verdict is FAILED
    assert [each.output_index for each in result.findings] == [(FIRST + wrong,)]


@seeds(0, more=range(1, 5))
def test_numbers_that_change_places_within_the_steps_are_not_accused(seed: int) -> None:
    point = np.random.default_rng(0).normal(size=(200, 500))

    def vjp(x: np.ndarray, v: np.ndarray) -> np.ndarray:
        back = np.zeros_like(x)
        np.put_along_axis(back, np.argsort(x, axis=-1), v, axis=-1)
        return back

    hand = gradproof.by_hand(lambda x: np.sort(x, axis=-1), vjp=vjp)
    report = gradproof.check(hand, (point,), seed=seed, checks=["backward"])
    assert report, report["backward"].summary


@pytest.mark.parametrize(
    "fn",
    [torch.median, lambda x: torch.kthvalue(x, 33).values, lambda x: torch.quantile(x, 0.3)],
    ids=["median", "kthvalue", "quantile"],
)
def test_an_order_statistic_of_many_equal_numbers(fn: Any) -> None:
    """It moves with none of them alone, and its gradient is at any of them, or spread over all."""
    x = torch.full((100,), 1.5, dtype=torch.float64, requires_grad=True)
    assert backward(fn, x, seed=2).verdict is not FAILED
    assert backward(spoilt(fn, lambda slope: 1.5 * slope), x, seed=2).verdict is FAILED


@pytest.mark.parametrize("share", [1e-5, 5e-4, 3e-3])
def test_a_second_kink_that_is_weak_is_a_side_too(share: float) -> None:
    """Slopes nearby that differed by less than a thousandth of the largest one were left out."""

    def rectified(z: torch.Tensor) -> torch.Tensor:
        return torch.relu(z[0]) - share * torch.relu(z[1] - z[0])

    for seed in range(3):
        assert backward(rectified, leaf(0.0, 0.0), seed=seed).verdict is Verdict.PASSED


@pytest.mark.parametrize("count", [3, 6, 12])
def test_no_right_claim_fails_where_many_kinks_meet(count: int) -> None:
    """The region in which all rectifiers are off is one of 2^count: a sample misses it."""
    failed = 0
    for seed in range(8):
        numbers = torch.Generator().manual_seed(seed)
        planes = torch.randn(count, 8, dtype=torch.float64, generator=numbers)
        heights = torch.randn(count, dtype=torch.float64, generator=numbers)

        def layer(x, planes=planes, heights=heights):
            return (heights * torch.relu(planes @ x)).sum() + x.sum()

        failed += backward(layer, leaf(*[0.0] * 8), seed=seed).verdict is Verdict.FAILED
    assert failed == 0


def test_a_function_that_is_narrow_beside_a_large_input_has_no_kinks_together() -> None:
    """Long steps over sin(x - 1e7) look like kinks, and joint directions were asked no finer."""
    x = (1e7 + torch.linspace(-2, 3, 12, dtype=torch.float64)).requires_grad_()
    wave = ruled(
        lambda x: ((x - 1e7).sin(), 3 * x),
        lambda g, h, x: ((x - 1e7).cos() * g + 3 * h).detach(),
    )
    for seed in range(3):
        assert backward(wave, x, seed=seed).verdict is not Verdict.FAILED


@pytest.mark.parametrize("seed", range(4))
def test_many_equal_numbers_are_left_open_or_right(seed: int) -> None:
    """A sample of 64 points may miss the one order of 24 that reaches the end of the slopes."""
    ones = torch.ones(16, 24, dtype=torch.float64, requires_grad=True)
    assert backward(lambda x: x.sort(-1).values, ones, seed=seed).verdict is not FAILED
    wrong = spoilt(lambda x: x.sort(-1).values, lambda slope: slope * (torch.arange(24) != 5))
    assert backward(wrong, ones, seed=seed).verdict is FAILED
