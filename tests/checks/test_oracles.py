"""Gradients in few bits: which oracle is believed, what is said, and what never passes."""

from __future__ import annotations

import dataclasses
import functools
import math
import re

import numpy as np
import pytest

from flat_options import check

torch = pytest.importorskip("torch")

import gradproof  # noqa: E402
import gradproof.torch  # noqa: E402
from exhibits.frame import ruled as with_both_rules  # noqa: E402
from exhibits.innocents import SeededDropout  # noqa: E402
from gradproof._data.records import CheckResult, Verdict  # noqa: E402
from gradproof._data.settings import ORACLES, RunSettings, Settings  # noqa: E402
from gradproof.errors import DerivativeWarning, UsageError  # noqa: E402

PASSED, FAILED, INCONCLUSIVE = Verdict.PASSED, Verdict.FAILED, Verdict.INCONCLUSIVE
DOUBLE, SINGLE, BRAIN, HALF = torch.float64, torch.float32, torch.bfloat16, torch.float16
LOW = (SINGLE, BRAIN, HALF)
SAME = "the same function in float64"
REFERENCE = "the reference"
NATIVE = "differences in the precision of the arrays"
every_low = pytest.mark.parametrize("dtype", LOW, ids=lambda dtype: str(dtype)[6:])
every_seed = pytest.mark.parametrize("seed", range(3))


def normal(*shape, dtype=SINGLE, seed=1):
    generator = torch.Generator().manual_seed(seed)
    wide = torch.complex128 if dtype.is_complex else DOUBLE
    return torch.randn(shape, generator=generator, dtype=wide).to(dtype).requires_grad_()


def ruled(value, backward):
    """`value` of one tensor, with a backward of its own: of the cotangent and the input."""

    class Ruled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return value(x)

        @staticmethod
        def backward(ctx, g):
            return backward(g, *ctx.saved_tensors)

    return Ruled.apply


def tanh_rule(g, x):
    return g * (1 - x.tanh() ** 2)


tanh_kernel = ruled(torch.tanh, tanh_rule)


def in_low_precision(change):
    """The kernel whose backward is changed, but for float64, where it is right."""

    def backward(g, x):
        right = tanh_rule(g, x)
        return change(right) if x.dtype in LOW else right

    return ruled(torch.tanh, backward)


def checked(fn, inputs, *, seed=0, **options) -> CheckResult:
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    options.setdefault("checks", ("backward",))
    (result, *_) = check(fn, inputs, seed=seed, **options).checks
    return result


# Right functions.

