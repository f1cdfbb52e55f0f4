"""Functions of PyTorch that draw, or hold arrays, in few bits: their runs in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gradproof
from exhibits.frame import normal, ruled
from gradproof import Verdict
from gradproof.torch import gradcheck, gradgradcheck

LOW = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
SAME = "the same function in float64"


def backward_of(fn, *inputs):
    return gradproof.check(fn, inputs, checks=["backward"], seed=0)["backward"]


def larger_below_double(factor):
    """The identity, whose gradient is too large below double precision."""
    return ruled(
        lambda x: x.clone(), lambda g, x: g * (1.0 if x.dtype is torch.float64 else factor)
    )


DISTRIBUTIONS = {
    "rand": lambda x: torch.rand(x.shape, dtype=x.dtype),
    "randn_like": torch.randn_like,
    "of a mean": lambda x: torch.normal(torch.zeros_like(x), 1.0),
    "of probabilities": lambda x: torch.bernoulli(x.detach().sigmoid()),
    "written": lambda x: torch.empty_like(x).exponential_(),
    "of a distribution": lambda x: torch.distributions.Normal(x, x.exp()).rsample() - x,
    "a mask": lambda x: torch.nn.functional.dropout(x, 0.4),
}


@LOW
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_function_that_draws_is_held_against_the_same_draws(name, dtype):
    """The right one was accused: in float64 the function drew other numbers."""

    def fn(x, factor=1.0):
        x = larger_below_double(factor)(x)
        return (x.tanh() + 0.5 * DISTRIBUTIONS[name](x)).square().mean()

    x = normal(32, 16, dtype=dtype)
    right = backward_of(fn, x)
    assert right.verdict is Verdict.PASSED, right
    assert right.reference == SAME
    assert backward_of(lambda x: fn(x, 1.1), x).verdict is Verdict.FAILED


def test_what_a_backward_draws_is_the_same_too():
    from torch.utils.checkpoint import checkpoint

    def noisy(x):
        return (x + torch.randn_like(x)).tanh() * torch.rand_like(x)

    result = backward_of(
        lambda x: checkpoint(noisy, x, use_reentrant=False), normal(40, dtype=torch.float32)
    )
    assert result.verdict is Verdict.PASSED, result
    assert result.reference == SAME


HELD = normal(5, 5, seed=3).detach().to(torch.bfloat16)


def written(x):
    buffer = torch.zeros(5, 5, dtype=x.dtype)
    buffer[:, :2] = x[:, :2] * HELD[:, :2]
    return buffer.copy_(buffer + x)


HOLDING = {
    "a product": lambda x: x @ HELD,
    "a linear layer": lambda x: torch.nn.functional.linear(x, weight=HELD),
    "several": lambda x: torch.einsum("ij,jk,kl->il", x, HELD, HELD),
    "a list": lambda x: torch.linalg.multi_dot([x, HELD, x]),
    "a buffer that is written": lambda x: written(x) @ HELD,
}


@pytest.mark.parametrize("name", HOLDING)
def test_arrays_in_few_bits_that_a_function_holds_are_widened_where_they_meet_doubles(name):
    x, kept = normal(5, 5, dtype=torch.bfloat16), HELD.clone()
    result = backward_of(HOLDING[name], x)
    assert result.verdict is Verdict.PASSED, result
    assert result.reference == SAME
    wrong = backward_of(lambda x: HOLDING[name](larger_below_double(1.1)(x)), x)
    assert wrong.verdict is Verdict.FAILED, wrong
    assert torch.equal(HELD, kept)


@pytest.mark.parametrize("wrap", [lambda layer: layer, lambda layer: layer.forward])
def test_a_layer_runs_in_double_precision_and_stays_in_its_own(wrap):
    layer = torch.nn.Linear(3, 2)
    result = backward_of(wrap(layer), normal(4, 3, dtype=torch.float32))
    assert result.verdict is Verdict.PASSED, result
    assert result.reference == SAME
    assert {parameter.dtype for parameter in layer.parameters()} == {torch.float32}


def test_the_mean_of_many_numbers_is_asked_no_oftener_than_that_of_few():
    few, many = (
        gradproof.check(torch.mean, (normal(size, dtype=torch.float32),), seed=0)
        for size in (1000, 100_000)
    )
    assert few.verdict is many.verdict is Verdict.PASSED
    assert many.calls["function"] <= few.calls["function"]
    assert many.calls["vjp"] <= few.calls["vjp"]


# Casts to fewer bits inside, as layers of transformers have them ---------------------------------

EVERY = pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
F = torch.nn.functional


def rms_norm(x, weight):
    h = x.to(torch.float32)
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * h.to(x.dtype)


def rotary(x):
    angle = torch.linspace(0, 1, x.shape[-1])
    return (x.float() * angle.cos() + x.flip(-1).float() * angle.sin()).type_as(x)


def product_with_a_written_cast(x):
    h = x.clone().float()
    h *= 2
    return h.sin_().to(x.dtype) * x


CASTING = {
    "RMS norm": (rms_norm, (4, 8), (8,)),
    "residual": (lambda x, weight: x + rms_norm(x, weight), (4, 8), (8,)),
    "softmax": (lambda x: F.softmax(x @ x.mT, -1, dtype=torch.float32).to(x.dtype) @ x, (4, 8)),
    "rotary": (rotary, (4, 8)),
    "complex": (lambda x: (x.to(torch.complex64) * (1 + 2j)).real.to(x.dtype) * x, (4, 8)),
    "sum": (lambda x: x / x.exp().sum(-1, keepdim=True, dtype=torch.float32).to(x.dtype), (4, 8)),
    "written": (product_with_a_written_cast, (4, 8)),
    "product": (lambda x, w: x + (x.bfloat16() @ w.bfloat16()).to(x.dtype), (4, 8), (8, 8)),
}


@EVERY
@pytest.mark.parametrize("name", CASTING)
def test_a_function_that_casts_to_fewer_bits_is_held_against_itself_without_casts(name, dtype):
    """Tens of thousands of calls ended inconclusive, or accused it of kinks."""
    fn, *shapes = CASTING[name]
    inputs = [normal(*shape, seed=k, dtype=dtype) for k, shape in enumerate(shapes)]
    report = gradproof.check(fn, tuple(inputs), checks=["backward"], seed=0)
    assert report.verdict is Verdict.PASSED, str(report)
    assert report["backward"].reference == SAME
    assert report["backward"].resolution < 0.1
    assert sum(report.calls.values()) < 300


def rms_norm_by_hand(mistake):
    def backward(g, x, weight):
        h, inner = x.float(), (g * weight).float()
        factor = torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        mean = (inner * h * factor).mean(-1, keepdim=True)
        of_x = factor * (inner - h * factor * (0 if mistake == "no mean" else mean))
        of_x[0, 1] *= 1.1 if mistake == "an entry" else 1.0
        of_x *= 1.01 if mistake == "a factor" else 1.0
        of_weight = (g * (h * factor).to(g.dtype)).sum(0)
        return of_x.to(x.dtype), of_weight * (0.98 if mistake == "the weight" else 1.0)

    return ruled(rms_norm, backward)


@EVERY
@pytest.mark.parametrize("mistake", ["none", "no mean", "an entry", "a factor", "the weight"])
def test_a_kernel_that_casts_to_float32_is_right_or_wrong(mistake, dtype):
    inputs = normal(4, 16, dtype=dtype), normal(16, seed=2, dtype=dtype)
    result = backward_of(rms_norm_by_hand(mistake), *inputs)
    assert result.verdict is (Verdict.PASSED if mistake == "none" else Verdict.FAILED), result
    if dtype is torch.float64:
        accepts = gradcheck(rms_norm_by_hand(mistake), inputs, raise_exception=False)
        assert accepts is (mistake == "none")


def test_second_derivatives_of_a_function_that_casts_are_decided():
    report = gradproof.check(rms_norm, (normal(4, 8), normal(8, seed=2)), order=2, seed=0)
    assert report["second_order"].verdict is Verdict.PASSED, str(report)
    assert gradgradcheck(rms_norm, (normal(4, 8), normal(8, seed=2)))


def test_a_cast_beside_the_derivative_costs_no_digits():
    def logged(x):
        _ = x.detach().float().mean()
        return x.sin()

    assert backward_of(logged, normal(5, 5)).resolution < 1e-5
    wrong = ruled(logged, lambda g, x: g * x.cos() * (1 + 1e-5))
    result = gradproof.check(wrong, normal(5, 5), checks=["backward"], seed=0, rtol=1e-7)
    assert result.verdict is Verdict.FAILED


@pytest.mark.parametrize("dtype", [None, torch.float32], ids=["default", "float32"])
def test_sums_kept_in_a_buffer_are_double_in_double_precision(dtype):
    """A library's attention took a hundred seconds, and stayed inconclusive."""

    def normalised(x):
        total = torch.zeros(x.shape[0], 1, dtype=dtype)
        total.add_(x.square().sum(1, keepdim=True))
        return x / total

    def backward(g, x):
        total = x.square().sum(1, keepdim=True)
        return g / total - 2 * x * (g * x).sum(1, keepdim=True) / total**2

    report = gradproof.check(ruled(normalised, backward), normal(4, 6), seed=0)
    assert report["backward"].verdict is Verdict.PASSED, str(report)
    assert sum(report.calls.values()) < 400
    wrong = ruled(normalised, lambda g, x: backward(g, x) * 1.01)
    assert backward_of(wrong, normal(4, 6)).verdict is Verdict.FAILED


