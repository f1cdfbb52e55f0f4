"""Which inputs need a gradient, which cotangents are there: all subsets of few, some of many."""

from __future__ import annotations

import pytest
import torch

import gradproof
from exhibits.frame import normal, ruled

Needed = frozenset[int]  # the inputs that need a gradient


def metadata_result(
    count: int, seed: int = 0, wrong: dict[Needed, int] | None = None
) -> tuple[gradproof.CheckResult, set[Needed]]:
    """What is said of the sum of k sin(x_k), and who needed a gradient in its backwards.

    Args:
        count: of inputs.
        seed: of the check.
        wrong: from who needs a gradient, the input whose gradient is zero then.
    """
    runs = set()

    def backward(g, *xs):
        needed = frozenset(k for k, x in enumerate(xs) if x.requires_grad)
        runs.add(needed)
        zero = (wrong or {}).get(needed)
        return tuple(0 * g if k == zero else (k + 1) * g * x.cos() for k, x in enumerate(xs))

    fn = ruled(lambda *xs: sum((k + 1) * x.sin() for k, x in enumerate(xs)), backward, vmap=False)
    (result,) = gradproof.check(fn, inputs(count), checks=["grad_metadata"], seed=seed)
    return result, runs


def inputs(count: int) -> list[torch.Tensor]:
    return [normal(2, seed=k + 1) for k in range(count)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [5, 6])
def test_an_input_alone_or_left_out_is_asked_for_whichever_it_is(count, seed):
    for place in (count // 2, count - 1):
        others = frozenset(range(count)) - {place}
        for wrong, words in (
            ({frozenset({place}): place}, f"where only input {place} needs a gradient"),
            ({others: 0}, f"where input {place} needs none"),
        ):
            found, _ = metadata_result(count, seed, wrong)
            assert found.verdict == "failed"
            assert words in found.findings[0].message
    right, _ = metadata_result(count, seed)
    assert right.verdict == "passed"
    assert "whichever of the inputs need one" in right.summary


@pytest.mark.parametrize("count", [2, 4, 5, 18, 19, 100])
def test_the_subsets_asked_for_are_36_at_most_whatever_the_number_of_inputs(count):
    result, runs = metadata_result(count)
    subsets = runs - {frozenset(range(count))}
    assert len(subsets) <= (2**count - 2 if count < 4 else 8 if count == 4 else 36)
    assert result.verdict == "passed"
    if count > 5:
        assert f"{len(subsets)} of" in result.summary


# Undefined cotangents and tangents.


@pytest.mark.parametrize("count", [2, 5, 100])
def test_undefined_asks_for_20_vjps_and_20_jvps_at_most(count):
    report = gradproof.check(
        lambda *xs: tuple(x.sin() for x in xs),
        inputs(count),
        checks=["backward", "forward", "missing_grad_output"],
        seed=0,
    )
    result = report["missing_grad_output"]
    assert result.verdict == "passed"
    assert result.calls["vjp"] <= min(20, 2**count)
    assert result.calls["jvp"] <= min(20, 2**count)
    assert ("of 2^100" in " ".join(result.notes)) == (count == 100)


# Several of them at once -------------------------------------------------------------------------


def combined(given, slopes, wrong):
    """The sum of what is given times its slope; if wrong, twice that without the first two."""
    pairs = zip(given, slopes, strict=True)
    found = sum(
        (g * slope for g, slope in pairs if g is not None), start=torch.zeros_like(slopes[0])
    )
    return 2 * found if wrong and given[0] is None and given[1] is None else found


def waves(*, wrong: bool):
    """Three outputs; if wrong, the third's gradient is doubled where it is asked for alone."""

    def backward(f, g, h, x):
        return combined((f, g, h), (x.cos(), -x.sin(), x.exp()), wrong)

    return ruled(lambda x: (x.sin(), x.cos(), x.exp()), backward, materialize=False)


def test_a_backward_that_is_wrong_only_where_two_of_three_are_missing_fails():
    checks = ["missing_grad_output"]
    assert gradproof.check(waves(wrong=False), (normal(4),), checks=checks, seed=0)
    (result,) = gradproof.check(waves(wrong=True), (normal(4),), checks=checks, seed=0)
    assert result.verdict == "failed"
    message = result.findings[0].message
    assert "cotangents of output 0 and output 1 undefined against zero" in message


def product(wrong: str = ""):
    """a b c; its forward mode is wrong where neither a nor b has a tangent, or raises without c."""

    def jvp(t, u, v, a, b, c):
        if wrong == "raising" and v is None:
            raise TypeError("no tangent")
        return combined((t, u, v), (b * c, a * c, a * b), wrong == "doubled")

    return ruled(
        lambda a, b, c: a * b * c,
        lambda g, a, b, c: (g * b * c, g * a * c, g * a * b),
        jvp,
        materialize=False,
    )


def test_a_forward_mode_that_is_wrong_only_where_two_of_three_have_no_tangent_fails():
    inputs = normal(4), normal(4, seed=2), normal(4, seed=3)

    def judged(fn):
        return gradproof.check(fn, inputs, checks=["forward", "missing_grad_output"], seed=0)

    assert judged(product()).verdict == "passed"
    report = judged(product("doubled"))
    assert [each.name for each in report if each.verdict == "failed"] == ["missing_grad_output"]
    message = report["missing_grad_output"].findings[0].message
    assert "tangents of a and b undefined against zero: got" in message
    message = judged(product("raising"))["missing_grad_output"].findings[0].message
    assert "c undefined: it raised TypeError" in message, message


@pytest.mark.parametrize("size", [0.02, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_small_bias_without_its_gradient_is_seen_in_few_bits(dtype, size):
    """64 units in the last place of F, per unit of a bias of 0.02, are more than its gradient."""

    def backward(g, x, w, b):
        if not (x.requires_grad or w.requires_grad):
            return None, None, None
        return g @ w, g.T @ x, g.sum(0)

    layer = ruled(lambda x, w, b: x @ w.T + b, backward, vmap=False)

    def kernel(*given):
        if given[0].dtype is torch.float64:
            raise TypeError("no kernel for float64")
        return layer(*given)

    given = [normal(7, 5), normal(3, 5, seed=1), size * normal(3, seed=2)]
    tensors = [t.detach().to(dtype).requires_grad_() for t in given]
    report = gradproof.check(kernel, tensors, checks=["grad_metadata"], seed=0)
    assert report["grad_metadata"].verdict == "failed"


def test_a_derivative_that_is_infinite_says_nothing_of_missing_cotangents():
    x = torch.tensor([0.5, 800.0], dtype=torch.float64, requires_grad=True)
    right = ruled(torch.exp, lambda g, x: g * x.exp())
    assert gradproof.check(right, x, seed=0).verdict == "inconclusive"