FUNCTIONS = {
    "sine": torch.sin,
    "softmax": lambda x: torch.softmax(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "layer norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "product": lambda x: x @ x.mT,
    "a kernel": tanh_kernel,
    "cumulative": lambda x: x.cumsum(-1),
    "piecewise": lambda x: torch.relu(x) + x.clamp(-1, 1) + x.max(-1, keepdim=True).values,
    "scalar": lambda x: (x * x).mean(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@every_low
def test_a_right_function_passes_and_the_oracle_is_named(name, dtype):
    for seed in range(3):
        result = checked(FUNCTIONS[name], normal(6, 8, dtype=dtype, seed=seed), seed=seed)
        assert result.verdict is PASSED, result.summary
        assert result.oracle == SAME
        assert f"against {SAME}; the claims agree with it to" in result.summary
        # What could have been told: a factor on the gradient of some eps. (Less where an entry is
        # one rounding away from a corner, as 0.9995 is from 1 in float16.)
        eps = torch.finfo(dtype).eps * (4 if dtype in (torch.float32, torch.complex64) else 1)
        assert result.resolution < 8 * eps or name == "piecewise"


@every_seed
def test_a_right_complex_function_passes(seed):
    def fn(z):
        return z * z.conj() + z.exp(), z.abs()

    result = checked(fn, normal(4, 3, dtype=torch.complex64, seed=seed), seed=seed)
    assert result.verdict is PASSED, result.summary
    assert result.oracle == SAME
    assert {row.array for row in result.statistics} == {"z"}


@pytest.mark.parametrize("dtype", [*LOW, torch.complex64], ids=lambda dtype: str(dtype)[6:])
def test_every_check_of_a_right_function_passes_or_does_not_apply(dtype):
    report = gradproof.check(lambda x: (x * x.exp()).sum(-1), (normal(4, 5, dtype=dtype),), seed=0)
    assert {result.verdict for result in report.checks} <= {PASSED, Verdict.SKIPPED}, str(report)
    for name in ("backward", "forward"):
        assert report[name].verdict is PASSED
        assert report[name].oracle == SAME


def test_every_array_has_its_statistics_in_units_of_its_precision():
    result = checked(lambda x, weight: x @ weight.mT, (normal(4, 3), normal(5, 3, seed=2)))
    assert {row.array for row in result.statistics} == {"x", "weight"}
    assert {row.oracle for row in result.statistics} == {SAME}
    names = {row.name for row in result.statistics}
    assert {"slope", "mean", "rms", "row slope", "column slope", "worst entry"} <= names
    assert all(row.ok for row in result.statistics)
    assert all(row.eps == torch.finfo(SINGLE).eps for row in result.statistics)
    assert all(row.allowed < 1000 for row in result.statistics)


@every_low
def test_the_same_seed_gives_the_same_report(dtype):
    def report(seed):
        made = gradproof.check(tanh_kernel, (normal(6, 8, dtype=dtype),), seed=seed)
        kept = [dataclasses.replace(result, seconds=0.0) for result in made.checks]
        return repr(dataclasses.replace(made, checks=tuple(kept), seconds=0.0))

    assert report(5) == report(5)
    assert report(5) != report(6)


# Wrong functions.


@every_low
def test_a_wrong_formula_fails_in_float64_with_its_entry(dtype):
    wrong = ruled(torch.tanh, lambda g, x: g * (1 - x.tanh() ** 2) * torch.where(x == x[2], 1.5, 1))
    result = checked(wrong, normal(10, dtype=dtype))
    assert result.verdict is FAILED
    assert result.summary.startswith(f"the formula is wrong, as {SAME} shows:")
    (finding,) = result.findings
    assert finding.kind == "entry"
    assert finding.input_index == finding.output_index == (2,)
    assert finding.claimed == pytest.approx(1.5 * finding.measured, rel=1e-6)


def rows_dropped(gradient):
    return torch.cat([gradient[:-1], torch.zeros_like(gradient[-1:])])


MISTAKES = {
    "2 per cent": lambda g: 1.02 * g,
    "a row": rows_dropped,
    "a constant": lambda g: g + 0.05,
    "zero": lambda g: 0 * g,
    "sign": lambda g: -g,
    "tail": lambda g: torch.cat([g.flatten()[:-5], torch.zeros(5, dtype=g.dtype)]).view_as(g),
    "moved": lambda g: g.roll(1, 0),
    "not a number": lambda g: g * math.nan,
    "infinite": lambda g: g / 0,
}


@pytest.mark.parametrize("mistake", MISTAKES)
@every_low
def test_what_is_wrong_in_low_precision_only_fails_as_that(mistake, dtype):
    for seed in range(3):
        wrong = in_low_precision(MISTAKES[mistake])
        result = checked(wrong, normal(16, 12, dtype=dtype, seed=seed), seed=seed)
        assert result.verdict is FAILED, result.summary
        assert {finding.kind for finding in result.findings} == {"precision"}
        assert not all(row.ok for row in result.statistics)
        assert f"against {SAME}" in result.findings[0].message


def test_the_words_of_a_finding_say_what_is_off_and_by_how_much():
    dropped = checked(in_low_precision(rows_dropped), normal(6, 8, dtype=BRAIN))
    (finding,) = dropped.findings
    assert "row slope off by 1, rounding explains" in finding.message
    assert finding.input_name == "input 0"
    assert finding.input_index[0] == 5
    assert finding.claimed == 0
    factor = checked(in_low_precision(MISTAKES["2 per cent"]), normal(16, 16, dtype=BRAIN))
    assert re.search(r"slope off by 0\.0[12]\d*, rounding explains", factor.findings[0].message)


def test_one_entry_that_is_not_a_number_is_named():
    wrong = in_low_precision(lambda g: torch.where(torch.arange(20) == 7, math.nan, g))
    result = checked(wrong, normal(20))
    assert result.verdict is FAILED
    assert result.findings[0].input_index == (7,)
    assert math.isnan(result.findings[0].claimed)


@every_low
def test_a_wrong_tangent_fails_in_forward_mode(dtype):
    class Tangent(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.tanh()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_forward(*inputs)
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return tanh_rule(g, *ctx.saved_tensors)

        @staticmethod
        def jvp(ctx, t):
            (x,) = ctx.saved_tensors
            return tanh_rule(t, x) * (1.1 if x.dtype in LOW else 1.0)

    result = checked(Tangent.apply, normal(16, 12, dtype=dtype), checks=("forward",))
    assert result.verdict is FAILED, result.summary
    assert result.findings[0].kind == "precision"
    assert "tangent of output 0" in result.findings[0].message
    assert result.findings[0].output is not None
    assert result.findings[0].input is None


# How many bits there are inside.


@pytest.mark.parametrize("dtype", [BRAIN, HALF], ids=["bfloat16", "float16"])
@every_seed
def test_float32_inside_half_precision_is_an_oracle_of_24_bits(dtype, seed):
    for fn in (
        lambda x: x.float().sin().to(x.dtype),
        lambda x: torch.softmax(x.float(), -1).to(x.dtype),
        lambda x: torch.nn.functional.layer_norm(x.float(), x.shape[-1:]).to(x.dtype),
    ):
        result = checked(fn, normal(5, 6, dtype=dtype, seed=seed), seed=seed)
        assert result.verdict is PASSED, result.summary
        assert result.oracle == SAME


@pytest.mark.parametrize("dtype", [BRAIN, HALF], ids=["bfloat16", "float16"])
def test_a_mistake_shows_against_an_oracle_of_24_bits(dtype):
    fn = ruled(lambda x: x.float().tanh().to(x.dtype), lambda g, x: 1.1 * tanh_rule(g, x))
    result = checked(fn, normal(5, 6, dtype=dtype))
    assert result.verdict is FAILED, result.summary


@pytest.mark.parametrize("dtype", [BRAIN, HALF], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("seed", range(6))
def test_a_loss_that_is_summed_in_single_precision_is_an_oracle(dtype, seed):
    """It has one value, in float32 whatever its arrays are."""
    target = torch.tensor([0, 3, 1, 10, 5, 9, 2])

    def loss(x):
        return torch.nn.functional.cross_entropy(x.float(), target).to(x.dtype)

    def rule(g, x):
        p = x.float().softmax(-1)
        p[torch.arange(7), target] -= 1
        return (g.float() * p / 7).to(x.dtype)

    x = normal(7, 11, dtype=dtype)
    result = checked(ruled(loss, rule), x, seed=seed)
    assert result.verdict is PASSED, result.summary
    assert result.oracle == SAME
    wrong = checked(ruled(loss, lambda g, x: 1.1 * rule(g, x)), x, seed=seed)
    assert wrong.verdict is FAILED, wrong.summary


def kernel_of(dtype, value, rule):
    """A function that takes this dtype alone, so that nothing but its own differences tells."""

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            assert inputs[0].dtype is dtype
            ctx.save_for_backward(*inputs)
            return value(*(x.float() for x in inputs)).to(dtype)

        @staticmethod
        def backward(ctx, g):
            gradients = rule(g.float(), *(x.float() for x in ctx.saved_tensors))
            return tuple(gradient.to(dtype) for gradient in gradients)

    return Kernel.apply


@every_low
@every_seed
def test_a_row_whose_derivative_is_small_along_one_tangent_by_chance_is_resolved(dtype, seed):
    """Of 1,040 outputs a few are, along any tangent, and nothing is wrong with them."""
    x = normal(16, 65, dtype=dtype)

    def value(x):
        return torch.log_softmax(x.float(), -1).to(x.dtype)

    def rule(g, x):
        g, p = g.float(), x.float().softmax(-1)
        return (g - p * g.sum(-1, keepdim=True)).to(x.dtype)

    result = checked(ruled(value, rule), x, seed=seed)
    assert result.verdict is PASSED, result.summary
    wrong = checked(ruled(value, lambda g, x: rule(g, x) * (x.sign() + 9) / 9), x, seed=seed)
    assert wrong.verdict is FAILED, wrong.summary


def without_tail(x):
    return torch.cat([x[:-16], torch.zeros(16)])


@pytest.mark.parametrize("dtype", [BRAIN, HALF], ids=["bfloat16", "float16"])
@every_seed
def test_differences_in_16_bits_never_pass_a_tail_of_zeros(dtype, seed):
    a, b = normal(129, dtype=dtype), normal(129, dtype=dtype, seed=2)
    wrong = kernel_of(dtype, torch.dot, lambda g, a, b: (g * without_tail(b), g * without_tail(a)))
    right = kernel_of(dtype, torch.dot, lambda g, a, b: (g * b, g * a))
    assert gradproof.check(wrong, (a, b), seed=seed)["backward"].verdict is not PASSED
    assert gradproof.check(right, (a, b), seed=seed)["backward"].verdict is not FAILED


def test_what_a_tolerance_lets_pass_is_not_called_verified_more_finely():
    a, b = normal(1, dtype=HALF), normal(1, dtype=HALF, seed=2)

    def rule(g, a, b):
        return 2.04 * g * (a - b), -2.04 * g * (a - b)

    result = gradproof.check(kernel_of(HALF, lambda a, b: ((a - b) ** 2)[0], rule), (a, b), seed=0)
    assert result["backward"].verdict is not PASSED or result["backward"].resolution > 0.015


@every_seed
def test_bfloat16_inside_float32_is_no_oracle_and_differences_do_not_tell(seed):
    result = checked(lambda x: x.bfloat16().sin().to(x.dtype), normal(20, seed=seed), seed=seed)
    assert result.verdict is INCONCLUSIVE, result.summary
    assert f"not {SAME}: it computes in few bits there" in result.oracle


@every_seed
def test_bfloat16_inside_float64_is_not_accused(seed):
    x = normal(20, dtype=DOUBLE, seed=seed)
    result = checked(lambda x: x.bfloat16().sin().to(x.dtype), x, seed=seed)
    assert result.verdict is INCONCLUSIVE, result.summary


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=["float32", "float64"])
@every_seed
def test_bfloat16_inside_is_verified_by_a_reference(dtype, seed):
    def fn(x):
        return x.bfloat16().sin().to(x.dtype)

    def wrong(x):
        return ruled(fn, lambda g, x: 1.2 * (g.bfloat16() * x.bfloat16().cos()).to(x.dtype))(x)

    x = normal(60, dtype=dtype, seed=seed)
    result = checked(fn, x, reference=torch.sin, seed=seed)
    assert result.verdict is PASSED, result.summary
    assert result.oracle.startswith(REFERENCE)
    assert checked(wrong, x, reference=torch.sin, seed=seed).verdict is FAILED


def to_11_bits(x):
    """What TF32 makes of a float32; other arrays as they are."""
    if x.dtype is not SINGLE:
        return x
    return (x.detach().contiguous().view(torch.int32) & -8192).view(SINGLE)


def product_in_tf32(factor):
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return to_11_bits(x) @ to_11_bits(w)

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            factor_here = factor if x.dtype is SINGLE else 1.0
            return (
                factor_here * (to_11_bits(g) @ to_11_bits(w.mT)),
                to_11_bits(x.mT) @ to_11_bits(g),
            )

    return Product.apply


@every_seed
def test_tf32_inside_a_product_is_not_accused_and_a_mistake_is(seed):
    inputs = normal(8, 16, seed=seed), normal(16, 12, seed=seed + 10)
    result = checked(product_in_tf32(1.0), inputs, seed=seed)
    assert result.verdict is PASSED, result.summary
    assert any("the function computes in 11 bits" in note for note in result.notes)
    assert checked(product_in_tf32(1.02), inputs, seed=seed).verdict is FAILED


def test_cancellation_is_not_taken_for_few_bits():
    """A variance by E[x^2] - E[x]^2 loses most of its bits; its gradient has none to lose."""

    def backward(g, x):
        right = g[:, None] * 2 * (x - x.mean(-1, keepdim=True)) / x.shape[-1]
        return right * (1.02 if x.dtype is SINGLE else 1.0)

    wrong = ruled(lambda x: (x * x).mean(-1) - x.mean(-1) ** 2, backward)
    x = (normal(8, 16).detach() + 100).requires_grad_()
    assert checked(wrong, x).verdict is FAILED


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
    assert result.oracle.startswith(f"{NATIVE}; ")
    assert f"not {SAME}: in double precision it raised TypeError: expected float32" in result.oracle
    assert result.oracle.endswith("expected float32")
    assert 1e-6 < result.resolution < 2e-2
    assert checked(sine_kernel(1.02), normal(20)).verdict is FAILED


def test_a_kernel_in_float32_only_is_verified_by_a_reference_far_more_finely():
    result = checked(sine_kernel(), normal(20), reference=torch.sin)
    assert result.verdict is PASSED
    assert result.oracle.startswith(f"{REFERENCE}; not {SAME}")
    assert result.resolution < 1e-6
    wrong = checked(sine_kernel(1.0001), normal(20), reference=torch.sin)
    assert wrong.verdict is FAILED
    assert wrong.findings[0].kind == "precision"
    assert REFERENCE in wrong.findings[0].message


@pytest.mark.parametrize("factor", [1.0, 1.0001])
def test_a_reference_may_have_parameters_of_its_own(factor):
    linear = torch.nn.Linear(4, 3).requires_grad_(False)

    def kernel(x):
        if x.dtype is not SINGLE:
            raise TypeError("expected float32")
        return ruled(linear, lambda g, x: factor * g @ linear.weight)(x)

    result = checked(kernel, normal(5, 4), reference=linear)
    assert result.verdict is (PASSED if factor == 1 else FAILED), result.summary
    assert linear.weight.dtype is SINGLE


def decorated(fn):
    @functools.wraps(fn)
    def inner(*arguments):
        return fn(*arguments)

    return inner


@pytest.mark.parametrize(
    "alias",
    [
        lambda fn: fn,
        functools.partial,
        lambda fn: functools.partial(functools.partial(fn)),
        decorated,
        lambda fn: decorated(decorated(fn)),
        lambda fn: functools.partial(decorated(fn)),
    ],
    ids=["itself", "partial", "partial of partial", "decorated", "twice", "both"],
)
def test_a_function_is_no_reference_for_itself(alias):
    with pytest.raises(UsageError, match=r"reference: .* which would confirm itself"):
        gradproof.check(only_float32, (normal(3),), reference=alias(only_float32))
    with pytest.raises(UsageError, match="would confirm itself"):
        gradproof.check(alias(only_float32), (normal(3),), reference=only_float32)


def test_a_module_is_no_reference_for_itself():
    module = torch.nn.Linear(3, 2)
    with pytest.raises(UsageError, match="would confirm itself"):
        gradproof.check(module, (normal(4, 3),), reference=module)
    with pytest.raises(UsageError, match="would confirm itself"):
        gradproof.check(module.forward, (normal(4, 3),), reference=module.forward)


def test_a_reference_that_is_wrong_itself_is_refused_and_named():
    broken = ruled(torch.sin, lambda g, x: 1.01 * g * x.cos())
    for factor, verdict in ((1.0, PASSED), (1.02, FAILED)):
        result = checked(sine_kernel(factor), normal(20), reference=broken)
        assert result.verdict is verdict
        assert f"not {REFERENCE}: it fails its own check" in result.oracle
        assert result.oracle.startswith(NATIVE)


def test_a_reference_with_another_value_is_refused():
    result = checked(sine_kernel(), normal(20), reference=torch.cos)
    assert f"not {REFERENCE}: it returns another value: off by" in result.oracle
    assert result.oracle.startswith(NATIVE)


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        (lambda x: x[1:].sin(), "returns outputs of another shape"),
        (lambda x: 1 / 0, "raised ZeroDivisionError"),
        (lambda x: 3.0, "without any tensor"),
        (lambda x: np.sin(x.detach().numpy()), "returned ndarray without any tensor"),
        (np.sin, "a reference takes and returns"),
    ],
)
def test_a_reference_that_cannot_serve_is_refused_with_its_reason(reference, says):
    result = checked(sine_kernel(), normal(20), reference=reference)
    assert re.search(rf"not {REFERENCE}: .*{says}", result.oracle), result.oracle
    assert "\n" not in result.oracle


@pytest.mark.parametrize("dtype", [*LOW, DOUBLE], ids=lambda dtype: str(dtype)[6:])
def test_a_reference_that_is_slightly_off_refutes_no_right_derivative(dtype):
    def nearly(x):
        return x.sin() + 0.05 * x

    result = checked(torch.sin, normal(60, dtype=dtype), reference=nearly)
    assert result.verdict is not FAILED, result.summary


def test_a_mistake_is_one_whatever_the_oracles():
    wrong = in_low_precision(MISTAKES["2 per cent"])
    result = checked(wrong, normal(16, 12), reference=lambda x: x.tanh())
    assert result.verdict is FAILED
    assert result.oracle.startswith(SAME)
    assert SAME in {row.oracle for row in result.statistics}


# Noise.


def noisy(part, dtype=None):
    generator = torch.Generator().manual_seed(3)

    def fn(x):
        return x.sin() * (1 + part * torch.randn(x.shape, generator=generator, dtype=x.dtype))

    return fn


@every_seed
def test_noise_like_that_of_atomics_enters_the_bar_and_is_not_accused(seed):
    result = checked(noisy(1e-7), normal(20, seed=seed), seed=seed)
    assert result.verdict is PASSED, result.summary
    assert result.resolution < 2e-2


@pytest.mark.xfail(
    strict=True,
    reason="noise of a backward alone, of 1e-4 in float32, is taken for more than rounding",
)
@every_seed
def test_noise_in_the_backward_is_not_accused(seed):
    generator = torch.Generator().manual_seed(3)

    def backward(g, x):
        noise = torch.randn(x.shape, generator=generator, dtype=x.dtype)
        return tanh_rule(g, x) * (1 + (1e-4 * noise if x.dtype is SINGLE else 0.0))

    result = checked(ruled(torch.tanh, backward), normal(16, 12, seed=seed), seed=seed)
    assert result.verdict is PASSED, result.summary


@pytest.mark.parametrize("dtype", [*LOW, DOUBLE], ids=lambda dtype: str(dtype)[6:])
def test_a_value_that_is_random_is_inconclusive_with_that_reason(dtype):
    for backward in (lambda g, x: g * x.cos(), lambda g, x: 0 * g):
        result = checked(ruled(noisy(0.3), backward), normal(20, dtype=dtype))
        assert result.verdict is INCONCLUSIVE
        assert "returns another value at every call" in result.summary
        assert "fix the random state inside it" in result.summary


@every_low
def test_dropout_is_no_noise_because_its_state_is_kept(dtype):
    def fn(x):
        return torch.nn.functional.dropout(x, 0.5, training=True) * x

    result = checked(fn, normal(8, 8, dtype=dtype))
    assert result.verdict is PASSED, result.summary
    assert result.oracle == SAME


# Nothing tested.


@pytest.mark.parametrize("dtype", [*LOW, DOUBLE], ids=lambda dtype: str(dtype)[6:])
@pytest.mark.parametrize(
    "fn",
    [lambda x, y: x.sin(), lambda x, y: x.sin() + y.detach() * 0],
    ids=["unused", "detached"],
)
def test_an_input_that_moves_nothing_has_the_derivative_zero(fn, dtype):
    inputs = normal(5, dtype=dtype), normal(5, dtype=dtype, seed=2)
    result = checked(fn, inputs)
    assert result.verdict is PASSED, result.summary


@pytest.mark.parametrize("dtype", [*LOW, DOUBLE], ids=lambda dtype: str(dtype)[6:])
def test_a_zero_that_is_claimed_and_measured_is_tested(dtype):
    """The graph says that y counts, by nothing here: as of the larger of two numbers."""
    inputs = normal(5, dtype=dtype), normal(5, dtype=dtype, seed=2)
    result = checked(lambda x, y: torch.maximum(x.sin() + 3, y), inputs)
    assert result.verdict is PASSED, result.summary


@pytest.mark.parametrize("dtype", [*LOW, DOUBLE], ids=lambda dtype: str(dtype)[6:])
def test_a_constant_is_not_tested(dtype):
    result = checked(lambda x: 0 * x + 1, normal(5, dtype=dtype))
    assert result.verdict is INCONCLUSIVE
    assert "nothing was tested" in result.summary


def test_the_drop_in_passes_what_does_not_depend_on_an_input():
    inputs = normal(5, dtype=DOUBLE), normal(5, dtype=DOUBLE, seed=2)
    assert gradproof.torch.gradcheck(lambda x, y: x.sin(), inputs)
    with pytest.warns(DerivativeWarning, match="nothing was tested"):
        assert gradproof.torch.gradcheck(lambda x: 0 * x + 1, inputs[:1])


@pytest.mark.parametrize("dtype", [*LOW, DOUBLE], ids=lambda dtype: str(dtype)[6:])
def test_a_gradient_that_is_dropped_is_no_disconnected_input(dtype):
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g, None

    def fn(x, y):
        return x.sin() + Half.apply(torch.ones_like(y, requires_grad=True), y)

    result = checked(fn, (normal(5, dtype=dtype), normal(5, dtype=dtype, seed=2)))
    assert result.verdict is FAILED, result.summary


# Eight bits.


def test_a_float8_input_is_checked_against_the_function_in_float32():
    x = normal(64).detach().to(torch.float8_e4m3fn).requires_grad_()
    result = checked(lambda x: x.float().sin(), x)
    assert result.verdict is PASSED, result.summary
    assert result.oracle == SAME
    assert result.resolution > 2.0**-6  # of three bits and a half not more can be told


def test_a_gradient_that_is_wrong_beyond_float8_fails():
    x = normal(64).detach().to(torch.float8_e4m3fn).requires_grad_()
    zero = ruled(lambda x: x.float().sin(), lambda g, x: (0 * g).to(x.dtype))
    assert checked(zero, x).verdict is FAILED


# Differences in the precision of the arrays alone.


@pytest.mark.parametrize("factor", [1.0, 1.01])
@every_seed
def test_in_bfloat16_alone_no_mistake_of_one_per_cent_passes(factor, seed):
    fn = ruled(torch.tanh, lambda g, x: factor * tanh_rule(g, x))
    result = checked(fn, normal(6, 8, dtype=BRAIN), oracles=("native",), seed=seed)
    assert result.verdict is INCONCLUSIVE, result.summary
    assert result.oracle == NATIVE
    assert "could not be resolved" in result.summary


@pytest.mark.parametrize("factor", [3.0, -1.0, 0.0])
@every_seed
def test_in_bfloat16_alone_a_gross_mistake_fails(factor, seed):
    fn = ruled(torch.tanh, lambda g, x: factor * tanh_rule(g, x))
    result = checked(fn, normal(6, 8, dtype=BRAIN), oracles=("native",), seed=seed)
    assert result.verdict is FAILED, result.summary


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, PASSED), (1.01, FAILED)])
def test_in_float32_alone_one_per_cent_is_seen(factor, verdict):
    fn = ruled(torch.tanh, lambda g, x: factor * tanh_rule(g, x))
    result = checked(fn, normal(4, 5), oracles=("native",))
    assert result.verdict is verdict, result.summary
    assert result.oracle == NATIVE


