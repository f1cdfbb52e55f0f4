"""Undefined cotangents, several of them at once."""

from __future__ import annotations

import pytest
import torch

import gradproof
from exhibits.frame import normal

pytestmark = pytest.mark.needs("torch")


def combined(given, slopes, wrong):
    """The sum of what is given times its slope; if wrong, twice that without the first two."""
    pairs = zip(given, slopes, strict=True)
    found = sum(
        (g * slope for g, slope in pairs if g is not None), start=torch.zeros_like(slopes[0])
    )
    return 2 * found if wrong and given[0] is None and given[1] is None else found


class Waves(torch.autograd.Function):
    """Three outputs; the third's gradient is doubled where it is asked for alone."""

    wrong = False

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.sin(), x.cos(), x.exp()

    @classmethod
    def backward(cls, ctx, *cotangents):
        (x,) = ctx.saved_tensors
        slopes = x.cos(), -x.sin(), x.exp()
        return combined(cotangents, slopes, wrong=cls.wrong)


class WrongWaves(Waves):
    wrong = True


def undefined(fn, *inputs):
    return gradproof.check(fn, inputs, checks=["missing_grad_output"], seed=0)[
        "missing_grad_output"
    ]


def test_a_backward_that_is_wrong_only_where_two_of_three_are_missing_fails():
    assert undefined(Waves.apply, normal(4)).verdict == "passed"
    result = undefined(WrongWaves.apply, normal(4))
    assert result.verdict == "failed"
    message = result.findings[0].message
    assert "cotangents of output 0 and output 1 undefined against zero" in message


@pytest.mark.parametrize("fn", [torch.sin, lambda x: (x.detach().sin(), x.sin().detach())])
def test_of_one_output_or_none_with_a_derivative_nothing_is_left_out(fn):
    assert not undefined(fn, normal(4)).notes


def test_of_many_outputs_the_report_says_how_many_combinations_were_tried():
    result = undefined(lambda x: tuple(x.sin() * k for k in range(1, 8)), normal(3))
    assert result.verdict == "passed"
    note = "undefined cotangents: 6 of 126 subsets were tried"
    assert result.notes == (note,)


class Product(torch.autograd.Function):
    """a b c in forward mode; wrong where neither a nor b has a tangent."""

    wrong = False

    @staticmethod
    def forward(a, b, c):
        return a * b * c

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        a, b, c = ctx.saved_tensors
        return g * b * c, g * a * c, g * a * b

    @classmethod
    def jvp(cls, ctx, *tangents):
        a, b, c = ctx.saved_tensors
        factors = b * c, a * c, a * b
        return combined(tangents, factors, wrong=cls.wrong)


class WrongProduct(Product):
    wrong = True


class RaisingProduct(Product):
    @classmethod
    def jvp(cls, ctx, *tangents):
        return super().jvp(ctx, *tangents) if tangents[2] is not None else None * tangents[0]


def test_a_forward_mode_that_is_wrong_only_where_two_of_three_have_no_tangent_fails():
    inputs = normal(4), normal(4, seed=2), normal(4, seed=3)

    def judged(fn):
        return gradproof.check(fn, inputs, checks=["forward", "missing_grad_output"], seed=0)

    assert judged(Product.apply).verdict == "passed"
    report = judged(WrongProduct.apply)
    assert [r.name for r in report.checks if r.verdict == "failed"] == ["missing_grad_output"], (
        report
    )
    message = report["missing_grad_output"].findings[0].message
    assert "tangents of input 0 and input 1 undefined against zero: got" in message
    message = judged(RaisingProduct.apply)["missing_grad_output"].findings[0].message
    assert message.startswith("tangent of input 2 undefined: it raised TypeError"), message
