"""Every custom derivative of a real run: a model as a hub has them, recorded and checked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import _SingleLevelFunction

import gradproof.torch
from gradproof.errors import UsageError


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return weight * x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        s = torch.rsqrt((x * x).mean(-1, keepdim=True) + ctx.eps)
        gw = g * weight
        gx = s * (gw - x * s * s * (gw * x).mean(-1, keepdim=True))
        return gx, (g * x * s).sum((0, 1)), None


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.sigmoid(x)  # and not all of it


gate = Gate.apply  # bound before anything is recorded


@torch.library.custom_op("record_tests::rope", mutates_args=())
def rope(x: Tensor, factor: float) -> Tensor:
    return factor * (x * torch.arange(x.shape[-1], dtype=x.dtype).cos())


def _kept(ctx, inputs, output):
    ctx.factor = inputs[1]


rope.register_autograd(
    lambda ctx, g: (ctx.factor * g * torch.arange(g.shape[-1], dtype=g.dtype).cos(), None),
    setup_context=_kept,
)


class Layer(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.project = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        return x + gate(self.project(rope(Norm.apply(x, self.weight, 1e-6), 0.5)))


def model() -> nn.Module:
    return nn.Sequential(nn.Embedding(11, 8), *(Layer(8) for _ in range(3)))


def step(model: nn.Module) -> None:
    model(torch.arange(6).reshape(2, 3)).square().mean().backward()


def recorded():
    with gradproof.torch.record() as seen:
        step(model())
    return seen


def patched() -> list[object]:
    kinds = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
    return [
        vars(_SingleLevelFunction).get("apply"),
        *(kind.__call__ for kind in kinds),
        torch.autograd._engine_run_backward,
    ]


def test_a_training_step_tells_what_it_meets_once_each_and_where():
    seen = recorded()
    assert [(each.name, each.calls) for each in seen.met] == [
        ("Norm", 3), ("record_tests::rope", 3), ("Gate", 3),
    ]  # fmt: skip
    assert all(__file__ in each.place and "in forward" in each.place for each in seen.met)
    norm = seen.met[0].inputs
    assert [each.shape for each in norm] == [(2, 3, 8), (8,)]
    assert all(each.requires_grad for each in norm)


def test_each_is_checked_by_itself():
    found = recorded().check()
    assert [each.name for each in found.results] == ["Norm", "record_tests::rope", "Gate"]
    verdicts = {name: str(report.verdict) for name, report in found.reports.items()}
    assert verdicts == {"Gate": "failed", "Norm": "passed", "record_tests::rope": "passed"}
    assert not found
    assert "Gate" in str(found).splitlines()[0]


def test_a_function_that_writes_into_its_input_is_checked():
    class Relu(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            x.clamp_(min=0)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * (y >= 0)

    with gradproof.torch.record() as seen:
        Relu.apply(torch.linspace(-1, 2, 4, dtype=torch.float64, requires_grad=True) * 1)
    (result,) = seen.check().results
    assert result.report.verdict == "failed"


def test_the_budget_is_that_of_each():
    found = recorded().check(budget=5).reports.values()
    assert {str(report.verdict) for report in found} == {"inconclusive"}


def test_options_that_are_none_are_refused():
    seen = recorded()
    with pytest.raises(UsageError, match="at least 1 call"):
        seen.check(budget=0)
    with pytest.raises(UsageError, match="settings: expected"):
        seen.check(settings=3)


def test_the_program_is_left_as_it_was():
    plain, watched = model(), model()
    watched.load_state_dict(plain.state_dict())
    step(plain)
    before, random = patched(), torch.random.get_rng_state()
    with gradproof.torch.record() as seen:
        step(watched)
    seen.check()
    assert patched() == before
    assert torch.equal(torch.random.get_rng_state(), random)
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_what_is_patched_is_put_back_where_the_program_raises():
    before = patched()
    with pytest.raises(TypeError), gradproof.torch.record() as seen:
        step(model()) + 1
    assert patched() == before
    assert len(seen.met) == 3


def test_threads_are_recorded_too():
    with gradproof.torch.record() as seen, ThreadPoolExecutor(3) as threads:
        list(threads.map(step, [model(), model(), model()]))
    assert [each.calls for each in seen.met] == [9, 9, 9]


def test_inputs_are_those_of_the_first_call_whatever_the_program_does_to_them():
    x = torch.linspace(-1, 1, 4, dtype=torch.float64, requires_grad=True)
    with gradproof.torch.record() as seen:
        gate(x)
        with torch.no_grad():
            x.zero_()
    (kept,) = seen.met[0].inputs
    assert torch.equal(kept, torch.linspace(-1, 1, 4, dtype=torch.float64))
    assert kept.requires_grad


def test_nothing_met_is_said():
    with gradproof.torch.record() as seen:
        torch.randn(3, requires_grad=True).sin().sum().backward()
    with pytest.raises(UsageError, match="no custom Function"):
        seen.check()


class Unreadable:
    def __repr__(self):
        raise RuntimeError("not built yet")


def test_every_call_that_is_not_recorded_is_an_error_of_its_own():
    """Errors of one name overwrote each other, and what could not be copied was left out."""

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, options):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g, None

    with gradproof.torch.record(largest=10) as seen:
        for size in (3, 20, 30):
            Scaled.apply(torch.ones(size, requires_grad=True), None)
        Scaled.apply(torch.ones(3, requires_grad=True), Unreadable())
    report = seen.check()
    assert list(report.reports) == ["Scaled"]
    assert {name: error.split(";")[0] for name, error in report.errors.items()} == {
        "Scaled[1]": "an input has 20 entries",
        "Scaled[2]": "an input has 30 entries",
        "Scaled[3]": "its arguments could not be recorded: RuntimeError: not built yet",
    }


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"chekcs": ["backward"]}, "no option 'chekcs' .did you mean 'checks'"),
        ({"checks": ["backwrd"]}, "checks: unknown 'backwrd'"),
        ({"seed": "a"}, "seed: expected a whole number"),
        ({"rtol": -1}, "rtol: expected a number >= 0"),
    ],
)
def test_an_option_that_is_not_valid_is_refused_once(option, words):
    with gradproof.torch.record() as seen:
        gate(torch.ones(2, requires_grad=True))
    with pytest.raises(UsageError, match=words):
        seen.check(**option)


@pytest.mark.parametrize("largest", [None, "a", 1.5, -1])
def test_a_largest_that_is_no_number_of_entries_is_refused(largest):
    with (
        pytest.raises(UsageError, match="largest: expected a whole number"),
        gradproof.torch.record(largest=largest),
    ):
        pass