def test_what_was_not_asked_for_is_not_asked():
    result = checked(sine_kernel(), normal(20), oracles=("double",))
    assert result.verdict is INCONCLUSIVE
    assert (
        f"no reference to hold it against: {SAME}: in double precision it raised" in result.summary
    )
    result = checked(sine_kernel(), normal(20), oracles=("reference",))
    assert result.verdict is INCONCLUSIVE
    assert result.summary.endswith("no reference was given")


def test_in_double_precision_differences_suffice_and_no_reference_is_named():
    assert checked(torch.sin, normal(5, dtype=DOUBLE)).oracle == ""


# Settings.


@pytest.mark.parametrize(
    ("oracles", "says"), [(("single",), "unknown 'single'"), ((), "at least one of")]
)
def test_oracles_are_validated(oracles, says):
    with pytest.raises(UsageError, match=f"oracles: .*{says}"):
        Settings(oracles=oracles)


def test_tolerances_follow_the_precision_unless_the_caller_chose():
    derived, chosen = RunSettings(), RunSettings(rtol=1e-5, rtol_is_chosen=True)
    found = [derived.with_precision(2.0**-bits) for bits in (53, 24, 8)]
    assert [each.rtol for each in found] == [1e-6, 1e-3, 0.125]
    assert [each.resolution for each in found] == [1e-2, 2e-2, 0.1]
    assert all(chosen.with_precision(2.0**-bits) is chosen for bits in (53, 24, 8))
    assert Settings().oracles == ORACLES == ("double", "reference", "native")


