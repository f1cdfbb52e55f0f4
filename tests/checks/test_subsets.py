"""Which inputs need a gradient, which cotangents are there: few questions of any number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import gradproof
from exhibits.frame import normal
from gradproof.torch import gradcheck

SEEDS = range(5)


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


def traits(fn, count: int, seed: int, **options):
    report = gradproof.check(fn, inputs(count), checks=["grad_metadata"], seed=seed, **options)
    return report["grad_metadata"]


def alone(place: int) -> Callable[[frozenset[int]], set[int]]:
    return lambda needed: {place} if needed == {place} else set()


def left_out(place: int, count: int) -> Callable[[frozenset[int]], set[int]]:
    return lambda needed: {0} if needed == frozenset(range(count)) - {place} else set()


def without(one: int, other: int) -> Callable[[frozenset[int]], set[int]]:
    return lambda needed: {one} if one in needed and other not in needed else set()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("count", [5, 6])
def test_an_input_alone_or_left_out_is_asked_for_whichever_it_is(count, seed):
    for place in (count // 2, count - 1):
        found = traits(weighted(alone(place)).apply, count, seed)
        assert found.verdict == "failed"
        assert f"where only input {place} needs a gradient" in found.findings[0].message
        found = traits(weighted(left_out(place, count)).apply, count, seed)
        assert found.verdict == "failed"
        assert f"where input {place} needs none" in found.findings[0].message
    right = traits(weighted(lambda needed: set()).apply, count, seed)
    assert right.verdict == "passed"
    assert "whichever of the inputs need one" in right.summary


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("count", [6, 25, 100])
def test_an_input_that_needs_another_one_to_need_a_gradient_is_found(count, seed):
    one, other = count - 1, count // 2
    found = traits(weighted(without(one, other)).apply, count, seed)
    assert found.verdict == "failed"
    (place,) = {finding.input.slot for finding in found.findings}
    assert place == one


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 25, 100, 200])
def test_the_subsets_asked_for_are_18_at_most_whatever_the_number_of_inputs(count):
    fn = weighted(lambda needed: set())
    result = traits(fn.apply, count, 0)
    subsets = set(fn.runs) - {frozenset(range(count))}
    assert len(subsets) <= (2**count - 2 if count < 4 else 18)
    assert result.verdict == "passed"
    if count > 5:
        assert f"{len(subsets)} of" in result.summary


def test_the_drop_in_asks_for_no_subset():
    fn = weighted(lambda needed: set())
    assert gradcheck(fn.apply, inputs(6))
    assert set(fn.runs) == {frozenset(range(6))}


# Undefined cotangents and tangents.


def many(xs):
    return tuple(x.sin() for x in xs)


@pytest.mark.parametrize("count", [2, 4, 5, 10, 25, 100])
def test_undefined_asks_for_20_vjps_and_20_jvps_at_most(count):
    report = gradproof.check(
        lambda *xs: many(xs),
        inputs(count),
        checks=["backward", "forward", "missing_grad_output"],
        seed=0,
    )
    result = report["missing_grad_output"]
    assert result.verdict == "passed"
    assert result.calls["vjp"] <= min(20, 2**count)
    assert result.calls["jvp"] <= min(20, 2**count)
    assert ("of 2^100" in " ".join(result.notes)) == (count == 100)


class Picky(torch.autograd.Function):
    """sin in every input, whose backward forgets one gradient where a cotangent is undefined."""

    missing = 0

    @staticmethod
    def forward(*inputs):
        return many(inputs)

    @classmethod
    def setup_context(cls, ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)

    @classmethod
    def backward(cls, ctx, *gs):
        found = [
            None if g is None else g * x.cos() for g, x in zip(gs, ctx.saved_tensors, strict=True)
        ]
        if gs[cls.missing] is None:
            found[0] = None
        return tuple(found)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("count", [5, 12, 100])
def test_the_one_of_many_cotangents_that_must_be_there_is_named(count, seed):
    fn = type("Judged", (Picky,), {"missing": count - 1})
    options = {"checks": ["backward", "missing_grad_output"], "seed": seed}
    result = gradproof.check(fn.apply, inputs(count), **options)["missing_grad_output"]
    assert result.verdict == "failed"
    named = f"cotangent of output {count - 1} undefined against zero"
    assert any(named in finding.message for finding in result.findings)
    right = gradproof.check(lambda *xs: many(xs), inputs(count), **options)["missing_grad_output"]
    assert right.verdict == "passed"
