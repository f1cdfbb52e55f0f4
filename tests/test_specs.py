"""Arrays described in a few letters."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gradproof._adapters.torch.samples import array_from_spec
from gradproof._data.specs import COMPLEX, FLOATS, INTEGERS, ArraySpec, draw, parse
from gradproof.errors import UsageError


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("float64[8,16]", ArraySpec("float64", (8, 16), "normal", (0.0, 1.0), True)),
        ("float32[]", ArraySpec("float32", (), "normal", (0.0, 1.0), True)),
        ("float64[0,3]:ones", ArraySpec("float64", (0, 3), "ones", (), True)),
        ("float64[3]:uniform(-1,2.5)", ArraySpec("float64", (3,), "uniform", (-1.0, 2.5), True)),
        ("float64[3]:normal(1e3,0)", ArraySpec("float64", (3,), "normal", (1000.0, 0.0), True)),
        (" complex128[ 3 ] ", ArraySpec("complex128", (3,), "normal", (0.0, 1.0), True)),
        ("float64[3]!nograd", ArraySpec("float64", (3,), "normal", (0.0, 1.0), False)),
        ("float64[3]:arange !nograd", ArraySpec("float64", (3,), "arange", (), False)),
        ("int64[4]", ArraySpec("int64", (4,), "uniform", (0.0, 2.0), False)),
        ("int64[4]:uniform(0,10)", ArraySpec("int64", (4,), "uniform", (0.0, 10.0), False)),
        ("bool[2]:zeros", ArraySpec("bool", (2,), "zeros", (), False)),
    ],
)
def test_a_spec_is_read(text, spec):
    assert parse(text) == spec


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not of the form"),
        ("float64", "not of the form"),
        ("float64[3", "not of the form"),
        ("float64[3]ones", "not of the form"),
        ("float64[3]:ones()extra", "not of the form"),
        ("float63[3]", "unknown dtype 'float63'"),
        ("float64[-1]", "sizes are integers >= 0"),
        ("float64[2,]", "sizes are integers >= 0"),
        ("float64[2.5]", "sizes are integers >= 0"),
        ("float64[٣]", "sizes are integers >= 0"),
        ("float64[3]:gamma", "unknown values 'gamma'"),
        ("float64[3]:uniform(1)", "takes 2 parameters"),
        ("float64[3]:ones(1)", "takes 0 parameters"),
        ("float64[3]:uniform(1,1)", "needs low < high"),
        ("float64[3]:normal(0,-1)", "deviation >= 0"),
        ("float64[3]:uniform(a,b)", "parameters are numbers"),
        ("float64[3]:uniform(0,inf)", "parameters are finite"),
        ("int64[3]:normal", "cannot be normal"),
        ("int64[3]:uniform(0.2,0.8)", "whole numbers"),
    ],
)
def test_what_is_no_spec_is_refused_in_a_sentence(text, says):
    with pytest.raises(UsageError, match=says) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_values_are_what_they_are_called():
    assert draw(parse("float64[2,2]:arange"), rng()).tolist() == [[0, 1], [2, 3]]
    assert draw(parse("float64[2]:ones"), rng()).tolist() == [1, 1]
    assert draw(parse("complex64[2]:zeros"), rng()).tolist() == [0, 0]
    uniform = draw(parse("float64[1000]:uniform(-2,-1)"), rng())
    assert -2 <= uniform.min() < -1.9 < -1.1 < uniform.max() < -1
    assert draw(parse("float64[1000]:positive"), rng()).min() > 0
    assert set(draw(parse("int64[1000]:uniform(3,5)"), rng()).tolist()) == {3, 4}
    assert draw(parse("float64[1000]:normal(5,0)"), rng()).tolist() == [5] * 1000


def test_real_and_imaginary_parts_are_independent():
    values = draw(parse("complex128[1000]"), rng())
    assert abs(np.corrcoef(values.real, values.imag)[0, 1]) < 0.1


def test_the_same_seed_makes_the_same_array():
    spec = parse("float64[5]")
    assert draw(spec, rng()).tolist() == draw(spec, rng()).tolist()


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX + INTEGERS)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_every_dtype_makes_a_tensor(dtype, shape):
    tensor = array_from_spec(parse(f"{dtype}[{','.join(map(str, shape))}]"), rng())
    assert tensor.dtype is getattr(torch, dtype)
    assert tuple(tensor.shape) == shape
    assert tensor.is_leaf
    assert tensor.requires_grad is (dtype not in INTEGERS)


def test_a_tensor_marked_nograd_is_not_differentiated():
    assert not array_from_spec(parse("float64[2]!nograd"), rng()).requires_grad
