"""Numbers that code names, and that a sweep tries both sides of."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from exhibits.portable import Portable
from gradproof._engine._sweep import constants
from gradproof._measure.regimes import Sample, cases
from portable_frames import FRAMES, INSTALLED

LIMIT = 0.375


def compares(x, low=0.625):
    def inner(y):
        return y > 0.875

    return inner(x) and x < low and x < LIMIT and x in (0.125, 7)


class Rule:
    scale = 0.0625

    @staticmethod
    def backward(x):
        return x > 20.5


def calls_a_class(x):
    return Rule.backward(x)


class Callable:
    def __init__(self, rule):
        self.rule = rule

    def __call__(self, x):
        return self.rule(x) + 0.1875


def test_constants_of_code_closures_defaults_and_globals_are_found():
    edge = 0.3125
    assert set(constants([compares])) >= {0.625, 0.875, LIMIT, 0.125, 7.0}
    assert constants([lambda x: x > edge]) == [edge]
    assert set(constants([functools.partial(compares, low=0.75)])) >= {0.75, 0.875}


def test_what_is_called_is_looked_into():
    assert set(constants([calls_a_class])) >= {0.0625, 20.5}
    assert set(constants([Callable(compares)])) >= {0.1875, 0.875}
    assert set(constants([Callable(compares).__call__])) >= {0.1875, 0.875}


def test_what_is_installed_is_not_looked_into():
    assert constants([lambda x: np.linspace(x, x)]) == []
    assert constants([None, "name", np.ones(3)]) == []


def test_fractions_come_first_and_what_is_no_real_number_is_left_out():
    assert constants([lambda x: x > 3 or x < -0.5 or x == 1e999 or x is True]) == [
        -0.5,
        3.0,
    ]


def test_both_sides_of_a_number_are_tried_with_different_entries():
    samples = [Sample("x", np.zeros(5), "float"), Sample("k", np.arange(3), "integer")]
    found = [case for case in cases(samples, 0, [0.5]) if case.label == "both sides of 0.5"]
    assert len(found) == 2
    for case, sign in zip(found, (-1, 1), strict=True):
        x = case.arrays[0]
        assert len(set(x)) == 5
        assert list(np.sign(x - 0.5)) == [sign, -sign, sign, -sign, sign]
        assert np.all(np.abs(x - 0.5) < 2.0**-4)
        assert case.arrays[1] is samples[1].values


@pytest.mark.parametrize(("number", "size"), [(0.0, 1.0), (1.0, 1.0), (-4.0, 4.0)])
def test_the_sides_of_a_number_are_a_64th_to_a_32nd_of_it_away(number, size):
    samples = [Sample("x", np.zeros(5), "float")]
    sides = [case for case in cases(samples, 0, [number]) if case.label.startswith("both sides")]
    away = np.abs(np.stack([case.arrays[0] for case in sides]) - number) / size
    assert away.shape == (2, 5)
    assert away.min() == 2.0**-6
    assert 2.0**-6 < away.max() < 2.0**-5


SOFTPLUS = Portable(
    name="softplus_wrong_between_two_numbers",
    source="extra",
    inputs=lambda: (np.linspace(-1, 0.2, 6),),
    value=lambda xp, x: xp.log1p(xp.exp(x)),
    right=lambda xp, g, x: (g / (1 + xp.exp(-x)),),
    wrong=lambda xp, g, x: (xp.where((x > 3.27) & (x < 3.33), g, g / (1 + xp.exp(-x))),),
)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("framework", INSTALLED)
def test_a_wrong_branch_between_two_numbers_is_found_by_a_sweep(framework, seed):
    options = {"seed": seed, "sweep": True, "checks": ["backward"], "budget": 3000}
    report = FRAMES[framework](SOFTPLUS, SOFTPLUS.wrong, **options)
    assert report["backward"].verdict == "passed"
    assert report["sweep"].verdict == "failed", str(report)
    assert "both sides of 3." in report["sweep"].summary
    right = FRAMES[framework](SOFTPLUS, SOFTPLUS.right, **options)
    assert right["sweep"].verdict == "passed", str(right)
