"""A check of a PyTorch function leaves PyTorch and the user's tensors as they were."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import gradproof
from exhibits.frame import normal, ruled
from gradproof.torch import gradcheck

PASSED, FAILED = gradproof.Verdict.PASSED, gradproof.Verdict.FAILED


wrong = ruled(torch.sin, lambda v, x: v)


def in_threads(count: int, call: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(lambda _: call(), range(count)))


# Random states.


@pytest.mark.parametrize("captured", [False, True], ids=["argument", "captured"])
@pytest.mark.parametrize("right", [True, False])
def test_every_generator_is_put_back_and_one_draw_is_checked(right, captured):
    own = [torch.Generator().manual_seed(1), np.random.default_rng(1), random.Random(1)]

    def scaled(x, *generators):
        one, two, three = generators or own
        mask = torch.rand(x.shape, generator=one, dtype=x.dtype)
        mask = mask + two.random() + three.random()
        mask = mask + random.random() + np.random.rand() + torch.rand(())  # noqa: NPY002
        return (x.sin() if right else wrong(x)) * mask

    def states():
        in_numpy = np.random.get_state()[1].tolist()  # the global one  # noqa: NPY002
        outside = random.getstate(), in_numpy, torch.get_rng_state().tolist()
        return outside, own[0].get_state().tolist(), own[1].bit_generator.state, own[2].getstate()

    before = states()
    report = gradproof.check(scaled, (normal(3), *(() if captured else own)), seed=0)
    assert report.verdict is (PASSED if right else FAILED), str(report)
    assert "random numbers" in " ".join(note for each in report.checks for note in each.notes)
    assert states() == before


# Threads.


@pytest.mark.parametrize("fn", [torch.tanh, wrong], ids=["right", "wrong"])
def test_sixteen_threads_come_to_one_verdict(fn):
    found = in_threads(16, lambda: gradproof.check(fn, (normal(3),)).verdict)
    assert found == [PASSED if fn is torch.tanh else FAILED] * 16


@pytest.mark.parametrize(
    "layer", [torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(3)], ids=["Linear", "BatchNorm"]
)
def test_threads_share_a_layer(layer):
    layer = layer.double()
    before = {
        name: (tensor, tensor.clone()) for name, tensor in layer.state_dict(keep_vars=True).items()
    }
    x = normal(5, 3)
    assert in_threads(8, lambda: gradproof.check(layer, (x,)).verdict) == [PASSED] * 8
    after = layer.state_dict(keep_vars=True)
    assert all(after[name] is tensor for name, (tensor, _) in before.items())
    assert all(torch.equal(after[name], value) for name, (_, value) in before.items())


# Where a check is called.


def in_forward(call: Callable[[], Any]) -> Any:
    found = []

    class Calling(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            found.append(call())
            return x * 1

        @staticmethod
        def backward(ctx, v):
            found.append(call())
            return v

    Calling.apply(normal(2)).sum().backward()
    assert found[0] == found[1]
    return found[0]


def inside(context: Callable[[], Any]) -> Callable[[Callable[[], Any]], Any]:
    def called(call: Callable[[], Any]) -> Any:
        with context():
            return call()

    return called


PLACES = {
    "dual_level": inside(forward_ad.dual_level),
    "autograd Function": in_forward,
    "disabled hooks": inside(lambda: torch.autograd.graph.disable_saved_tensors_hooks("none here")),
    "hooks": inside(torch.autograd.graph.save_on_cpu),
    "no_grad": inside(torch.no_grad),
    "inference_mode": inside(torch.inference_mode),
    "anomaly detection": inside(lambda: torch.autograd.set_detect_anomaly(True)),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_verdict_is_the_same_wherever_the_check_is_called(place):
    x, layer = normal(3), torch.nn.Linear(3, 2).double()
    roads = ["hooks", "functional_jvp"]

    def verdicts():
        return [
            *(gradproof.check(fn, x, seed=0).verdict for fn in (torch.tanh, layer, wrong)),
            gradproof.check(torch.tanh, x, order=2, transforms=roads, seed=0).verdict,
            gradcheck(torch.tanh, x, check_forward_ad=True, check_batched_grad=True),
            gradcheck(wrong, x, raise_exception=False),
        ]

    assert PLACES[place](verdicts) == [PASSED, PASSED, FAILED, PASSED, True, False]


def test_under_fake_tensors_one_sentence_says_why_not():
    x = normal(3)
    with FakeTensorMode():
        for call in (gradproof.check, gradcheck):
            with pytest.raises(gradproof.errors.UsageError, match="under FakeTensorMode"):
                call(torch.tanh, (x,))
    assert gradcheck(torch.tanh, (x,))
