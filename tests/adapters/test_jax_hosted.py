"""Operations of JAX that NumPy runs in its place are the same."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

from gradproof.jax._constants import double_precision  # noqa: E402  # needs JAX
from gradproof.jax._hosted import ELEMENTWISE, OTHERS, REDUCTIONS, numpy_result  # noqa: E402
from gradproof.jax._rounding import Rounded  # noqa: E402

SPECIAL = [-np.inf, -2.5, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0, np.inf, np.nan]
X = np.array([SPECIAL, SPECIAL[::-1]])
UNARY = ["neg", "abs", "sign", "sqrt", "exp", "log", "expm1", "log1p", "tanh", "sin", "cos"]
BINARY = ["add", "sub", "mul", "div", "max", "min", "eq", "ne", "lt", "le", "gt", "ge"]


def of(operation, *arrays):
    """Every operation of a function, by JAX and by NumPy, with the same arguments."""
    with double_precision(), np.errstate(all="ignore"):
        program = jax.make_jaxpr(operation)(*arrays)
        known = dict(zip(program.jaxpr.invars, map(np.asarray, arrays), strict=True))

        def read(atom):
            is_literal = isinstance(atom, jax.extend.core.Literal)
            return np.asarray(atom.val, atom.aval.dtype) if is_literal else known[atom]

        for equation in program.jaxpr.eqns:
            values = [read(atom) for atom in equation.invars]
            bound = equation.primitive.get_bind_params(equation.params)
            functions, bound = bound if isinstance(bound, tuple) else ((), bound)
            theirs = equation.primitive.bind(*functions, *map(jnp.asarray, values), **bound)
            if not equation.primitive.multiple_results:
                theirs = [theirs]
            yield equation.primitive.name, numpy_result(equation, values), np.asarray(theirs[0])
            known.update(zip(equation.outvars, map(np.asarray, theirs), strict=True))


def are_same(ours, theirs) -> bool:
    alike = ours.shape == theirs.shape and ours.dtype == theirs.dtype
    return alike and bool(np.allclose(ours, theirs, rtol=1e-14, atol=0, equal_nan=True))


OPERATIONS = {
    **{name: (getattr(jax.lax, name), (X,)) for name in UNARY},
    **{name: (getattr(jax.lax, name), (X, X.T.reshape(2, 10)[::-1])) for name in BINARY},
    "broadcast": (lambda x: jnp.broadcast_to(x[:, None], (2, 3, 10)) + 1.0, (X,)),
    "reshape": (lambda x: jnp.ravel(x.T), (X,)),
    "squeeze": (lambda x: jnp.squeeze(x[None]), (X,)),
    "concatenate": (lambda x: jnp.concatenate([x, 2.0 * x], 1), (X,)),
    "reductions": (lambda x: (x.sum(0), x.sum(), x.max(1), x.min(1)), (X,)),
    "power": (lambda x: x**3 + x**-2, (X,)),
    "square": (jax.lax.square, (X,)),
    "where": (lambda x: jax.lax.select(x > 0, x, -x), (X,)),
    "product": (lambda x: jnp.tanh(x[:, :4]) @ x[:, :4].T, (np.ones((2, 10)) / 3,)),
    "batched product": (lambda x: jax.vmap(jnp.dot)(x, x), (X,)),
    "whole numbers": (lambda x: x * (jnp.arange(20).reshape(2, 10) // 3 - 7), (X,)),
    "cast": (lambda x: (x > 0).astype(x.dtype) * jax.lax.stop_gradient(x), (X,)),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_that_of_jax_or_left_to_it(name: str) -> None:
    fn, arrays = OPERATIONS[name]
    for primitive, ours, theirs in of(fn, *arrays):
        assert ours is None or are_same(ours, theirs), primitive


def test_each_is_run_by_some_of_these() -> None:
    run = {
        primitive
        for fn, arrays in OPERATIONS.values()
        for primitive, ours, _ in of(fn, *arrays)
        if ours is not None
    }
    missing = {*ELEMENTWISE, *REDUCTIONS, *OTHERS} - run
    assert missing <= {"add_any", "copy", "copy_p", "stop_gradient"}, missing


def test_what_numpy_does_otherwise_is_left_to_jax() -> None:
    whole = {name for name, ours, _ in of(lambda n: jax.lax.div(n, n + 2), np.arange(9))
             if ours is None}  # fmt: skip
    assert whole == {"div"}
    batched = {name: ours for name, ours, _ in of(OPERATIONS["batched product"][0], X)}
    assert batched["dot_general"] is None


def test_a_run_rounds_the_forward_alike_for_every_cotangent() -> None:
    rng = np.random.default_rng(0)
    x, *cotangents = rng.normal(size=(4, 5))

    def gradient(x, v):
        return jax.vjp(lambda x: jnp.tanh(jnp.cumsum(jnp.sin(x) * 3)), x)[1](v)

    def run() -> Rounded:
        return Rounded(2.0**-24, 2.0**-149, 7, {})

    with double_precision():
        shared = run()
        for v in cotangents:
            (again,), (anew,) = (each.run("vjp", gradient, [x, v]) for each in (shared, run()))
            assert np.array_equal(np.asarray(again), np.asarray(anew))
