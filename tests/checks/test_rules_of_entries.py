"""Rules on single entries: stairs, kinks, tolerances and words, in numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gradproof._data.records import Finding, Kink, Place
from gradproof._data.settings import Settings
from gradproof._judge import entries as of_entries
from gradproof._judge import found as words
from gradproof._judge import limiting_slopes, outcome, quantised
from gradproof._judge.claims import Backward, Forward
from gradproof._judge.decide import Bar, Tolerance, decide
from gradproof._judge.found import Entries
from gradproof._measure import probes, steps
from gradproof._measure.one_sided import (
    BOUNDARY,
    INFINITE,
    JUMP,
    KINK,
    ONCE,
    SMOOTH,
    UNRESOLVED,
    Kinks,
)
from numpy_map import FunctionMap

DOUBLE, SINGLE, HALF = 2.0**-53, 2.0**-24, 2.0**-11
SETTINGS = Settings(seed=0)
INF, NAN = math.inf, math.nan


pytestmark = pytest.mark.usefixtures("as_in_the_engine")


def of(fn=np.copy, at=(1.0,), claimed=None, unit: float = DOUBLE, **more) -> FunctionMap:
    count = len(fn(np.array(at)))
    claimed = np.zeros((count, len(at))) if claimed is None else np.array(claimed)
    map_ = FunctionMap(fn, at, claimed, **more)
    map_.resolution = unit
    return map_


def entries(claimed, measured, error=0.0, kink=0.0, size=None, rows=None, **law) -> Entries:
    claimed, measured = np.array(claimed, dtype=float), np.array(measured, dtype=float)
    bars = [np.broadcast_to(np.asarray(e, dtype=float), measured.shape) for e in (error, kink)]
    comparison = decide(claimed, measured, Bar(*bars), **law)
    largest = np.abs(measured).max(axis=1, keepdims=True) if size is None else np.array(size)
    return Entries(Backward(of(), SETTINGS), rows, comparison, largest, bars[1])


def as_of(map_, found: Entries, settings=SETTINGS) -> Entries:
    """The same numbers, as entries of this map."""
    return replace(found, claim=Backward(map_, settings))


# Stairs: numbers that were rounded to few bits, or not.


@pytest.mark.parametrize(("unit", "finest"), [(DOUBLE, 2.0**-40), (SINGLE, 2.0**-18)])
@pytest.mark.parametrize("size", [1.0, -1.5, 1e-3, 2.0**80])
def test_a_number_with_a_digit_beyond_the_last_place_was_not_rounded(unit, finest, size) -> None:
    power = 2.0 ** math.floor(math.log2(abs(size)))
    coarse = power * np.array([0.0, 1.0, 1.0 + finest, 1.5, -1.0 - 3 * finest])
    assert not quantised._finer(coarse, unit).any()
    fine = power * np.array([1.0 + finest / 2, -1.0 - 1.5 * finest])
    assert quantised._finer(fine, unit).all()


def floor_of(scale: float = 1.0):
    return lambda x: scale * np.floor(x)


@pytest.mark.parametrize(
    ("fn", "at", "claim", "flies"),
    [
        (np.floor, 1e6 + 0.5, 1.0, True),
        (np.floor, 1e6 + 0.5, 0.0, False),
        (np.copy, 2.0, 1.0, False),  # it moves
        (lambda x: np.floor(x) + 0.3, 1e6 + 0.5, 1.0, False),  # no counts
    ],
)
@pytest.mark.parametrize("mode", [Backward, Forward])
def test_counts_that_stand_still_are_claimed_to_have_a_slope(fn, at, claim, flies, mode) -> None:
    map_ = of(fn, [at], [[claim]], forward=True, transposes=True)
    assert quantised.flight(mode(map_, SETTINGS)) is flies
    map_ = of(fn, [at], [[claim]], forward=True, unit=SINGLE)
    assert quantised.flight(mode(map_, SETTINGS)) is False


def test_an_output_that_no_slope_is_seen_of_is_no_flight_of_stairs() -> None:
    map_ = of(lambda x: np.array([x[0], 3.0]), [4.0], [[1.0], [1.0]])
    assert not quantised.flight(Backward(map_, SETTINGS))


@pytest.mark.parametrize(
    ("fn", "still"),
    [
        (lambda x: np.floor(8 * x) / 8 + 0.1, True),
        (lambda x: np.floor(8 * x) / 8, False),  # perhaps rounded to few bits at the end
        (lambda x: np.sin(x), False),
        (lambda x: np.array([x[0], math.pi]), False),  # one output moves
    ],
)
def test_a_map_stands_still_where_all_its_bits_stay(fn, still) -> None:
    assert quantised.stands_still(of(fn, [0.3])) is still


def test_at_the_border_of_a_tread_a_map_is_asked_close_by() -> None:
    assert quantised.stands_still(of(lambda x: np.floor(8 * x) / 8 + 0.1, [0.5]))


def treads(fn, at, claimed, measured, unit=DOUBLE):
    map_ = of(fn, at, unit=unit)
    found = entries(claimed, measured, error=0.1)
    doubtful = np.ones_like(found.comparison.gap, dtype=bool)
    return [mask.tolist() for mask in quantised.treads(as_of(map_, found), doubtful)]


def test_a_claim_of_zero_on_a_tread_of_counts_is_right_and_at_its_edge_open() -> None:
    assert treads(np.floor, [2.5], [[0.0]], [[1.0]]) == [[[True]], [[False]]]
    assert treads(np.floor, [3.0], [[0.0]], [[1.0]]) == [[[False]], [[True]]]
    assert treads(np.floor, [2.5], [[1.0]], [[1.0]]) == [[[False]], [[False]]]
    both = treads(lambda x: np.floor(x), [2.5, 3.0], [[0, 0], [0, 0]], [[1, 0], [0, 1]])
    assert both == [[[True, False], [False, False]], [[False, False], [False, True]]]


@pytest.mark.parametrize(("units", "seen"), [(0.9, False), (1.1, True)])
def test_an_entry_stands_still_only_where_its_slope_would_have_moved_the_output(units, seen):
    """By eight roundings of it, at the finest step: what moves it by less is rounded away."""
    start, step = 3.0 + 2.0**-45, steps.still(DOUBLE) * (1 + 361 / 1024)
    slope = units * 8 * DOUBLE * start / step
    _, open_ = treads(lambda x: np.array([start]), [1.0], [[0.0]], [[slope]])
    assert open_ == [[seen]]


def test_a_claim_of_zero_on_a_tread_of_other_numbers_is_open() -> None:
    def stairs(x):
        return np.floor(8 * x) / 8 + 0.1

    assert treads(stairs, [0.3], [[0.0]], [[1.0]]) == [[[False]], [[True]]]
    assert treads(stairs, [0.3], [[0.0]], [[1.0]], SINGLE) == [[[False]], [[True]]]
    assert treads(stairs, [0.3], [[0.0]], [[1.0]], HALF) == [[[False]], [[False]]]
    rounded = treads(lambda x: np.floor(8 * x) / 8, [0.3], [[0.0]], [[1.0]])
    assert rounded == [[[False]], [[False]]]  # arithmetic of few bits is none: zero is wrong
    assert treads(np.sin, [0.3], [[0.0]], [[1.0]]) == [[[False]], [[False]]]


@pytest.mark.parametrize(("part", "open_"), [(0.9, True), (1.1, False)])
def test_what_drowns_beside_one_is_open_where_the_output_is_zero(part, open_) -> None:
    edge = part * 64 * DOUBLE / 4.0  # of an input of size 4
    map_ = of(lambda x: np.array([0.0, 1.0]), [4.0])
    found = entries([[edge], [edge]], [[0.0], [0.0]])
    wrong = np.ones((2, 1), dtype=bool)
    assert quantised.underflown(as_of(map_, found), wrong).tolist() == [[open_], [False]]
    assert not quantised.underflown(as_of(map_, found), ~wrong).any()
    moving = entries([[edge], [edge]], [[0.0], [0.0]], size=[[1.0], [1.0]])
    assert not quantised.underflown(as_of(map_, moving), wrong).any()
    map_.resolution = SINGLE
    assert not quantised.underflown(as_of(map_, found), wrong).any()


@pytest.mark.parametrize(
    ("measured", "gap", "open_"),
    [
        (1e-12, 0.03e-12, True),
        (1e-12, 0.032e-12, False),  # a thirty-second of it
        (1e-9, 0.01e-9, False),  # more than 64 roundings of 1, for a step of 2^-8
    ],
)
def test_a_small_gap_is_open_where_the_output_is_rounded_like_one_nearer_to_zero(
    measured, gap, open_
) -> None:
    def fn(x):  # like 1 + erf(x) beside a smooth term: its treads are seen at -7, not at -8
        return np.array([1e-12 * x[0] + ((1 + 1e-8 * x[0]) - 1 if x[0] > -7.9 else 0.0)])

    map_ = of(fn, [-8.0])
    found = entries([[measured + gap]], [[measured]])
    wrong = np.array([[True]])
    assert quantised.drowned(as_of(map_, found), wrong).tolist() == [[open_]]
    assert not quantised.drowned(as_of(map_, found), ~wrong).any()
    smooth = of(lambda x: 1e-12 * np.sin(x), [-8.0])
    assert not quantised.drowned(as_of(smooth, found), wrong).any()
    map_.resolution = SINGLE
    assert not quantised.drowned(as_of(map_, found), wrong).any()


@pytest.mark.parametrize(
    ("unit", "half"), [(DOUBLE, 0.0), (SINGLE, 2.0**-12), (HALF, 2.0**-5.5), (2.0**-8, 0.0)]
)
def test_a_row_of_zeros_is_seen_beside_half_the_digits_of_the_others(unit, half) -> None:
    found = entries([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    told = quantised.standing(as_of(of(unit=unit), found))
    assert told.tolist() == [[0.0], [pytest.approx(half, rel=1e-12)], [0.0]]


# Points without a derivative.


def kinks(kind, left, right, error=0.0) -> Kinks:
    numbers = (np.array([each], dtype=float) for each in (left, right, error))
    return Kinks(np.array([kind]), *numbers)


@pytest.mark.parametrize(
    ("kind", "left", "right", "claimed", "accepted"),
    [
        (KINK, -1.0, 1.0, 1.0, True),
        (KINK, -1.0, 1.0, -1.0, True),
        (KINK, 1.0, -1.0, 0.5, True),
        (KINK, -1.0, 1.0, 1.0 + 1e-9, False),
        (KINK, -1.0, 1.0, NAN, False),
        (BOUNDARY, NAN, 2.0, 2.0, True),
        (BOUNDARY, 2.0, NAN, 2.0, True),
        (BOUNDARY, 2.0, NAN, 1.9, False),
        (JUMP, INF, INF, -7.0, True),
        (JUMP, INF, INF, INF, True),
        (JUMP, INF, INF, NAN, False),
        (INFINITE, -INF, INF, 0.0, True),
        (INFINITE, -INF, INF, INF, True),
        (INFINITE, INF, INF, INF, True),
        (INFINITE, INF, INF, -INF, False),
        (INFINITE, INF, 1.0, NAN, False),
    ],
)
def test_a_claim_is_accepted_between_the_slopes_that_exist(
    kind, left, right, claimed, accepted
) -> None:
    exact = Settings(seed=0, rtol=0.0)
    found = limiting_slopes._acceptable(exact, kinks(kind, left, right), np.array([claimed]))
    assert bool(found[0]) is accepted


def test_the_slopes_of_a_kink_are_widened_by_their_bar_and_the_tolerances() -> None:
    settings = Settings(seed=0, atol=0.25, rtol=0.125)
    found = kinks(KINK, -1.0, 2.0, error=0.5)
    edge = 2.0 + 0.5 + 0.25 + 0.125 * 2.0
    for claimed, accepted in ((edge, True), (edge + 1e-12, False), (-1.0 - edge + 2.0, True)):
        told = limiting_slopes._acceptable(settings, found, np.array([claimed]))
        assert bool(told[0]) is accepted


def test_nan_is_an_artefact_in_the_row_or_column_of_an_infinite_slope_only() -> None:
    claimed = np.full((3, 3), NAN)
    claimed[1, 1] = INF
    endless = np.zeros((3, 3), dtype=bool)
    endless[1, 1] = True
    spoilt = limiting_slopes._spoilt(claimed, endless)
    assert spoilt.astype(int).tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    claimed[1, 1] = 1.0
    assert not limiting_slopes._spoilt(claimed, endless).any()


def test_what_is_wrong_is_asked_beside_the_point_in_double_precision_only() -> None:
    found = entries([[1.0, 9.0]], [[1.0, 1.0]], 1e-9)
    nothing, wrong = np.zeros((1, 2), dtype=bool), np.array([[False, True]])
    for settings in (SETTINGS, Settings(seed=0, classic_step=1e-3)):
        map_ = of(lambda x: np.array([x[0] + x[1]]), [0.5, 0.5])
        told = limiting_slopes.examine(as_of(map_, found, settings), nothing, wrong)
        assert map_.calls["value"]
        assert not told.named.any()
        assert told.summary == ""
    map_ = of(lambda x: np.array([x[0] + x[1]]), [0.5, 0.5], unit=SINGLE)
    limiting_slopes.examine(as_of(map_, found, SETTINGS), nothing, wrong)
    assert not map_.calls["value"]


def test_points_beside_a_tie_lie_where_what_is_claimed_grows() -> None:
    """All rows alike, then one after the other; either way, and with a little of a random one."""
    map_ = of(lambda x: x[[0, 1, 1]], [4.0, 0.5])
    found = entries([[1.0, 0.0], [0.0, 2.0], [NAN, 0.0]], np.zeros((3, 2)))
    known = kinks(KINK, -1.0, 1.0)
    beside = limiting_slopes._Beside(as_of(map_, found), known)
    scales = probes.scales_of(map_)
    drawn = probes.tangent(map_, 0, 43) / 8
    for moved in (np.array([True, True]), np.array([True, False])):
        alike, further = np.array([1.0, 2.0]), np.array([-1.0, 0.0])  # weights -1, 0 and 1
        expected = []
        for claims in (alike, further):
            way = np.where(moved, claims * scales, 0.0)
            step = scales * way / np.abs(way).max()
            expected += [np.where(moved, sign * step + drawn, 0.0) for sign in (1, -1)]
        points = list(beside._as_claimed(moved))
        assert np.allclose(points, expected, rtol=1e-15)
    nothing = entries(np.zeros((3, 2)), np.zeros((3, 2)))
    beside = replace(beside, entries=as_of(map_, nothing))
    assert list(beside._as_claimed(np.array([True, True]))) == []


def test_the_first_direction_through_a_tie_is_the_one_in_which_all_that_is_tied_grows() -> None:
    map_ = of(lambda x: x[[0, 1, 1]], [4.0, 0.5, 1.0])
    measured = [[1.0, -3.0, 1.0], [1.0, INF, 1.0], [-9.0, 9.0, 1.0]]
    found = entries(np.zeros((3, 3)), measured)
    beside = limiting_slopes._Beside(as_of(map_, found), kinks(KINK, -1.0, 1.0))
    rows, moved = np.array([True, True, False]), np.array([True, True, False])
    first, *others = beside._directions(rows, moved)
    scales = probes.scales_of(map_)
    assert first.tolist() == [scales[0], -scales[1], 0.0]
    assert len(others) == 2
    assert not np.array_equal(*others)
    for u in others:
        assert (np.abs(u) > 0).tolist() == [True, True, False]


PLACES = (Place("y", 0, (1,), "y[1]"), Place("x", 0, (0,), "x[0]"))


@pytest.mark.parametrize(
    ("kind", "left", "right", "claimed", "accepted", "told"),
    [
        (KINK, -1.0, 1.0, 0.0, True, "a kink; left slope -1, right slope 1; claimed 0, between"),
        (KINK, -1.0, 1.0, 5.0, True, "claimed 5, between the slopes beside the point"),
        (KINK, -1.0, 1.0, 5.0, False, "claimed 5, outside of them"),
        (ONCE, 1.0, 1.0, 1.0, True, "differentiable only once; slope 1 on both sides"),
        (BOUNDARY, NAN, 1.0, 1.0, True, "left slope none, right slope 1; claimed 1, which is that"),
        (BOUNDARY, NAN, 1.0, 2.0, False, "claimed 2, which is not that slope"),
        (JUMP, INF, INF, 2.0, True, "a jump; slope inf on both sides; claimed 2, which is a conv"),
        (INFINITE, NAN, NAN, NAN, False, "no slope on either side; claimed nan, which is no slope"),
        (SMOOTH, 1.0, 1.0, 1.0, True, "a kink of several inputs together"),
        (UNRESOLVED, 1.0, 1.0, 1.0, True, "which only neighbours can judge"),
    ],
)
def test_a_point_without_a_derivative_is_told_in_words(
    kind, left, right, claimed, accepted, told
) -> None:
    found = kinks(kind, left, right)
    record = limiting_slopes._record(PLACES, found, 0, claimed, accepted)
    assert told in record.message
    assert record.within is accepted
    assert record.message.startswith(f"{PLACES[1]} -> {PLACES[0]}: ")
    alone = limiting_slopes._record((PLACES[0], None), found, 0, claimed, accepted)
    assert alone.message.startswith(f"{PLACES[0]} along a random direction: ")


@pytest.mark.parametrize(
    ("left", "right", "middle", "half"),
    [(-1.0, 2.0, 0.5, 1.5), (NAN, 2.0, 2.0, 0.0), (INF, 2.0, 2.0, 0.0), (INF, NAN, NAN, NAN)],
)
def test_a_wrong_claim_at_a_kink_is_found_beside_the_middle_of_its_slopes(
    left, right, middle, half
) -> None:
    kink = Kink("kink", *PLACES, left, right, 9.0, False, "bent")
    found = limiting_slopes.finding_of("backward", kink)
    assert (found.claimed, found.kind, found.message) == (9.0, "kink", "bent")
    for told, expected in ((found.measured, middle), (found.error, half), (found.allowed, half)):
        assert told == expected or (math.isnan(told) and math.isnan(expected))


# Entries that are excused, left open, or told.


def test_only_the_absolute_tolerance_excuses_an_entry_and_then_nothing_was_tested() -> None:
    settings = Settings(seed=0, atol=0.5)
    tolerance = Tolerance(0.5)
    tiny = entries([[0.5, 1.0]], [[0.25, 1.0]], tolerance=tolerance)
    assert "1 entry not tested: claimed and measured differ" in of_entries._excused(
        as_of(of(), tiny, settings)
    )
    two = entries([[0.5, 0.0]], [[0.25, 0.5]], tolerance=tolerance)
    assert "2 entries not tested" in of_entries._excused(as_of(of(), two, settings))
    large = entries([[1.0, 0.5]], [[0.75, 0.5]], tolerance=tolerance)
    assert of_entries._excused(as_of(of(), large, settings)) == ""
    assert of_entries._excused(as_of(of(), tiny, Settings(seed=0, atol=0.0))) == ""


def test_what_is_small_beside_a_row_is_a_part_of_it_or_of_the_tolerance() -> None:
    settings = Settings(seed=0, atol=0.5, resolution=0.25)
    found = entries([[1.0], [2.0]], [[1.0], [2.0]])
    assert of_entries._part(as_of(of(), found, settings)).tolist() == [[0.375], [0.625]]


def test_entries_are_verified_to_parts_of_themselves_or_of_a_thousandth_of_their_row() -> None:
    def told(measured, error=0.0, claimed=None, size=None):
        found = entries(
            measured if claimed is None else claimed, measured, error, size=size, rounding=1.0
        )
        nowhere = np.zeros_like(found.comparison.gap, dtype=bool)
        return of_entries._resolved(found, nowhere, 0.0)

    assert told([[1.0, 1e-3]], [[0.0, 1e-6]]) == (1e-3, [])
    assert told([[1.0, 0.9e-3]], [[0.0, 1e-6]]) == (1e-6, [])
    assert told([[1.0, 1.0]], claimed=[[1.5, 1.0]]) == (0.5, [])
    assert told([[1.0, 1.0]], [[0.9, 0.0]]) == (
        0.0,
        ["1 entry is too small to be told from rounding beside others: not tested"],
    )
    _worst, (note,) = told([[1.0, 1.0]], [[0.9, 0.9]])
    assert note.startswith("2 entries are too small")


def test_a_plain_difference_decides_what_is_open_and_nothing_else() -> None:
    settings = Settings(seed=0, atol=0.0, rtol=1e-3, classic_step=1e-3)
    map_ = of(lambda x: np.array([3 * x[0] + x[1], x[1]]), [0.5, 0.5])
    found = entries([[3.0, 2.0], [0.0, 1.0]], [[9.0, 9.0], [9.0, 9.0]], error=INF)
    nothing = np.zeros((2, 2), dtype=bool)
    blurred = np.array([[True, True], [False, False]])
    wrong, left, notes, merged = of_entries._classic(as_of(map_, found, settings), nothing, blurred)
    assert wrong.tolist() == [[False, True], [False, False]]
    assert not left.any()
    assert merged.measured == pytest.approx(np.array([[3.0, 1.0], [9.0, 9.0]]))
    assert np.isnan(merged.error).tolist() == [[True, True], [False, False]]
    assert merged.allowed[0] == pytest.approx([3e-3, 1e-3])
    assert notes == ["some entries were judged by a plain central difference of step 0.001"]
    assert map_.calls["value"] == 2 * 2 + 2  # two columns, and F at the point, twice


# Wrong entries in words.


@pytest.mark.parametrize(
    ("number", "told"), [(1, "1 wrong entry"), (2, "2 wrong entries"), (0, "0 wrong entries")]
)
def test_numbers_have_their_noun(number, told) -> None:
    assert words.count(number, "wrong entry") == told
    assert words.count(1_234, "entry") == "1,234 entries"


def finding(claimed: float) -> Finding:
    return Finding("backward", "", claimed=claimed, measured=0.0)


def test_the_largest_gap_comes_first_and_nan_before_all() -> None:
    gaps = [1.0, NAN, 3.0, -2.0]
    found = words.sorted_findings([finding(gap) for gap in gaps])
    assert [f.claimed for f in found][1:] == [3.0, -2.0, 1.0]
    assert math.isnan(found[0].claimed)
    assert len(words.sorted_findings([finding(1.0)] * 65)) == 64
    comparison = entries([[1.0, NAN], [3.0, 2.0]], np.zeros((2, 2))).comparison
    wrong = np.array([[True, True], [True, False]])
    assert words.ranked(comparison, wrong) == [(0, 1), (1, 0), (0, 0)]


def test_findings_are_told_by_their_own_rows_and_columns() -> None:
    map_ = of(np.copy, [1.0, 2.0, 3.0])
    comparison = entries([[1.0, 5.0]], [[0.0, 0.0]], 0.5, rounding=0.25).comparison
    wrong = np.array([[True, True]])
    first, second = words.findings_of("c", map_, comparison, wrong, rows=[2], columns=[0, 1])
    assert (str(first.output), str(first.input), first.claimed) == ("y[2]", "x[1]", 5.0)
    assert (str(second.input), second.measured, second.error) == ("x[0]", 0.0, 0.5)
    assert second.allowed == 0.75
    plain = words.findings_of("c", map_, comparison, wrong)
    assert [str(f.output) for f in plain] == ["y[0]", "y[0]"]


@pytest.mark.parametrize(
    ("value", "error", "memo", "why"),
    [
        (1.0, 0.5, {}, "measured 1 +- 0.5"),
        (1.0, INF, {}, "no step gives a stable difference"),
        (1.0, INF, {("raised",): "it raises"}, "it raises"),
        (-INF, INF, {}, "the output is -inf there"),
    ],
)
def test_an_open_entry_is_told_with_the_reason(value, error, memo, why) -> None:
    map_ = of(lambda x: np.array([0.0, value]), [1.0])
    map_.memo.update(memo)
    found = entries([[0.0]], [[1.0]], error, rows=[1])
    told = words.unresolved(as_of(map_, found), np.array([[True]]), 0.25)
    assert told.summary == f"1 of 1 entries could not be resolved, x[0] -> y[1] first: {why}"
    assert told.open
    assert told.resolution == 0.25


def test_the_message_of_an_entry_has_its_numbers() -> None:
    map_ = of(np.copy, [1.0, 2.0])
    told = outcome.entry("c", map_, (1, 0), (3.0, 1.0, 0.5, 0.25)).message
    assert told == "x[0] -> y[1]: claimed 3, measured 1 +- 0.5; the gap is 2, allowed 0.25"
    told = outcome.entry("c", map_, (1, 0), (3.0, 1.0, NAN, 0.25)).message
    assert told == "x[0] -> y[1]: claimed 3, measured 1; the gap is 2, allowed 0.25"
    place = map_.domain.locate(1)
    found = outcome.vector_entry(("c", "k"), place, (3.0, 1.0, 0.25), "it")
    assert found.message == "gradient of x[1]: it: got 3, expected 1; the gap is 2, allowed 0.25"
    assert (found.input, found.output, found.kind) == (place, None, "k")
    found = outcome.vector_entry(("c", "k"), place, (3.0, 1.0, 0.25), "it", forward=True)
    assert found.message.startswith("tangent of x[1]")
    assert (found.input, found.output) == (None, place)
    found = outcome.identity("c", replace(decide(3.0, 1.0, Bar()), allowed=0.25), "a is b")
    assert found.message == "a is b; the gap is 2, allowed 0.25"
    assert (found.claimed, found.measured, found.error, found.allowed) == (3.0, 1.0, 0.0, 0.25)
