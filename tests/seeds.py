"""Seeds of tests that run at several."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def seeds(*usual: int, more: Iterable[int]):
    """One run for each of the usual seeds; further ones are slow."""
    slow = [pytest.param(seed, marks=pytest.mark.slow) for seed in more]
    return pytest.mark.parametrize("seed", [*usual, *slow])
