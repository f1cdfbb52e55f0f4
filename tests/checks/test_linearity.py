"""A backward is linear in its cotangent, from very small to very large ones, in either mode."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gradproof
from exhibits.frame import normal, ruled
from gradproof import Verdict

SINGLE, HALF, BRAIN = torch.float32, torch.float16, torch.bfloat16
POINT = np.linspace(0.1, 1.0, 12)


def linearity(fn, *inputs, seed=0):
    return gradproof.check(fn, inputs, seed=seed)["linearity"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["vjp", "jvp"])
@pytest.mark.parametrize(
    "change",
    [np.positive, np.abs, np.square, lambda v: v + 1e-4, lambda v: np.clip(v, -1, 1)],
    ids=["right", "abs", "square", "offset", "clip"],
)
def test_a_product_that_is_not_linear_fails_in_either_mode(change, mode, seed) -> None:
    """Unit vectors are their own squares and absolute values: every entry may be right."""
    hand = gradproof.by_hand(np.sin, **{mode: lambda x, probe: np.cos(x) * change(probe)})
    expected = Verdict.PASSED if change is np.positive else Verdict.FAILED
    assert linearity(hand, POINT, seed=seed).verdict is expected


def test_a_backward_that_is_not_linear_in_one_entry_fails() -> None:
    def vjp(x, v):
        return np.cos(x) * np.where(np.arange(12) == 7, np.abs(v), v)

    assert linearity(gradproof.by_hand(np.sin, vjp=vjp), POINT).verdict is Verdict.FAILED


@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1e8, 1e200])
def test_a_right_backward_of_any_scale_is_linear(scale: float) -> None:
    hand = gradproof.by_hand(lambda x: scale * x, vjp=lambda x, v: scale * v)
    assert linearity(hand, POINT).verdict is Verdict.PASSED


@pytest.mark.parametrize("factor", [1.0, 1.0001, -1.0, 0.0, np.inf])
@pytest.mark.parametrize("copies", [1, 1 << 17])
def test_one_entry_in_which_modes_disagree_fails_among_any_number(factor, copies) -> None:
    slopes = np.cos(np.full(copies, 0.7))
    other = slopes.copy()
    other[copies // 3] *= factor
    hand = gradproof.by_hand(np.sin, vjp=lambda x, v: slopes * v, jvp=lambda x, u: other * u)
    report = gradproof.check(hand, np.full(copies, 0.7), seed=0, checks=["forward_vs_backward"])
    assert report.verdict is (Verdict.PASSED if factor == 1 else Verdict.FAILED)


# Very large and very small cotangents ------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [SINGLE, BRAIN], ids=str)
def test_a_clamp_far_above_the_usual_size_is_found_in_few_bits(dtype, seed):
    x = normal(4, 5, dtype=dtype)
    clamped = ruled(torch.sin, lambda g, x: g.clamp(-1e4, 1e4) * x.cos())
    assert linearity(clamped, x, seed=seed).verdict is Verdict.FAILED
    assert linearity(torch.sin, x, seed=seed).verdict is Verdict.PASSED


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [SINGLE, BRAIN], ids=str)
def test_the_square_of_a_cotangent_is_no_rounding_of_a_large_one(dtype, seed):
    """In every entry: what it is off by grows with the cotangent, as lost digits do."""
    x = (2 + normal(3, 3).detach()).to(dtype).requires_grad_()
    square = ruled(lambda x: x @ x, lambda g, x: (g * g) @ x.T + x.T @ (g * g))
    assert linearity(square, x, seed=seed).verdict is Verdict.FAILED


@pytest.mark.parametrize("seed", range(3))
def test_digits_that_a_matrix_exponential_loses_in_a_large_cotangent_accuse_nothing(seed):
    """In single precision its gradient is off by per cents where the cotangent is 2^20."""
    found = linearity(torch.matrix_exp, normal(5, 5, dtype=SINGLE), seed=seed)
    assert found.verdict is not Verdict.FAILED, found


def test_a_backward_that_refuses_large_cotangents_is_asked_for_usual_ones():
    def refusing(g, x):
        if float(g.abs().max()) > 1e3:
            raise RuntimeError("the cotangent is too large for me")
        return g * x.cos()

    found = linearity(ruled(torch.sin, refusing, vmap=False), normal(6))
    assert found.verdict is Verdict.PASSED
    assert "2^0 to 2^0" in found.summary
    assert any("too large for me" in note for note in found.notes)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_a_gradient_at_the_end_of_the_range_is_asked_as_far_as_it_goes(scale):
    found = linearity(lambda x: scale * torch.sin(x), normal(6))
    assert found.verdict is Verdict.PASSED, found


def test_gradients_beyond_the_largest_number_are_not_compared():
    """The backward of 2 v - 3 w is up to 4.5 times as large as those of v and w, and overflows."""
    x = torch.linspace(-1, 1, 8).to(HALF).requires_grad_()
    steep = ruled(lambda x: 4e4 * x, lambda g, x: 4e4 * g)
    assert linearity(steep, x).verdict is Verdict.PASSED
    dropped = ruled(lambda x: 1e3 * x, lambda g, x: 1e3 * g.clamp(max=0.6))
    assert linearity(dropped, x).verdict is Verdict.FAILED


@pytest.mark.parametrize("squared", [False, True])
def test_what_overflows_in_float16_inside_is_compared_all_the_same(squared):
    """Infinite terms were not: any backward of a single output passed."""

    def backward(g, x):
        few = (g * g.abs() if squared else g).half()
        return g + (few * x.half().cos()).float()

    sine = ruled(lambda x: (x + x.half().sin().float()).sum(), backward)
    result = linearity(sine, normal(4, 5, dtype=SINGLE))
    assert result.verdict is (Verdict.FAILED if squared else Verdict.PASSED), result


def test_no_factor_is_named_for_a_gradient_that_is_clamped():
    clamped = ruled(torch.tanh, lambda g, x: g.clamp(-0.5, 0.5) / x.cosh() ** 2)
    report = gradproof.check(clamped, (normal(3, 4),), seed=0)
    assert report["linearity"].verdict is Verdict.FAILED
    assert report["backward"].verdict is Verdict.FAILED
    assert not report["backward"].causes


@pytest.mark.parametrize("size", [1.0, 1e4, 1e6])
@pytest.mark.parametrize("rule", ["right", "square", "clip"])
def test_terms_that_cancel_hide_no_rule_that_is_not_linear(size, rule):
    """What is left of large terms was taken for a part in single precision."""
    x = np.array([-0.36, 0.55, 0.36, -0.86, 0.89]) * size
    far = np.linalg.norm(x) - 0.43

    def pull(x, v):
        v = {"right": v, "square": v * v, "clip": np.clip(v, -1, 1)}[rule]
        return v * 2 * (np.linalg.norm(x) - far) * x / np.linalg.norm(x)

    distance = gradproof.by_hand(lambda x: (np.linalg.norm(x) - far) ** 2, vjp=pull)
    for seed in range(3):
        report = gradproof.check(distance, x, seed=seed)
        assert report.verdict == ("passed" if rule == "right" else "failed"), str(report)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("dtype", "step"), [(torch.float64, 1.0), (BRAIN, 0.125), (HALF, 0.125)], ids=str
)
def test_a_cotangent_that_is_rounded_is_no_rounding_of_the_claim(dtype, step, seed):
    """Entries halfway between two whole numbers jump wherever the probe moves."""

    def backward(g, x, w):
        g = (g / step).round() * step
        return g * w, g * x

    inputs = [normal(256, seed=k).detach().to(dtype).requires_grad_() for k in (1, 2)]
    result = linearity(ruled(torch.mul, backward), *inputs, seed=seed)
    assert result.verdict is Verdict.FAILED, result.summary


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "change",
    [lambda g: g, lambda g: g.clamp(-100, 100), lambda g: g * (g.abs() > 1e-5)],
    ids=["right", "clamp", "flush"],
)
def test_a_part_that_bfloat16_hides_in_the_sum_is_compared_by_itself(change, seed):
    def scanned(decay, x):
        assert x.dtype is BRAIN, "there is no kernel for float64"
        states = [x[0]]
        for factor, new in zip(decay[1:], x[1:], strict=True):
            states.append(factor * states[-1] + new)
        return torch.stack(states)

    def backward(g, decay, x):
        with torch.enable_grad():
            leaves = [each.detach().requires_grad_() for each in (decay, x)]
            return torch.autograd.grad(scanned(*leaves), leaves, change(g))

    inputs = [normal(5, 7, seed=k).detach().to(BRAIN).requires_grad_() for k in (1, 2)]
    result = linearity(ruled(scanned, backward), *inputs, seed=seed)
    is_right = bool((change(torch.tensor([1e3, 1e-6])) == torch.tensor([1e3, 1e-6])).all())
    assert result.verdict is (Verdict.PASSED if is_right else Verdict.FAILED), result.summary
