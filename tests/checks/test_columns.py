"""Wrong columns beside kinks and beside larger columns are found, right ones accepted."""

from __future__ import annotations

import pytest
import torch

import gradproof
from exhibits.corners import slope_of_relu
from exhibits.frame import leaf, ruled


def half_relu(factor: float):
    """The sum of relu with half of its slope at zero, one other slope times `factor`."""

    def backward(g, x):
        slope = torch.where(x == 0, 0.5, (x > 0) * (1 + 3 * x.square()))
        slope[5] *= factor
        return g * slope

    return ruled(lambda x: (x.relu() * (1 + x.square())).sum(), backward, vmap=False)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, "passed"), (1.001, "failed"), (0.0, "failed")]
)
def test_a_part_of_the_inputs_beside_kinks_is_held_to_account(
    factor: float, verdict: str, seed: int
) -> None:
    x = (torch.arange(-10, 31, dtype=torch.float64) / 10).roll(11).requires_grad_()
    report = gradproof.check(half_relu(factor), (x,), checks=["backward"], seed=seed)
    assert report.verdict == verdict, str(report)
    if verdict == "failed":
        assert [str(found.input) for found in report["backward"].findings] == ["x[5]"]


def beside_larger(factor: float):
    """A kink, a square of size 3, and a sine of 1e-8 whose slope is wrong by a factor."""

    def value(x, z):
        return x.relu().sum() + 10 * z[0].square() + 1e-8 * z[1].sin() + z[2].sin()

    def backward(g, x, z):
        slopes = torch.stack([20 * z[0], 1e-8 * factor * z[1].cos(), z[2].cos()])
        return g * slope_of_relu(x, 0.5), g * slopes

    return ruled(value, backward, vmap=False)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "passed"), (1.1, "failed")])
def test_a_column_that_is_lost_in_its_part_is_measured_alone(
    factor: float, verdict: str, seed: int
) -> None:
    x, z = leaf(0.0, 1.0, -1.0, 2.0), leaf(0.3, 0.4, 0.5)
    report = gradproof.check(beside_larger(factor), (x, z), checks=["backward"], seed=seed)
    assert report.verdict == verdict, str(report)
    wrong = [str(found.input) for found in report["backward"].findings]
    assert wrong == (["z[1]"] if verdict == "failed" else [])


def shifted(share: float):
    """Half of the slope of relu at zero, and `share` of the slope of the input before."""

    def backward(g, x):
        before = torch.where(x.roll(-1) == 0, share, 0.3) * g.roll(-1)
        return before + slope_of_relu(x, 0.5) * g

    return ruled(lambda x: x.relu() + 0.3 * x.roll(1), backward, vmap=False)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.3, 0.0])
def test_a_slope_that_is_forgotten_beside_a_kink_never_passes(share: float, seed: int) -> None:
    """A slope of 0.3 may hide between 0 and 1, where one input has a kink of another output."""
    x = torch.zeros(8, dtype=torch.float64, requires_grad=True)
    report = gradproof.check(shifted(share), (x,), checks=["backward"], seed=seed)
    assert (report.verdict == "passed") == (share == 0.3), str(report)
