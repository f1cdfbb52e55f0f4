"""What users met outside of `check`: faces, words and recorded runs. Derivatives are exhibits."""

from __future__ import annotations

import re

import pytest
import torch

import gradproof
from exhibits.frame import leaf, normal, ruled
from gradproof.errors import UsageError
from gradproof.torch import gradcheck, record


def adjoint(factor):
    """A layer whose parameters stand beside it, as adjoints of solvers take them."""

    class Adjoint(torch.autograd.Function):
        @staticmethod
        def forward(ctx, net, x, *parameters):
            ctx.net = net
            ctx.save_for_backward(x, *parameters)
            return net(x)

        @staticmethod
        def backward(ctx, g):
            x, *parameters = ctx.saved_tensors
            wanted = [parameter for parameter in parameters if parameter.requires_grad]
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                to_x, *others = torch.autograd.grad(ctx.net(x), (x, *wanted), factor * g)
            found = iter(others)
            return None, to_x, *[next(found) if p.requires_grad else None for p in parameters]

    return Adjoint


@pytest.mark.parametrize(("factor", "is_right"), [(1, True), (2, False)])
def test_a_function_that_takes_a_layer_beside_its_parameters_is_recorded(factor, is_right):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()).double()
    x = normal(2, 3)
    with record() as met:
        adjoint(factor).apply(net, x, *net.parameters()).sum().backward()
    assert bool(met.check(seed=0)) is is_right


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("fast_mode", [False, True])
def test_outputs_in_few_bits_are_not_judged_by_a_step_that_does_not_move_them(dtype, fast_mode):
    ones = torch.ones(2, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: x.to(dtype), (ones,), fast_mode=fast_mode)
    twice = ruled(lambda x: x.to(dtype), lambda g, x: 2 * g.to(x.dtype))
    assert not gradcheck(twice, (ones,), fast_mode=fast_mode, raise_exception=False)


def test_the_drop_in_refuses_a_sparse_gradient_and_check_notes_it():
    table, ids = normal(4, 2), torch.tensor([0, 2])
    lookup = lambda table: torch.nn.functional.embedding(ids, table, sparse=True)  # noqa: E731
    assert not gradcheck(lookup, (table,), raise_exception=False)
    notes = gradproof.check(lookup, (table,), seed=0).notes
    assert any("the gradient of table is sparse" in note for note in notes)


@pytest.mark.parametrize("function", [lambda: 1, lambda *, x: x, lambda x, y, z: x])
def test_a_function_without_room_for_its_arguments_is_refused(function):
    with pytest.raises(UsageError, match="positional"):
        gradproof.check(function, (normal(2),))


def test_runs_that_differ_by_less_than_is_allowed_say_by_how_much():
    generator = torch.Generator().manual_seed(0)

    def backward(g, x):
        noise = torch.rand(x.shape, generator=generator, dtype=x.dtype)
        return g * x.cos() * (1 + 1e-8 * noise)

    report = gradproof.check(
        ruled(torch.sin, backward, vmap=False), (normal(5),), checks=["determinism"], seed=0
    )
    assert "backwards differ by up to" in report["determinism"].summary
    assert "allowed 1e-06" in report["determinism"].summary


def test_a_loss_that_cancels_says_so_in_few_calls():
    x = normal(8, 8)
    report = gradproof.check(lambda x: torch.nn.functional.layer_norm(x, (8,)).sum(), x, seed=0)
    assert "could not be resolved" in report["backward"].summary
    assert "where terms cancel" in report["backward"].summary
    assert sum(report["backward"].calls.values()) <= 100


def test_a_gap_of_a_solver_that_stops_at_a_tolerance_is_told_tolerances_that_accept_it():
    def backward(g, x):  # an adaptive adjoint takes other steps for another cotangent
        steps = (g * torch.arange(1.0, 6.0)).sum()
        return g * x.cos() * (1 + 2e-5 * torch.sin(1e3 * steps))

    fn, x = ruled(torch.sin, backward), normal(5)
    text = str(gradproof.check(fn, x, seed=0))
    ((rtol, atol),) = re.findall(r"pass\s+rtol=([-+.0-9e]+),\s+atol=([-+.0-9e]+)", text)
    assert gradproof.check(fn, x, seed=0, rtol=float(rtol), atol=float(atol))


def test_a_claim_of_nan_is_reported_once():
    report = gradproof.check(lambda x: torch.where(x > 0, x.sqrt(), 0.0), leaf(-1.0, 0.5), seed=0)
    assert [each.name for each in report.checks if str(each.verdict) == "failed"] == ["backward"]
    assert [cause.name for cause in report["backward"].causes] == ["not a number"]


def test_a_lazy_layer_in_a_closure_is_refused():
    layer = torch.nn.LazyLinear(2, dtype=torch.float64)
    for ask in (gradproof.check, gradcheck):
        with pytest.raises(UsageError, match=r"layer\.weight is not initialised"):
            ask(lambda x: layer(x), (normal(3, 2),))
