"""Every backward is held against the slopes that were measured, whoever asked for it."""

from __future__ import annotations

import numpy as np
import pytest

from gradproof._data.settings import Settings
from gradproof._judge import heard
from gradproof._maps.metered import Metered
from gradproof._measure import directional
from numpy_map import FunctionMap, Linear

SETTINGS = Settings(seed=0)
SLOPES = np.array([0.5, -1.0, 2.0])

pytestmark = pytest.mark.usefixtures("as_in_the_engine")


def heard_of(*off: int, runs: int = 6) -> tuple[Metered, list[heard.Off]]:
    made = iter(range(1, 100))
    exact = Linear.diagonal(SLOPES)
    map_ = Metered(FunctionMap(lambda x: SLOPES * x, np.ones(3), exact), budget=1000)
    pull = map_.inner.vjp
    map_.inner.vjp = lambda v: pull(v) * (1.1 if next(made) in off else 1.0)
    found = directional.along(map_, SETTINGS, 0)
    heard.listen(map_, found.direction, found.estimate)
    for k in range(runs):
        map_.vjp(np.array([1.0, -0.5, k]))
    return map_, heard.off(map_)


def test_a_backward_that_is_off_once_is_heard_and_the_same_cotangent_asked_again_fits() -> None:
    map_, off = heard_of(3)
    assert [one.v.tolist() for one in off] == [[1.0, -0.5, 2.0]]
    assert off[0].gradient == pytest.approx(1.1 * SLOPES * off[0].v)
    assert off[0].again() == pytest.approx(SLOPES * off[0].v)
    assert map_.calls["vjp"] == 7


def test_backwards_that_fit_are_not_kept_and_hearing_them_calls_nothing() -> None:
    map_, off = heard_of()
    assert not off
    assert map_.calls["vjp"] == 6


def test_of_many_that_are_off_a_few_are_kept() -> None:
    _, off = heard_of(*range(1, 7))
    assert len(off) == 3


def test_nothing_is_said_of_what_is_no_number() -> None:
    map_, _ = heard_of(runs=0)
    map_.vjp(np.array([np.nan, 1.0, 1.0]))
    assert not heard.off(map_)
