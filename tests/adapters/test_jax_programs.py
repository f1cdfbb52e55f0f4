"""Compiled programs are kept between checks, and never stand for a function that does else."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradproof
from x64 import enable_x64

X = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)), dtype=jnp.float32)


@pytest.fixture(scope="module")
def compilations() -> list[str]:
    """A name for every compilation from now on."""
    events: list[str] = []

    def compiled(event: str, duration: float, **_: object) -> None:
        if event.endswith("backend_compile_duration"):
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(compiled)
    return events


def ruled(scale):
    """A custom rule that is right for a scale of 1."""

    @jax.custom_vjp
    def fn(x):
        return jnp.tanh(x)

    fn.defvjp(lambda x: (jnp.tanh(x), jnp.tanh(x)), lambda y, g: (scale * g * (1 - y * y),))
    return fn


def check(fn, x=X, **options):
    return gradproof.check(fn, (x,), **{"seed": 1, **options})


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(
    "make", [lambda: lambda x: jnp.tanh(x @ x.T).sum(0), lambda: jax.jit(ruled(1.0))]
)
def test_a_second_check_compiles_nothing(make, double, compilations):
    fn = make()
    with enable_x64(double):
        x = jnp.asarray(X, dtype=float)
        for _ in range(2):
            report = check(fn, x)
        before = len(compilations)
        again = check(fn, x)
    assert again.verdict == "passed"
    assert len(compilations) == before
    assert [one.verdict for one in again.checks] == [one.verdict for one in report.checks]


def test_a_rule_that_changes_between_checks_is_judged_as_it_is_then():
    scale = [1.0]
    fn = jax.custom_vjp(lambda x: jnp.tanh(x))
    fn.defvjp(lambda x: (jnp.tanh(x), jnp.tanh(x)), lambda y, g: (scale[0] * g * (1 - y * y),))
    verdicts = []
    for scale[0] in (1.0, 1.1, 1.0):
        verdicts.append(str(check(fn, checks=["backward"]).verdict))
    assert verdicts == ["passed", "failed", "passed"]


@pytest.mark.parametrize(
    ("first", "second"),
    [(2.0, 3.0), (np.arange(1.0, 5.0), np.arange(1.0, 5.0) + 1e-3)],
    ids=["number", "array"],
)
def test_what_a_function_closes_over_is_that_of_this_call(first, second):
    """The rule knows one constant: with the other the derivative is wrong."""

    def closing(constant):
        fn = jax.custom_vjp(lambda x: constant * x)
        fn.defvjp(lambda x: (constant * x, None), lambda _, g: (g * first,))
        return fn

    with enable_x64(True):
        x = jnp.asarray(X, dtype=jnp.float64)
        options = {"checks": ["backward"], "rtol": 1e-6}
        verdicts = [str(check(closing(each), x, **options).verdict) for each in (first, second)]
    assert verdicts == ["passed", "failed"]


def test_a_warm_check_in_double_precision_calls_the_function_a_few_times():
    called = []

    def fn(x):
        called.append(isinstance(x, jax.core.Tracer))
        return jax.nn.relu(jnp.sin(x) + 2) @ x.T

    with enable_x64(True):
        x = jnp.asarray(X, dtype=jnp.float64)
        check(fn, x)
        called.clear()
        assert check(fn, x).verdict == "passed"
    assert len(called) <= 8


def test_a_rule_of_the_users_for_an_operation_of_jaxs_is_found():
    from jax.interpreters import ad

    operation = jax.lax.sinh_p
    known = ad.primitive_jvps[operation]
    assert check(jnp.sinh, checks=["forward"]).verdict == "passed"
    try:
        ad.defjvp(operation, lambda g, x: 1.1 * g * jnp.cosh(x))
        wrong = check(jnp.sinh, checks=["forward"])
    finally:
        ad.primitive_jvps[operation] = known
    assert wrong.verdict == "failed"


def root(factor):
    """The root of y^3 + a y = 1; its tangent is that times `factor`."""

    def fn(a):
        return jax.lax.custom_root(
            lambda y: y**3 + a * y - 1,
            jnp.zeros_like(a),
            lambda f, start: jax.lax.fori_loop(
                0, 60, lambda _, y: y - (y**3 + a * y - 1) / (3 * y * y + a), start
            ),
            lambda g, y: factor * y / g(jnp.ones_like(y)),
        )

    return fn


def solved(factor):
    """y of (1 + x^2) y = 1, with a transposed solve that is that times `factor`."""

    def fn(x):
        return jax.lax.custom_linear_solve(
            lambda y: (1 + x * x) * y,
            jnp.ones_like(x),
            lambda _, b: b / (1 + x * x),
            lambda _, b: factor * b / (1 + x * x),
        )

    return fn


@pytest.mark.parametrize("make", [root, solved])
def test_a_solver_that_is_an_argument_of_jaxs_rule_counts(make):
    x = jnp.asarray([0.5, 1.0, 2.0], dtype=jnp.float32)
    checks = ["backward", "forward"]
    verdicts = [str(check(make(each), x, checks=checks).verdict) for each in (1.0, 1.5)]
    assert verdicts == ["passed", "failed"]
