"""Bad input: one sentence that names the argument, and nothing of the user's is changed."""

from __future__ import annotations

import collections
import dataclasses
import math

import pytest
import torch

import gradproof
import gradproof.torch as ours
from faces.torch_cases import F64, custom, real, without_numbers
from gradproof.errors import DerivativeWarning, UsageError

NO_STEPS = (0.0, -1e-6, math.nan, math.inf, "small", None)
both_faces = pytest.mark.parametrize("face", [ours.gradcheck, ours.gradgradcheck])


@pytest.fixture(autouse=True)
def nothing_is_changed():
    """Random state, default dtype and device, and every tensor made by a test's `real`."""
    before = (torch.get_rng_state(), torch.get_default_dtype(), torch.get_default_device())
    yield
    after = (torch.get_rng_state(), torch.get_default_dtype(), torch.get_default_device())
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def refusal(function, inputs, **options):
    """The sentence with which both faces refuse; nothing of the inputs may change."""
    tensors = [
        t for t in (inputs if isinstance(inputs, tuple) else (inputs,)) if torch.is_tensor(t)
    ]
    values = [t.detach().clone() for t in tensors]
    with pytest.raises(ValueError) as caught:
        ours.gradcheck(function, inputs, **options)
    for tensor, value in zip(tensors, values, strict=True):
        assert torch.equal(tensor.nan_to_num(), value.nan_to_num())
        assert not tensor.requires_grad or tensor.grad is None
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


NOT_DIFFERENTIABLE = {
    "float": real(2, grad=False),
    "integer": torch.tensor([1, 2]),
    "bool": torch.tensor([True]),
    "tuple": (real(2, grad=False), 3),
    "number": 3.0,
    "text": "text",
    "None": None,
    "empty tuple": (),
    "dict": {},
}


@pytest.mark.parametrize("inputs", NOT_DIFFERENTIABLE.values(), ids=NOT_DIFFERENTIABLE)
def test_no_differentiable_input(inputs):
    sentence = refusal(torch.sin, inputs)
    assert "at least one input tensor to require gradient" in sentence
    assert "`inputs`" in sentence


@pytest.mark.parametrize("function", [None, 3, "sin", real(2)])
@both_faces
def test_something_that_is_no_function(face, function):
    with pytest.raises(TypeError, match="func: expected a function"):
        face(function, real(2))


@pytest.mark.parametrize("value", [None, 3.0, "text", {}, (None,)])
def test_a_function_that_returns_no_tensor(value):
    assert "without any tensor" in refusal(lambda x: value, real(2))


@dataclasses.dataclass
class Unregistered:
    tensor: torch.Tensor


@pytest.mark.parametrize("container", [Unregistered, lambda y: collections.UserDict(y=y)])
@pytest.mark.parametrize("place", ["output 0", "output 1"])
def test_outputs_in_a_container_that_pytorch_does_not_know(container, place):
    def function(x):
        return container(x * 2) if place == "output 0" else (x * 2, container(x * 2))

    sentence = refusal(function, real(2))
    assert sentence.startswith(f"{place} of function is a ")
    assert "with tensors, and PyTorch does not take such containers apart: register it" in sentence


def test_a_point_that_is_no_number():
    x = torch.tensor([1.0, math.nan], dtype=F64, requires_grad=True)
    assert "weight[1] is nan" in refusal(lambda weight: weight * 2, x)


def test_of_an_output_that_is_no_number_that_is_said():
    with pytest.warns(DerivativeWarning, match="the output is nan there"):
        assert ours.gradcheck(lambda x: (x.log(), x * 2), -real(2).detach().requires_grad_())


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_an_output_that_is_infinite_with_its_input_is_left_undecided(value):
    x = torch.tensor([1.0, value], dtype=F64, requires_grad=True)
    with pytest.warns(DerivativeWarning, match=f"the output is {value}"):
        assert ours.gradcheck(lambda weight: weight * 2, x)
    with pytest.raises(ours.GradcheckError, match="Jacobian mismatch"):
        ours.gradcheck(custom(lambda x: x * 2, lambda x, g: torch.stack([3 * g[0], 2 * g[1]])), x)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (real(3), r"grad_outputs\[0\]: expected .* of shape \[2\] .*, got .* of shape \[3\]"),
        ((real(2), real(2)), "grad_outputs: expected one per output that requires grad, 1 in all"),
        (([1.0, 2.0],), r"grad_outputs\[0\]: expected a tensor, got list"),
    ],
)
def test_grad_outputs_that_do_not_fit(given, words):
    with pytest.raises(ValueError, match=words):
        ours.gradgradcheck(torch.sin, real(2), given)


def test_a_function_of_integer_outputs_only_is_not_called_right():
    report = gradproof.check(lambda x: (x > 0).long(), real(2), seed=0)
    assert report.verdict == "inconclusive"
    assert "no output with a derivative" in report["backward"].summary
    with pytest.warns(DerivativeWarning, match="no output with a derivative"):
        assert ours.gradcheck(lambda x: (x > 0).long(), real(2))


def test_gradgradcheck_of_outputs_without_gradient():
    with pytest.raises(ValueError, match="none of its outputs requires grad"):
        ours.gradgradcheck(lambda x: x.detach(), real(2))


@pytest.mark.parametrize("kind", ["meta", "fake", "uninitialised"])
def test_tensors_without_numbers_are_refused_by_name(kind):
    x, y = without_numbers(kind), real(2)
    words = "has no shape yet" if kind == "uninitialised" else "meta or fake tensor, which has no"
    for name, fn, inputs, kwargs in (
        ("x", lambda x: x, (x,), {}),
        ("x", lambda y, x: y, (y, x), {}),
        ("other", torch.mul, (y,), {"other": x}),
        (r"batch\['a'\]\[0\]", lambda batch: batch, ({"a": [x]},), {}),
        ("x", lambda y: y * x, (y,), {}),  # it is read from outside
    ):
        with pytest.raises(UsageError, match=rf"^{name} is .*{words}"):
            gradproof.check(fn, inputs, kwargs, seed=0)
    for face in (ours.gradcheck, ours.gradgradcheck):
        with pytest.raises(UsageError, match=rf"^inputs\[1\] is .*{words}"):
            face(lambda y, x: y, (y, x))


@both_faces
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"atol": None}, "atol: expected a number >= 0, got None"),
        ({"nondet_tol": "small"}, "nondet_tol: expected a number >= 0, got 'small'"),
        ({"rtol": real(2)}, "rtol: expected a number >= 0, got tensor"),
        *(({"eps": eps}, "eps: expected a positive finite number") for eps in NO_STEPS),
    ],
)
def test_options_of_the_drop_in_are_refused_by_name(face, options, words):
    with pytest.raises(UsageError, match=words):
        face(torch.sin, real(2), **options)


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_coo])
def test_a_mode_that_pytorch_lacks_for_the_inputs_is_reported_in_a_sentence(layout):
    x = torch.eye(2, dtype=F64).to_sparse(layout=layout).requires_grad_()
    with pytest.raises(UsageError, match=r"^inputs: forward mode cannot take them: .*; leave out"):
        ours.gradcheck(lambda x: (x * 2).to_dense(), (x,), check_forward_ad=True, masked=True)
