"""What one call leaves behind must not change another, nor a second point's derivative."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

import gradproof
from exhibits.frame import leaf, ruled
from gradproof import Verdict

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
def test_a_value_that_depends_on_what_the_last_call_wrote_is_reported_with_its_buffers(of):
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


def test_what_is_wrong_far_away_only_is_inconclusive_and_says_why():
    """Of a matrix that is not positive definite `cholesky_ex` returns what it has so far."""
    x = torch.tensor([[1.0, -0.5], [-0.5, 1.0]], dtype=torch.float64, requires_grad=True)
    report = gradproof.check(lambda x: torch.linalg.cholesky_ex((x + x.T) / 2).L, x, seed=1)
    assert report["backward"].verdict is Verdict.PASSED
    assert report["second_point"].verdict is Verdict.INCONCLUSIVE, str(report)
    assert "nearer it is right" in report["second_point"].summary
    assert report.verdict is Verdict.INCONCLUSIVE


def test_a_backward_that_raises_at_a_second_point_is_inconclusive():
    def backward(g, x):
        if not torch.allclose(x, leaf(1.0, -2.0, 3.0), rtol=0.1):
            raise ValueError("not here")
        return g * x.cos()

    sine = ruled(torch.sin, backward, vmap=False)
    report = gradproof.check(sine, leaf(1.0, -2.0, 3.0), seed=0)
    assert report["second_point"].verdict is Verdict.INCONCLUSIVE, str(report)
    text = "at a second point the backward raised ValueError: not here"
    assert report["second_point"].summary.startswith(text)


def test_where_it_takes_no_other_point_at_all_the_check_is_skipped_and_says_so():
    def fn(x):
        if not torch.allclose(x, leaf(1.0, -2.0, 3.0), rtol=0.02):
            raise ValueError("too far")
        return x.sin()

    report = gradproof.check(fn, leaf(1.0, -2.0, 3.0), seed=0)
    assert report["second_point"].verdict is Verdict.SKIPPED
    assert "raised ValueError: too far" in report["second_point"].summary


@pytest.mark.parametrize("domain", [(0.0, 4.0), {"x": (0.5, None)}])
def test_a_second_point_keeps_to_the_domain(domain):
    points = []

    def fn(x):
        points.append(x.detach().clone())
        return x.log()

    report = gradproof.check(fn, leaf(1.0, 2.0, 3.0), domain=domain, seed=0)
    assert report["second_point"].verdict is Verdict.PASSED
    low, high = (0.0, 4.0) if isinstance(domain, tuple) else (0.5, float("inf"))
    assert all(bool(((low <= p) & (p <= high)).all()) for p in points)


# Everywhere, and by hand ------------------------------------------------------------------------


class ByHand:
    """The sine with a derivative by hand that remembers."""

    def __init__(self) -> None:
        self.x, self.slope = np.zeros(0), np.zeros(0)
        self.slopes: dict[int, np.ndarray] = {}

    def value(self, x):
        self.x = x
        return np.sin(x)

    def of_the_last_value(self, x, v):
        return v * np.cos(self.x)

    def by_id(self, x, v):
        return v * self.slopes.setdefault(id(x), np.cos(x))

    def compared_with_a_copy(self, x, v):
        if not np.array_equal(self.x, x):
            self.x, self.slope = x.copy(), np.cos(x)
        return v * self.slope


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["of_the_last_value", "by_id"])
def test_a_rule_by_hand_that_remembers_fails_unless_it_remembers_rightly(name, seed):
    hand, x = ByHand(), np.random.default_rng(1).normal(size=6)
    fn = hand.value if name == "of_the_last_value" else np.sin
    report = gradproof.check(gradproof.by_hand(fn, vjp=getattr(hand, name)), (x,), seed=seed)
    assert report["second_point"].verdict is Verdict.FAILED, str(report)
    right = gradproof.by_hand(np.sin, vjp=ByHand().compared_with_a_copy)
    report = gradproof.check(right, (x,), seed=seed)
    assert report.verdict is Verdict.PASSED, str(report)


# Kernels that compute their gradient in float32, whatever the dtype of their arrays ---------------


def norm(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def norm_backward(g, x, kept_terms):
    """Computed in float32; right if `kept_terms` is 1."""
    wide, g = x.float(), g.float()
    root = torch.rsqrt(wide.var(-1, unbiased=False, keepdim=True) + 1e-5)
    normed = (wide - wide.mean(-1, keepdim=True)) * root
    along = normed * (g * normed).mean(-1, keepdim=True)
    centred = g - g.mean(-1, keepdim=True)
    return (root * (centred - kept_terms * along)).to(x.dtype)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("kept_terms", "verdict"), [(1, Verdict.PASSED), (0, Verdict.FAILED)])
def test_a_gradient_in_single_precision_is_not_accused_at_a_second_point(
    kept_terms: int, verdict: Verdict, seed: int
) -> None:
    draws = torch.randn(3, 5, 12, generator=torch.Generator().manual_seed(7))
    weights = torch.linspace(-1, 2, draws.numel()).reshape(draws.shape).bfloat16()
    x = (3 * draws).bfloat16().requires_grad_()
    fn = ruled(norm, partial(norm_backward, kept_terms=kept_terms))
    report = gradproof.check(lambda x: (fn(x) * weights).sum(), x, seed=seed)
    assert report.verdict is verdict, str(report)


@pytest.mark.parametrize("seed", range(8))
def test_a_point_off_the_domain_of_an_infinite_output_is_no_second_point(seed):
    x = torch.tensor([0.2, 1.0, 0.5, 0.0], dtype=torch.float64, requires_grad=True)
    report = gradproof.check(torch.logit, (x,), checks=["second_point"], seed=seed)
    assert report["second_point"].verdict is not gradproof.Verdict.FAILED, str(report)
