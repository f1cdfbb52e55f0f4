"""What a rule keeps from another call, in every framework that is installed, and by hand."""

from __future__ import annotations

import re

import numpy as np
import pytest

import gradproof
from exhibits.portable import STATE
from gradproof import Verdict
from portable_frames import FRAMES, INSTALLED

SEEDS = range(5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("framework", INSTALLED)
@pytest.mark.parametrize("exhibit", STATE, ids=str)
def test_what_is_kept_fails_in_every_framework(exhibit, framework, seed):
    report = FRAMES[framework](exhibit, exhibit.wrong, seed=seed)
    assert report["second_point"].verdict is Verdict.FAILED, str(report)
    assert report["backward"].verdict is Verdict.PASSED, str(report)


class ByHand:
    """The sine with a derivative by hand that remembers."""

    def __init__(self) -> None:
        self.x, self.slope = np.zeros(0), np.zeros(0)
        self.slopes: dict[int, np.ndarray] = {}

    def value(self, x):
        self.x = x
        return np.sin(x)

    def of_the_last_value(self, x, v):
        return v * np.cos(self.x)

    def by_id(self, x, v):
        return v * self.slopes.setdefault(id(x), np.cos(x))

    def by_address(self, x, v):
        return v * self.slopes.setdefault(x.ctypes.data, np.cos(x))

    def compared_with_itself(self, x, v, copied=False):
        """Keeps the array that it compares the next one with: the same one, by then overwritten."""
        if self.slope.shape != x.shape or not np.array_equal(self.x, x):
            self.x, self.slope = (x.copy() if copied else x), np.cos(x)
        return v * self.slope

    def compared_with_a_copy(self, x, v):
        return self.compared_with_itself(x, v, copied=True)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "name", ["of_the_last_value", "by_id", "by_address", "compared_with_itself"]
)
def test_a_rule_by_hand_that_remembers_fails(name, seed):
    hand, x = ByHand(), np.random.default_rng(1).normal(size=6)
    fn = hand.value if name == "of_the_last_value" else np.sin
    report = gradproof.check(gradproof.by_hand(fn, vjp=getattr(hand, name)), (x,), seed=seed)
    assert report["second_point"].verdict is Verdict.FAILED, str(report)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rule_by_hand_that_remembers_rightly_passes(seed):
    hand, x = ByHand(), np.random.default_rng(1).normal(size=6)
    report = gradproof.check(
        gradproof.by_hand(np.sin, vjp=hand.compared_with_a_copy), (x,), seed=seed
    )
    assert report.verdict is Verdict.PASSED, str(report)


def test_forward_mode_of_the_first_point_fails_at_a_second_one():
    kept: list[np.ndarray] = []

    def jvp(x, u):
        kept.append(np.cos(x))
        return kept[0] * u

    x = np.random.default_rng(1).normal(size=6)
    report = gradproof.check(gradproof.by_hand(np.sin, jvp=jvp), (x,), seed=0)
    assert report["forward"].verdict is Verdict.PASSED
    (finding, *_) = report["second_point"].findings
    # NumPy's own functions have had signatures, and so names of arguments, since 2.0 only.
    assert re.match(r"at a second point: (x|input 0)\[", finding.message)
