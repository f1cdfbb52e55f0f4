"""`gradproof.jax` in place of `jax.test_util`: the table in docs/jax.md, a row a test; the face."""

from __future__ import annotations

import functools
import inspect

import jax
import jax.numpy as jnp
import jax.test_util as theirs
import numpy as np
import pytest

import gradproof.jax as ours
from gradproof.errors import DerivativeError, DerivativeWarning, UsageError
from x64 import enable_x64

X = np.random.default_rng(0).normal(size=12).astype(np.float32)


def accepts(module, *arguments, check="check_grads", **options):
    """Whether a face takes the derivatives for right."""
    try:
        getattr(module, check)(*arguments, **options)
    except AssertionError:
        return False
    return True


def both(*arguments, **options):
    return accepts(theirs, *arguments, **options), accepts(ours, *arguments, **options)


def ruled(tangent, fn=jnp.tanh):
    """A function with a JVP of its own: (x, t) -> the tangent."""

    @jax.custom_jvp
    def with_rule(x):
        return fn(x)

    with_rule.defjvp(lambda p, t: (with_rule(p[0]), tangent(p[0], t[0])))
    return with_rule


def slope(x, t):
    return jax.jvp(jnp.tanh, (x,), (t,))[1]


@pytest.mark.parametrize(("size", "verdict"), [(12, False), (1200, True)])
def test_a_tolerance_that_grows_with_the_size(size, verdict):
    x = np.resize(X, size)
    assert both(ruled(lambda x, t: 0 * t), (x,), 1, ["fwd"]) == (verdict, False)


def test_a_tolerance_of_none():
    """Theirs is 0.002 of float32, times the size, on a projection; ours 1e-6 on an entry."""
    assert both(ruled(lambda x, t: 1.002 * slope(x, t)), (X,), 1, ["fwd"]) == (True, False)


def test_what_is_compared():
    """In reverse mode one projection: a wrong entry is a small part of it."""

    def one_entry(x, t):
        return slope(x, t) * jnp.where(jnp.arange(x.size) == 3, 1.05, 1.0)

    assert both(ruled(one_entry), (X,), 1, ["rev"], atol=1e-2, rtol=1e-2) == (True, False)


def test_forward_mode_alone_is_linear():
    for _ in range(5):
        taken = accepts(ours, ruled(lambda x, t: slope(x, abs(t))), (X,), 1, ["fwd"])
        assert not taken
        assert accepts(ours, ruled(slope), (X,), 1, ["fwd"])


@pytest.mark.filterwarnings("ignore:overflow")
def test_sixteen_bits():
    x = jnp.asarray(X[:3], jnp.bfloat16)
    assert both(jnp.tanh, (x,), 1, ["fwd"]) == (False, True)
    assert accepts(ours, jnp.tanh, (x,), 1, ["rev"])
    assert both(ruled(lambda x, t: 0 * t), (x,), 1, ["fwd"]) == (True, False)


def test_the_step():
    """Of a function that turns within 1e-4: a step that is too large for it, or one that fits."""
    with enable_x64(True):
        x = X.astype(np.float64)
        assert both(lambda x: jnp.sin(3e4 * x), (x,), 1, ["fwd"]) == (False, True)


def test_what_cannot_be_decided():
    """A constant: nothing was tested."""
    assert accepts(theirs, lambda x: 0 * x, (X,), 1)
    with pytest.warns(DerivativeWarning, match="nothing was tested"):
        ours.check_grads(lambda x: 0 * x, (X,), 1, modes="rev")


def test_no_such_mode():
    fn = jax.custom_vjp(jnp.tanh)
    fn.defvjp(lambda x: (jnp.tanh(x), x), lambda x, g: (slope(x, g),))
    with pytest.raises(TypeError, match="custom_vjp"):
        theirs.check_grads(fn, (X,), 1)
    with pytest.raises(AssertionError, match="custom_vjp"):
        ours.check_grads(fn, (X,), 1)


def test_the_second_order():
    """Their cotangent of the VJP's derivative is the value: where that is zero, nothing is seen."""

    @jax.custom_jvp
    def fn(x):
        return x * x - 1

    fn.defjvp(lambda p, t: (fn(p[0]), 2 * t[0] * jax.lax.stop_gradient(p[0])))
    assert both(fn, (np.sign(X),), 2, ["rev"]) == (True, False)


