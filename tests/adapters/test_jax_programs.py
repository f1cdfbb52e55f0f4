"""Compiled programs are kept between checks, and never stand for a function that does else."""

import functools

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402  # where it is installed
import numpy as np  # noqa: E402
from jax.experimental.ode import odeint  # noqa: E402

import gradproof  # noqa: E402
from gradproof.jax._adapter import build  # noqa: E402
from gradproof.jax._programs import compiled_call  # noqa: E402
from x64 import enable_x64  # noqa: E402

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


def _maps(fn, *arrays):
    with enable_x64(True):
        return build(fn, [jnp.asarray(array, dtype=jnp.float64) for array in arrays])


def _is_compiled(map_, v):
    """Whether a VJP is asked of a compiled program; and what it is."""
    with map_.around():
        return map_._flat is not None, map_.vjp(v)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.tanh(x @ x.T),
        lambda x: jax.nn.relu(x) * jax.nn.silu(x),  # custom rules, of JAX's
        lambda x: jnp.linalg.solve(x + 9 * jnp.eye(4), x),
        lambda x: jax.lax.scan(lambda c, y: (jnp.sin(c) + y, c * y), x[0], x)[1],
        lambda x: jax.jit(lambda x: jnp.exp(1j * x))(x),
    ],
    ids=["matmul", "rules of JAX's", "solve", "scan", "complex"],
)
def test_flat_programs_give_what_jax_gives(fn):
    map_, draws = _maps(fn, X), np.random.default_rng(1)
    u, w = draws.normal(size=map_.domain.size), draws.normal(size=map_.domain.size)
    v = draws.normal(size=map_.codomain.size)
    compiled, found = _is_compiled(map_, v)
    assert compiled
    asked = [found, map_.jvp(u), *map_.transposed_vjp(u, v), map_.value(map_.point + 0.01 * u)]
    asked += [map_.vjp_batch(np.stack([v, -v]), "vmap"), map_.jvp_batch(np.stack([u, w]))]
    map_.__dict__["_flat"] = None
    plain = [map_.vjp(v), map_.jvp(u), *map_.transposed_vjp(u, v)]
    plain += [map_.value(map_.point + 0.01 * u)]
    plain += [map_.vjp_batch(np.stack([v, -v]), "vmap"), map_.jvp_batch(np.stack([u, w]))]
    for one, other in zip(asked, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_a_rule_of_the_users_runs_as_it_is():
    calls = []

    @jax.custom_vjp
    def fn(x):
        return jnp.tanh(x)

    def backward(y, g):
        calls.append(float(g[0, 0]))  # goes by the numbers it is handed
        return (g * (1 - y * y),)

    fn.defvjp(lambda x: (jnp.tanh(x), jnp.tanh(x)), backward)
    map_ = _maps(lambda x: 2 * fn(x), X)
    for k in (1.0, 2.0):
        assert not _is_compiled(map_, np.full(16, k))[0]
    assert calls == [2.0, 4.0]


def test_a_function_that_goes_by_its_calls_is_not_compiled():
    calls = []

    def fn(x):
        calls.append(x)
        return len(calls) * jnp.sin(x)

    assert not _is_compiled(_maps(fn, X), np.ones(16))[0]


def test_a_rule_of_the_users_for_an_operation_of_jaxs_is_found():
    from jax.interpreters import ad

    operation = jax.lax.sinh_p
    known = ad.primitive_jvps[operation]
    map_ = _maps(jnp.sinh, X)
    assert _is_compiled(map_, np.ones(16))[0]
    try:
        ad.defjvp(operation, lambda g, x: 1.1 * g * jnp.cosh(x))
        wrong = _maps(jnp.sinh, X)
        compiled, found = _is_compiled(wrong, np.ones(16))
    finally:
        ad.primitive_jvps[operation] = known
    assert not compiled
    np.testing.assert_allclose(found, 1.1 * np.cosh(np.ravel(X)), rtol=1e-6)


def test_a_warm_check_in_double_precision_compiles_nothing_and_calls_the_function_a_few_times(
    compilations,
):
    calls = []

    def fn(x):
        calls.append(x)
        return jax.nn.relu(jnp.sin(x) + 2) @ x.T

    with enable_x64(True):
        x = jnp.asarray(X, dtype=jnp.float64)
        for _ in range(2):
            gradproof.check(fn, (x,), seed=1)
        before, _ = compilations.count, calls.clear()
        assert gradproof.check(fn, (x,), seed=1).verdict.value == "passed"
    assert compilations.count == before
    assert len(calls) <= 8


def test_rules_made_of_jaxs_functions_are_told_apart():
    sine, u = np.sin(np.ravel(X)), np.full(16, -0.5)
    expected = {True: np.minimum(np.maximum(u, sine), np.ravel(X)), False: sine}
    for which in (True, False):
        fn = jax.custom_jvp(jnp.sin)
        fn.defjvps(functools.partial(jax.lax.cond, which, jnp.clip, jnp.where))
        map_ = _maps(fn, X)
        found = map_.jvp(u)
        assert map_._flat is not None
        np.testing.assert_allclose(found, expected[which], rtol=1e-6)


def test_one_fused_run_settles_an_ordinary_function_in_double_precision():
    called = []

    def fn(x, w):
        called.append(isinstance(x, jax.core.Tracer))
        return jnp.tanh(x @ w)

    with enable_x64(True):
        draws = np.random.default_rng(0)
        inputs = tuple(jnp.asarray(draws.normal(size=size)) for size in ((3, 4), (4, 2)))
        report = gradproof.check(fn, inputs, seed=1)
    assert report.verdict.value == "passed", str(report)
    assert called.count(True) == 1  # traced once, at both points
    assert called.count(False) <= 6


@pytest.mark.parametrize("scale", [1.0, 1.01])
def test_a_rule_is_judged_likewise_in_double_precision(scale):
    with enable_x64(True):
        report = gradproof.check(ruled(scale), (jnp.asarray(X, jnp.float64),), seed=1)
    assert report.verdict.value == ("passed" if scale == 1 else "failed"), str(report)


def test_another_point_is_not_called_before_its_value_is_asked_for():
    called = []

    def fn(x):
        called.append(1)
        return jnp.sin(x)

    with enable_x64(True):
        map_ = build(fn, (jnp.asarray(X, jnp.float64),))
        map_.vjp(np.ones(16))
        before = len(called)
        far = map_.map_at(map_.point + 1.0)
        assert np.allclose(far.vjp(np.ones(16)), np.cos(far.point))
        assert len(called) == before
        assert np.allclose(far.kept_value(), np.sin(far.point))
        assert len(called) == before + 1


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
    verdicts = [gradproof.check(make(factor), (x,)).verdict.value for factor in (1.0, 1.5, 1.0)]
    assert verdicts == ["passed", "failed", "passed"]


def test_a_function_that_jaxs_rule_is_handed_is_compiled_with_it():
    """What the rule of `odeint` keeps is not yet known when it is traced."""
    with enable_x64(True):
        y = jnp.asarray([0.5, 1.0])
        fn = lambda y: odeint(lambda y, _: -jnp.sin(y), y, jnp.asarray([0.0, 0.5]))  # noqa: E731
        map_ = build(fn, (y,))
        assert map_._flat is not None
        assert np.all(map_.vjp(np.ones(4)) > 1.0)
