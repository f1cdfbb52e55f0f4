"""What a function of PyTorch sees while it is checked, and what it may be."""

from __future__ import annotations

import subprocess
import sys
import weakref

import pytest
import torch

import gradproof
from exhibits.frame import normal, ruled
from gradproof import Verdict
from gradproof.torch import gradcheck

DOUBLE, COMPLEX = torch.float64, torch.complex128
PASSED, FAILED, SKIPPED = Verdict.PASSED, Verdict.FAILED, Verdict.SKIPPED


def check(fn, *inputs, **options):
    return gradproof.check(fn, inputs, seed=0, **options)


# Memory ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.rand(3, 2, dtype=DOUBLE).t(),
        lambda: torch.rand(4, 6, dtype=DOUBLE)[1:3, ::2],
        lambda: torch.rand(2, 3, 4, 5, dtype=DOUBLE).to(memory_format=torch.channels_last),
        lambda: torch.rand(7, dtype=COMPLEX)[2:5],
        lambda: torch.rand(3, 4)[:, 1:],
        lambda: torch.rand(5, dtype=DOUBLE)[2],
        lambda: torch.rand(3, 0, 2, dtype=DOUBLE),
    ],
)
def test_the_function_sees_the_users_strides_and_offset_in_every_mode(make):
    given = make().detach().requires_grad_()
    seen = set()

    def fn(x):
        seen.add((x.shape, x.stride(), x.storage_offset()))
        return x * x

    checks = ["backward", "forward", "linearity", "determinism", "side_effects", "second_point"]
    check(fn, given, checks=checks)
    assert seen == {(given.shape, given.stride(), given.storage_offset())}


def test_an_expanded_argument_that_is_not_differentiated_stays_expanded():
    k = torch.arange(1.0, 3.0, dtype=DOUBLE)[:, None].expand(2, 3)
    strides = set()

    def fn(x, k):
        strides.add(k.stride())
        return x * k

    assert check(fn, normal(2, 3), k, checks=["backward", "forward"]).verdict is PASSED
    assert strides == {(1, 0)}


def test_complex_tensors_start_at_addresses_that_vectorised_kernels_can_load():
    """Behind an odd number of reals they would start at no multiple of 16, and crash PyTorch."""
    addresses = []

    def fn(x, z):
        addresses.append(z.data_ptr())
        return z * x.sum()

    assert check(fn, normal(31), normal(32, dtype=COMPLEX), checks=["backward", "forward"])
    assert all(address % 16 == 0 for address in addresses)


def kept_itself(g, kept):
    return kept.setdefault(id(g), (g, g * 2))[1]


def kept_as_a_view(g, kept):
    return kept.setdefault((g.data_ptr(), g._version, g.stride()), (g.detach(), g * 2))[1]


def known_while_it_lives(g, kept):
    of, found = kept.get(id(g), (lambda: None, None))
    if of() is not g:
        found = g * 2
        kept[id(g)] = weakref.ref(g), found
    return found


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("keep", [kept_itself, kept_as_a_view, known_while_it_lives])
def test_a_cotangent_that_a_backward_keeps_is_not_written_to(keep, dtype):
    kept: dict = {}
    doubled = ruled(lambda x: 2 * x, lambda g, x: keep(g, kept), vmap=False)
    checks = ["backward", "linearity", "determinism"]
    report = check(doubled, normal(5, dtype=dtype), checks=checks)
    assert report.verdict is PASSED, str(report)


# What must not change ----------------------------------------------------------------------------


def test_the_users_tensors_gradients_and_random_state_stay_untouched():
    x, fixed = normal(3), torch.zeros(3, dtype=DOUBLE)
    x.grad = torch.full((3,), 7.0, dtype=DOUBLE)
    before, version, random = x.detach().clone(), x._version, torch.get_rng_state()

    def fn(x, running):
        running += 1
        return torch.nn.functional.dropout(x, 0.5) * running

    check(fn, x, fixed, order=2)
    assert torch.equal(x, before)
    assert x._version == version
    assert torch.equal(fixed, torch.zeros(3, dtype=DOUBLE))
    assert torch.equal(x.grad, torch.full((3,), 7.0, dtype=DOUBLE))
    assert torch.equal(torch.get_rng_state(), random)


