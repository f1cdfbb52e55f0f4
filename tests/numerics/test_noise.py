"""The noise of a function, from a table of differences."""

from __future__ import annotations

import numpy as np
import pytest

from gradproof._measure import noise

POINT, DIRECTION = np.array([0.7, -1.3]), np.array([0.9, 1.6])


def smooth(x):
    return np.array([np.sin(3 * x[0]) * np.exp(x[1]), x[0] ** 2 + 5])


@pytest.mark.parametrize("size", [1e-12, 1e-7, 1e-4])
def test_it_is_told_of_single_outputs(size):
    draws = np.random.default_rng(0)
    for _ in range(20):
        found = noise.along(lambda x: smooth(x) + size * draws.normal(size=2), POINT, DIRECTION)
        assert ((size / 6 < found) & (found < 3 * size)).all()


def test_what_is_smooth_leaves_nothing_but_the_rounding_of_doubles():
    found = noise.along(smooth, POINT, DIRECTION)
    assert (found < 1e-14).all()


def test_single_precision_inside_shows():
    found = noise.along(lambda x: smooth(x.astype(np.float32).astype(float)), POINT, DIRECTION)
    assert ((found > 2.0**-27) & (found < 2.0**-21)).all()
