"""What PyTorch's transforms make of right backwards, and of wrong ones that hide in eager mode."""

from __future__ import annotations

import pytest
import torch

import gradproof
from exhibits.frame import leaf, normal, ruled

QUICK = ["functional_vjp", "functional_jvp", "hooks", "checkpointed"]  # "compiled" takes seconds


def verdicts(fn, inputs, transforms=QUICK, **options):
    report = gradproof.check(fn, inputs, transforms=transforms, seed=0, **options)
    return {result.name: str(result.verdict) for result in report.checks}


def failures(fn, inputs, transforms=QUICK):
    return {k for k, verdict in verdicts(fn, inputs, transforms).items() if verdict == "failed"}


RIGHT = {
    "product": (torch.matmul, (normal(2, 3), normal(3, 2, seed=2))),
    "single precision": (torch.matmul, (normal(2, 3, dtype=torch.float32), normal(3, 2).float())),
    "complex": (lambda z: z * z.exp(), (normal(3, dtype=torch.complex128),)),
    "two outputs": (lambda x: {"a": x.sin(), "b": x.exp().sum()}, (normal(3),)),
    "layer": (torch.nn.Linear(3, 2, dtype=torch.float64), (normal(2, 3),)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_every_transform_of_a_right_function_passes(name):
    found = verdicts(*RIGHT[name])
    assert {found[each] for each in QUICK} == {"passed"}, found


def test_transforms_are_rows_only_if_asked_for():
    assert not set(verdicts(torch.sin, (normal(2),), ())) & {*QUICK, "compiled"}
    asked = verdicts(torch.sin, (normal(2),), ["hooks"])
    assert set(asked) & {*QUICK, "compiled"} == {"hooks"}


def test_a_backward_that_writes_to_grad_instead_of_leaving_it_to_autograd_fails():
    def backward(g, x):
        x.grad = g * x.cos()
        return g * x.cos()

    report = gradproof.check(ruled(torch.sin, backward), (normal(3),), seed=0)
    assert str(report["side_effects"].verdict) == "failed"
    assert "wrote to the .grad of its argument" in report["side_effects"].findings[0].message


class ByIdentity(torch.autograd.Function):
    """The sine, whose backward knows what was saved by its address."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.address = x.data_ptr()
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos() if x.data_ptr() == ctx.address else g


def test_a_backward_that_goes_by_addresses_fails_under_hooks():
    assert failures(ByIdentity.apply, (normal(3),)) == {"hooks"}


def test_torch_func_uses_another_rule_where_a_function_has_two():
    def fn(x):
        under_transform = torch._C._functorch.is_functorch_wrapped_tensor(x)
        return x.sin() if not under_transform else x.sin().detach() + 2 * x

    assert failures(fn, (normal(3),)) == {"functional_vjp", "functional_jvp"}


def test_a_function_that_torch_func_refuses_is_skipped_with_its_reason():
    report = gradproof.check(ByIdentity.apply, (normal(3),), checks=["functional_vjp"], seed=0)
    assert str(report["functional_vjp"].verdict) == "skipped"
    assert "functorch" in report["functional_vjp"].summary


@torch.library.custom_op("gradprooftests::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


sine.register_autograd(
    lambda ctx, g: g * ctx.saved_tensors[0].cos(),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
sine.register_fake(torch.empty_like)


def test_a_custom_operator_is_checked_under_its_name():
    report = gradproof.check(sine, (normal(3),), seed=0)
    assert report.target == "gradprooftests::sine"
    assert report.verdict == "passed"
    assert "no forward mode" in report["forward"].summary


@pytest.mark.slow  # loads PyTorch's compiler
def test_the_compiled_function_is_held_against_eager_mode():
    def fn(x):
        return x.sin() if not torch.compiler.is_compiling() else x.sin().detach() + x

    weight = torch.nn.Linear(3, 2, dtype=torch.float64)
    assert verdicts(weight, (normal(2, 3),), ["compiled"])["compiled"] == "passed"
    assert verdicts(torch.tanh, (leaf(1.0, 2.0),), ["compiled"])["compiled"] == "passed"
    assert failures(fn, (normal(3),), ["compiled"]) == {"compiled"}
