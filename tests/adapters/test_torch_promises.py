"""What a custom backward promises beside its numbers, and inputs that depend on each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gradproof
from exhibits.frame import normal, ruled


class Weighted(torch.autograd.Function):
    """x * w + b, whose backward counts on the gradient of w being needed."""

    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return x * w + b

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        if not ctx.needs_input_grad[1]:
            raise RuntimeError("no gradient of w was prepared")
        found = (g * w, g * x, g)
        return tuple(
            one if need else None for one, need in zip(found, ctx.needs_input_grad, strict=True)
        )


INPUTS = (normal(4), normal(4, seed=2), normal(4, seed=3))


def test_a_saved_constant_that_a_kernel_overwrites_is_found():
    def backward(g, x, w):
        found = g * w
        w.data.zero_()  # as a kernel writes, unseen by autograd
        return found, None

    product = ruled(lambda x, w: x * w, backward)
    report = gradproof.check(product, (normal(4), normal(4, seed=2).detach()), seed=0)
    (finding,) = report["side_effects"].findings
    assert "the backward changed a tensor saved for it" in finding.message


def test_an_array_of_numpy_among_the_arguments_is_handed_over_as_a_copy():
    def scaled(x, factors):
        y = x * float(factors[0])
        factors *= 2
        return y

    factors = np.ones(4)
    assert gradproof.check(scaled, (normal(4), factors), seed=0).verdict == "passed"
    assert (factors == 1).all()


def test_a_backward_that_raises_where_an_input_needs_no_gradient_is_found():
    report = gradproof.check(lambda x, w, b: Weighted.apply(x, w, b), INPUTS, seed=0)
    messages = [finding.message for finding in report["grad_metadata"].findings]
    assert any("raised where only x needs a gradient" in message for message in messages)


def test_a_function_that_differentiates_inside_need_not_run_without_that():
    def forces(x, w, b):
        energy = ((x * w).sin() + b * x).sum()
        return -torch.autograd.grad(energy, x, create_graph=True)[0]

    report = gradproof.check(forces, INPUTS, seed=0)
    assert report.verdict == "passed", str(report)
    (note,) = report["grad_metadata"].notes
    assert note.startswith("the function does not run where only w needs a gradient")
    assert "does not require grad" in note


class Doubled(torch.autograd.Function):
    """2 x, and x squared, which is marked as non-differentiable."""

    @staticmethod
    def forward(ctx, x):
        square = x * x
        ctx.mark_non_differentiable(square)
        return square, 2 * x

    @staticmethod
    def backward(ctx, _, g):
        return 2 * g


MARKED = {
    "as it is": (Doubled.apply, "passed"),
    "a view of it": (lambda x: (Doubled.apply(x)[0][1:], x.sin()), "passed"),
    "computed from it": (lambda x: (Doubled.apply(x)[0].exp(), x.sin()), "failed"),
    "beside a detached one": (lambda x: (Doubled.apply(x), x.detach().sin()), "failed"),
    "by an operator": (lambda x: torch.native_layer_norm(x, [3], None, None, 1e-5)[:2], "passed"),
    "by an operator, and a detached one": (
        lambda x: (*torch.native_layer_norm(x, [3], None, None, 1e-5)[:2], x.detach().sin()),
        "failed",
    ),
    "computed from that of an operator": (
        lambda x: (torch.native_layer_norm(x, [3], None, None, 1e-5)[1].exp(), x.sin()),
        "failed",
    ),
}


@pytest.mark.parametrize("name", MARKED)
def test_what_is_marked_as_non_differentiable_is_left_out_which_is_said(name):
    fn, verdict = MARKED[name]
    mark = torch.autograd.function.FunctionCtx.mark_non_differentiable
    report = gradproof.check(fn, (normal(3),), seed=0)
    assert report.verdict == verdict, str(report)
    assert any("marked as non-differentiable" in note for note in report.notes) == (
        not name.startswith("computed from")
    )
    assert mark is torch.autograd.function.FunctionCtx.mark_non_differentiable


def test_a_reference_need_not_leave_out_what_the_function_does():
    def reference(x):
        return x * x, 2 * x

    x = normal(64, dtype=torch.float32)
    report = gradproof.check(Doubled.apply, (x,), reference=reference, seed=0)
    assert report.verdict == "passed", str(report)
