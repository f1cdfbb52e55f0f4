"""What one call leaves behind must not change another, nor a second point's derivative."""

from __future__ import annotations

import pytest
import torch

import gradproof
from exhibits import second_point
from gradproof._data.records import Verdict
from gradproof.torch import gradcheck

SEEDS = range(5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("exhibit", second_point.EXHIBITS, ids=str)
def test_what_is_kept_from_another_call_fails_and_its_right_twin_passes(exhibit, seed):
    report = gradproof.check(exhibit.wrong, exhibit.make_inputs(), seed=seed)
    assert report["second_point"].verdict is Verdict.FAILED, str(report)
    assert report["backward"].verdict is Verdict.PASSED, str(report)
    report = gradproof.check(exhibit.right, exhibit.make_inputs(), seed=seed)
    assert report.verdict is Verdict.PASSED, str(report)
    if exhibit.step is not None:  # few bits suffice to refute one, not to measure it
        assert "has its own derivative" in report["second_point"].summary


class Layer(torch.nn.Module):
    """Statistics, dropout and a counter: state that no derivative depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3, dtype=torch.float64)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        with torch.no_grad():
            self.calls.add_(1)
        return torch.nn.functional.dropout(self.norm(x), 0.3).tanh()


def test_running_statistics_and_dropout_are_right_and_stay_what_they_were():
    torch.manual_seed(0)
    layer, x = Layer(), torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    random, values = torch.get_rng_state(), x.detach().clone()
    report = gradproof.check(layer, x, seed=0)
    assert report.verdict is Verdict.PASSED, str(report)
    assert report["second_point"].verdict is Verdict.PASSED
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(x, values)


def test_a_second_point_is_not_asked_for_where_the_first_derivative_is_wrong():
    """The power iteration of spectral normalisation goes on from the vector in its buffer."""
    layer = torch.nn.utils.spectral_norm(torch.nn.Linear(3, 3)).double()
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    report = gradproof.check(layer, x, seed=0)
    assert report["backward"].verdict is Verdict.FAILED
    assert report["second_point"].verdict is Verdict.SKIPPED, str(report)
    assert "backward is wrong at the point itself" in report["second_point"].summary


SPECTRAL = [torch.nn.utils.spectral_norm, torch.nn.utils.parametrizations.spectral_norm]


def normalised(of, settled):
    """A layer with spectral norm, in training mode, after as many calls; and an input."""
    torch.manual_seed(0)
    layer = of(torch.nn.Linear(5, 4)).double()
    x = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    for _ in range(settled):
        layer(x)
    return layer, x


@pytest.mark.parametrize("of", SPECTRAL)
def test_a_value_that_depends_on_what_the_last_call_wrote_is_told_with_its_buffers(of):
    layer, x = normalised(of, settled=0)
    (u, v), before = [name for name, _ in layer.named_buffers()], layer.state_dict()
    before = {name: value.clone() for name, value in before.items()}
    result = gradproof.check(layer, x, seed=0)["backward"]
    assert result.verdict is Verdict.FAILED  # no gradient goes through its power iteration
    (note,) = [note for note in result.notes if "each call writes into" in note]
    assert u in note
    assert v in note
    assert "eval()" in note
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
    assert gradproof.check(layer.eval(), x, seed=0).verdict is Verdict.PASSED


@pytest.mark.parametrize("of", SPECTRAL)
def test_buffers_that_have_settled_at_the_point_leave_a_second_point_open(of):
    layer, x = normalised(of, settled=300)
    report = gradproof.check(layer, x, seed=0)
    assert report["backward"].verdict is Verdict.PASSED
    assert report["second_point"].verdict is Verdict.INCONCLUSIVE, str(report)
    assert "each call writes into" in report["second_point"].summary


def test_buffers_on_which_no_value_depends_excuse_nothing():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    norm, x = torch.nn.BatchNorm1d(3).double(), torch.randn(4, 3, dtype=torch.float64)
    report = gradproof.check(lambda x: Doubled.apply(norm(x)), x.requires_grad_(), seed=0)
    assert report["backward"].verdict is Verdict.FAILED
    assert not any("each call writes into" in note for note in report["backward"].notes)


def test_what_is_wrong_far_away_only_is_inconclusive_and_says_why():
    """Of a matrix that is not positive definite `cholesky_ex` returns what it has so far."""
    x = torch.tensor([[1.0, -0.5], [-0.5, 1.0]], dtype=torch.float64, requires_grad=True)
    report = gradproof.check(lambda x: torch.linalg.cholesky_ex((x + x.T) / 2).L, x, seed=1)
    assert report["backward"].verdict is Verdict.PASSED
    assert report["second_point"].verdict is Verdict.INCONCLUSIVE, str(report)
    assert "nearer it is right" in report["second_point"].summary
    assert report.verdict is Verdict.INCONCLUSIVE


def test_a_backward_that_raises_at_a_second_point_is_inconclusive():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            if not torch.allclose(x, start, rtol=0.1):
                raise ValueError("not here")
            return g * x.cos()

    x = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64, requires_grad=True)
    start = x.detach().clone()
    report = gradproof.check(Once.apply, x, seed=0)
    assert report["second_point"].verdict is Verdict.INCONCLUSIVE, str(report)
    text = "at a second point the backward raised ValueError: not here"
    assert report["second_point"].summary.startswith(text)


def test_where_the_function_raises_a_nearer_point_is_taken():
    x = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64, requires_grad=True)
    start = x.detach().clone()

    def fn(x):
        if bool(((x.detach() - start).abs() > 0.2 * start.abs()).any()):
            raise ValueError("too far")
        return x.sin()

    report = gradproof.check(fn, x, seed=0)
    assert "has its own derivative" in report["second_point"].summary


def test_where_it_takes_no_other_point_at_all_the_check_is_skipped_and_says_so():
    x = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64, requires_grad=True)
    start = x.detach().clone()

    def fn(x):
        if bool(((x.detach() - start).abs() > 0.02 * start.abs()).any()):
            raise ValueError("too far")
        return x.sin()

    report = gradproof.check(fn, x, seed=0)
    assert report["second_point"].verdict is Verdict.SKIPPED
    assert "raised ValueError: too far" in report["second_point"].summary


def test_the_drop_in_asks_no_second_point():
    points = []

    def fn(x):
        points.append(x.detach().clone())
        return x.sin()

    x = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(fn, x)
    assert all(torch.allclose(point, x, rtol=0.1) for point in points)


@pytest.mark.parametrize("domain", [(0.0, 4.0), {"x": (0.5, None)}])
def test_a_second_point_keeps_to_the_domain(domain):
    points = []

    def fn(x):
        points.append(x.detach().clone())
        return x.log()

    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    report = gradproof.check(fn, x, domain=domain, seed=0)
    assert report["second_point"].verdict is Verdict.PASSED
    low, high = (0.0, 4.0) if isinstance(domain, tuple) else (0.5, float("inf"))
    assert all(bool(((low <= p) & (p <= high)).all()) for p in points)


class ScaledAsAtFirst(torch.autograd.Function):
    """A rule is off by a part of how far the scale of x is from that of the first call."""

    part, scale, way = 0.0, 0.0, ""

    @classmethod
    def slope(cls, x, way):
        own = x.double().square().mean().item()
        cls.scale = cls.scale or own
        off = min(1, abs(own / cls.scale - 1) * 5) if way == cls.way else 0
        return x.cos() * (1 + cls.part * off)

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return g * ScaledAsAtFirst.slope(*ctx.saved_tensors, "backward")

    @staticmethod
    def jvp(ctx, u):
        return u * ScaledAsAtFirst.slope(*ctx.saved_tensors, "forward")


@pytest.mark.parametrize("part", [0.0, 0.05, 0.3, 1.0], ids="off by {}".format)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("way", ["backward", "forward"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))])
def test_a_mode_that_is_off_at_another_point_fails_in_few_bits(monkeypatch, seed, way, dtype, part):
    for name, value in (("part", part), ("scale", 0.0), ("way", way)):
        monkeypatch.setattr(ScaledAsAtFirst, name, value)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(40, 8, dtype=dtype, generator=generator).requires_grad_()
    report = gradproof.check(ScaledAsAtFirst.apply, (x,), seed=seed)
    assert report[way].verdict is Verdict.PASSED, str(report)
    assert report["second_point"].verdict is (Verdict.FAILED if part else Verdict.PASSED), str(
        report
    )


class Promoting:
    """The sine, from the given number of calls in float64 on of that dtype, as of a cache."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __call__(self, x):
        self.left -= x.dtype == torch.float64
        return x.sin().double() if self.left <= 0 else x.sin()


@pytest.mark.parametrize("calls", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_outputs_of_another_precision_that_a_cache_hands_out_are_told(dtype, calls):
    x = torch.linspace(-1, 1, 40, dtype=dtype).requires_grad_()
    report = gradproof.check(Promoting(calls), (x,), seed=0)
    assert report.verdict is not Verdict.PASSED, str(report)
    told = [result.summary for result in report.checks]
    assert any("returned output 0 of dtype" in each for each in told), told
