"""Functions that stand still: tested where they do not, and staircases whose treads are flat."""

from __future__ import annotations

import pytest
import torch

import gradproof
from exhibits.corners import relu
from exhibits.frame import leaf, ruled, spoilt
from gradproof import CheckResult, Verdict

DTYPES = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16], ids=lambda dtype: str(dtype)[6:]
)


def backward_of(fn, *inputs: torch.Tensor, **options) -> CheckResult:
    return gradproof.check(fn, inputs, seed=0, checks=("backward",), **options)["backward"]


@DTYPES
@pytest.mark.parametrize(
    "fn",
    [torch.relu, lambda x: x.clamp(0, 1), torch.floor, torch.sign],
    ids=["relu", "clamp", "floor", "sign"],
)
def test_a_function_that_stands_still_is_tested_where_it_varies(fn, dtype) -> None:
    result = backward_of(fn, leaf(-8.25, -2.75, -3.375, dtype=dtype))
    assert result.verdict is Verdict.PASSED, result.summary
    assert "zero, claimed and measured" in result.summary


@DTYPES
def test_a_wrong_rule_elsewhere_is_reported_and_certifies_nothing(dtype) -> None:
    wrong = ruled(relu, lambda g, x: g * 1.25 * (x > 0))
    result = backward_of(wrong, leaf(-2.0, -3.0, dtype=dtype))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "at a point where it varies the derivative is wrong" in result.summary


@pytest.mark.xfail(
    strict=True,
    reason="where F stands still, claims in bfloat16 are compared at the point alone",
)
def test_a_rule_that_is_wrong_in_few_bits_only_is_reported_too() -> None:
    """The formula is right in float64; what is claimed in bfloat16 is zero here, and wrong."""

    def slope(g, x):
        return g * (1.25 if x.dtype is torch.bfloat16 else 1.0) * (x > 0).to(x.dtype)

    result = backward_of(ruled(relu, slope), leaf(-2.0, -3.0, dtype=torch.bfloat16))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "is wrong there" in result.summary


@DTYPES
def test_a_constant_stays_untested_and_says_where_it_was_tried(dtype) -> None:
    result = backward_of(lambda x: 0 * x + 1, leaf(1.0, 2.0, dtype=dtype))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "here or at the other points tried" in result.summary


def test_other_points_stay_inside_the_domain() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        assert bool(((x.detach() > 0) & (x.detach() < 8)).all()), "outside of its domain"
        return (x - 4).clamp(min=0)

    result = backward_of(function, leaf(2.0, 3.0), domain=(0.0, 8.0))
    assert result.verdict is not Verdict.FAILED


@DTYPES
@pytest.mark.parametrize(
    "fn", [torch.trunc, torch.round, torch.ceil], ids=["trunc", "round", "ceil"]
)
def test_jumps_inside_the_steps_do_not_hide_a_flat_tread(fn, dtype) -> None:
    result = backward_of(fn, leaf(37.75, 19.875, 1.4609375, 40.25, dtype=dtype))
    assert result.verdict is Verdict.PASSED, result.summary


@pytest.mark.parametrize(("low", "high"), [(-7.2, -3), (-12, 12), (-7.5, -6)])
def test_gelu_is_judged_where_its_error_function_is_a_staircase(low, high) -> None:
    x = torch.linspace(low, high, 20, dtype=torch.float64, requires_grad=True)
    result = backward_of(torch.nn.functional.gelu, x)
    assert result.verdict is not Verdict.FAILED, result.summary
    found = backward_of(spoilt(torch.nn.functional.gelu, lambda slope: 1.01 * slope), x).verdict
    # Where it ends below -6, all but the last are on treads
    assert found is Verdict.FAILED or (high == -6 and found is Verdict.INCONCLUSIVE)


def test_a_tiny_function_that_is_rounded_like_itself_is_accused_of_one_percent() -> None:
    wrong = ruled(torch.exp, lambda g, x: 1.01 * g * x.exp())
    assert backward_of(wrong, leaf(-40.0)).verdict is Verdict.FAILED
    small = ruled(lambda x: 1e-15 * x.sin(), lambda g, x: 1.01e-15 * g * x.cos())
    assert backward_of(small, leaf(0.7, -2.0)).verdict is Verdict.FAILED