def summed_one_by_one(array):
    """A sum with one accumulator, as a kernel has it, which rounds where no honest run does."""
    total = np.zeros(array.shape[1:], array.dtype)
    for row in array:
        total = (total + row).astype(array.dtype)
    return total


@pytest.mark.parametrize("seed", range(3))
def test_a_kernel_of_another_language_rounds_as_its_claims_show(seed):
    def weighted(factor):
        def forward(x, w):
            return torch.from_numpy(summed_one_by_one((x * w).detach().numpy().T))

        def backward(g, x, w):
            of_w = summed_one_by_one((g[:, None] * x).detach().numpy())
            return g[:, None] * w, torch.from_numpy(of_w) * factor

        return ruled(forward, backward)

    generator = torch.Generator().manual_seed(seed)
    x, w = (torch.rand(shape, generator=generator) for shape in ((600, 40), (40,)))
    inputs = x.requires_grad_(), w.requires_grad_()
    for factor, verdict in ((1.0, Verdict.PASSED), (1 + 1e-4, Verdict.FAILED)):
        result = gradproof.check(weighted(factor), inputs, checks=["backward"], seed=seed)
        assert result["backward"].verdict is verdict, str(result)


@EVERY
def test_what_is_added_to_a_buffer_of_the_default_dtype_is_double_with_it(dtype):
    def weighted(x):
        total = torch.zeros(3)
        total.scatter_add_(0, torch.tensor([0, 1, 1, 2]), torch.linspace(0, 1, 4))
        return x.sin() * total.to(x.dtype)

    result = backward_of(weighted, normal(3, dtype=dtype))
    assert result.verdict is Verdict.PASSED, result
    assert result.reference in (SAME, "")


