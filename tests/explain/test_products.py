"""Causes in few bits: from slopes and shifts, where single entries say little."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gradproof import Cause
from gradproof._data.space import Slot, Space
from gradproof._explain.products import explanation_of_products
from gradproof._low_precision.combine import ProductBlock

SHAPE = (16, 24)
EPS = 2.0**-7
GENERATOR = np.random.default_rng(0)
EXACT = GENERATOR.normal(size=(4, 16 * 24))
POINT = GENERATOR.normal(size=16 * 24)
ROUNDING = EPS * EXACT * GENERATOR.uniform(-0.5, 0.5, EXACT.shape)


def products(change: Callable[[np.ndarray], np.ndarray]) -> ProductBlock:
    """Gradients of 16 bits that a mistake has changed."""
    claimed = np.stack([change(row.reshape(SHAPE)).reshape(-1) for row in EXACT + ROUNDING])
    errors = np.sqrt(np.mean(ROUNDING**2, axis=0))
    return ProductBlock(Space((Slot("x", SHAPE),)), claimed, EXACT, (errors,), (0,), EPS / 2)


def explained_products(evidence: ProductBlock) -> tuple[str, tuple[Cause, ...]]:
    return explanation_of_products(evidence, POINT, Space((Slot("y", (3,)),)), np.ones(3))


def row(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    scale = np.ones((16, 1))
    scale[5] = factor
    return lambda g: scale * g


TABLE: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str, str, str]] = {
    "a hundredth": (lambda g: 1.01 * g, "factor", "multiplied by 1.01", "everywhere"),
    "a mean": (lambda g: g / 16, "factor", "N = 16 being dimension 0 of x", "everywhere"),
    "a row": (row(1.25), "factor", "multiplied by 1.25", "x[5, :]"),
    "minus": (lambda g: -g, "sign", "flipped", "everywhere"),
    "nothing": (np.zeros_like, "zero", "nothing arrives at x", "everywhere"),
    "no row": (row(0.0), "zero", "the wrong entries are claimed to be 0", "x[5, :]"),
    "shift": (lambda g: g + 0.05, "missing term", "0.05", ""),
    "transposed": (lambda g: g.T.reshape(16, 24), "transposed", "in memory", "everywhere"),
    "a term": (
        lambda g: g + g.sum(1, keepdims=True) * POINT.reshape(SHAPE),
        "missing term",
        "proportional to x along axis 1",
        "",
    ),
    "an input": (lambda g: g * POINT.reshape(SHAPE), "factor", "multiplied by x", ""),
}


@pytest.mark.parametrize("key", TABLE)
def test_a_mistake_in_few_bits_is_named_and_told_where(key):
    change, name, words, place = TABLE[key]
    where, causes = explained_products(products(change))
    assert causes
    assert causes[0].name == name
    assert words in causes[0].message
    assert where == place or not place


def test_honest_rounding_is_given_no_cause():
    assert explained_products(products(lambda g: g)) == ("", ())


def test_noise_is_given_no_cause():
    noise = np.random.default_rng(1)
    _, causes = explained_products(products(lambda g: g * (1 + 0.2 * noise.normal(size=g.shape))))
    assert causes == ()


def test_what_is_not_a_number_is_given_no_cause():
    assert explained_products(products(lambda g: g * np.nan)) == ("", ())
