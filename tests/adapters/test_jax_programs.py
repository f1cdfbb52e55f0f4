"""Compiled programs are kept between checks, and never stand for a function that does else."""

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402  # where it is installed
import numpy as np  # noqa: E402

import gradproof  # noqa: E402
from gradproof._adapters.jax.programs import compiled_call  # noqa: E402

X = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)), dtype=jnp.float32)


class Compilations:
    def __init__(self):
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._heard)

    def _heard(self, event, duration, **_):
        self.count += event.endswith("backend_compile_duration")


@pytest.fixture(scope="module")
def compilations():
    return Compilations()


def ruled(scale):
    """A custom rule that is right for a scale of 1."""

    @jax.custom_vjp
    def fn(x):
        return jnp.tanh(x)

    fn.defvjp(lambda x: (jnp.tanh(x), jnp.tanh(x)), lambda y, g: (scale * g * (1 - y * y),))
    return fn


@pytest.mark.parametrize(
    "make",
    [lambda: lambda x: jnp.tanh(x @ x.T).sum(0), lambda: ruled(1.0), lambda: jax.jit(ruled(1.0))],
    ids=["plain", "custom_vjp", "jit of custom_vjp"],
)
def test_a_second_check_in_single_precision_compiles_nothing(make, compilations):
    fn = make()
    for _ in range(2):
        report = gradproof.check(fn, (X,), seed=1)
    before = compilations.count
    again = gradproof.check(fn, (X,), seed=1)
    assert again.verdict.value == "passed"
    assert compilations.count == before
    assert [one.verdict for one in again.checks] == [one.verdict for one in report.checks]


def test_a_rule_that_changes_between_checks_is_judged_as_it_is_then():
    scale = [1.0]

    @jax.custom_vjp
    def fn(x):
        return jnp.tanh(x)

    fn.defvjp(lambda x: (jnp.tanh(x), jnp.tanh(x)), lambda y, g: (scale[0] * g * (1 - y * y),))
    verdicts = []
    for scale[0] in (1.0, 1.1, 1.0):
        verdicts.append(gradproof.check(fn, (X,)).verdict.value)
    assert verdicts == ["passed", "failed", "passed"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (2.0, 3.0),
        (0.0, -0.0),
        (np.arange(3.0), np.arange(3.0) + 1e-12),
        (np.arange(3.0, dtype=np.float32), np.arange(3, dtype=np.int32)),
    ],
    ids=["number", "sign of zero", "array", "dtype"],
)
def test_what_a_function_closes_over_is_that_of_this_call(first, second):
    x = jnp.asarray([1.0, 2.0, 3.0], dtype=jnp.float32)
    for constant in (first, second, first):

        def fn(x, constant=constant):
            return (x * constant, constant / jnp.abs(x))

        got = compiled_call({}, "value", fn, [x])
        for one, other in zip(got, fn(x), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(np.signbit(one), np.signbit(other))
            np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_callback_is_called_as_it_is_in_this_call():
    def made(factor):
        def fn(x):
            kind = jax.ShapeDtypeStruct(x.shape, x.dtype)
            return (jax.pure_callback(lambda x: factor * x, kind, x),)

        return fn

    for factor in (2.0, 3.0):
        (got,) = compiled_call({}, "value", made(np.float32(factor)), [X])
        np.testing.assert_array_equal(got, np.float32(factor) * X)


def test_a_function_that_steers_by_values_runs_as_it_is():
    def fn(x):
        return (x if x[0, 0] > 0 else -x,)

    programs = {}
    (got,) = compiled_call(programs, "value", fn, [X])
    np.testing.assert_array_equal(got, fn(X)[0])
    assert programs["value"] is fn
