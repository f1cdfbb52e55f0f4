"""The drop-in's arguments are PyTorch's, and so is what it refuses."""

from __future__ import annotations

import importlib
import inspect
import pickle

import pytest
import torch

import gradproof.torch as ours
from gradproof.errors import DerivativeError

theirs = importlib.import_module("torch.autograd.gradcheck")  # torch.autograd.gradcheck hides it

X = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("name", ["gradcheck", "gradgradcheck"])
def test_names_order_kinds_and_defaults_equal_the_installed_pytorch(name):
    def shape(function):
        parameters = inspect.signature(function).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters]

    extra = ("inconclusive", inspect.Parameter.KEYWORD_ONLY, None)  # ours alone
    assert shape(getattr(ours, name)) == [*shape(getattr(theirs, name)), extra]


def test_error_is_pytorchs_and_ours():
    error = ours.GradcheckError("text", None)
    assert isinstance(error, theirs.GradcheckError)
    assert isinstance(error, DerivativeError)
    assert isinstance(error, RuntimeError)
    assert isinstance(error, AssertionError)
    assert str(error) == "text"
    assert error.report is None


def test_error_survives_pickling_as_test_runners_do():
    again = pickle.loads(pickle.dumps(ours.GradcheckError("text", None)))
    assert str(again) == "text"
    assert again.report is None


REFUSED = [
    ("gradcheck", {"check_forward_ad": False, "check_backward_ad": False}),
    ("gradcheck", {"check_batched_grad": True, "check_backward_ad": False}),
    (
        "gradcheck",
        {"check_batched_grad": True, "check_backward_ad": False, "check_forward_ad": True},
    ),
    ("gradcheck", {"check_batched_forward_grad": True}),
    ("gradgradcheck", {"check_fwd_over_rev": False, "check_rev_over_rev": False}),
    ("gradgradcheck", {"check_fwd_over_rev": True, "check_rev_over_rev": False}),
    (
        "gradgradcheck",
        {
            "check_fwd_over_rev": True,
            "check_rev_over_rev": False,
            "check_undefined_grad": False,
            "check_batched_grad": True,
        },
    ),
]


@pytest.mark.parametrize(("name", "options"), REFUSED)
def test_refused_combinations_of_options(name, options):
    with pytest.raises(AssertionError) as expected:
        getattr(theirs, name)(torch.sin, X, **options)
    with pytest.raises(AssertionError) as got:
        getattr(ours, name)(torch.sin, X, **options)
    assert type(got.value) is type(expected.value)
    assert str(got.value) == str(expected.value)
