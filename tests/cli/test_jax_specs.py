"""Described arrays of JAX, and its functions on the command line."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradproof import cli
from gradproof._adapters.jax.samples import array_from_spec, construct
from gradproof._data.specs import parse

OPS = """
import jax
import jax.numpy as jnp

@jax.custom_vjp
def wrong(x):
    return jnp.sin(x)

wrong.defvjp(lambda x: (jnp.sin(x), x), lambda x, v: (1.1 * v * jnp.cos(x),))

def right(state, scale=1.0):
    return state["a"] * scale + state["b"][0]
"""


@pytest.fixture
def ops(tmp_path, monkeypatch):
    file = tmp_path / "jax_ops.py"
    file.write_text(OPS)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return file


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        (["wrong", "float64[3]"], 1),
        (["right", "{'a': 'float64[3]', 'b': ['float64[3]']}", "--kwarg", "scale=2.0"], 0),
    ],
)
def test_functions_of_jax_are_checked(ops, argv, status, capsys):
    name, *rest = argv
    more = ["--framework", "jax", "--checks", "backward"]
    assert cli.main(["check", f"{ops}:{name}", *rest, *more]) == status
    assert f"gradproof  {name}  " in capsys.readouterr().out


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float16", "float32", "float64", "complex128", "int64", "bool"]
)
def test_a_described_array_has_its_dtype_and_shape_and_the_configuration_stays(dtype):
    before = jax.config.jax_enable_x64
    array = array_from_spec(parse(f"{dtype}[2,3]"), np.random.default_rng(0), "cpu")
    assert array.dtype == jnp.dtype(dtype)
    assert array.shape == (2, 3)
    assert jax.config.jax_enable_x64 == before


def test_what_jax_has_not_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="--wrt chooses"):
        array_from_spec(parse("float64[2]!nograd"), rng)
    with pytest.raises(RuntimeError, match="JAX has 1 of cpu"):
        array_from_spec(parse("float64[2]"), rng, "cpu:9")


def test_a_factory_is_called():
    assert construct(lambda a, b: a + b, (1,), {"b": 2}, seed=3) == 3
