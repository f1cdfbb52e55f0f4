"""Functions of JAX that close over NumPy arrays: JAX 0.10 takes them for those of another width."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import gradproof  # noqa: E402
from gradproof import Verdict  # noqa: E402

INDEX = np.array([0, 2, 2, 1])
MATRIX = np.random.default_rng(0).standard_normal((4, 4))
FUNCTIONS = {
    "index": lambda x: jnp.tanh(x[INDEX]),
    "loop": lambda x: jax.lax.fori_loop(0, 2, lambda _, y: jnp.tanh(MATRIX @ y)[INDEX], x),
}
DEFECT = """
    import jax, numpy as np, jax.numpy as jnp
    index = np.array([0, 2, 2, 1])
    def taken(x):
        return jnp.sin(x[index])
    with jax.enable_x64(True):
        program = jax.make_jaxpr(taken)(jnp.arange(4.0))
    try:
        taken(jnp.arange(4.0))
    except TypeError as error:
        print("int64, int32" in str(error))
    import gradproof
    gradproof.check(jnp.sin, (jnp.arange(4.0),), seed=0)
    taken(jnp.arange(4.0))
"""


def point() -> jax.Array:
    return jnp.asarray([0.3, -1.1, 0.7, 1.9], dtype=jnp.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_with_numpy_constants_passes_in_double_and_runs_afterwards(name) -> None:
    fn = FUNCTIONS[name]
    before = fn(point())
    report = gradproof.check(fn, (point(),), seed=0, checks=["backward"])
    assert report.verdict is Verdict.PASSED, str(report)
    assert report["backward"].reference == "the same function in float64"
    after = fn(point())
    assert after.dtype == before.dtype == jnp.float32
    np.testing.assert_array_equal(after, before)


def test_a_wrong_rule_beside_a_numpy_constant_fails() -> None:
    @jax.custom_vjp
    def fn(x: jax.Array) -> jax.Array:
        return jnp.tanh(x[INDEX])

    fn.defvjp(lambda x: (fn(x), x), lambda x, g: (jnp.zeros_like(x).at[INDEX].set(g),))
    assert gradproof.check(fn, (point(),), seed=0, checks=["backward"]).verdict is Verdict.FAILED


def test_a_constant_is_one_within_a_program_and_never_another_array() -> None:
    def constants(array: np.ndarray) -> list[np.ndarray]:
        def fn(x: jax.Array) -> jax.Array:
            return (x * array) @ (x + array)

        gradproof.check(fn, (point()[:3],), seed=0, checks=["backward"])
        return list(jax.make_jaxpr(fn)(point()[:3]).consts)

    for number in range(5):  # each may lie where the one before it lay
        found = constants(np.arange(3.0) + number)
        assert [each.tolist() for each in found] == [[number, number + 1.0, number + 2.0]]


@pytest.mark.skipif(jax.__version__ != "0.10.2", reason="a defect of JAX 0.10.2")
def test_the_defect_is_there_and_a_check_mends_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DEFECT)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"]