def test_the_arrays_of_the_user_and_the_random_state_are_left_alone():
    x, state = normal(6, 8, dtype=BRAIN), torch.random.get_rng_state()
    kept = x.detach().clone()
    gradproof.check(tanh_kernel, (x,), reference=lambda x: x.tanh())
    assert torch.equal(x, kept)
    assert x.grad is None
    assert x.dtype is BRAIN
    assert torch.equal(torch.random.get_rng_state(), state)


# Entries that nobody can tell in few bits.


def test_a_pole_beside_ordinary_entries_does_not_hide_them():
    """Of 1 / (x - 3)^2 at 3 + 2^-7 a rounding of x changes the derivative by its own size."""
    x = torch.tensor([3.015625, 0.5, 1.0, 1.5, 2.0, 4.5, 5.0, 5.5], dtype=torch.bfloat16)
    x = x.requires_grad_()

    def pole(x):
        return (x - 3) ** -2

    result = checked(pole, x)
    assert result.verdict is PASSED, result.summary

    def slope(g, x):
        factor = 1.25 if x.dtype is torch.bfloat16 else 1.0
        return -2 * factor * g * (x - 3) ** -3

    wrong = checked(ruled(pole, slope), x)
    assert wrong.verdict is FAILED, wrong.summary


# Jumps in the point, and outputs that stand still.


