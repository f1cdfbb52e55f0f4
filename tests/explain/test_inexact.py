"""Derivatives that are inexact by design: all gaps alike small, and what accepts them."""

from __future__ import annotations

import re

import pytest
import torch

import gradproof
from exhibits.frame import normal, ruled
from exhibits.scales import EXHIBITS
from exhibits.solvers import stopped_after

SEEDS = range(5)


def causes(result) -> list[str]:
    return [cause.name for cause in result.causes]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("steps", [8, 10])
def test_a_solver_that_stops_early_is_told_and_what_accepts_it(steps, seed):
    result = gradproof.check(stopped_after(steps), normal(9), seed=seed)["backward"]
    assert result.verdict == "failed"
    assert causes(result) == ["inexact"]
    message = result.causes[0].message
    found = re.fullmatch(
        r"every gap is below (\S+) of its entry, as of an iteration that stopped; "
        r"rtol=(\S+) accepts that",
        message,
    )
    gap, rtol = map(float, found.groups())
    assert all(each.gap <= gap * abs(each.measured) for each in result.findings)
    for value, verdict in ((rtol, "passed"), (rtol / 100, "failed")):
        again = gradproof.check(stopped_after(steps), normal(9), seed=seed, rtol=value)
        assert again["backward"].verdict == verdict


@pytest.mark.parametrize("seed", SEEDS)
def test_where_small_entries_are_off_by_more_nothing_is_named(seed):
    result = gradproof.check(stopped_after(4), normal(9), seed=seed)["backward"]
    assert result.verdict == "failed"
    assert causes(result) == []


def test_a_small_column_that_is_off_beside_large_ones_is_not_called_inexact():
    """Its gaps are small beside the largest entries."""
    wrong = next(e for e in EXHIBITS if e.name == "column_off_by_a_tenth_beside_one_of_1e8")
    result = gradproof.check(wrong.wrong, wrong.make_inputs(), seed=0)["backward"]
    assert result.verdict == "failed"
    assert "inexact" not in causes(result)


def test_one_that_runs_to_the_end_is_right():
    assert gradproof.check(stopped_after(200), normal(9), seed=0).verdict == "passed"


WRONG = {
    "a factor": lambda g, x: 1.0005 * g * x.cos(),
    "a large gap": lambda g, x: g * (x.cos() + x),
    "few bits": lambda g, x: (g * x.cos()).bfloat16().double(),
    "one entry": lambda g, x: g * x.cos() * (1 + 1e-4 * (torch.arange(x.numel()) == 3)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_that_has_a_name_or_is_large_is_not_called_inexact_first(name):
    result = gradproof.check(ruled(torch.sin, WRONG[name]), normal(12), seed=0)["backward"]
    assert result.verdict == "failed"
    assert causes(result)[:1] != ["inexact"]
    if name in ("a large gap", "one entry"):
        assert "inexact" not in causes(result)
