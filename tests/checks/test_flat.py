"""Functions that stand still at the point, and staircases whose treads are flat."""

from __future__ import annotations

import pytest
import torch

import gradproof
from exhibits.corners import relu
from exhibits.frame import leaf, normal, ruled, spoilt
from gradproof import CheckResult, Verdict

DTYPES = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16], ids=lambda dtype: str(dtype)[6:]
)


def backward_of(fn, *inputs: torch.Tensor, **options) -> CheckResult:
    return gradproof.check(fn, inputs, seed=0, checks=("backward",), **options)["backward"]


@DTYPES
@pytest.mark.parametrize(
    "fn",
    [torch.relu, lambda x: x.clamp(0, 1), torch.floor, torch.sign, lambda x: 0 * x + 1],
    ids=["relu", "clamp", "floor", "sign", "constant"],
)
def test_a_function_that_stands_still_is_not_tested(fn, dtype) -> None:
    x = leaf(-8.25, -2.75, -3.375, dtype=dtype)
    result = backward_of(fn, x)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "the function does not vary; choose a point where it does" in result.summary
    if dtype is torch.float64:
        assert gradproof.torch.gradcheck(fn, (x,)), "PyTorch's gradcheck asks no more"


@DTYPES
def test_a_slope_that_is_claimed_where_a_function_stands_still_fails(dtype) -> None:
    leaky = ruled(relu, lambda g, x: g * (x > 0) + 0.25 * g)
    assert backward_of(leaky, leaf(-2.0, -3.0, dtype=dtype)).verdict is Verdict.FAILED


@DTYPES
@pytest.mark.parametrize(
    "fn", [torch.trunc, torch.round, torch.ceil], ids=["trunc", "round", "ceil"]
)
def test_jumps_inside_the_steps_do_not_hide_a_flat_tread(fn, dtype) -> None:
    result = backward_of(fn, leaf(37.75, 19.875, 1.4609375, 40.25, dtype=dtype))
    assert result.verdict is Verdict.PASSED, result.summary


@pytest.mark.parametrize(("low", "high"), [(-7.2, -3), (-12, 12), (-7.5, -6)])
def test_gelu_is_judged_where_its_error_function_is_a_staircase(low, high) -> None:
    x = torch.linspace(low, high, 20, dtype=torch.float64, requires_grad=True)
    result = backward_of(torch.nn.functional.gelu, x)
    assert result.verdict is not Verdict.FAILED, result.summary
    found = backward_of(spoilt(torch.nn.functional.gelu, lambda slope: 1.01 * slope), x).verdict
    # Where it ends below -6, all but the last are on treads
    assert found is Verdict.FAILED or (high == -6 and found is Verdict.INCONCLUSIVE)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_right_layer_with_gelu_is_not_accused_of_rows_far_out(seed) -> None:
    """Single columns of such a row stay on one tread, whose slope is another one."""
    x, w = normal(16, 8, seed=seed), (2**0.5 * normal(32, 8, seed=50 + seed)).detach()

    def layer(x, w):
        return torch.nn.functional.gelu(x @ w.T)

    w.requires_grad_()
    wrong = spoilt(layer, lambda of_x, of_w: (of_x, 1.01 * of_w))
    assert backward_of(layer, x, w).verdict is not Verdict.FAILED
    assert backward_of(wrong, x, w).verdict is Verdict.FAILED


@pytest.mark.parametrize("data", [1, 5, 8, 9, 10, 11])
def test_a_gate_that_cancels_is_as_good_as_zero(data) -> None:
    """Of exp(c_i - c_j) with sums c the first gate is left as rounding, in claims and in F."""

    def decay(q, k, v, gates):
        c = torch.nn.functional.logsigmoid(gates).cumsum(0)
        lower = torch.ones(len(gates), len(gates), dtype=torch.bool).tril()
        weights = (c[:, None] - c).masked_fill(~lower, -torch.inf).exp()
        return (q @ k.T * weights) @ v

    draw = torch.Generator().manual_seed(data)
    q, k, v, gates = (torch.randn(*size, generator=draw) for size in [(14, 3)] * 3 + [(14,)])
    given = [tensor.double().requires_grad_() for tensor in (q, k, v, gates + 2)]
    for seed in range(5):
        result = gradproof.check(decay, given, seed=seed, checks=("backward",))["backward"]
        assert result.verdict is Verdict.PASSED, result.summary


