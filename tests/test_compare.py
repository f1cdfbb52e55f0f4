"""One implementation against another, and gradients that are so by definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import gradproof
from exhibits.definitions import reversal, reversed_by, straight_through, within, within_one
from exhibits.frame import normal, ruled
from gradproof.errors import UsageError

DTYPES = (torch.float64, torch.float32, torch.bfloat16)
SEEDS = range(2)


def eager(x: Tensor, weight: Tensor) -> Tensor:
    return weight * x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def _backward(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    scale = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
    gw = g * weight
    gx = scale * (gw - x * scale * scale * (gw * x).mean(-1, keepdim=True))
    return gx, (g * x * scale).sum(0)


def _in_single(fn):
    """Computed in float32, or more, and rounded to the dtype of the arrays at the end."""

    def widened(*inputs: Tensor):
        wide = torch.promote_types(torch.float32, inputs[0].dtype)
        found = fn(*(each.to(wide) for each in inputs))
        out = found if isinstance(found, tuple) else (found,)
        out = tuple(each.to(inputs[0].dtype) for each in out)
        return out if isinstance(found, tuple) else out[0]

    return widened


def _forgets(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return weight * g * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6), _backward(g, x, weight)[
        1
    ]


fused = ruled(_in_single(eager), _in_single(_backward))
forgetful = ruled(_in_single(eager), _in_single(_forgets))
shifted = ruled(_in_single(lambda x, weight: 1.05 * eager(x, weight)), _in_single(_backward))


def rows(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    x, weight = normal(6, 16, seed=3), 1 + normal(16, seed=4) / 8
    return tuple(each.detach().to(dtype).requires_grad_() for each in (x, weight))


def verdicts(report) -> dict[str, str]:
    return {result.name: str(result.verdict) for result in report.checks}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_fused_kernel_that_is_equal_to_eager_is(dtype, seed):
    report = gradproof.compare(fused, eager, rows(dtype), seed=seed)
    assert report.verdict == "passed", report
    for name in ("value", "backward"):
        assert {each.name for each in report[name].statistics} >= {"slope", "rms", "worst entry"}
        assert all(each.value <= each.allowed for each in report[name].statistics)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_another_gradient_and_another_value_are_told_apart(dtype, seed):
    found_verdicts = verdicts(gradproof.compare(forgetful, eager, rows(dtype), seed=seed))
    assert (found_verdicts["value"], found_verdicts["backward"]) == ("passed", "failed")
    found = gradproof.compare(shifted, eager, rows(dtype), seed=seed)
    assert verdicts(found)["value"] == "failed"
    assert "against the reference" in found["value"].findings[0].message


def test_a_reference_of_another_shape_has_another_value():
    x = torch.linspace(-1, 1, 4, dtype=torch.float64, requires_grad=True)
    report = gradproof.compare(torch.sin, lambda x: x.sin().sum(), x, seed=0)
    assert verdicts(report)["value"] == "failed"
    assert report["value"].summary == "the reference returns outputs of another shape"

    def raising(x):
        raise ZeroDivisionError

    report = gradproof.compare(torch.sin, raising, x, seed=0)
    assert verdicts(report)["value"] == "inconclusive"
    assert "it raised ZeroDivisionError" in report["value"].summary


def test_second_order_is_compared_where_it_is_asked_for():
    def cube(x):
        return x * x * x

    once = ruled(lambda x: x**3, lambda g, x: 3 * g * x.detach() ** 2)  # not its own derivative
    right = ruled(lambda x: x**3, lambda g, x: 3 * g * x * x)
    for dtype in DTYPES:
        x = normal(4, 8).detach().to(dtype).requires_grad_()
        assert gradproof.compare(right, cube, x, order=2, seed=0).verdict == "passed"
        report = gradproof.compare(once, cube, x, order=2, seed=0)
        assert verdicts(report)["backward"] == "passed"
        assert verdicts(report)["second_order"] == "failed"
        assert "second_order" not in verdicts(gradproof.compare(right, cube, x, seed=0))


def spread(x: Tensor) -> Tensor:
    """The variance as a difference of large numbers."""
    return (x * x).mean(-1) - x.mean(-1) ** 2


def _of_spread(g: Tensor, x: Tensor) -> Tensor:
    return g[:, None] * (2 * x / x.shape[-1] - 2 * x.mean(-1, keepdim=True) / x.shape[-1])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_kernel_that_says_in_what_it_computes_is_allowed_no_more_than_that(seed):
    x = (16 + normal(6, 16, seed=3)).detach().to(torch.bfloat16).requires_grad_()
    fine = ruled(_in_single(spread), _in_single(_of_spread))
    coarse = ruled(_in_single(spread), _of_spread)  # the mean is rounded to the dtype
    for function, single, verdict in (
        (fine, None, "passed"),
        (fine, "float32", "passed"),
        (coarse, None, "passed"),
        (coarse, "float32", "failed"),
    ):
        report = gradproof.compare(
            function, spread, x, seed=seed, settings=gradproof.Settings(accumulate=single)
        )
        assert report["backward"].verdict == verdict, str(report)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_by_decree_are_held_against_their_definition(dtype, seed):
    x = (2 * normal(5, 4)).detach().to(dtype).requires_grad_()
    pairs = (
        (within(1.0), within_one, "passed"),
        (within(1.25), within_one, "failed"),
        (within(1.0, lambda g: 1.05 * g), within_one, "failed"),
        (reversed_by(-0.5), reversal, "passed"),
        (reversed_by(0.5), reversal, "failed"),
    )
    for function, definition, verdict in pairs:
        report = gradproof.compare(function, definition, x, trusted=True, seed=seed)
        assert report["backward"].verdict == verdict, report
        assert report["value"].verdict == "passed"
        whole = gradproof.check(function, x, reference=definition, trusted=True, seed=seed)
        assert (whole.verdict == "passed") is (verdict == "passed")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_definition_that_is_not_called_one_is_no_reference_and_says_what_to_do(dtype):
    x = (2 * normal(5, 4)).detach().to(dtype).requires_grad_()
    whole = ruled(lambda x: torch.round(2 * x) / 2, lambda g, _: g)
    compared = gradproof.compare(whole, straight_through, x, seed=0)["backward"]
    assert compared.verdict == "inconclusive"
    assert "fails its own check" in compared.summary
    assert "trusted=True" in compared.summary
    checked = gradproof.check(whole, x, reference=straight_through, seed=0)["backward"]
    assert checked.verdict == "failed"
    assert checked.causes[0].name == "missing mask"
    assert "trusted=True" in checked.causes[0].advice
    if dtype is torch.float64:
        assert "trusted=True" in " ".join(checked.notes)
    trusted = gradproof.check(whole, x, reference=straight_through, trusted=True, seed=0)
    assert trusted.verdict == "passed", trusted


def test_arguments_that_mean_nothing_are_refused():
    x = normal(3)
    with pytest.raises(UsageError, match="trusted: says that a reference is a definition"):
        gradproof.check(torch.sin, x, trusted=True)
    with pytest.raises(UsageError, match="accumulate: expected one of float32, float64"):
        gradproof.compare(
            fused, eager, rows(torch.float32), settings=gradproof.Settings(accumulate="float16")
        )


@pytest.mark.needs("jax")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_jax_too(dtype):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    @jax.custom_vjp
    def quantised(x):
        return jnp.round(x)

    quantised.defvjp(lambda x: (jnp.round(x), None), lambda _, g: (g,))
    x = jnp.linspace(-3.3, 3.1, 12, dtype=dtype)
    for factor, verdict in ((1.0, "passed"), (1.05, "failed")):

        def definition(x, factor=factor):
            return factor * x + jax.lax.stop_gradient(jnp.round(x) - factor * x)

        report = gradproof.compare(quantised, definition, x, trusted=True, seed=0)
        assert report["backward"].verdict == verdict, report
    assert gradproof.compare(jnp.tanh, lambda x: jnp.sinh(x) / jnp.cosh(x), x, seed=0)
