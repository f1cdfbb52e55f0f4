"""Inputs that must stay valid: limits on their entries."""

from __future__ import annotations

import math

import pytest
import torch

import gradproof
from exhibits.frame import leaf, ruled
from gradproof import Verdict
from gradproof.errors import UsageError


def strict(low: float, high: float, seen: list[int] | None = None):
    """A smooth function that refuses to be called outside (low, high)."""

    def function(x):
        inside = (x.detach() > low) & (x.detach() < high)
        assert bool(inside.all()), "called outside of its domain"
        if seen is not None:
            seen.append(1)
        return (x / 8).exp() * x.cos()

    return function


POINTS = [
    (0.0, math.inf, (1e-7, 3.0, 1e-3, 40.0)),
    (-math.inf, 0.0, (-1e-7, -3.0)),
    (0.0, 1.0, (1e-6, 0.5, 1 - 1e-4, 0.25)),
    (-2.0, 2.0, (0.0, 1.99, -1.999)),
    (99.0, 101.0, (100.0, 99.5, 100.9)),
]


@pytest.mark.parametrize(("low", "high", "values"), POINTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_no_input_is_moved_outside_its_limits(low, high, values, dtype) -> None:
    calls: list[int] = []
    inputs = [leaf(*values, dtype=dtype)]
    report = gradproof.check(strict(low, high, calls), inputs, seed=0, domain=(low, high))
    assert report.verdict is Verdict.PASSED, str(report)
    assert len(calls) > 10
    assert not report.notes


def test_a_wrong_gradient_is_found_inside_limits() -> None:
    logit = ruled(torch.logit, lambda v, p: v / p)  # the derivative of the logarithm
    inputs = [leaf(1e-6, 0.5, 1 - 1e-6)]
    report = gradproof.check(lambda p: logit(p), inputs, seed=0, domain=(0, 1))
    assert report.verdict is Verdict.FAILED
    assert {finding.input_index for finding in report["backward"].findings} == {(1,), (2,)}


def test_limits_can_be_given_by_name_and_leave_other_inputs_free() -> None:
    seen = []

    def power(base, exponent):
        assert bool((base.detach() > 0).all())
        seen.append(float(exponent.detach().min()))
        return base**exponent

    inputs = [leaf(1e-4, 2.0), leaf(1e-4, 2.0)]
    report = gradproof.check(power, inputs, seed=0, domain={"base": (0, None)})
    assert report.verdict is Verdict.PASSED
    assert min(seen) < 0


def test_an_entry_on_the_border_is_not_tested_and_said_so() -> None:
    x = leaf(1.0, 2.0, 0.5, 0.0)
    report = gradproof.check(strict(-1e-300, math.inf), [x], seed=0, domain=(0, None))
    assert report.verdict is Verdict.PASSED
    assert " ".join(report.notes) == "x[3]: on the border of the domain or too near, not tested"
    assert report["backward"].summary.startswith("4 x 3 Jacobian")


def test_it_is_inconclusive_where_no_entry_is_left() -> None:
    report = gradproof.check(torch.exp, [leaf(0.0, 1.0)], seed=0, domain=(0, 1))
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "no input is left" in report["backward"].summary
    assert "0[0] and 1 more of input 0: on the border" in " ".join(report.notes)


@pytest.mark.parametrize(
    ("domain", "said"),
    [
        ((0, 2), r"x\[1\] is -1, outside \[0, 2\]"),
        ({"x": (0, 2)}, r"x\[1\] is -1, outside \[0, 2\]"),
        ({"y": (0, 2)}, "called 'y'; there are x"),
        (3, r"pair \(low, high\)"),
        ((2, 1), "low < high"),
        ((math.nan, 1), "low < high"),
        ({"x": "ab"}, r"domain\['x'\]"),
    ],
)
def test_a_domain_that_makes_no_sense_is_a_usage_error(domain, said) -> None:
    with pytest.raises(UsageError, match=said):
        gradproof.check(lambda x: x.exp(), [leaf(1.0, -1.0)], domain=domain)


def test_complex_inputs_have_no_limits() -> None:
    z = torch.ones(2, dtype=torch.complex128, requires_grad=True)
    with pytest.raises(UsageError, match="complex"):
        gradproof.check(lambda z: z * z, [z], domain=(0, 2))


@pytest.mark.parametrize("fn", [torch.sqrt, torch.asin, torch.special.entr])
def test_an_infinite_slope_at_a_limit_leaves_the_other_columns_right(fn):
    """Forward mode claims NaN in that row, 0 times infinity."""
    x = torch.tensor([0.0, 1.0, 0.5], dtype=torch.float64, requires_grad=True)
    report = gradproof.check(fn, (x,), domain=(0, 1), seed=0)
    assert report.verdict == "passed", str(report)
