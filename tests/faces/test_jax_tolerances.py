"""JAX's check_grads: the caller's tolerances reach every check; a zero by structure is verified."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradproof
from gradproof.jax import check_grads
from x64 import enable_x64

pytestmark = pytest.mark.parametrize("wide", [True, False], ids=["float64", "float32"])
MATRIX = np.random.default_rng(0).normal(size=(3, 4))


@pytest.fixture(autouse=True)
def widths(wide):
    with warnings.catch_warnings(), enable_x64(wide):
        warnings.simplefilter("error")
        yield


def point():
    return jnp.linspace(0.2, 1.0, 4)


def sine(backward):
    fn = jax.custom_vjp(lambda x: jnp.sin(x))
    fn.defvjp(lambda x: (jnp.sin(x), x), backward)
    return fn


def accepts(fn, **tolerances):
    try:
        check_grads(fn, (point(),), order=1, modes=["rev"], **tolerances)
    except gradproof.DerivativeError:
        return False
    return True


@pytest.mark.parametrize(
    ("part", "rtol", "passes"), [(1e-4, 1e-2, True), (1e-4, 1e-6, False), (1e-1, 1e-3, False)]
)
def test_a_backward_must_be_linear_to_the_callers_tolerance(part, rtol, passes):
    """As an adaptive solver: the cotangent goes through a rounding of its own to this part."""
    solved = sine(lambda x, g: (g * jnp.cos(x) * (1 + part * jnp.sin(1e3 * g)),))
    assert accepts(solved, rtol=rtol) is passes


def test_an_offset_fails_below_any_tolerance():
    assert not accepts(sine(lambda x, g: (g * jnp.cos(x) + 1e-3,)), rtol=1e-1, atol=1e-1)


LINEAR = {
    "matrix": lambda x: jnp.asarray(MATRIX, x.dtype) @ x,
    "gather": lambda x: x[jnp.asarray([0, 2])],
    "relu": lambda x: jax.nn.relu(x - 0.5),
}


@pytest.mark.parametrize("name", LINEAR)
def test_a_second_derivative_that_is_zero_by_structure_is_verified(name):
    check_grads(LINEAR[name], (point(),), order=2)


def test_the_third_derivative_of_a_parabola_is_verified():
    check_grads(lambda x: x * x, (point(),), order=3)


def with_second(slope):
    """The parabola's gradient, by a rule whose own derivative is `slope` and should be 2."""
    gradient = jax.custom_jvp(lambda x: 2 * x)
    gradient.defjvps(lambda t, out, x: slope * t)
    fn = jax.custom_jvp(lambda x: x * x)
    fn.defjvps(lambda t, out, x: gradient(x) * t)
    return fn


@pytest.mark.parametrize("modes", ["fwd", "rev"])
def test_a_second_derivative_of_zero_where_it_is_not_fails(modes):
    check_grads(with_second(2.0), (point(),), order=2, modes=modes)
    with pytest.raises(gradproof.DerivativeError):
        check_grads(with_second(0.0), (point(),), order=2, modes=modes)
