"""What JAX refuses is skipped; what a user's rule raises fails, whatever its words."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import gradproof
from gradproof import Verdict

X = jnp.linspace(0.1, 1.0, 5)


def with_backward(backward):
    fn = jax.custom_vjp(lambda x: jnp.sin(x))
    fn.defvjp(lambda x: (jnp.sin(x), x), backward)
    return fn


def raising_inside_a_scope(x, g):
    with jax.named_scope("backward"):
        raise NotImplementedError("later")


def raising_on_several_lines(x, g):
    try:
        raise TypeError(
            "sine: the backward must be linear",
        )
    finally:
        del x


@pytest.mark.parametrize("filtering", ["auto", "off"])
@pytest.mark.parametrize("backward", [raising_inside_a_scope, raising_on_several_lines])
def test_a_users_exception_fails_however_jax_filters_tracebacks(backward, filtering, request):
    before = jax.config.jax_traceback_filtering
    request.addfinalizer(lambda: jax.config.update("jax_traceback_filtering", before))
    jax.config.update("jax_traceback_filtering", filtering)
    checks = ["backward", "forward"]
    report = gradproof.check(with_backward(backward), X, seed=0, checks=checks)
    assert report["backward"].verdict is Verdict.FAILED
    assert report["backward"].summary.startswith("it raised")
    assert report["forward"].verdict is Verdict.SKIPPED  # JAX says so: custom_vjp has none


def loop(x):
    with jax.named_scope("loop"):
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))[1]


def called_back(x):
    try:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
    except ValueError:
        raise


@jax.custom_batching.custom_vmap
def batched_by_hand(x):
    return jnp.sin(x)


batched_by_hand.def_vmap(lambda size, batched, x: (jnp.sin(x), True))


@pytest.mark.parametrize("fn", [loop, jax.jit(loop), called_back, batched_by_hand])
def test_what_jax_has_no_rule_for_is_skipped_inside_blocks_of_the_users(fn):
    report = gradproof.check(fn, X, seed=0, checks=["backward", "forward"])
    assert report["backward"].verdict is Verdict.SKIPPED
    assert report


def mixed(factor):
    """A forward rule that takes equal dtypes only: in float64 the factor w is still float32."""
    fn = jax.custom_jvp(lambda x, w: x * w)
    fn.defjvps(lambda t, out, x, w: lax.mul(t, w), lambda t, out, x, w: factor * lax.mul(x, t))
    return lambda x, w: fn(x, w.astype(jnp.float32))


@pytest.mark.parametrize("seed", range(2))
def test_a_forward_rule_that_raises_in_double_precision_is_judged_in_its_own(seed):
    options = {"checks": ["backward", "forward"], "seed": seed}
    right = gradproof.check(mixed(1.0), (X, X + 1), **options)
    assert right.verdict is Verdict.PASSED, str(right)
    wrong = gradproof.check(mixed(1.1), (X, X + 1), **options)
    for mode in ("forward", "backward"):
        assert {one.input.slot for one in wrong[mode].findings} == {1}, str(wrong)


def test_a_reference_whose_derivative_raises_is_not_used():
    def raising(x, g):
        raise RuntimeError("no")

    report = gradproof.check(
        jnp.sin,
        X,
        reference=with_backward(raising),
        seed=0,
        checks=["backward"],
        settings=gradproof.Settings(references=["reference"]),
    )
    assert report["backward"].verdict is Verdict.INCONCLUSIVE
    assert "its derivative raised RuntimeError: no" in report["backward"].summary


@pytest.mark.parametrize("wrap", [lambda fn: fn, jax.jit], ids=["called", "compiled"])
def test_a_rule_that_jax_cannot_transpose_fails(wrap):
    """JAX raises an AssertionError and leaves no frame: it was taken for a mistake of ours."""

    @jax.custom_jvp
    def log_det(x):
        return jnp.linalg.slogdet(x)[1]

    @log_det.defjvp
    def _(primals, tangents):
        part = jnp.linalg.solve(primals[0], tangents[0])
        return log_det(*primals), jnp.trace(part) - 0.5 * jnp.trace(part @ part)

    x = jnp.arange(9.0).reshape(3, 3) / 10 + jnp.eye(3)
    report = gradproof.check(wrap(log_det), x, seed=0)
    assert report["backward"].verdict is Verdict.FAILED
    assert report["linearity"].verdict is Verdict.FAILED, str(report)