@pytest.mark.parametrize("modes", [(), ["reverse"]])
def test_modes_that_are_none(modes):
    assert accepts(theirs, ruled(lambda x, t: 0 * t), (X,), 1, modes)
    with pytest.raises(UsageError, match="modes: expected some of 'fwd' and 'rev'"):
        ours.check_grads(jnp.tanh, (X,), 1, modes)


def test_an_order_of_zero():
    assert accepts(theirs, jnp.tanh, (X,), 0)
    with pytest.raises(UsageError, match="order: expected at least 1"):
        ours.check_grads(jnp.tanh, (X,), 0)


def test_integers_among_the_arguments():
    with pytest.raises(TypeError):
        theirs.check_grads(lambda x, n: x * n, (X, jnp.array(3)), 1)
    ours.check_grads(lambda x, n: x * n, (X, jnp.array(3)), 1)


def test_the_message():
    wrong = ruled(lambda x, t: 1.5 * slope(x, t))
    with pytest.raises(AssertionError, match="Not equal to tolerance") as caught:
        theirs.check_grads(wrong, (X,), 1)
    assert "cause" not in str(caught.value)
    with pytest.raises(DerivativeError, match=r"allowed[^\0]*cause"):
        ours.check_grads(wrong, (X,), 1)


# What is the same.


def test_numbers_of_python_are_differentiated():
    assert both(lambda x, y: x * jnp.sin(y), (1.5, X), 1) == (True, True)
    wrong = ruled(lambda x, t: 1.5 * slope(x, t))
    assert both(wrong, (0.5,), 1) == (False, False)


def test_a_mode_may_be_a_word():
    assert both(jnp.tanh, (X,), 1, "rev") == (True, True)


def test_tangents_of_another_dtype_are_wrong():
    def coarse(primals, tangents):
        out, tangent = jax.jvp(jnp.tanh, primals, tangents)
        return out, tangent.astype(jnp.float16)

    right = functools.partial(jax.jvp, jnp.tanh)
    assert both(jnp.tanh, right, (X,), check="check_jvp") == (True, True)
    assert both(jnp.tanh, coarse, (X,), check="check_jvp") == (False, False)


def test_an_input_that_is_nan():
    assert both(jnp.sin, (np.array([1.0, np.nan], np.float32),), 1) == (True, False)


# Signatures, rules that are given, and bad input.


@pytest.mark.parametrize("name", ["check_grads", "check_jvp", "check_vjp"])
def test_signatures_are_jaxs(name):
    def shape(function):
        parameters = inspect.signature(function).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters]

    assert shape(getattr(ours, name)) == shape(getattr(theirs, name))


def test_tolerances_are_on_entries():
    wrong = ruled(lambda x, t: 1.01 * slope(x, t))
    ours.check_grads(wrong, (X,), 1, rtol=0.05)
    ours.check_grads(wrong, (X,), 1, atol=0.05)


def test_check_vjp_and_check_jvp_judge_what_they_are_given():
    def f(x, n):
        return {"y": jnp.sin(x["a"]) * n, "n": n}

    args = ({"a": X}, jnp.array(3))
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
    x = (X,)
    with pytest.raises(AssertionError, match="here primal: output 0 has other values than sin's"):
        ours.check_vjp(jnp.sin, functools.partial(jax.vjp, jnp.cos), x, err_msg="here")
    with pytest.raises(AssertionError, match=r"float32\[\], that of sin is float32\[12\]"):
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
        (jnp.sin, (jnp.ones(2),), {"atol": "small"}, "atol: expected a number >= 0, got 'small'"),
        (jnp.sin, (jnp.ones(2),), {"rtol": {"day": 1}}, "rtol: expected a number >= 0, got {'"),
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


def test_tangents_of_another_shape_are_refused_as_such():
    def other(primals, tangents):
        return jnp.sin(primals[0]), tangents[0][:5]

    with pytest.raises(AssertionError, match=r"tangents: their shapes are \[\(5,\)\], those of"):
        ours.check_jvp(jnp.sin, other, (X,))
