"""Arrays described by dtype and shape, as `gradproof.strategies.arrays` makes them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given

from gradproof import strategies
from gradproof.errors import UsageError

FLOATING = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
WHOLE = ["bool", "uint8", "int8", "int16", "int32", "int64"]


@pytest.mark.parametrize("dtype", FLOATING + WHOLE)
@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_every_dtype_makes_a_tensor(dtype, shape):
    @given(strategies.arrays(f"{dtype}[{','.join(map(str, shape))}]"))
    def test(x):
        assert x.dtype is getattr(torch, dtype)
        assert tuple(x.shape) == shape
        assert x.requires_grad is (dtype in FLOATING)

    test()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected DTYPE"),
        ("float64", "expected DTYPE"),
        ("float64[3", "expected DTYPE"),
        ("float64[3]!nograd", "expected DTYPE"),
        ("float63[3]", "unknown dtype 'float63'"),
        ("float64[-1]", "sizes are integers >= 0"),
        ("float64[2,]", "sizes are integers >= 0"),
        ("float64[2.5]", "sizes are integers >= 0"),
        ("float64[٣]", "sizes are integers >= 0"),
    ],
)
def test_what_is_no_array_is_refused_in_a_sentence(text, says):
    with pytest.raises(UsageError, match=says) as caught:
        strategies.arrays(text)
    assert "\n" not in str(caught.value)
