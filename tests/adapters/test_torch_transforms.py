"""What PyTorch's transforms make of right backwards, and of wrong ones that hide in eager mode."""

from __future__ import annotations

import shutil
import threading
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch.autograd.function import once_differentiable

import gradproof
from exhibits.frame import leaf, normal, ruled
from exhibits.modes import Packed
from gradproof._data.settings import TRANSFORM_NAMES
from gradproof.errors import UsageError

COMPILED = ("compiled", "compiled_native")
# Of operators, of one tensor given twice, and of JAX.
OTHERS = ("custom_operator", "shared", "linearized", "transposed")
QUICK = [name for name in TRANSFORM_NAMES if name not in (*COMPILED, *OTHERS)]


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


def test_dropout_keeps_its_mask_on_every_transform_but_threads():
    found = verdicts(lambda x: torch.nn.functional.dropout(x, 0.5), (normal(6),))
    assert {name for name in QUICK if found[name] != "passed"} == {"threads"}
    assert found["threads"] == "skipped"


def test_transforms_are_rows_only_if_asked_for():
    assert not set(verdicts(torch.sin, (normal(2),), ())) & set(TRANSFORM_NAMES)
    asked = verdicts(torch.sin, (normal(2),), ["hooks"])
    assert set(asked) & set(TRANSFORM_NAMES) == {"hooks"}


class Mapped(torch.autograd.Function):
    """A sine whose vmap rule takes the batch for the first dimension."""

    @staticmethod
    def forward(x, of):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos(), None

    @staticmethod
    def vmap(info, dims, x, of):
        return Mapped.apply(x, of), of(dims[0])


def test_a_vmap_rule_that_takes_the_batch_for_the_first_dimension_is_found():
    x = normal(2, 2)
    assert not failures(lambda x: Mapped.apply(x, lambda place: place), (x,), ["mapped"])
    assert failures(lambda x: Mapped.apply(x, lambda _: 0), (x,), ["mapped"]) == {"mapped"}


def test_one_tensor_that_is_given_twice_is_handed_over_as_one():
    x, y = normal(3), normal(3, seed=2)
    assert failures(Packed.apply, (x, x), ["shared"]) == {"shared"}
    assert verdicts(torch.mul, (x, x), ["shared"])["shared"] == "passed"
    assert verdicts(Packed.apply, (x, y), ["shared"])["shared"] == "skipped"
    assert "shared" not in verdicts(Packed.apply, (x, y), ())
    assert verdicts(Packed.apply, (x, x), ())["shared"] == "failed"  # it was given so
    assert verdicts(lambda x, y, z: x * z, (x, y, x), ["shared"])["shared"] == "passed"


class Scratch(torch.autograd.Function):
    """The sine, whose backward scales what it saved: right the first time only."""

    @staticmethod
    def forward(ctx, x):
        ctx.slope = x.cos()
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        ctx.slope.mul_(g)
        return ctx.slope.clone()


def test_a_backward_that_writes_into_what_it_saved_fails_the_second_time():
    assert "twice" in failures(Scratch.apply, (normal(3),))


class Overwrites(torch.autograd.Function):
    """The sine, whose backward writes to `.grad` what autograd would have added there."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        x.grad = g * x.cos()
        return g * x.cos()


def test_a_backward_that_writes_to_grad_instead_of_leaving_it_to_autograd_fails():
    assert "accumulated" in failures(Overwrites.apply, (normal(3),))
    report = gradproof.check(Overwrites.apply, (normal(3),), seed=0)  # and so it does unasked
    assert str(report["hygiene"].verdict) == "failed"
    assert "wrote to the .grad of its argument" in report["hygiene"].findings[0].message


class Outside(torch.autograd.Function):
    """The sine, its backward by NumPy: right, and not differentiable."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.from_numpy(g.detach().numpy() * np.cos(x.detach().numpy()))


class Honest(Outside):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return Outside.backward(ctx, g)


def test_a_gradient_without_graph_is_silently_constant_unless_it_says_once_differentiable():
    assert failures(Outside.apply, (normal(3),)) == {"once_differentiable"}
    report = gradproof.check(Outside.apply, (normal(3),), checks=["once_differentiable"], seed=0)
    assert "mark the backward as once_differentiable" in report.findings[0].message
    assert failures(Honest.apply, (normal(3),)) == set()


class Shared(torch.autograd.Function):
    """The sine, whose backward hands the cotangent through a place that all calls share."""

    place: ClassVar[dict] = {}

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        here = threading.get_ident()
        Shared.place["slope"] = x.cos() * (1 if here == MAIN else 2)
        return g * Shared.place["slope"]


MAIN = threading.get_ident()


def test_a_backward_that_differs_in_another_thread_fails():
    assert failures(Shared.apply, (normal(3),)) == {"threads"}


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

    assert failures(fn, (normal(3),)) >= {"functional_grad", "functional_vjp", "functional_jvp"}


def test_a_function_that_torch_func_refuses_is_skipped_with_its_reason():
    report = gradproof.check(Scratch.apply, (normal(3),), checks=["functional_vjp"], seed=0)
    assert str(report["functional_vjp"].verdict) == "skipped"
    assert "functorch" in report["functional_vjp"].summary