def labelled(x, label):
    """A loss of labels that are exactly 1 or -1, and of none that lie between."""
    return torch.where(label == 1, x.sin(), 0.0) + torch.where(label == -1, x.cos(), 0.0)


def test_a_column_that_jumps_refutes_no_other_column():
    x, label = normal(5, dtype=DOUBLE), torch.ones(5, dtype=DOUBLE, requires_grad=True)
    report = gradproof.check(labelled, [x, label], checks=["backward"], seed=0)
    assert report.verdict is not FAILED, report


@pytest.mark.parametrize("dtype", [SINGLE, BRAIN], ids=["float32", "bfloat16"])
def test_a_jump_in_the_point_is_taken_for_noise_of_the_oracle_and_refutes_nothing(dtype):
    x, label = normal(4, dtype=dtype), torch.tensor([1.0, -1, 1, 1], dtype=dtype)
    report = gradproof.check(labelled, [x, label.requires_grad_()], checks=["backward"], seed=0)
    assert report.verdict is not FAILED, report


def test_an_output_that_is_zero_throughout_is_known_beside_the_others_in_single_precision():
    x = normal(1)

    def beside_a_zero(x):
        if x.dtype is DOUBLE:
            raise TypeError("compiled for float32 only")
        return torch.cat([x.sin(), torch.zeros_like(x)])

    result = checked(beside_a_zero, x)
    assert result.verdict is PASSED, result.summary
    claimed = ruled(beside_a_zero, lambda g, x: g[:1] * x.cos() + 0.01 * g[1:])
    assert checked(claimed, x).verdict is FAILED