def test_a_function_of_doubles_that_draws_in_float32_is_judged_in_doubles():
    """Without its casts it draws other numbers, and is another function."""

    def noisy(x):
        return x.sin() * torch.empty(x.shape).normal_()

    def backward(factor):
        def rule(g, x):
            torch.manual_seed(1)
            return g * x.cos() * torch.empty(x.shape).normal_() * factor

        return rule

    def seeded(x):
        torch.manual_seed(1)
        return noisy(x)

    for factor, verdict in ((1.0, Verdict.PASSED), (1 + 1e-4, Verdict.FAILED)):
        result = backward_of(ruled(seeded, backward(factor)), normal(4, 5))
        assert result.verdict is verdict, result


INSIDE = pytest.mark.parametrize(
    ("outside", "inside"),
    [
        (torch.float64, torch.float32),
        (torch.float64, torch.bfloat16),
        (torch.float32, torch.bfloat16),
        (torch.float32, torch.float16),
    ],
    ids=str,
)


def kernels_that_cast(inside):
    """Value and backward of two kernels that compute in fewer bits than their arrays have."""

    def entropy(x):
        x = x.to(inside)
        return (x.logsumexp(-1) - x[:, 0]).mean()

    def entropy_backward(g, x):
        p = x.to(inside).softmax(-1)
        p[:, 0] -= 1
        return (p * g.to(inside) / len(x)).to(x.dtype)

    def product(x, w):
        return (x.to(inside) @ w.to(inside)).to(x.dtype) + x[:, :3]

    def product_backward(g, x, w):
        few = g.to(inside)
        rest = torch.nn.functional.pad(g, (0, x.shape[1] - 3))
        return (few @ w.to(inside).mT).to(x.dtype) + rest, (x.to(inside).mT @ few).to(x.dtype)

    return {
        "entropy": (lambda x: entropy(x).to(x.dtype), entropy_backward),
        "product": (product, product_backward),
    }


