"""The command line makes arrays and layers of JAX."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from gradproof import cli
from gradproof._adapters.jax_specs import array_from_spec, construct
from gradproof._specs import parse


@pytest.mark.parametrize(
    "text", ["float32[2,3]", "bfloat16[4]", "float64[2]", "complex128[2]", "int32[3]"]
)
def test_arrays_have_the_dtype_and_shape_described(text):
    array = array_from_spec(parse(text), np.random.default_rng(0))
    assert f"{array.dtype}{list(array.shape)}".replace(" ", "") == text


def test_a_floating_array_that_is_not_differentiated_is_refused():
    with pytest.raises(ValueError, match="floating arrays of JAX are differentiated"):
        array_from_spec(parse("float32[2]!nograd"), np.random.default_rng(0))


def test_layers_are_seeded():
    eqx = pytest.importorskip("equinox")
    one, other = (construct(eqx.nn.Linear, (3, 2), {}, seed=4) for _ in range(2))
    assert jnp.array_equal(one.weight, other.weight)
    assert construct(eqx.nn.Linear, (3, 2), {}, seed=4, dtype="float64").weight.dtype == "float64"


def test_the_command_checks_a_function_of_jax(capsys):
    assert cli.main(["check", "jax.nn:softmax", "float32[8,4]", "--framework", "jax"]) == 0
    assert "float32[8, 4]" in capsys.readouterr().out