# Arrays of few digits, and the ends of a format.


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_a_cast_of_few_digits_is_resolved(dtype):
    """What the outputs show is a grain of the point, and none of the function's arithmetic."""
    x = torch.tensor([[-8.5, 3.1, 0.7], [1.3, -2.0, 5.0]]).to(dtype).requires_grad_()
    result = checked(lambda x: x.cfloat(), x)
    assert result.verdict is PASSED, result.summary
    turned = ruled(lambda x: x.cfloat(), lambda g, x: g.real.to(x.dtype).flip(0))
    assert checked(turned, x).verdict is FAILED


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_an_output_that_is_zero_throughout_is_known_beside_the_others_in_half_precision():
    x = torch.tensor(-8.48, requires_grad=True)
    result = checked(lambda x: x.chalf(), x)
    assert result.verdict is PASSED, result.summary
    assert result.resolution >= 1e-3
    assert checked(ruled(lambda x: x.chalf(), lambda g, x: g.real + g.imag), x).verdict is FAILED


def test_a_mean_of_the_smallest_numbers_is_allowed_their_rounding():
    """One entry of about 14 units in the last place, rounded down at each of its neighbours."""
    x = torch.tensor([0.535], dtype=HALF, requires_grad=True)
    unit = 2.0**-24

    def claiming(change):
        def backward(g, x):
            rule = 3e-6 * g.double() * x.double() ** 2
            return (change(rule) if x.dtype is HALF else rule).to(x.dtype)

        return ruled(lambda x: x**3 * 1e-6, backward)

    right = claiming(lambda rule: (rule / unit).floor() * unit)
    assert checked(right, x).verdict is not FAILED
    assert checked(claiming(lambda rule: 1.5 * rule), x).verdict is FAILED


