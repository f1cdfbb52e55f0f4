"""`gradproof.jax` in place of `jax.test_util`: one signature, and verdicts on entries."""

from __future__ import annotations

import functools
import inspect

import jax
import jax.numpy as jnp
import jax.test_util as theirs
import numpy as np
import pytest

import gradproof.jax as ours
from gradproof.errors import UsageError

NAMES = ["check_grads", "check_jvp", "check_vjp"]


def normal(*shape, seed=0, dtype=np.float32):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(dtype))


def bent(factor, fn=jnp.tanh):
    """A function whose JVP is too large by a factor."""

    @jax.custom_jvp
    def wrong(x):
        return fn(x)

    wrong.defjvp(lambda p, t: (wrong(p[0]), factor * jax.jvp(fn, p, t)[1]))
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_signatures_are_jaxs(name):
    def shape(function):
        parameters = inspect.signature(function).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters]

    assert shape(getattr(ours, name)) == shape(getattr(theirs, name))


@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_each_mode_is_judged(mode):
    with pytest.raises(AssertionError, match="FAILED"):
        ours.check_grads(bent(1.01), (normal(5),), order=1, modes=(mode,))


def test_tolerances_are_on_entries():
    x = (normal(5),)
    ours.check_grads(bent(1.01), x, 1, rtol=0.05)
    ours.check_grads(bent(1.01), x, 1, atol=0.05)
    with pytest.raises(UsageError, match="rtol: expected a number"):
        ours.check_grads(bent(1.01), x, 1, rtol={jnp.float64: 0.05})


def test_check_vjp_and_check_jvp_judge_what_they_are_given():
    def f(x, n):
        return {"y": jnp.sin(x["a"]) * n, "n": n}

    args = ({"a": normal(4)}, jnp.array(3))
    ours.check_vjp(f, functools.partial(jax.vjp, f), args)
    ours.check_jvp(f, functools.partial(jax.jvp, f), args)

    def wrong_vjp(x, n):
        out, pull = jax.vjp(f, x, n)
        return out, lambda ct: jax.tree.map(
            lambda g: 1.01 * g if g.dtype != jax.dtypes.float0 else g, pull(ct)
        )

    def wrong_jvp(primals, tangents):
        out, tangent = jax.jvp(f, primals, tangents)
        return out, {"y": 1.01 * tangent["y"], "n": tangent["n"]}

    with pytest.raises(AssertionError, match=r"^my rule\n"):
        ours.check_vjp(f, wrong_vjp, args, err_msg="my rule")
    with pytest.raises(AssertionError):
        ours.check_jvp(f, wrong_jvp, args)


def test_a_rule_that_returns_another_value_is_wrong():
    x = (normal(4),)
    with pytest.raises(AssertionError, match="here primal: output 0 has other values than sin's"):
        ours.check_vjp(jnp.sin, functools.partial(jax.vjp, jnp.cos), x, err_msg="here")
    with pytest.raises(AssertionError, match=r"float32\[\], that of sin is float32\[4\]"):
        ours.check_jvp(jnp.sin, functools.partial(jax.jvp, jnp.sum), x)


def deleted():
    array = jnp.ones(2) * 1
    array.delete()
    return array


@pytest.mark.parametrize(
    ("f", "args", "options", "words"),
    [
        (None, (jnp.ones(2),), {}, "f: expected a function, got None"),
        (jnp.sin, 1.0, {}, "args: expected a tuple of arguments, got 1.0"),
        (jnp.sin, ({"x": jnp.ones(2), 1: jnp.ones(2)},), {}, "args: JAX does not take them apart"),
        (jnp.sin, (deleted(),), {}, "its numbers cannot be read: it has been deleted"),
        (jnp.sin, (jnp.ones(2),), {"order": jnp.ones(2)}, "order: expected a whole number"),
        (jnp.sin, (jnp.ones(2),), {"modes": 3}, "modes: expected a list of names, got 3"),
        (jnp.sin, (jnp.ones(2),), {"atol": "small"}, "atol: expected a number, got 'small'"),
        (jnp.sin, (jnp.ones(2),), {"rtol": {"day": 1}}, "rtol: expected a number, got {'day': 1}"),
        (jnp.sin, (jnp.ones(2),), {"eps": jnp.ones(2)}, "eps: expected a positive finite number"),
    ],
)
def test_bad_input_is_refused_by_name(f, args, options, words):
    with pytest.raises(UsageError, match=words):
        ours.check_grads(f, args, **{"order": 1, **options})


@pytest.mark.parametrize(("check", "name"), [(ours.check_jvp, "f_jvp"), (ours.check_vjp, "f_vjp")])
def test_a_rule_that_is_none(check, name):
    with pytest.raises(UsageError, match=f"{name}: expected a function, got None"):
        check(jnp.sin, None, (jnp.ones(2),))
    with pytest.raises(UsageError, match=f"{name}: it returns a pair, got None"):
        check(jnp.sin, lambda *_: None, (jnp.ones(2),))
