"""Rules of the judging layers, asked by themselves, both ways.

Whole checks pass through them, and hardly one depends on a single comparison in them.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from gradproof._data.settings import Settings
from gradproof._judge import claim_error, screen
from gradproof._judge.claims import Backward
from gradproof._judge.decide import BARS, Bar, decide
from gradproof._judge.entries import _boundless, _open_entries, _resolved
from gradproof._judge.found import Entries, pattern, unresolved
from gradproof._judge.limiting_slopes import examine
from gradproof._judge.opinion import Opinion
from gradproof._maps.contract import Unsupported
from gradproof._measure.statistics import Samples, statistics
from gradproof._verdict import other_points
from gradproof._verdict.judge import _standing_still
from numpy_map import FunctionMap

SETTINGS = Settings(seed=0)


pytestmark = pytest.mark.usefixtures("as_in_the_engine")


# The bar of a measurement: what a kink makes of it is exact, the rest is an estimate.


@pytest.mark.parametrize("kind", [float, np.asarray])
@pytest.mark.parametrize(
    ("error", "kink", "noise", "times"),
    [(3.0, 0.0, 3.0, 12.0), (3.0, 2.0, 1.0, 6.0), (3.0, 3.0, 0.0, 3.0), (3.0, 5.0, 0.0, 3.0)],
)
def test_only_what_is_estimated_of_a_bar_is_widened(kind, error, kink, noise, times):
    bar = Bar(kind(error), kind(kink))
    assert bar.noise == noise
    found = decide(kind(0.0), kind(0.0), bar)
    assert (found.allowed, found.further) == (error, times)


def test_a_gap_beyond_a_kink_is_wrong_from_few_bars_of_noise_on():
    """Slopes from -1 to 1, with a noise of 0.01: 1.03 may be an accident, 1.05 is none."""
    bar = Bar(np.asarray(1.01), np.asarray(1.0))
    for claimed, wrong in ((1.0 + 0.9 * BARS * 0.01, False), (1.0 + 1.1 * BARS * 0.01, True)):
        found = decide(np.asarray(claimed), np.asarray(0.0), bar, 0.0, small=0.0)
        assert bool(found.wrong) is wrong


# Entries that stay open.


def entries_of(error, kink, map_=None):
    claimed, measured = np.array([[1.0]]), np.array([[0.0]])
    comparison = decide(claimed, measured, Bar(np.array([[error]]), np.array([[kink]])), 0.0)
    claim = Backward(map_ or FunctionMap(lambda x: x.copy(), [0.5], np.eye(1)), SETTINGS)
    return Entries(claim, None, comparison, np.array([1.0]), np.array([[kink]]))


@pytest.mark.parametrize(
    ("kink", "why"),
    [
        (0.6, "not differentiable: slopes between -1 and 1"),
        (0.5, "not differentiable: slopes between -1 and 1"),
        (0.4, "measured 0 +- 1"),
    ],
)
def test_an_open_entry_is_told_as_a_kink_where_most_of_its_bar_is_one(kink, why):
    map_ = FunctionMap(lambda x: x.copy(), [0.5], np.eye(1))
    told = unresolved(entries_of(1.0, kink, map_), np.array([[True]]), 1.0)
    assert told.open
    assert told.summary.endswith(f"first: {why}")


@pytest.mark.parametrize(("kink", "asked"), [(0.6, False), (0.5, False), (0.4, True)])
def test_a_plain_difference_is_not_asked_about_a_kink(kink, asked):
    found, remarks = _open_entries(entries_of(1.0, kink), np.array([[True]]), 1e-6)
    assert bool(found) is asked
    assert [asked] == ["plain central difference" in remark for remark in remarks]


@pytest.mark.parametrize(("given", "boundless"), [([math.inf, 1.0], True), ([0.0, 1.0], False)])
def test_a_row_is_without_bounds_only_where_an_input_is(given, boundless):
    """log(0) is infinite where no input is: a difference may be asked about it."""

    class Held(FunctionMap):
        @property
        def given(self):
            return np.array(given)

    map_ = Held(lambda x: np.array([-np.inf, x[1]]), [0.0, 1.0], np.eye(2))
    row = entries_of(1.0, 0.0, map_)
    assert _boundless(row).tolist() == [[boundless], [False]]


# Points where a function stands still.


@pytest.mark.parametrize(
    ("claimed", "value", "kink", "nothing"),
    [
        (0.0, 0.0, 0.0, True),
        (3.0, 3.0, 0.0, True),  # within four bars of noise
        (5.0, 3.0, 0.0, False),
        (3.0, 5.0, 0.0, False),
        (3.0, 3.0, 0.9, False),  # slopes whose half-gap is most of the bar are no noise
    ],
)
def test_nothing_is_seen_where_claim_and_measurement_are_within_four_bars_of_noise(
    claimed, value, kink, nothing
):
    estimate = SimpleNamespace(
        value=np.array([value]), error=np.array([1.0]), kink=np.array([kink])
    )
    measured = SimpleNamespace(estimate=estimate, varies=False)
    assert screen.empty(np.array([claimed]), measured) is nothing
    assert not screen.empty(np.array([claimed]), SimpleNamespace(estimate=estimate, varies=True))


def standing(scale):
    """A function that is flat at 0 and has slopes near `scale` elsewhere."""

    def fn(x):
        return np.where(np.abs(x) < 1e-3, 0.0, scale * (np.sin(3 * x) + 2 * x))

    return FunctionMap(
        fn, np.zeros(3), np.zeros((3, 3)), jacobian=lambda x: np.eye(3), inputs=[(3,)]
    )


@pytest.mark.parametrize(
    ("scale", "bar", "tried"),
    [(1.0, 1e-4, True), (1.0, 0.3, False), (1e3, 0.3, True), (1e-2, 1e-3, False)],
)
def test_another_point_is_asked_only_where_its_slope_stands_out_of_the_bar(scale, bar, tried):
    points = []

    def gather(there):
        points.append(there.map.point)
        raise Unsupported("only which points are asked")

    flat = Opinion("backward", "", open=True, flat=bar)
    found = other_points.elsewhere(Backward(standing(scale), SETTINGS), flat, gather)
    assert bool(points) is found.slopes is tried


@pytest.mark.parametrize(
    ("size", "bar", "verified"),
    [
        (10.0, 0.05, True),  # half a per cent of it
        (10.0, 0.2, False),  # two
        (0.1, 0.0005, True),
        (0.1, 0.002, False),
        (0.0, 0.0, False),
    ],
)
def test_a_derivative_that_does_not_vary_is_zero_to_a_part_of_its_size(size, bar, verified):
    map_ = FunctionMap(lambda x: np.full(2, size), np.zeros(2), np.zeros((2, 2)))
    map_.derived = True
    claim = Backward(map_, SETTINGS)
    told = _standing_still(claim, bar)
    assert (told.open, told.flat) == ((False, None) if verified else (True, bar))
    map_.derived = False
    assert _standing_still(claim, bar).open


# Kinks that are looked into, and wrong entries in words.


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize(("bend", "looked"), [(0.5, True), (1e-4, True), (1e-8, False)])
def test_a_kink_far_below_the_derivative_is_not_looked_into_in_any_unit(scale, bend, looked):
    map_ = FunctionMap(lambda x: scale * (x + bend * np.abs(x)), [0.0], [[scale]])
    size, part = np.array([scale]), np.array([[scale * bend]])
    claimed = np.array([[scale]])
    comparison = decide(claimed, claimed, Bar(part, part), 0.0)
    entries = Entries(Backward(map_, SETTINGS), None, comparison, size, part)
    nothing = np.array([[False]])
    found = examine(entries, nothing, nothing)
    assert bool(map_.calls["value"]) is looked
    assert found.number == (bend == 0.5)
    assert not found.outside.any()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ([[1, 1], [1, 1], [1, 1]], ": all of them"),
        ([[0, 0], [1, 1], [0, 0]], ": every entry of y[1]"),
        ([[0, 0], [1, 1], [1, 1]], ": every entry of 2 outputs, y[1] first"),
        ([[0, 1], [0, 0], [0, 1]], ": all with respect to x[1]"),
        ([[0, 1], [1, 0], [0, 0]], ""),
        ([[1, 1], [0, 1], [0, 0]], ""),
    ],
)
def test_whole_rows_and_columns_are_told_as_such(wrong, told):
    map_ = FunctionMap(lambda x: np.array([x[0], x[1], x[0]]), [0.5, 1.0], np.ones((3, 2)))
    assert pattern(np.array(wrong, dtype=bool), map_) == told
    assert pattern(np.ones((1, 2), dtype=bool), map_) == ""
    assert pattern(np.ones((2, 1), dtype=bool), map_) == ""


def test_what_is_verified_is_the_largest_that_was_looked_at():
    """In parts of the entry: of rows without a size nothing, of entries left out nothing."""
    claimed = np.array([[2.0, 1.0], [0.0, 0.0], [4.0, 4.0]])
    error = np.array([[0.004, 0.01], [0.0, 0.0], [0.5, 9.0]])
    comparison = decide(claimed, claimed, Bar(error, np.zeros_like(error)), 0.0)
    size, claim = np.array([[2.0], [0.0], [4.0]]), entries_of(1.0, 0.0).claim
    entries = Entries(claim, None, comparison, size, np.zeros_like(error))
    left_out = np.array([[False, False], [False, False], [False, True]])
    worst, notes = _resolved(entries, left_out, 0.0)
    assert worst == pytest.approx(0.01)
    assert notes == [
        "1 entry is too small to be told from rounding beside others: not tested",
    ]


@pytest.mark.parametrize(
    ("unit", "wrong", "asked"),
    [(2.0**-53, True, True), (2.0**-53, False, False), (2.0**-24, True, False)],
)
def test_the_rounding_of_a_claim_is_asked_for_wrong_entries_in_double_precision(unit, wrong, asked):
    map_ = FunctionMap(lambda x: x.copy(), [0.5], np.eye(1))
    map_.resolution = unit
    gap = np.array([[1e-9]])
    entries = Entries(
        Backward(map_, SETTINGS),
        None,
        decide(np.ones((1, 1)) + gap, np.ones((1, 1)), Bar(gap, 0 * gap), 0.0),
        np.array([[1.0]]),
        0 * gap,
    )
    found = claim_error.of_wrong(entries, np.array([[wrong]]))
    assert found.tolist() == [[0.0]]  # this claim is not rounded
    assert bool(map_.calls["vjp"]) is asked


# What honest runs say is a mean over them.


def test_more_runs_of_the_same_size_say_the_same():
    exact, error = np.array([[1.0, -2.0, 3.0, 0.5]] * 3), np.array([[0.1, 0.2, -0.1, 0.4]] * 3)
    signs = np.array([1.0, -1.0, 1.0, 1.0])[:, None, None]
    once, often = (
        [(row.name, row.allowed) for row in statistics(Samples(error, exact, runs, (2, 2), 0, 0))]
        for runs in (error[None], signs * error)
    )
    assert [name for name, _ in once] == [name for name, _ in often]
    assert [bar for _, bar in often] == pytest.approx([bar for _, bar in once], rel=1e-12)
    assert min(bar for _, bar in once) > 0
