"""Which inputs need a gradient, which cotangents are there: all subsets of few, some of many."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import gradproof
from exhibits.frame import normal, ruled

SEEDS = range(3)


class Weighted(torch.autograd.Function):
    """The sum of k x_k; `wrong` says, from who needs a gradient, which gradients are zero."""

    wrong: Callable[[frozenset[int]], set[int]] = staticmethod(lambda needed: set())
    runs: list[frozenset[int]]

    @staticmethod
    def forward(*inputs):
        return sum((k + 1) * x.sin() for k, x in enumerate(inputs))

    @classmethod
    def setup_context(cls, ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @classmethod
    def backward(cls, ctx, g):
        needed = frozenset(k for k, needs in enumerate(ctx.needs_input_grad) if needs)
        cls.runs.append(needed)
        wrong = cls.wrong(needed)
        return tuple(
            0 * g if k in wrong else (k + 1) * g * x.cos() for k, x in enumerate(ctx.saved_tensors)
        )


def weighted(wrong: Callable[[frozenset[int]], set[int]]) -> type[Weighted]:
    return type("Judged", (Weighted,), {"wrong": staticmethod(wrong), "runs": []})


def inputs(count: int) -> list[torch.Tensor]:
    return [normal(2, seed=k + 1) for k in range(count)]


def metadata_result(fn, count: int, seed: int = 0):
    (result,) = gradproof.check(fn, inputs(count), checks=["grad_metadata"], seed=seed)
    return result


def alone(place: int) -> Callable[[frozenset[int]], set[int]]:
    return lambda needed: {place} if needed == {place} else set()


def left_out(place: int, count: int) -> Callable[[frozenset[int]], set[int]]:
    return lambda needed: {0} if needed == frozenset(range(count)) - {place} else set()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("count", [5, 6])
def test_an_input_alone_or_left_out_is_asked_for_whichever_it_is(count, seed):
    for place in (count // 2, count - 1):
        found = metadata_result(weighted(alone(place)).apply, count, seed)
        assert found.verdict == "failed"
        assert f"where only input {place} needs a gradient" in found.findings[0].message
        found = metadata_result(weighted(left_out(place, count)).apply, count, seed)
        assert found.verdict == "failed"
        assert f"where input {place} needs none" in found.findings[0].message
    right = metadata_result(weighted(lambda needed: set()).apply, count, seed)
    assert right.verdict == "passed"
    assert "whichever of the inputs need one" in right.summary


@pytest.mark.parametrize("count", [2, 4, 5, 18, 19, 100])
def test_the_subsets_asked_for_are_36_at_most_whatever_the_number_of_inputs(count):
    fn = weighted(lambda needed: set())
    result = metadata_result(fn.apply, count)
    subsets = set(fn.runs) - {frozenset(range(count))}
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