def test_views_and_non_leaves_are_told_from_leaves():
    def fn(x):
        return x.sin() if x.is_leaf else x.detach().sin() + x * 0

    assert failures(fn, (normal(3),)) >= {"non_leaf", "in_place_view"}

    def views(x):
        return x.sin() if not x._is_view() else x.cos() - x.detach().cos() + x.detach().sin()

    found = failures(views, (normal(3),))
    assert "in_place_view" in found
    assert "non_leaf" not in found


def test_autocast_in_a_dtype_that_the_backward_forgets_fails():
    def value(x):
        return x.sin()

    def backward(g, x):
        return g * x.cos() * (2 if AUTOCAST["on"] else 1)

    AUTOCAST = {"on": False}

    def fn(x):
        AUTOCAST["on"] = torch.is_autocast_enabled("cpu")
        return ruled(value, backward)(x)

    found = failures(fn, (normal(3, dtype=torch.float32),))
    assert "autocast" in found


@torch.library.custom_op("gradprooftests::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


@torch.library.custom_op("gradprooftests::shapeless", mutates_args=())
def shapeless(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


for operator in (sine, shapeless):
    operator.register_autograd(
        lambda ctx, g: g * ctx.saved_tensors[0].cos(),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
sine.register_fake(torch.empty_like)
shapeless.register_fake(lambda x: x.new_empty(x.shape[0] + 1))


def test_a_custom_operator_is_checked_under_its_name():
    report = gradproof.check(sine, (normal(3),), seed=0)
    assert report.target == "gradprooftests::sine"
    assert report.verdict == "passed"
    assert "no forward mode" in report["forward"].summary


def test_an_operator_without_forward_mode_is_not_accused_of_it_under_any_name():
    library = torch.library.Library("gradprooftests", "FRAGMENT")
    library.define("low(Tensor x) -> Tensor")
    library.impl("low", torch.sin, "CPU")
    torch.library.register_autograd(
        "gradprooftests::low",
        lambda ctx, g: g * ctx.saved_tensors[0].cos(),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
        lib=library,
    )
    operators = torch.ops.gradprooftests.sine, torch.ops.gradprooftests.sine.default
    for operator in ("gradprooftests::sine", "gradprooftests::low", *operators):
        report = gradproof.check(operator, (normal(3),), seed=0)
        assert report.verdict == "passed", report
        assert "no forward mode" in report["forward"].summary


def test_an_operator_with_a_forward_mode_is_held_to_it():
    wrong = ruled(torch.sin, lambda g, x: g * x.cos(), lambda t, x: 2 * t * x.cos())
    library = torch.library.Library("gradprooftests", "FRAGMENT")
    library.define("own(Tensor x) -> Tensor")
    library.impl("own", torch.sin, "CPU")
    library.impl("own", wrong, "Autograd")
    report = gradproof.check("gradprooftests::own", (normal(3),), seed=0)
    assert [r.name for r in report.checks if r.verdict == "failed"] == ["forward", "adjoint"]


def test_what_opcheck_finds_of_a_custom_operator_is_a_finding():
    assert verdicts(sine, (normal(3),), ["custom_operator"])["custom_operator"] == "passed"
    report = gradproof.check(shapeless, (normal(3),), checks=["custom_operator"], seed=0)
    assert str(report.verdict) == "failed"
    assert "opcheck, test_faketensor" in report.findings[0].message


def test_a_registered_operator_is_checked_by_its_name_alone():
    for name in ("gradprooftests::sine", "gradprooftests::sine.default"):
        report = gradproof.check(name, (normal(3),), checks=["backward"], seed=0)
        assert str(report.verdict) == "passed"
        assert "gradprooftests::sine" in report.target
    for name, says in (("gradprooftests::none", "no operator"), ("sine", "expected a function")):
        with pytest.raises(UsageError, match=f"fn: {says}"):
            gradproof.check(name, (normal(3),))


def test_a_function_that_is_no_operator_is_skipped():
    assert verdicts(torch.sin, (normal(3),), ["custom_operator"])["custom_operator"] == "skipped"


@pytest.mark.slow  # loads PyTorch's compiler
def test_the_compiled_function_is_held_against_eager_mode():
    def fn(x):
        return x.sin() if not torch.compiler.is_compiling() else x.sin().detach() + x

    weight = torch.nn.Linear(3, 2, dtype=torch.float64)
    assert verdicts(weight, (normal(2, 3),), ["compiled"])["compiled"] == "passed"
    assert verdicts(torch.tanh, (leaf(1.0, 2.0),), ["compiled"])["compiled"] == "passed"
    assert failures(fn, (normal(3),), ["compiled"]) == {"compiled"}


@pytest.mark.slow  # compiles C++
@pytest.mark.skipif(shutil.which("c++") is None, reason="inductor needs a C++ compiler")
def test_inductor_is_held_against_eager_mode():
    found = verdicts(lambda x: x.sin().softmax(-1), (normal(2, 3),), ["compiled_native"])
    assert found["compiled_native"] == "passed"