def test_gradients_beyond_the_largest_number_are_not_compared():
    """The backward of 2 v - 3 w is up to 4.5 times as large as those of v and w, and overflows."""
    x = torch.linspace(-1, 1, 8).to(HALF).requires_grad_()
    steep = ruled(lambda x: 4e4 * x, lambda g, x: 4e4 * g)
    report = gradproof.check(steep, [x], checks=["linearity"], seed=0)
    assert report.verdict is PASSED, report
    dropped = ruled(lambda x: 1e3 * x, lambda g, x: 1e3 * g.clamp(max=0.6))
    report = gradproof.check(dropped, [x], checks=["linearity"], seed=0)
    assert report.verdict is FAILED, report


# Functions of the memory of their inputs.


@pytest.mark.parametrize("dtype", [DOUBLE, BRAIN], ids=["float64", "bfloat16"])
def test_a_function_that_goes_by_strides_is_not_accused_of_it(dtype):
    def strided(x):
        return x.as_strided((2, 2), (1, 2)) * 2

    x = normal(3, 3, dtype=dtype)
    result = gradproof.check(strided, [x], checks=["backward", "memory_layout"], seed=0)[
        "memory_layout"
    ]
    assert result.verdict is PASSED, result
    assert "goes by how its inputs lie in memory" in " ".join(result.notes)

    class Misread(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 2 * x if x.is_contiguous() else x.mT + x

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    report = gradproof.check(Misread.apply, [x], checks=["backward", "memory_layout"], seed=0)
    assert report["memory_layout"].verdict is FAILED, report


@pytest.mark.parametrize("dtype", [DOUBLE, BRAIN], ids=["float64", "bfloat16"])
def test_a_mask_drawn_in_the_order_of_the_memory_is_not_an_input_misread(dtype):
    x = normal(5, 5, dtype=dtype)
    checks = ["backward", "memory_layout"]
    right = gradproof.check(SeededDropout.apply, [x], checks=checks, seed=0)["memory_layout"]
    assert right.verdict is PASSED, right
    assert "draws random numbers in the order of the memory" in " ".join(right.notes)


class RawMemory(torch.autograd.Function):
    """The sine of what lies in memory, in the order in which it lies there, in both directions."""

    @staticmethod
    def in_order(x):
        return x.T if x.stride(0) < x.stride(1) else x

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return RawMemory.in_order(x.detach()).sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        slope = g * RawMemory.in_order(x).cos()
        return slope if RawMemory.in_order(x) is x else slope.T


def test_a_kernel_that_misreads_its_inputs_both_ways_is_a_finding():
    """Its derivative is right of what it computes; that is not what it is to compute."""
    x = normal(3, 3, dtype=DOUBLE)
    report = gradproof.check(RawMemory.apply, [x], checks=["backward", "memory_layout"], seed=0)
    assert report["backward"].verdict is PASSED, report
    assert report["memory_layout"].verdict is FAILED, report


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
    fn = with_both_rules(lambda x: x.double() ** 7, gradient, lambda t, x: slope(x) * t)
    report = gradproof.check(fn, (x,), seed=0)
    assert report["forward_vs_backward"].verdict is Verdict.SKIPPED
    assert "largest number" in report["forward_vs_backward"].summary
    assert report["backward"].verdict is (PASSED if largest > 65503 else FAILED), str(report)
