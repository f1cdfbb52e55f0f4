"""Triton kernels, forward and backward by hand: the right ones pass, every planted mistake fails.

On a machine without a GPU they run in Triton's interpreter.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from gradproof import Report, Settings, Verdict, check

FOLDER = Path(__file__).parents[1] / "examples" / "triton_kernels"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None,
        reason="triton is not installed; it comes with the extra: pip install 'gradproof[triton]'",
    ),
]

# Kernel and keyword arguments of the right ones.
RIGHT = (
    ("layer_norm", {}),
    ("attention", {"causal": False}),
    ("attention", {"causal": True, "scale": 0.4}),
    ("cross_entropy", {"reduction": "none"}),
    ("cross_entropy", {"reduction": "mean"}),
)

# Mistake -> the check that must see it, where that is not "backward".
CHECKS = {
    "grad_read_as_contiguous": "memory_layout",
    "expanded_grad_read_as_contiguous": "memory_layout",
    "grad_ignored": "linearity",
    "buffer_scaled_in_place": "determinism",
}
# Mistakes that show with these keyword arguments only.
KWARGS = {
    "causal_mask_missing": {"causal": True},
    "mean_over_ignored_rows": {"reduction": "mean"},
}
KERNELS = {"layer_norm": {}, "attention": {}, "cross_entropy": {"reduction": "none"}}

DTYPES = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16], ids=lambda dtype: str(dtype)[6:]
)


@functools.cache
def module(name: str) -> ModuleType:
    """An example, imported when it is first needed: collecting these tests loads no triton."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))


def report_on(
    kernel: str, dtype: torch.dtype, kwargs: dict, mistake: str | None = None, **options: Any
) -> Report:
    """Held against the reference only: in float64 these kernels still compute in float32."""
    example = module(kernel)
    function = functools.partial(getattr(example, kernel), mistake=mistake)
    return check(
        function,
        example.example_inputs(dtype),
        kwargs,
        reference=example.reference,
        settings=Settings(references=("reference",)),
        seed=0,
        **options,
    )


@DTYPES
@pytest.mark.parametrize(("kernel", "kwargs"), RIGHT)
def test_a_right_kernel_passes(kernel, kwargs, dtype):
    report = report_on(kernel, dtype, kwargs)
    assert report.verdict is Verdict.PASSED, str(report)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_mistake_is_caught(kernel, dtype):
    missed = {}
    for mistake in module(kernel).MISTAKES:
        kwargs = KWARGS.get(mistake, KERNELS[kernel])
        name = CHECKS.get(mistake, "backward")
        # The other checks find no more, and cost twenty times as much in the interpreter.
        report = report_on(kernel, dtype, kwargs, mistake, checks=[name])
        if report[name].verdict is not Verdict.FAILED:
            missed[mistake] = str(report)
    assert missed == {}


@pytest.mark.parametrize(("kernel", "kwargs"), RIGHT)
def test_a_right_kernel_does_not_fail_without_a_reference(kernel, kwargs):
    example = module(kernel)
    inputs = example.example_inputs(torch.float32)
    # Entries that float32 hardly resolves would cost thousands of calls, 0.1 s each.
    native = Settings(references=("native",))
    options = {"settings": native, "checks": ("backward",), "budget": 100, "seed": 0}
    report = check(getattr(example, kernel), inputs, kwargs, **options)
    assert report.verdict is not Verdict.FAILED, str(report)
