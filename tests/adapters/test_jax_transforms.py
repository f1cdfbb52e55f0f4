"""What JAX's transforms make of right rules, and of wrong ones that hide in a plain call."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradproof

TRANSFORMS = {"compiled", "checkpointed"}


def normal(*shape, seed=0, dtype=jnp.float32):
    values = np.random.default_rng(seed).normal(size=(2, *shape))
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return jnp.asarray(values[0] + 1j * values[1], dtype)
    return jnp.asarray(values[0], dtype)


def verdicts(fn, inputs):
    report = gradproof.check(fn, inputs, checks=sorted(TRANSFORMS), seed=0)
    return {row.name: str(row.verdict) for row in report.checks if row.name in TRANSFORMS}


def failures(fn, inputs):
    return {name for name, verdict in verdicts(fn, inputs).items() if verdict == "failed"}


def sine(backward):
    @jax.custom_vjp
    def fn(x):
        return jnp.sin(x)

    fn.defvjp(lambda x: (fn(x), x), backward)
    return fn


def is_traced(*arrays):
    return any(isinstance(array, jax.core.Tracer) for array in arrays)


RIGHT = {
    "two outputs": (lambda a, b: {"p": a @ b, "s": (a**2).sum()}, (normal(2, 3), normal(3, 2))),
    "sixteen bits": (lambda x: jnp.sin(x) * x, (normal(4, dtype=jnp.bfloat16),)),
    "complex": (lambda z: z * jnp.conj(jnp.exp(z)), (normal(3, dtype=jnp.complex64),)),
    "a number and a key": (
        lambda x, key, p: x * jax.random.bernoulli(key, jnp.float32(p), x.shape),
        (normal(3), jax.random.key(0), 0.5),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_every_transform_of_a_right_function_passes(name):
    assert verdicts(*RIGHT[name]) == dict.fromkeys(TRANSFORMS, "passed")


def test_all_transforms_are_those_that_the_framework_has():
    report = gradproof.check(jnp.sin, normal(2), transforms=True, seed=0)
    plain = gradproof.check(jnp.sin, normal(2), seed=0)
    assert {row.name for row in report.checks} - {row.name for row in plain.checks} == TRANSFORMS
    assert report.verdict == "passed"


def test_a_rule_that_is_wrong_only_where_it_is_compiled_is_found():
    def backward(x, g):
        return (g * jnp.cos(x) * (2.0 if is_traced(x, g) else 1.0),)

    assert "compiled" in failures(sine(backward), (normal(3),))


def test_a_function_that_is_wrong_when_run_again_fails_under_checkpointing():

    @jax.custom_jvp
    def fn(x):
        return jnp.sin(x)

    @fn.defjvp
    def _(primals, tangents):
        (x,), (t,) = primals, tangents
        wrong = is_traced(x)  # as jax.checkpoint makes what it runs again
        return fn(x), t * jnp.cos(x) * (1.5 if wrong else 1.0)

    assert "checkpointed" in failures(fn, (normal(3),))
