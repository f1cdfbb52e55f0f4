"""Causes in few bits: from slopes and shifts, where single entries say little."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gradproof._data.space import Slot
from gradproof._explain.evidence import Sampled, of_array

SHAPE = (16, 24)
EPS = 2.0**-7
GENERATOR = np.random.default_rng(0)
EXACT = GENERATOR.normal(size=(4, 16 * 24))
ROUNDING = EPS * EXACT * GENERATOR.uniform(-0.5, 0.5, EXACT.shape)


def sampled(change: Callable[[np.ndarray], np.ndarray]) -> Sampled:
    """Gradients of 16 bits that a mistake has changed."""
    got = np.stack([change(row.reshape(SHAPE)).reshape(-1) for row in EXACT + ROUNDING])
    sigma = np.sqrt(np.mean(ROUNDING**2, axis=0))
    return Sampled(got, EXACT, sigma, Slot("x", SHAPE), EPS)


def row(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    scale = np.ones((16, 1))
    scale[5] = factor
    return lambda g: scale * g


TABLE: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str, str, str]] = {
    "a hundredth": (lambda g: 1.01 * g, "factor", "multiplied by 1.01", "all of x"),
    "a mean": (lambda g: g / 16, "factor", "N = 16 being dimension 0 of x", "all of x"),
    "a row": (row(1.25), "factor", "multiplied by 1.25", "x[5, :]"),
    "minus": (lambda g: -g, "sign", "flipped", "all of x"),
    "nothing": (np.zeros_like, "zero", "nothing arrives at x", "all of x"),
    "no row": (row(0.0), "zero", "the wrong entries are claimed to be 0", "x[5, :]"),
    "shift": (lambda g: g + 0.05, "offset", "0.05", ""),
    "rolled": (lambda g: np.roll(g, 1), "rolled", "by 1", "all of x"),
    "reversed": (lambda g: g[::-1], "reversed", "along axis 0", "all of x"),
}


@pytest.mark.parametrize("key", TABLE)
def test_a_mistake_in_few_bits_is_named_and_told_where(key):
    change, name, words, place = TABLE[key]
    where, causes = of_array(sampled(change))
    assert causes
    assert causes[0].name == name
    assert words in causes[0].message
    assert where == place or not place


def test_honest_rounding_is_given_no_cause():
    assert of_array(sampled(lambda g: g)) == ("", ())


def test_a_sum_is_believed_if_it_predicts_the_numbers_and_not_because_its_bar_is_wide():
    """Sums have the bars of all their terms: numbers far off may lie within, and prove nothing."""
    spread = sampled(lambda g: np.broadcast_to(g.sum(axis=0, keepdims=True), g.shape))
    assert of_array(spread)[1][0].name == "extra sum"
    wide = Sampled(spread.got * 0 + 1.0, EXACT, 10 * np.ones(EXACT.shape[1]), spread.slot, EPS)
    near = Sampled(3e2 * wide.got, EXACT, wide.sigma, spread.slot, EPS)
    assert "extra sum" not in {cause.name for cause in of_array(near)[1]}


def test_noise_is_given_no_cause():
    noise = np.random.default_rng(1)
    _, causes = of_array(sampled(lambda g: g * (1 + 0.2 * noise.normal(size=g.shape))))
    assert causes == ()


def test_what_is_not_a_number_is_given_no_cause():
    assert of_array(sampled(lambda g: g * np.nan)) == ("", ())
