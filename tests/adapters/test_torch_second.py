"""Second derivatives of PyTorch functions in all four pairs of modes, and third ones."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import gradproof
from exhibits.frame import leaf, normal, ruled
from gradproof import Verdict

PAIRS = ("second_order", "forward_over_reverse", "reverse_over_forward", "forward_over_forward")
FORWARD_FIRST = {"reverse_over_forward", "forward_over_forward"}


def lower(count: int, *batch: int) -> torch.Tensor:
    """Triangular factors, diagonally dominant."""
    factor = normal(*batch, count, count).detach().tril() + 3 * torch.eye(count)
    return factor.requires_grad_()


def verdicts(fn, inputs, order=2, **options):
    report = gradproof.check(fn, inputs, order=order, seed=0, **options)
    return {result.name: str(result.verdict) for result in report.checks}


def failures(fn, inputs, **options):
    found = verdicts(fn, inputs, **options)
    return {name for name, verdict in found.items() if verdict == "failed"}


RIGHT = {
    "tanh": (torch.tanh, (normal(4),)),
    "linear": (lambda x: 3 * x, (normal(4),)),
    "matmul": (torch.matmul, (normal(2, 3), normal(3, 2, seed=2))),
    "inverse": (torch.linalg.inv, (normal(3, 3),)),
    "cumprod": (lambda x: x.cumprod(0), (leaf(1.5, 0.5, -2.0),)),
    "complex": (lambda z: z * z.exp(), (normal(3, dtype=torch.complex128),)),
    "two outputs": (lambda x: (x.sin(), x.exp().sum()), (normal(3),)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_every_pair_passes_for_a_right_function(name):
    found = verdicts(*RIGHT[name])
    assert {found[each] for each in PAIRS} == {"passed"}, found


# PyTorch 2.13 differentiates these rules of forward mode wrongly: pytorch#198017 and the issues
# it lists. Every check of PyTorch's own passes them.
NESTED = {
    "det": (torch.linalg.det, (normal(3, 3),)),
    "slogdet": (lambda a: torch.linalg.slogdet(a)[1], (normal(3, 3),)),
    "slogdet, its sign as well": (torch.linalg.slogdet, (normal(3, 3),)),
    "solve": (torch.linalg.solve, (normal(3, 3), normal(3, 1, seed=2))),
    "layer_norm": (lambda x: functional.layer_norm(x, (4,)), (normal(2, 4),)),
    "batch_norm": (
        lambda x: functional.batch_norm(x, None, None, training=True),
        (normal(3, 2),),
    ),
    "householder_product": (torch.linalg.householder_product, (normal(3, 2), normal(2, seed=2))),
    "cumprod at 0": (lambda x: x.cumprod(0), (leaf(1.5, 0.0, -2.0),)),
}


@pytest.mark.parametrize("name", NESTED)
def test_a_jvp_of_a_jvp_that_pytorch_gets_wrong_fails(name):
    assert failures(*NESTED[name]) == FORWARD_FIRST


def test_the_jvp_of_cholesky_inverse_fails_for_a_factor_that_is_not_diagonal():
    def fn(factor):
        return torch.cholesky_inverse(factor.tril())

    assert failures(fn, (lower(3),), order=1) == {"forward", "forward_vs_backward"}
    diagonal = torch.diag(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)).requires_grad_()
    assert "forward_vs_backward" not in failures(fn, (diagonal,), order=1)


def test_the_jvp_of_cholesky_solve_fails_for_a_batch_of_factors():
    b = torch.tensor([[1.0, 2.0], [-1.0, 3.0]], dtype=torch.float64)
    factors = torch.tensor([[[2.0, 0.0], [-7.0, 3.0]], [[3.0, 0.0], [-13.0, 2.0]]])

    def solve(factor):
        return torch.cholesky_solve(b, factor.tril())

    assert failures(solve, (factors[0].double().requires_grad_(),), order=1) == set()
    assert "forward" in failures(solve, (factors.double().requires_grad_(),), order=1)


def test_the_jvp_of_logcumsumexp_fails_on_wide_rows():
    narrow = (normal(1, 5),)
    wide = (leaf(-40.0, 30.0, -5.0, 35.0, 20.0),)

    def fn(x):
        return torch.logcumsumexp(x, -1)

    assert failures(fn, narrow, order=1) == set()
    assert {"forward", "forward_vs_backward"} <= failures(fn, wide, order=1)


def test_vmap_of_the_vjp_of_cdist_fails():
    inputs = (normal(3, 4), normal(5, 4, seed=2))
    assert failures(torch.cdist, inputs, order=1) == {"batched"}


def test_a_sum_that_is_always_one_is_not_accused():
    found = verdicts(lambda x: x.softmax(-1).sum(), (normal(5),))
    assert "failed" not in found.values(), found
    assert found["second_order"] == "inconclusive"


def test_a_derivative_of_rounding_beside_ordinary_ones_is_not_accused():
    def fn(x):
        return torch.stack([x.softmax(-1).sum() + 0 * x[0], x.exp().sum()])

    found = verdicts(fn, (normal(5),))
    assert "failed" not in found.values(), found


def test_few_bits_inside_are_not_accused():
    found = verdicts(lambda x: (x.float().tanh() * 3).double(), (normal(4),))
    assert "failed" not in found.values(), found


def test_a_pair_of_modes_that_does_not_exist_is_skipped_with_its_reason():
    rule = ruled(lambda x: x.sin(), lambda g, x: g * x.cos())  # no jvp
    report = gradproof.check(rule, (normal(3),), order=2, seed=0)
    assert report["second_order"].verdict is Verdict.PASSED
    assert report["forward_over_forward"].verdict is Verdict.SKIPPED
    assert "jvp" in report["forward_over_forward"].summary


def test_forward_over_forward_runs_where_the_backward_of_forward_mode_raises():
    found = verdicts(lambda x: x.softmax(-1), (normal(4),))
    assert found["reverse_over_forward"] == "skipped"  # the jvp of softmax writes over its result
    assert found["forward_over_forward"] == "passed"


class WrongThird(torch.autograd.Function):
    """The sine, right twice: the derivative of its double backward forgets a factor."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ruled(torch.cos, minus_sine)(x)