@pytest.mark.parametrize("seed", range(4))
def test_far_out_a_right_gate_passes_whose_terms_cancel_on_inclined_treads(seed) -> None:
    """The tail of x (1 + tanh) is straight over short steps, with another slope than over long."""

    def gate(x):
        return 0.5 * x * (1 + torch.tanh(0.7979 * (x + 0.044715 * x**3)))

    x = (2 * normal(600, seed=seed).detach()).bfloat16().double()
    x[:3] = torch.tensor([-4.71875, -5.25, -5.53125])
    result = backward_of(gate, x.requires_grad_())
    assert result.verdict is Verdict.PASSED, result.summary
    wrong = spoilt(gate, lambda slope: torch.cat([slope[:-1], 1.01 * slope[-1:]]))
    assert backward_of(wrong, x).verdict is Verdict.FAILED


@pytest.mark.parametrize("size", [100, 600])
@pytest.mark.parametrize("scale", [3, 8])
def test_no_right_derivative_of_what_cancels_far_out_is_accused(scale, size) -> None:
    """Outputs are exactly zero, or claims are what is left of sigmoid(x) - 1."""

    def loss(x):
        return torch.nn.functional.binary_cross_entropy_with_logits(
            x, (x.detach() > 0.3).to(x.dtype), reduction="none"
        )

    for fn in (torch.nn.functional.gelu, loss):
        for seed in range(4):
            x = (scale * normal(size, seed=seed).detach()).requires_grad_()
            result = backward_of(fn, x)
            assert result.verdict is not Verdict.FAILED, result.summary


def test_what_is_right_beside_the_rounding_of_terms_that_cancel_passes() -> None:
    x = (2 * normal(600).detach()).bfloat16().double()
    x[::7], x[1::9] = 0.0, 1e-3 * x[1::9]
    result = backward_of(lambda x: ((1 + x**2).sqrt() - 1) * x, x.requires_grad_())
    assert result.verdict is Verdict.PASSED, result.summary


def test_a_tiny_function_that_is_rounded_like_itself_is_accused_of_one_percent() -> None:
    wrong = ruled(torch.exp, lambda g, x: 1.01 * g * x.exp())
    assert backward_of(wrong, leaf(-40.0)).verdict is Verdict.FAILED
    small = ruled(lambda x: 1e-15 * x.sin(), lambda g, x: 1.01e-15 * g * x.cos())
    assert backward_of(small, leaf(0.7, -2.0)).verdict is Verdict.FAILED


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("spread", [2.0, 3.0])
def test_a_layer_of_gelu_is_not_accused_of_its_tails(spread, seed):
    """Its numbers below -5 go in treads, which short steps took for the slope."""
    numbers = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 16, dtype=torch.float64, generator=numbers)
    w = torch.randn(32, 16, dtype=torch.float64, generator=numbers) * spread / 4
    inputs = tuple(each.requires_grad_() for each in (x, w))
    report = gradproof.check(
        lambda x, w: torch.nn.functional.gelu(x @ w.T), inputs, checks=["backward"], seed=seed
    )
    assert report.verdict is not Verdict.FAILED, str(report)


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_an_entry_beside_a_tail_of_gelu_is_told(factor):
    x = torch.cat([torch.full((4,), -7.0, dtype=torch.float64), torch.linspace(-3, 3, 30).double()])

    def backward(g, x):
        gradient = torch.func.vjp(torch.nn.functional.gelu, x)[1](g)[0]
        return gradient * torch.where(torch.arange(34) == 20, factor, 1.0)

    for seed in range(3):
        fn = ruled(torch.nn.functional.gelu, backward)
        report = gradproof.check(fn, (x.requires_grad_(),), checks=["backward"], seed=seed)
        assert report.verdict is (Verdict.FAILED if factor != 1 else Verdict.PASSED), str(report)


@pytest.mark.parametrize("count", [17, 40, 600])
def test_rounding_of_a_backward_that_is_differentiable_once_accuses_none(count) -> None:
    """Of sigmoid(x) - 1 few digits are left, in each of more outputs than are asked one by one."""

    class Loss(torch.autograd.Function):
        factor = 1.0

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.nn.functional.softplus(-x)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * (Loss.factor * torch.sigmoid(x) - 1)

    x = torch.linspace(18, 24, count, dtype=torch.float64, requires_grad=True)
    assert backward_of(lambda x: Loss.apply(x), x).verdict is not Verdict.FAILED
    Loss.factor = 1 + 1e-9  # off by 4 % where x is 24
    assert backward_of(lambda x: Loss.apply(x), x).verdict is Verdict.FAILED
