"""Gradients in few bits: which reference is believed, what is said, and what never passes."""

from __future__ import annotations

import functools
import math
import re

import numpy as np
import pytest
import torch

import gradproof
import gradproof.torch
from exhibits import frame
from exhibits.frame import leaf, ruled
from exhibits.low_precision import LOW, in_few_bits
from flat_options import check
from gradproof import CheckResult, Verdict
from gradproof.errors import UsageError

PASSED, FAILED, INCONCLUSIVE = Verdict.PASSED, Verdict.FAILED, Verdict.INCONCLUSIVE
SINGLE, BRAIN, HALF = torch.float32, torch.bfloat16, torch.float16
SAME = "the same function in float64"
REFERENCE = "the reference"
NATIVE = "differences in the precision of the arrays"
every_low = pytest.mark.parametrize("dtype", LOW, ids=lambda dtype: str(dtype)[6:])
every_seed = pytest.mark.parametrize("seed", range(3))
normal = functools.partial(frame.normal, dtype=SINGLE)


def checked(fn, inputs, *, seed=0, **options) -> CheckResult:
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    options.setdefault("checks", ("backward",))
    (result, *_) = check(fn, inputs, seed=seed, **options).checks
    return result


@pytest.mark.parametrize("dtype", [BRAIN, HALF], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("part", [1.0, 0.5, 0.0])
def test_a_small_output_beside_a_large_one_is_judged_alone_too(dtype, part):
    def layer(x):
        assert x.dtype is dtype, "there is no kernel for float64"
        return (2 * x.float()).to(dtype), x.float().square().mean().to(dtype)

    def backward(g, of_loss, x):
        found = 2 * g.float() + part * of_loss.float() * 2 * x.float() / x.numel()
        return found.to(dtype)

    x = normal(512, dtype=dtype)
    result = checked(ruled(layer, backward), x, reference=lambda x: (2 * x, x.square().mean()))
    assert result.verdict is (PASSED if part == 1 else FAILED), result.summary
    assert part == 1 or result.summary.endswith("of output 1 alone")


# Right functions.

FUNCTIONS = {
    "softmax": lambda x: torch.softmax(x, -1),
    "layer norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "product": lambda x: x @ x.mT,
    "a kernel": in_few_bits(torch.tanh, lambda slope: slope),
    "piecewise": lambda x: torch.relu(x) + x.clamp(-1, 1) + x.max(-1, keepdim=True).values,
    "scalar": lambda x: (x * x).mean(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@every_low
def test_a_right_function_passes_and_the_reference_is_named(name, dtype):
    for seed in range(3):
        result = checked(FUNCTIONS[name], normal(6, 8, dtype=dtype, seed=seed), seed=seed)
        assert result.verdict is PASSED, result.summary
        assert result.reference == SAME
        assert f"against {SAME}; the claims agree with it to" in result.summary
        # What could have been found: a factor on the gradient of some eps. (Less where an entry is
        # one rounding away from a corner, as 0.9995 is from 1 in float16.)
        eps = torch.finfo(dtype).eps * (4 if dtype in (torch.float32, torch.complex64) else 1)
        assert result.resolution < 8 * eps or name == "piecewise"


# Wrong functions.


@every_low
def test_a_wrong_formula_fails_in_float64_with_its_entry(dtype):
    wrong = ruled(torch.tanh, lambda g, x: g / x.cosh() ** 2 * torch.where(x == x[2], 1.5, 1))
    result = checked(wrong, normal(10, dtype=dtype))
    assert result.verdict is FAILED
    assert result.summary.startswith(f"the formula is wrong, as {SAME} shows:")
    (finding,) = result.findings
    assert finding.kind == "entry"
    assert finding.input_index == finding.output_index == (2,)
    assert finding.claimed == pytest.approx(1.5 * finding.measured, rel=1e-6)


MISTAKES = {
    "moved": lambda g: g.roll(1, 0),
    "not a number": lambda g: g * math.nan,
    "infinite": lambda g: g / 0,
}


@pytest.mark.parametrize("mistake", MISTAKES)
@every_low
def test_what_is_wrong_in_low_precision_only_fails_as_that(mistake, dtype):
    for seed in range(3):
        wrong = in_few_bits(torch.tanh, MISTAKES[mistake])
        result = checked(wrong, normal(16, 12, dtype=dtype, seed=seed), seed=seed)
        assert result.verdict is FAILED, result.summary
        assert {finding.kind for finding in result.findings} == {"precision"}
        assert not all(row.ok for row in result.statistics)
        assert f"against {SAME}" in result.findings[0].message


def test_a_claim_of_nan_is_excused_by_none_at_points_nearby():
    """A spike of float64 in float32 passed, whose slope overflows far below the threshold."""

    def slope(x):
        return 25 * (-25 * x).exp() / (1 + (-25 * x).exp()) ** 2

    def definition(x):
        meant = 25 * (25 * x.detach()).sigmoid() * (-25 * x.detach()).sigmoid() * x
        return ((x > 0).to(x) + meant - meant.detach()).float()

    spike = ruled(lambda x: (x > 0).float(), lambda g, x: g.double() * slope(x))
    for x, verdict in ((leaf(-0.2, 0.1, 0.5), PASSED), (leaf(-46.2, 0.1, 0.5), FAILED)):
        report = gradproof.check(spike, x, reference=definition, trusted=True, seed=0)
        assert report["backward"].verdict is verdict, str(report)


# How many bits there are inside.


def to_11_bits(x):
    """What TF32 makes of a float32; other arrays as they are."""
    if x.dtype is not SINGLE:
        return x
    return (x.detach().contiguous().view(torch.int32) & -8192).view(SINGLE)


def product_in_tf32(factor):
    def backward(g, x, w):
        gradients = to_11_bits(g) @ to_11_bits(w.mT), to_11_bits(x.mT) @ to_11_bits(g)
        return (factor * gradients[0] if x.dtype is SINGLE else gradients[0]), gradients[1]

    return ruled(lambda x, w: to_11_bits(x) @ to_11_bits(w), backward)


@every_seed
def test_tf32_inside_a_product_is_not_accused_and_a_mistake_is(seed):
    inputs = normal(8, 16, seed=seed), normal(16, 12, seed=seed + 10)
    result = checked(product_in_tf32(1.0), inputs, seed=seed)
    assert result.verdict is PASSED, result.summary
    assert any("the function computes in 11 bits" in note for note in result.notes)
    assert checked(product_in_tf32(1.02), inputs, seed=seed).verdict is FAILED


# Kernels that take one precision only.


def only_float32(x):
    if x.dtype is not SINGLE:
        raise TypeError("expected float32\nand much more")
    return x.sin()


def sine_kernel(factor=1.0):
    return ruled(only_float32, lambda g, x: factor * g * x.cos())


def test_a_kernel_in_float32_only_is_verified_by_differences_that_say_so():
    result = checked(sine_kernel(), normal(20))
    assert result.verdict is PASSED
    assert result.reference == NATIVE
    (refused,) = result.refused
    assert refused == f"{SAME}: in double precision it raised TypeError: expected float32"
    assert 1e-6 < result.resolution < 2e-2
    assert checked(sine_kernel(1.02), normal(20)).verdict is FAILED


def test_a_kernel_in_float32_only_is_verified_by_a_reference_far_more_finely():
    result = checked(sine_kernel(), normal(20), reference=torch.sin)
    assert result.verdict is PASSED
    assert result.reference == REFERENCE
    assert result.refused[0].startswith(SAME)
    assert result.resolution < 1e-6
    wrong = checked(sine_kernel(1.0001), normal(20), reference=torch.sin)
    assert wrong.verdict is FAILED
    assert wrong.findings[0].kind == "precision"
    assert REFERENCE in wrong.findings[0].message


def test_a_function_is_no_reference_for_itself():
    @functools.wraps(only_float32)
    def decorated(x):
        return only_float32(x)

    module = torch.nn.Linear(3, 2)
    for fn, alias in (
        (only_float32, only_float32),
        (only_float32, functools.partial(only_float32)),
        (decorated, only_float32),
        (module, module),
    ):
        with pytest.raises(UsageError, match=r"reference: .* which would confirm itself"):
            gradproof.check(fn, (normal(4, 3),), reference=alias)


def test_a_reference_that_is_wrong_itself_is_refused_and_named():
    broken = ruled(torch.sin, lambda g, x: 1.01 * g * x.cos())
    for factor, verdict in ((1.0, PASSED), (1.02, FAILED)):
        result = checked(sine_kernel(factor), normal(20), reference=broken)
        assert result.verdict is verdict
        assert any(f"{REFERENCE}: it fails its own check" in each for each in result.refused)
        assert result.reference == NATIVE


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        (torch.cos, "it returns another value: off by"),
        (lambda x: x[1:].sin(), "returns outputs of another shape"),
        (lambda x: 1 / 0, "raised ZeroDivisionError"),
        (lambda x: 3.0, "without any tensor"),
        (lambda x: np.sin(x.detach().numpy()), "returned ndarray without any tensor"),
        (np.sin, "a reference takes and returns"),
    ],
)
def test_a_reference_that_cannot_serve_is_refused_with_its_reason(reference, says):
    result = checked(sine_kernel(), normal(20), reference=reference)
    refused = "; ".join(result.refused)
    assert re.search(rf"{REFERENCE}: .*{says}", refused), refused
    assert result.reference == NATIVE
    assert "\n" not in refused


# Noise.


def noisy(part):
    generator = torch.Generator().manual_seed(3)

    def fn(x):
        return x.sin() * (1 + part * torch.randn(x.shape, generator=generator, dtype=x.dtype))

    return fn


@every_seed
def test_noise_like_that_of_atomics_enters_the_bar_and_is_not_accused(seed):
    result = checked(noisy(1e-7), normal(20, seed=seed), seed=seed)
    assert result.verdict is PASSED, result.summary
    assert result.resolution < 2e-2


@pytest.mark.parametrize("dtype", [*LOW, torch.float64], ids=lambda dtype: str(dtype)[6:])
def test_a_value_that_is_random_is_inconclusive_with_that_reason(dtype):
    for backward in (lambda g, x: g * x.cos(), lambda g, x: 0 * g):
        result = checked(ruled(noisy(0.3), backward), normal(20, dtype=dtype))
        assert result.verdict is INCONCLUSIVE
        assert "returns another value at every call" in result.summary
        assert "fix the random state inside it" in result.summary


def test_a_float8_input_is_checked_against_the_function_in_float32():
    x = normal(64).detach().to(torch.float8_e4m3fn).requires_grad_()
    result = checked(lambda x: x.float().sin(), x)
    assert result.verdict is PASSED, result.summary
    assert result.reference == SAME
    assert result.resolution > 2.0**-6  # of three bits and a half not more can be found


@pytest.mark.parametrize(
    ("dtype", "factor", "verdict"),
    [
        (BRAIN, 1.0, INCONCLUSIVE),
        (BRAIN, 1.01, INCONCLUSIVE),
        (BRAIN, 3.0, FAILED),
        (BRAIN, 0.0, FAILED),
        (SINGLE, 1.0, PASSED),
        (SINGLE, 1.01, FAILED),
    ],
)
@every_seed
def test_differences_alone_decide_as_far_as_the_precision_of_the_arrays(
    dtype, factor, verdict, seed
):
    fn = ruled(torch.tanh, lambda g, x: factor * g / x.cosh() ** 2)
    result = checked(fn, normal(6, 8, dtype=dtype), references=("native",), seed=seed)
    assert result.verdict is verdict, result.summary
    assert result.reference == NATIVE


@pytest.mark.parametrize("largest", [65504.0, 1000.0], ids=["beyond_the_format", "too_early"])
def test_a_gradient_beyond_float16_is_infinite_in_one_mode_and_no_disagreement(largest) -> None:
    """x^7 of float16 in double: at 6 its gradient is 326,592, which float16 cannot hold."""

    def slope(x: torch.Tensor) -> torch.Tensor:
        return 7 * x.double() ** 6

    def gradient(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        exact = slope(x) * g
        infinite = (exact.abs() > largest) & (x.dtype == HALF)
        return torch.where(infinite, exact.sign() * math.inf, exact).to(x.dtype)

    x = torch.tensor([6.0, 2.5, -3.0], dtype=HALF, requires_grad=True)
    fn = ruled(lambda x: x.double() ** 7, gradient, lambda t, x: slope(x) * t)
    report = gradproof.check(fn, (x,), seed=0)
    assert report["forward_vs_backward"].verdict is Verdict.SKIPPED
    assert "largest number" in report["forward_vs_backward"].summary
    assert report["backward"].verdict is (PASSED if largest > 65503 else FAILED), str(report)


# What a kernel of float32 rounds on its way.


def silu_product(x, w):
    return (x * x.sigmoid()) @ w.mT


def silu_product_that_saves(dtype):
    """A kernel without float64 that saves what it multiplies by in `dtype`."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            if x.dtype is torch.float64:
                raise TypeError("no kernel for float64")
            h = x * x.sigmoid()
            ctx.save_for_backward(x, h.to(dtype), w)
            return h @ w.mT

        @staticmethod
        def backward(ctx, g):
            x, h, w = ctx.saved_tensors
            s = x.sigmoid()
            return (g @ w) * (s * (1 + x * (1 - s))), g.mT @ h.to(g.dtype)

    return Product.apply


@every_seed
@pytest.mark.parametrize("dtype", [SINGLE, HALF, BRAIN], ids=str)
def test_what_is_saved_in_fewer_bits_is_no_honest_rounding(dtype, seed):
    """Errors at points nearby excused any error that is another one there."""
    inputs = normal(12, 24, seed=seed), normal(8, 24, seed=seed + 9)
    kernel, verdict = silu_product_that_saves(dtype), PASSED if dtype is SINGLE else FAILED
    result = checked(kernel, inputs, reference=silu_product, seed=seed)
    assert result.verdict is verdict, result
    report = gradproof.compare(kernel, silu_product, inputs, seed=seed)
    assert report.verdict is verdict, str(report)


@every_seed
def test_float32_after_a_region_of_autocast_is_decided_in_forward_mode(seed):
    def network(x, w, v):
        with torch.autocast("cpu", BRAIN):
            h = torch.nn.functional.gelu(x @ w.mT)
        return torch.nn.functional.linear(h.float(), v)

    inputs = normal(8, 16, seed=seed), normal(12, 16, seed=3), normal(4, 12, seed=4)
    for mode in ("backward", "forward"):
        assert checked(network, inputs, checks=(mode,), seed=seed).verdict is PASSED, mode


def by_the_first(g, x):
    return torch.zeros_like(x).scatter(-1, x.argmax(-1, keepdim=True), g[:, None])


@pytest.mark.parametrize("dtype", [SINGLE, BRAIN], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("value", "backward"),
    [
        (torch.relu, lambda g, x: g * (x >= 0)),
        (lambda x: x.amax(-1), by_the_first),
    ],
    ids=["relu", "max"],
)
def test_another_convention_at_a_kink_than_that_of_the_reference_is_open(value, backward, dtype):
    x = ((4 * normal(4, 18, seed=8).detach()).round() / 4).to(dtype).requires_grad_()

    def kernel(x, factor=1.0):
        assert x.dtype is dtype, "there is no kernel for float64"
        return ruled(value, lambda g, x: factor * backward(g, x))(x)

    result = checked(kernel, x, reference=value)
    assert result.verdict is INCONCLUSIVE
    assert "claims may follow another convention" in result.summary
    assert checked(functools.partial(kernel, factor=2.0), x, reference=value).verdict is FAILED
