"""The command line makes layers of JAX."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from gradproof._adapters.jax.samples import construct


def test_layers_of_equinox_are_seeded():
    eqx = pytest.importorskip("equinox")
    one, other = (construct(eqx.nn.Linear, (3, 2), {}, seed=4) for _ in range(2))
    assert jnp.array_equal(one.weight, other.weight)
    assert construct(eqx.nn.Linear, (3, 2), {}, seed=4, dtype="float64").weight.dtype == "float64"


def test_layers_of_flax_are_seeded():
    nnx = pytest.importorskip("flax.nnx")
    one, other = (construct(nnx.Linear, (3, 2), {}, seed=4) for _ in range(2))
    assert jnp.array_equal(one.kernel[...], other.kernel[...])
