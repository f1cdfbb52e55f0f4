"""Whatever is handed over beside arrays of JAX: a verdict, an error of ours, or the user's own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradproof
from flat_options import check
from fuzzing import Values, deep, fuzz, nothing, raises, ring, text
from gradproof.jax import check_grads, check_jvp, check_vjp

pytestmark = [pytest.mark.slow, pytest.mark.needs("jax"), pytest.mark.filterwarnings("ignore")]


def sine(x, *more, **others):
    return jnp.sin(x)


def product(x, y=2.0, *more, **others):
    return x * y


@jax.custom_vjp
def doubled(x):
    return 2 * x


doubled.defvjp(lambda x: (2 * x, None), lambda _, g: (3 * g,))


def wrong(x, *more, **others):
    return doubled(x)


def whole(x, *args, **kwargs):
    return jnp.asarray(x).astype(int)


def vjp_of_sine(x, *more):
    return jax.vjp(sine, x, *more)


def jvp_of_sine(primals, tangents):
    return jax.jvp(sine, primals, tangents)


def deleted():
    array = jnp.ones(2) * 1
    array.delete()
    return array


POINTS = {
    "array": jnp.array([0.3, -0.7]),
    "no dimension": jnp.array(0.5),
    "empty": jnp.zeros(0),
    "float16": jnp.ones(2, jnp.float16),
    "bfloat16": jnp.ones(2, jnp.bfloat16),
    "complex": jnp.ones(2, jnp.complex64),
    "integers": jnp.arange(2),
    "nan": jnp.array([jnp.nan, 1.0]),
    "infinite": jnp.array([jnp.inf, 1.0]),
    "array of NumPy": np.ones(2),
    "number": 0.5,
    "key": jax.random.key(0),
    "shape": jax.ShapeDtypeStruct((2,), jnp.float32),
    "deleted": deleted(),
    "strings": np.array(["a"]),
}
V = Values(
    POINTS,
    (sine, product, wrong, raises, nothing, text, ring, deep, whole, vjp_of_sine, jvp_of_sine),
    ["sine", "product", "wrong"],
)
TOLERANCES = {
    "atol": [1e-3, None, {jnp.float32: 1e-3}],
    "rtol": [1e-3, None, {"float32": 1e-3}],
    "eps": [None, 1e-3],
}
CHECK = {
    "kwargs": [{}, {"y": jnp.ones(2)}],
    "checks": [["backward"], ["forward", "batched"]],
    "order": [1, 2],
    "transforms": [["functional_vjp"]],
    "budget": [1, 50],
    "masked": [True],
    "names": [["x"], ["x", "y"]],
    "reference": [jnp.sin, gradproof.by_hand(np.sin, vjp=lambda x, v: np.cos(x) * v)],
    "domain": [(-5, 5), {"x": (-5, None)}],
    "wrt": ["x", 0],
    "vjp": [lambda x, v: jnp.cos(x) * v, raises],
    "jac": [jnp.eye(2)],
}


def inputs_of(points):
    return st.one_of(points, points, st.lists(points, max_size=2).map(tuple))


@fuzz(60)
@given(V.calls, inputs_of(V.points), V.options(**CHECK))
def test_check(fn, inputs, chosen):
    asked = {"seed": 0, "budget": 300, **V.made(chosen)}
    with V.lawful():
        assert str(check(V.made(fn), V.made(inputs), **asked))


@fuzz(30)
@given(
    V.calls,
    V.points.map(lambda point: (point,)) | V.anything,
    V.mostly(["2", "True"]),
    V.options(**TOLERANCES, modes=[["fwd"], "rev", ["fwd", "rev"], ["back"]]),
)
def test_check_grads(f, args, order, chosen):
    order = min(V.made(order), 2) if isinstance(V.made(order), int) else V.made(order)
    with V.lawful():
        assert check_grads(V.made(f), V.made(args), order, **V.made(chosen)) is None


@fuzz(40)
@given(
    st.sampled_from([(check_jvp, jvp_of_sine), (check_vjp, vjp_of_sine)]),
    V.calls,
    st.one_of(st.none(), V.calls),
    V.points.map(lambda point: (point,)) | V.anything,
    V.options(**TOLERANCES),
)
def test_rules(face, f, rule, args, chosen):
    check, right = face
    with V.lawful():
        given_rule = right if rule is None else V.made(rule)
        assert check(V.made(f), given_rule, V.made(args), **V.made(chosen)) is None