# Derivatives -------------------------------------------------------------------------------------


def test_no_jvp_is_skipped_and_a_jvp_that_raises_fails_also_in_the_words_of_pytorch():
    def raising(t, x):
        raise RuntimeError("the jvp function of the sine comes later")

    without = check(ruled(torch.sin, lambda g, x: g * x.cos()), normal(3), checks=["forward"])
    assert without["forward"].verdict is SKIPPED
    wrong = ruled(torch.sin, lambda g, x: g * x.cos(), raising)
    report = check(wrong, normal(3), checks=["forward"])
    assert report["forward"].summary.startswith("it raised RuntimeError"), str(report)


@pytest.mark.parametrize(
    "slope",
    [
        lambda x: torch.autograd.grad((x**3).sum(), x, create_graph=True)[0],
        lambda x: torch.func.grad(lambda y: (y**3).sum())(x),
    ],
    ids=["autograd", "func"],
)
def test_a_function_that_differentiates_inside_passes_in_both_modes(slope):
    report = check(slope, normal(3))
    assert report.verdict is PASSED, str(report)
    assert report["forward"].verdict is PASSED


def test_integer_outputs_are_left_out_and_detached_ones_claim_nothing():
    report = check(lambda x: (x.argmax(), x * 2, x.detach() ** 2), normal(3))
    assert [line.split(":")[0] for line in report.outputs] == ["output 1", "output 2"]
    assert {finding.output.name for finding in report["backward"].findings} == {"output 2"}


# Inputs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [True, False], ids=["checked", "beside"])
def test_a_parameter_stays_one_where_it_is_checked(asked):
    seen = set()

    def fn(x, w):
        seen.add(type(w))
        return x * w

    w = torch.nn.Parameter(normal(3, seed=2).detach(), requires_grad=asked)
    assert check(fn, normal(3), w, checks=["backward", "forward", "second_point"]).verdict is PASSED
    assert seen == {torch.nn.Parameter if asked else torch.Tensor}


def logged(x):
    y = x.tanh()
    y.register_hook(lambda g: g.norm() if g is not None else None)
    return y * y


def retained(x):
    y = x.tanh()
    y.retain_grad()
    return y * y


@pytest.mark.parametrize("fn", [logged, retained])
def test_forward_mode_of_a_function_that_watches_a_gradient_runs(fn):
    report = check(fn, normal(3, 4), checks=["backward", "forward"])
    assert report["forward"].verdict is PASSED, str(report)


LONG = """
import torch
import gradproof
from gradproof.torch import gradcheck

def long(x):
    for _ in range(100_000):
        x = x * 1.0
    return x

x = torch.ones(1, dtype=torch.float64, requires_grad=True)
{asked}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [
        "assert gradproof.check(long, (x,)).verdict is gradproof.Verdict.PASSED",
        "assert gradcheck(long, (x,), check_forward_ad=True)",
    ],
    ids=["check", "gradcheck"],
)
def test_a_function_of_100_000_operations_is_checked(asked):
    done = subprocess.run([sys.executable, "-c", LONG.format(asked=asked)], check=False)
    assert done.returncode == 0  # -11 where the stack overflows


@pytest.mark.parametrize("check", [gradproof.check, gradcheck])
def test_cotangents_lie_where_complex_kernels_take_them(check):
    """That of the second output began in the middle of 16 bytes, and the FFT crashed."""
    seen = []

    def backward(g, h, a, x):
        seen.append(h.data_ptr() % 16)
        return 2 * g, h.clone()

    fn = ruled(lambda a, x: (2 * a, x.clone()), backward)
    check(fn, (normal(1), normal(3, 2)))
    kept = ruled(lambda x: x.clone(), lambda g, x: seen.append(g.data_ptr() % 16) or g.clone())
    check(kept, (normal(3),))
    # In another memory layout a cotangent may begin anywhere in its memory, as in PyTorch.
    assert seen.count(0) > len(seen) / 2
    assert seen[0] == 0