def changed_first(backward, change):
    def changed(*given):
        found = backward(*given)
        first, *rest = found if isinstance(found, tuple) else (found,)
        return (change(first, given[0]), *rest) if rest else change(first, given[0])

    return changed


def column_half_more(gradient, _):
    return gradient * torch.where(torch.arange(gradient.shape[1]) == 1, 1.5, 1.0).to(gradient)


MISTAKES = {
    "2 %": lambda gradient, _: 1.02 * gradient,
    "a column": column_half_more,
    "squared": lambda gradient, cotangent: gradient * cotangent.abs().mean(),
}


def inputs_of(kernel, dtype):
    x = normal(16, 8, dtype=dtype)
    return (x,) if kernel == "entropy" else (x, normal(8, 3, seed=2, dtype=dtype))


@INSIDE
@pytest.mark.parametrize("kernel", ["entropy", "product"])
@pytest.mark.parametrize("seed", range(3))
def test_a_kernel_that_casts_to_fewer_bits_passes(kernel, outside, inside, seed):
    """The mean was accused in float32, and the product inconclusive."""
    kernel_of = ruled(*kernels_that_cast(inside)[kernel])
    report = gradproof.check(kernel_of, inputs_of(kernel, outside), seed=seed)
    assert report.verdict is Verdict.PASSED, str(report)


@INSIDE
@pytest.mark.parametrize("kernel", ["entropy", "product"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_kernel_that_casts_to_fewer_bits_is_not_excused(kernel, mistake, outside, inside):
    value, backward = kernels_that_cast(inside)[kernel]
    wrong = ruled(value, changed_first(backward, MISTAKES[mistake]))
    report = gradproof.check(wrong, inputs_of(kernel, outside), seed=0)
    name = "linearity" if mistake == "squared" else "backward"
    assert report[name].verdict is Verdict.FAILED, str(report)


def test_a_value_in_another_memory_layout_may_be_off_by_the_rounding_inside():
    """Where a sum in float32 is in another order, one in six points was accused."""
    for seed in range(12):
        inputs = normal(6, 8, seed=seed), normal(8, seed=seed + 100)
        kernel = rms_norm_by_hand("none")
        report = gradproof.check(kernel, inputs, checks=["memory_layout"], seed=seed)
        assert report.verdict is Verdict.PASSED, str(report)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_outputs_in_complex32_which_pytorch_does_not_compare():
    report = gradproof.check(lambda x: x.chalf(), (normal(3),), seed=0)
    assert report, report
