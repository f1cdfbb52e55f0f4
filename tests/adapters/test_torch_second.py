"""What is checked where it is asked for: derivatives of higher order, and PyTorch's transforms."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import gradproof
from exhibits.frame import leaf, normal, ruled
from gradproof import Verdict

PAIRS = ("second_order", "forward_over_reverse", "reverse_over_forward")


def verdicts(fn, inputs, **options):
    report = gradproof.check(fn, inputs, seed=0, **options)
    return {result.name: str(result.verdict) for result in report.checks}


def failures(fn, inputs, **options):
    found = verdicts(fn, inputs, **options)
    return {name for name, verdict in found.items() if verdict == "failed"}


RIGHT = {
    "tanh": (torch.tanh, (normal(4),)),
    "linear": (lambda x: 3 * x, (normal(4),)),
    "matmul": (torch.matmul, (normal(2, 3), normal(3, 2, seed=2))),
    "inverse": (torch.linalg.inv, (normal(3, 3),)),
    "cumprod": (lambda x: x.cumprod(0), (leaf(1.5, 0.5, -2.0),)),
    "complex": (lambda z: z * z.exp(), (normal(3, dtype=torch.complex128),)),
    "two outputs": (lambda x: (x.sin(), x.exp().sum()), (normal(3),)),
    "single precision": (torch.tanh, (normal(4, dtype=torch.float32),)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_every_pair_passes_for_a_right_function(name):
    found = verdicts(*RIGHT[name], order=2)
    assert {found[each] for each in PAIRS} == {"passed"}, found


# PyTorch 2.13 differentiates these rules of forward mode wrongly: pytorch#198017 and the issues
# it lists. Every check of PyTorch's own passes them.
NESTED = {
    "det": (torch.linalg.det, (normal(3, 3),)),
    "layer_norm": (lambda x: functional.layer_norm(x, (4,)), (normal(2, 4),)),
    "cumprod at 0": (lambda x: x.cumprod(0), (leaf(1.5, 0.0, -2.0),)),
}


@pytest.mark.parametrize("name", NESTED)
def test_a_derivative_of_a_jvp_that_pytorch_gets_wrong_fails(name):
    assert failures(*NESTED[name], order=2) == {"reverse_over_forward"}


def test_a_sum_that_is_always_one_is_not_accused():
    found = verdicts(lambda x: x.softmax(-1).sum(), (normal(5),), order=2)
    assert "failed" not in found.values(), found
    assert found["second_order"] == "inconclusive"


def test_reverse_over_forward_of_an_operator_whose_tangents_are_written_over():
    found = verdicts(lambda x: x.softmax(-1), (normal(4),), order=2)
    assert found["reverse_over_forward"] == "passed"  # not so of dual numbers


def test_forward_over_forward_is_skipped():
    found = gradproof.check(torch.tanh, (normal(3),), order=2, seed=0)["forward_over_forward"]
    assert found.verdict is Verdict.SKIPPED
    assert "not checked in PyTorch" in found.summary


# Of (h, x); twice what its derivative in x is.
minus_sine = ruled(lambda h, x: -h * x.sin(), lambda k, h, x: (-k * x.sin(), -2 * k * h * x.cos()))
# The sine, right twice: the derivative of its double backward forgets a factor.
wrong_third = ruled(torch.sin, lambda g, x: g * ruled(torch.cos, minus_sine)(x))


def test_order_three_sees_what_order_two_cannot():
    assert failures(wrong_third, (normal(3),), order=2) == set()
    assert failures(wrong_third, (normal(3),), order=3) == {"third_order"}
    assert verdicts(torch.sin, (normal(3),), order=3)["third_order"] == "passed"


def _double_of_cube(h, x, g):
    return 6 * x * g * h, 3 * x * x * h


def _double_in_place(h, x, g):
    of_g = 3 * x * x * h
    return h.mul_(6 * x * g), of_g


def _double_clipped(h, x, g):
    of_x, of_g = _double_of_cube(h, x, g)
    return of_x.clamp(-100, 100), of_g


def _double_without_strides(h, x, g):
    return _double_of_cube(h.as_strided(h.shape, (h.shape[1], 1)), x, g)


def _double_by_need(ctx, h):
    x, g = ctx.saved_tensors
    of_x, of_g = _double_of_cube(h, x, g)
    return of_x * (1 if ctx.needs_input_grad[1] else 0.5), of_g


def _cube(double_backward):
    """x^3 with a backward of its own, whose backward is the given one."""

    class Slope(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, g):
            ctx.save_for_backward(x, g)
            return 3 * x * x * g

        @staticmethod
        def backward(ctx, h):
            if double_backward is _double_by_need:
                return _double_by_need(ctx, h)
            return double_backward(h, *ctx.saved_tensors)

    return ruled(lambda x: x**3, lambda g, x: Slope.apply(x, g))


# A double backward -> the check of a backward that it fails.
BESIDE_ENTRIES = {
    _double_in_place: "memory_layout",
    _double_clipped: "linearity",
    _double_without_strides: "memory_layout",
    _double_by_need: "grad_metadata",
    _double_of_cube: "",
}


@pytest.mark.parametrize("double_backward", BESIDE_ENTRIES)
def test_a_double_backward_is_asked_what_a_backward_is_asked(double_backward):
    found = gradproof.check(_cube(double_backward), (normal(4, 3),), order=2, seed=0)
    check, result = BESIDE_ENTRIES[double_backward], found["second_order"]
    assert found["backward"].verdict is Verdict.PASSED
    assert result.verdict is (Verdict.FAILED if check else Verdict.PASSED)
    assert not check or result.summary.startswith(f"{check} of the double backward: ")
    assert {each.check for each in result.findings} <= {"second_order"}


def test_rows_of_higher_orders_are_there_only_if_asked_for():
    def names(order):
        return set(verdicts(torch.tanh, (normal(2),), order=order))

    assert names(2) - names(1) == {*PAIRS[1:], "forward_over_forward"}
    assert names(3) - names(2) == {"third_order"}


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].cos()


def test_what_is_declared_to_have_no_second_derivative_is_skipped_and_the_first_line_says_so():
    x = torch.linspace(0.1, 1, 4, dtype=torch.float64, requires_grad=True)
    report = gradproof.check(_Once.apply, (x,), order=2, seed=0)
    assert report["second_order"].verdict is Verdict.SKIPPED
    assert "once_differentiable" in report["second_order"].summary
    assert str(report).splitlines()[0].endswith(", second order not verified")
    first = gradproof.check(_Once.apply, (x,), seed=0)
    assert "not verified" not in str(first)
    assert "not verified" not in str(gradproof.check(torch.sin, (x,), order=2, seed=0))


def test_second_derivatives_that_are_zero_at_the_point_are_noted():
    zero = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    for fn, is_zero in ((lambda x: x**4, True), (lambda x: x**2, False)):
        result = gradproof.check(fn, zero, seed=0, order=2)["second_order"]
        assert result.verdict is Verdict.PASSED
        assert any("zero, claimed and measured" in note for note in result.notes) is is_zero


def test_what_a_reference_lacks_is_reported_as_its_own():
    x = torch.linspace(0.1, 1, 4, dtype=torch.float32, requires_grad=True)
    first = gradproof.Settings(references=["reference", "double"])
    report = gradproof.check(
        torch.sin, (x,), order=2, reference=_Once.apply, seed=0, settings=first
    )
    assert report["backward"].reference == "the reference"
    forward = report["forward"]
    assert forward.verdict is Verdict.PASSED
    assert "the reference: it has no forward mode" in forward.refused
    assert not any(row.verdict is Verdict.SKIPPED for row in report.checks if "order" in row.name)


# Transforms --------------------------------------------------------------------------------------

QUICK = ["functional_vjp", "functional_jvp", "hooks", "checkpointed"]  # "compiled" takes seconds
TRANSFORMED = {
    "product": (torch.matmul, (normal(2, 3), normal(3, 2, seed=2))),
    "single precision": (torch.matmul, (normal(2, 3, dtype=torch.float32), normal(3, 2).float())),
    "complex": (lambda z: z * z.exp(), (normal(3, dtype=torch.complex128),)),
    "two outputs": (lambda x: {"a": x.sin(), "b": x.exp().sum()}, (normal(3),)),
    "layer": (torch.nn.Linear(3, 2, dtype=torch.float64), (normal(2, 3),)),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_every_transform_of_a_right_function_passes(name):
    found = verdicts(*TRANSFORMED[name], transforms=QUICK)
    assert {found[each] for each in QUICK} == {"passed"}, found


def test_transforms_are_rows_only_if_asked_for():
    assert not set(verdicts(torch.sin, (normal(2),))) & {*QUICK, "compiled"}
    asked = verdicts(torch.sin, (normal(2),), transforms=["hooks"])
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
    assert failures(ByIdentity.apply, (normal(3),), transforms=QUICK) == {"hooks"}


def test_torch_func_uses_another_rule_where_a_function_has_two():
    def fn(x):
        under_transform = torch._C._functorch.is_functorch_wrapped_tensor(x)
        return x.sin() if not under_transform else x.sin().detach() + 2 * x

    assert failures(fn, (normal(3),), transforms=QUICK) == {"functional_vjp", "functional_jvp"}


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
    assert verdicts(weight, (normal(2, 3),), transforms=["compiled"])["compiled"] == "passed"
    assert verdicts(torch.tanh, (leaf(1.0, 2.0),), transforms=["compiled"])["compiled"] == "passed"
    assert failures(fn, (normal(3),), transforms=["compiled"]) == {"compiled"}
