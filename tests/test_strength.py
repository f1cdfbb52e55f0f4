"""The check of the check: which planted mistakes it catches, and what it cannot see."""

from __future__ import annotations

import dataclasses
import functools
import gc
import pickle
import weakref

import numpy as np
import pytest
import torch

import gradproof
from exhibits.frame import leaf, normal
from gradproof._data.settings import Settings
from gradproof._engine._strength import strength
from gradproof._render.text import of_strength
from gradproof.errors import UsageError
from numpy_map import FunctionMap

pytestmark = pytest.mark.needs("torch")


def of(fn, inputs, **options):
    return gradproof.check(fn, inputs, seed=0, **options).strength()


def names(planted):
    return [one.name for one in planted]


def test_every_planted_mistake_is_caught_where_the_check_is_strong():
    found = of(torch.nn.functional.layer_norm, (normal(3, 4), (4,)))
    assert not found.weak, str(found)
    assert names(found.planted) == [
        "scale", "sign", "entry", "roll", "detach input", "cotangent", "layout",
    ]  # fmt: skip
    assert all(one.by for one in found.planted)


def test_a_function_that_is_summed_up_hides_what_becomes_of_its_cotangent():
    found = of(lambda x: x.sin().sum(), (normal(4),))
    assert names(found.missed) == ["cotangent"], str(found)
    assert "before it is summed up" in found.missed[0].why
    assert "WEAK" in str(found)


def test_a_gradient_of_zero_hides_every_factor():
    found = of(lambda x: x.softmax(-1).sum(), (normal(4),))
    assert {"scale", "sign", "entry", "detach x"} <= set(names(found.missed))
    assert all("zero here" in one.why for one in found.missed if one.name == "scale")


def test_branches_that_the_inputs_never_take_are_named():
    found = of(torch.relu, (leaf(1.0, 2.0, 3.0),))
    assert not found.weak
    assert {"negative entries", "zeros", "equal entries", "entries above 10"} == set(found.unseen)
    assert "negative entries" not in of(torch.relu, (leaf(-1.0, 2.0),)).unseen


def test_each_input_is_detached_in_turn():
    found = of(torch.matmul, (normal(2, 3), normal(3, 2, seed=2)))
    assert names(found.planted)[4:6] == ["detach input 0", "detach input 1"]
    assert not found.weak


def test_a_check_of_fewer_rows_catches_less():
    all_rows = of(torch.sin, (normal(4),))
    few = of(torch.sin, (normal(4),), checks=["linearity"])
    assert not all_rows.weak
    assert few.weak
    assert "layout" in names(few.missed)
    assert few.missed[0].why == "no check that was asked for fails"


def test_single_precision_catches_what_it_can_resolve():
    found = of(torch.tanh, (normal(8, dtype=torch.float32),))
    assert {"sign", "roll"} <= {one.name for one in found.planted if one.caught}


def test_the_users_function_and_inputs_stay_as_they_are():
    x = normal(4)
    before = x.detach().clone()
    of(torch.sin, (x,))
    assert torch.equal(x, before)
    assert x.grad is None


def test_a_report_that_was_stored_has_no_function_to_try():
    report = gradproof.check(torch.sin, (normal(3),), seed=0)
    stored = pickle.loads(pickle.dumps(report))
    assert str(stored) == str(report)
    with pytest.raises(UsageError, match="strength"):
        stored.strength()


def test_a_map_without_a_framework_is_tried_as_well():
    point = np.array([0.3, -0.7, 1.1])

    def build():
        return FunctionMap(np.sin, point, np.diag(np.cos(point)))

    found = strength(build, lambda _: Settings(seed=0), "sin")
    assert not found.weak, of_strength(found)
    assert names(found.planted)[-1] == "cotangent"  # it has no layouts


def test_the_text_fits_into_eighty_columns():
    text = str(of(lambda x: x.sin().sum(), (leaf(1.0, 2.0),)))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert text.startswith("strength of the check of <lambda>: WEAK, 5 of 6 caught")


# What a report holds.


@dataclasses.dataclass(slots=True)
class Slotted:
    weight: object


class Layer(torch.nn.Linear):
    def encode(self, x):
        return self(x).sin()


def layer():
    return Layer(3, 2, dtype=torch.float64)


def closed_over(weight):
    return lambda x: (x * weight).sin()


HOLDERS = {
    "argument": lambda: ((x := normal(3)), lambda: (torch.sin, (x,), {}), x),
    "containers": lambda: (
        (x := normal(3)),
        lambda: (lambda t: t["a"][0].weight.sin(), ({"a": [Slotted(x)]},), {}),
        x,
    ),
    "keyword": lambda: ((x := normal(3)), lambda: (lambda x: x.sin(), (), {"kwargs": {"x": x}}), x),
    "closure": lambda: ((w := normal(3)), lambda: (closed_over(w), (normal(3),), {}), w),
    "partial": lambda: (
        (w := normal(3)),
        lambda: (functools.partial(torch.mul, other=w), (normal(3),), {}),
        w,
    ),
    "layer": lambda: ((m := layer()), lambda: (m, (normal(2, 3),), {}), m.weight),
    "method": lambda: ((m := layer()), lambda: (m.encode, (normal(2, 3),), {}), m.weight),
    "reference": lambda: (
        (w := normal(3)),
        lambda: (torch.sin, (normal(3),), {"reference": lambda x: x.sin() + 0 * w}),
        w,
    ),
    "projection": lambda: (
        (w := normal(3)),
        lambda: (torch.sin, (normal(3),), {"project": lambda x: x + 0 * w.detach()}),
        w,
    ),
}


@pytest.mark.parametrize("kind", HOLDERS)
def test_a_report_keeps_no_tensor_of_the_users_alive(kind):
    first, call, tensor = HOLDERS[kind]()
    fn, inputs, options = call()
    report = gradproof.check(fn, inputs, seed=0, **options)
    alive = weakref.ref(tensor)
    tried = report.strength()
    assert tried.planted
    assert str(report.strength()) == str(tried)  # as often as one likes
    del first, call, tensor, fn, inputs, options
    gc.collect()
    assert alive() is None
    assert report.verdict == "passed"
    with pytest.raises(UsageError, match=r"report: .*keep the function and its inputs"):
        report.strength()


def test_functions_written_in_place_that_hold_nothing_can_be_tried():
    scale, x = 2.0, normal(3)

    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * scale

        @staticmethod
        def backward(ctx, g):
            return g * scale

    assert gradproof.check(lambda x: Inner.apply(x), (x,), seed=0).strength().planted
    report = gradproof.check(functools.partial(torch.mul, other=scale), (x,), seed=0)
    assert report.strength().planted


def test_a_report_that_holds_a_reference_of_another_framework_is_tried_and_holds_nothing():
    jax = pytest.importorskip("jax")
    x = normal(3)
    options = {"reference": gradproof.Reference(jax.numpy.sin, framework="jax")}
    report = gradproof.check(torch.sin, (x,), seed=0, **options)
    assert not report.strength().weak