# Of (h, x); twice what its derivative in x is.
minus_sine = ruled(lambda h, x: -h * x.sin(), lambda k, h, x: (-k * x.sin(), -2 * k * h * x.cos()))


def test_order_three_sees_what_order_two_cannot():
    wrong = WrongThird.apply
    assert failures(wrong, (normal(3),), order=2) == set()
    assert failures(wrong, (normal(3),), order=3) == {"third_order"}
    assert verdicts(torch.sin, (normal(3),), order=3)["third_order"] == "passed"


def test_rows_of_higher_orders_are_there_only_if_asked_for():
    def names(order):
        return set(verdicts(torch.tanh, (normal(2),), order=order))

    assert names(2) - names(1) == set(PAIRS[1:])
    assert names(3) - names(2) == {"third_order"}


def test_a_named_check_of_a_higher_order_says_why_it_is_skipped():
    report = gradproof.check(torch.tanh, (normal(2),), checks=["third_order"], seed=0)
    assert [result.name for result in report.checks] == ["third_order"]
    assert "order=3" in report["third_order"].summary


def test_limits_of_inputs_hold_for_second_derivatives_too():
    found = verdicts(torch.log, (leaf(0.5, 2.0),), domain=(0.0, None))
    assert {found[pair] for pair in PAIRS} == {"passed"}


def test_single_precision_is_held_against_double_in_every_pair():
    found = verdicts(torch.tanh, (normal(4, dtype=torch.float32),))
    assert {found[each] for each in PAIRS} == {"passed"}, found


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].cos()


def test_what_is_declared_to_have_no_second_derivative_is_skipped_and_the_first_line_says_so():
    x = torch.linspace(0.1, 1, 4, dtype=torch.float64, requires_grad=True)
    report = gradproof.check(_Once.apply, (x,), order=2, seed=0)
    assert report["second_order"].verdict is Verdict.SKIPPED
    assert "once_differentiable" in report["second_order"].summary
    assert str(report).splitlines()[0].endswith(", second order not verified")
    first = gradproof.check(_Once.apply, (x,), seed=0)
    assert "not verified" not in str(first)
    assert "not verified" not in str(gradproof.check(torch.sin, (x,), order=2, seed=0))


def test_what_a_reference_lacks_is_told_as_its_own():
    x = torch.linspace(0.1, 1, 4, dtype=torch.float32, requires_grad=True)
    report = gradproof.check(torch.sin, (x,), order=2, reference=_Once.apply, seed=0)
    assert "; the reference" in report["backward"].oracle
    forward = report["forward"]
    assert forward.verdict is Verdict.PASSED
    assert "not the reference: it has no forward mode" in forward.oracle
    assert not any(row.verdict is Verdict.SKIPPED for row in report.checks if "order" in row.name)


def test_a_wrong_second_derivative_is_located():
    fn, x = NESTED["layer_norm"][0], normal(32, 4)
    found = gradproof.check(fn, (x,), order=2, seed=1)["forward_over_forward"]
    assert found.verdict is Verdict.FAILED
    assert found.findings
