"""What the screen says of rows and projections, in numbers that are worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gradproof._data.settings import Settings
from gradproof._data.space import Slot, Space
from gradproof._judge import claim_error, claims, projections, screen
from gradproof._judge.claims import Backward, Forward
from gradproof._judge.decide import Bar, decide, of_largest
from gradproof._judge.faint import Faint, faint_columns
from gradproof._judge.found import Entries
from gradproof._measure import directional, probes
from gradproof._measure.richardson import Estimate
from gradproof._verdict import judge
from numpy_map import FunctionMap, Linear

DOUBLE, SINGLE, HALF = 2.0**-53, 2.0**-24, 2.0**-11
SETTINGS = Settings(seed=0)
INF, NAN = math.inf, math.nan


pytestmark = pytest.mark.usefixtures("as_in_the_engine")


def of(unit: float = DOUBLE, count: int = 1, size: float = 1.0, **more) -> FunctionMap:
    """The identity at inputs of this size, in this precision."""
    map_ = FunctionMap(lambda x: x.copy(), np.full(count, size), np.eye(count), **more)
    map_.resolution = unit
    return map_


def rows(value, error=0.0, kink=0.0) -> Estimate:
    value = np.asarray(value, dtype=float)
    bars = [np.broadcast_to(np.asarray(e, dtype=float), value.shape) for e in (error, kink)]
    return Estimate(value, *bars, *3 * [np.zeros_like(value)])


# How sharply a row must be seen.


def test_a_row_is_seen_to_five_digits_or_beside_the_others() -> None:
    values = np.array([-4.0, 0.0])
    found = screen.sharp(of(), SETTINGS, values, 10.0)
    assert found == pytest.approx([4e-5 + 1e-6, 1e-6], rel=1e-12)
    found = screen.sharp(of(SINGLE), replace(SETTINGS, rtol=1e-3), values, 10.0)
    faint = 4 * SINGLE * 10
    assert found == pytest.approx([2e-3 + faint, faint], rel=1e-12)


def test_of_many_inputs_a_row_is_seen_to_the_resolution() -> None:
    few = replace(SETTINGS, full_jacobian=1, resolution=0.125, atol=1.0, classic_step=1e-3)
    found = screen.sharp(of(count=2), few, np.array([-4.0, 0.0]), 10.0)
    assert found == pytest.approx([0.5 + 1e-6, 1e-6], rel=1e-12)


def test_a_plain_difference_has_to_show_the_tolerance_in_the_smallest_entry() -> None:
    settings = replace(SETTINGS, atol=1e-7, rtol=1e-7, classic_step=1e-3)
    found = screen.sharp(of(count=2, size=2.0), settings, np.array([-1.0, -1e3, 0.0]), 0.0)
    assert found == pytest.approx([1e-7, 5e-8 + 5e-5, 2.5e-8], rel=1e-6)
    found = screen.sharp(of(count=2, size=2.0), settings, np.array([0.0]), 1.0)
    assert found == pytest.approx([5e-8])
    found = screen.sharp(of(count=2, size=8.0), settings, np.array([0.0]), 10.0)
    assert found == pytest.approx([2e-7])  # of inputs of 8
    free = screen.sharp(of(count=2, size=2.0), replace(settings, classic_step=None), found, 1.0)
    assert float(free[0]) > 9e-8  # it may look at every entry instead


# Rows along a tangent.


def test_rows_are_suspect_blurred_and_told_by_the_worst_of_the_others() -> None:
    found = rows([1.0, 1.0, 1.0, 1.0], error=[1e-8, 1e-8, 1e-3, INF])
    claimed = np.array([1.0, 1.1, 1.0, 1.0])
    told = screen.rows_of(of(count=4), SETTINGS, found, claimed)
    assert told.suspect.tolist() == [False, True, False, False]
    assert told.blurred.tolist() == [False, False, True, True]
    assert told.evident
    size = math.sqrt((3 + 1.1**2) / 4)
    assert told.resolution == pytest.approx(1e-8 / size)
    assert told.bar == 1e-3  # the largest that is one
    assert told.seen == pytest.approx(0.1 / size)
    right = screen.rows_of(of(count=4), SETTINGS, found, None)
    assert not right.suspect.any()
    assert not right.evident
    assert right.seen == right.resolution == pytest.approx(1e-8)


@pytest.mark.parametrize(
    ("unit", "gap", "evident"),
    [
        (DOUBLE, 0.9e-6, False),
        (DOUBLE, 1.1e-6, True),
        (SINGLE, 0.9 * 1024 * SINGLE, False),
        (SINGLE, 1.1 * 1024 * SINGLE, True),
    ],
)
def test_a_gap_of_a_millionth_of_all_rows_is_evident(unit, gap: float, evident: bool) -> None:
    """Or of sixteen times what a claim may be rounded by."""
    found = rows([1.0, 1.0], error=1e-9)
    told = screen.rows_of(of(unit, count=2), SETTINGS, found, np.array([1.0, 1.0 + gap]))
    assert told.suspect.tolist() == [False, True]
    assert told.evident is evident


def test_below_single_precision_the_rounding_of_claims_hides_more_than_the_bar() -> None:
    found = rows([1.0, 1.0], error=1e-3)
    told = screen.rows_of(of(HALF, count=2), SETTINGS, found, np.ones(2))
    rounding = 64 * HALF
    assert told.resolution == pytest.approx(4e-3 + rounding, rel=1e-9)
    fine = screen.rows_of(of(SINGLE, count=2), SETTINGS, found, np.ones(2))
    assert fine.resolution == 1e-3 if not fine.blurred.any() else fine.resolution == 0.0


@pytest.mark.parametrize(("gap", "wrong"), [(3.9, False), (4.1, True)])
def test_a_row_or_a_projection_is_suspect_from_four_bars_on(gap: float, wrong: bool) -> None:
    map_, found = of(), rows([0.0], error=1.0)
    assert screen.of_rows(map_, found, np.array([gap]), 0.0, 0.0).wrong.tolist() == [wrong]
    tangent = directional.along(map_, SETTINGS, 0)
    back = np.array([gap]) / tangent.direction
    one = projections.Projection(np.ones(1), back, 0.0, 1.0, mixed=False)
    claim = Backward(map_, SETTINGS)
    assert bool(projections.gap_of(claim, tangent, one).wrong) is wrong
    assert not projections.gap_of(claim, tangent, one, 0.2).wrong  # what is no gap


def test_a_gap_of_a_projection_that_mixes_rows_is_allowed_their_rounding(monkeypatch) -> None:
    map_ = of(count=2, size=2.0)
    tangent = directional.along(map_, SETTINGS, 0)
    claim, v = Backward(map_, SETTINGS), np.array([3.0, 1.0])
    monkeypatch.setattr(claim_error, "of_projection", lambda *asked: 0.5)
    gap = np.array([1.4, 0.0]) / tangent.direction
    for mixed, wrong in ((True, False), (False, True)):
        one = projections.Projection(v, gap, 0.0, 0.25, mixed=mixed)
        assert bool(projections.gap_of(claim, tangent, one).wrong) is wrong
    monkeypatch.undo()
    pulls = iter([0.0, 0.0, 0.0, 1e-9, 0.0])
    map_.claimed = Linear(None, lambda v: v + np.array([next(pulls), 0.0]))
    found = claim_error.of_projection(claim, v, np.array([2.0, 5.0]))
    assert found == pytest.approx(64 * 2e-9, rel=1e-4)


def parts_of(wrong: float, number: int = 4):
    """Parts of the projection of sin of twelve inputs, of which the claim of the sixth is off."""
    map_ = FunctionMap(np.sin, np.linspace(0.2, 1.0, 12), np.eye(12))
    slopes = np.cos(map_.point)
    slopes[5] *= 1 + wrong
    map_.claimed = Linear.diagonal(slopes)
    v = np.ones(12)
    found = projections._strata(Backward(map_, SETTINGS), 0, v, number)
    return map_, found


def test_the_part_of_the_outputs_that_disagrees_is_told() -> None:
    map_, (wrong, bar, hints) = parts_of(0.5)
    assert np.flatnonzero(wrong).tolist() == [3, 4, 5]
    assert hints == ()
    assert map_.calls["vjp"] == 2 + 5  # the part before it and it, and what rounding does to it
    map_, (wrong, bar, hints) = parts_of(0.0)
    assert wrong is None
    assert map_.calls["vjp"] == 4
    assert 0 < bar < 1e-6
    one = projections.usual(np.ones(12), directional.along(map_, SETTINGS, 0).estimate)
    spans = [slice(3 * k, 3 * k + 3) for k in range(4)]
    gaps = []
    for span in spans:
        v = np.zeros(12)
        v[span] = 1.0
        claim = Backward(map_, SETTINGS)
        gaps.append(projections.gap_on(claim, 0, v, span))
    assert bar == pytest.approx(max(gap.further for gap in gaps) / one)


def test_a_part_whose_gap_is_beyond_most_bars_is_a_hint(monkeypatch) -> None:
    gaps = iter([(0.1, 1.0), (2.0, 3.0), (4.0, 5.0), (9.0, 10.0), (9.0, 8.0)])

    def gap(*_):
        gap, allowed = next(gaps)
        return SimpleNamespace(gap=gap, allowed=allowed, further=4 * allowed, wrong=False)

    monkeypatch.setattr(projections, "gap_on", gap)
    _, (wrong, _, hints) = parts_of(0.0, 5)
    assert wrong is None
    # Its own bar, 8, and that in the middle of all five, 5.
    assert hints == (slice(9, 12),)


@pytest.mark.parametrize("unit", [DOUBLE, SINGLE])
def test_a_screen_of_projections_is_bounded_by_its_bars_and_both_probes(unit: float) -> None:
    count = 8
    map_ = FunctionMap(
        np.sin, np.linspace(0.2, 1.0, count), np.diag(np.cos(np.linspace(0.2, 1.0, count)))
    )
    map_.resolution = unit
    settings = SETTINGS if unit == DOUBLE else SETTINGS.at_precision(unit)
    found = projections.projected(Backward(map_, settings))
    assert not found.suspicious
    assert not found.empty
    assert found.blurred == ()
    along = directional.along(map_, settings, 0).estimate
    assert found.bar == float(along.error.max())
    expected = of_largest(map_, found.resolution, count, probes=2)
    assert found.bound == expected > 0
    wanted = 0.25 if unit == DOUBLE else min(0.25, 4 * settings.resolution)
    assert bool(found.unresolved) is (found.resolution > wanted)


def test_a_tangent_is_made_again_only_where_its_ladder_is_dropped(monkeypatch) -> None:
    map_ = FunctionMap(np.sin, np.linspace(0.2, 1.0, 5), np.diag(np.cos(np.linspace(0.2, 1.0, 5))))
    claim, nothing = Backward(map_, SETTINGS), np.zeros(5, dtype=bool)
    projections._seen(claim, nothing)
    assert directional.along(map_, SETTINGS, 0).ladder is not None
    monkeypatch.setattr(directional, "large", lambda map_: True)
    map_.memo.clear()
    projections._seen(claim, nothing)
    assert directional.along(map_, SETTINGS, 0).ladder is None


@pytest.mark.parametrize("loud", [False, True])
@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_a_row_that_is_small_along_one_tangent_is_seen_along_another(factor, loud) -> None:
    """Unless its bar is larger than those of the others, whose sum it would blind."""
    entries = np.arange(12.0).reshape(4, 3) - 5.5
    claimed = entries * np.array([[factor], [1.0], [1.0], [1.0]])
    map_ = FunctionMap(lambda x: entries @ x, np.array([0.3, 0.5, 0.7]), claimed)
    first = directional.along(map_, SETTINGS, 0)
    if loud:
        bars = first.estimate.error.copy()
        bars[0] = 2 * bars.max()
        estimate = replace(first.estimate, error=bars)
        map_.memo["along", 0] = replace(first, estimate=estimate)
    small = np.array([True, False, False, False])
    found = projections._seen(Backward(map_, SETTINGS), small)
    assert (found.gap is not None) is (factor != 1.0 and not loud)
    assert found.unseen.tolist() == [loud or factor != 1.0, False, False, False]


def test_long_screens_are_read_in_blocks() -> None:
    size = (1 << 16) + 3
    value, error, claimed = np.ones(size), np.full(size, 1e-9), np.ones(size)
    error[-1], error[-2], claimed[-3], error[0] = INF, 1e-8, 1.5, 3e-9
    told = screen.rows_of(of(), SETTINGS, rows(value, error), claimed)
    assert np.flatnonzero(told.suspect).tolist() == [size - 3]
    assert np.flatnonzero(told.blurred).tolist() == [size - 1]
    assert told.evident
    assert told.bar == 1e-8
    assert told.resolution == pytest.approx(1e-8, rel=1e-5)
    assert told.seen == pytest.approx(0.5, rel=1e-5)


def test_a_bar_is_told_in_parts_of_the_row_or_of_all_rows_where_it_is_small() -> None:
    blurred = np.array([False, False, True])
    error, value = np.array([2.0, 1.0, 9.0]), np.array([-8.0, 1.0, 1.0])
    other, gap = np.array([4.0, 0.0, 9.0]), np.array([6.0, 0.0, 99.0])
    assert screen._resolution((error, gap), value, blurred, 2.0) == (0.5, 0.75)
    assert screen._resolution((other, 0 * gap), value, blurred, 2.0) == (0.5, 0.5)
    assert screen._resolution((error, gap), value, blurred, 0.0) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("claimed", "value", "error", "nothing"),
    [
        ([0.0, 0.0], [0.0, 0.0], 1.0, True),
        ([0.0], [0.0, 0.0], 1.0, True),  # of a projection: all of it
        ([1e-9], [0.0, 0.0], 1.0, False),
        ([0.0, 0.0], [0.0, 0.0], INF, False),
        ([0.0, 0.0], [0.0, 4.5], 1.0, False),
        ([0.0, 4.5], [0.0, 0.0], 1.0, False),
        ([4.0, -4.0], [-4.0, 4.0], 1.0, True),
    ],
)
def test_nothing_is_seen_where_no_row_is_above_its_bar(claimed, value, error, nothing) -> None:
    measured = SimpleNamespace(estimate=rows(value, error), varies=False)
    assert screen.empty(np.array(claimed), measured) is nothing


# Columns that are lost beside larger ones.


def faint_of(scales, claimed=None, count=3):
    scales = np.asarray(scales, dtype=float)
    jacobian = np.tile(scales, (count, 1)) if claimed is None else claimed
    map_ = FunctionMap(
        lambda x: np.tile(scales * np.sin(x), count).reshape(count, -1).sum(1),
        np.zeros(len(scales)),
        Linear.dense(np.asarray(jacobian, dtype=float)),
        transposes=True,
    )
    return map_, faint_columns(Backward(map_, SETTINGS))


@pytest.mark.parametrize(
    ("scales", "asked"), [([1.0, 1.0], False), ([1.0, 1e-4], False), ([1.0, 1e-9], True)]
)
def test_a_column_that_is_lost_in_its_rows_is_asked_alone(scales, asked) -> None:
    _, faint = faint_of(scales)
    assert faint.wrong is None
    assert (0 < faint.bound < 1e-3) is asked
    assert faint.notes == ()


def test_a_column_that_is_lost_is_asked_again_below_another() -> None:
    claimed = np.array([[1.0, 1e-9, 1.01e-18]] * 3)
    _, right = faint_of([1.0, 1e-9, 1e-18])
    assert right.wrong is None
    _, wrong = faint_of([1.0, 1e-9, 1e-18], claimed)
    assert np.flatnonzero(wrong.wrong[0]).tolist() == [2]


def test_a_small_column_that_is_wrong_shows_along_its_own_tangent() -> None:
    _, faint = faint_of([1.0, 1e-9], np.array([[1.0, 1.1e-9]] * 3))
    u, measured = faint.wrong
    assert u[0] == 0 != u[1]
    assert measured.estimate.value == pytest.approx(1e-9 * u[1] * np.ones(3), rel=1e-6)


def test_the_columns_that_are_lost_are_measured_once() -> None:
    map_, first = faint_of([1.0, 1e-9])
    asked = map_.calls["value"]
    again = faint_columns(Backward(map_, SETTINGS))
    assert again == first
    assert 0 < again.bound < 1e-3
    assert map_.calls["value"] == asked
    directional.forget(map_)
    faint_columns(Backward(map_, SETTINGS))
    assert map_.calls["value"] > asked


def test_of_a_column_that_is_lost_no_step_is_asked_for_rows_that_stand_still() -> None:
    point, slopes = np.array([0.3, 0.2]), np.zeros((9, 2))
    slopes[:, 0], slopes[4, 1] = 1.0, 1e-7
    claimed = Linear.dense(slopes * np.cos(point))
    map_ = FunctionMap(lambda x: 3.7 + slopes @ np.sin(x), point, claimed, transposes=True)
    directional.along(map_, SETTINGS, 0)
    before = map_.calls["value"]
    assert faint_columns(Backward(map_, SETTINGS)).notes == ()
    assert map_.calls["value"] - before <= 16  # 18 where they are asked for as well


def test_no_column_is_asked_below_double_precision() -> None:
    map_ = of(SINGLE, count=2)
    assert faint_columns(Backward(map_, SETTINGS)) == Faint()
    assert not map_.calls


# Projections.


def test_a_row_usually_adds_its_root_mean_square() -> None:
    v = np.array([1.0, -2.0, 0.0, 1.0])
    assert projections.usual(v, rows([3.0, 1.0, INF, 1.0])) == pytest.approx(math.sqrt(14 / 4))
    long = np.ones((1 << 16) + 1)
    assert projections.usual(long, rows(long)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("part", "wanted", "told"), [(0.25, 0.25, False), (0.26, 0.25, True), (0.02, 0.01, True)]
)
def test_a_projection_that_hides_a_part_of_an_output_says_so(part, wanted, told) -> None:
    said = projections._hidden(of(count=7), part, wanted)
    assert bool(said) is told
    assert not told or f"the 7 outputs resolve one of them to {part:.0%} only" in said


def test_every_row_has_the_same_weight_in_the_second_cotangent() -> None:
    """But where it is blurred, or known to no more than its bar, or nothing."""
    map_ = of(count=6)
    value = np.array([1.0, 2.0**-20, -(2.0**10), 0.0, 0.0, 1.0])
    error = np.array([0.0, 0.0, 0.0, 2.0**-9 * 1e-5, 0.0, 0.0])
    known = directional.along(map_, SETTINGS, 0)
    map_.memo["along", 0] = replace(known, estimate=rows(value, error))
    first, second = projections.cotangents(Backward(map_, SETTINGS), np.array([False] * 5 + [True]))
    assert first[5] == second[5] == 0
    drawn = probes.cotangent(map_, 0, 1)
    typical = 2.0**10 / math.sqrt(6)  # of which a thousandth, 0.42, is nearly 2^-1
    weights = np.array([1.0, 2.0**20, 2.0**-10, 2.0**9, 2.0**1, 0.0])
    assert 2.0**-1.5 < 1e-3 * typical < 2.0**-0.5
    assert np.array_equal(second, weights * drawn)
    assert np.array_equal(first[:5], probes.cotangent(map_, 0, 0)[:5])
    map_.resolution = SINGLE  # there is room for a thousandth of the typical one
    _, second = projections.cotangents(Backward(map_, SETTINGS), np.zeros(6, dtype=bool))
    assert np.array_equal(second[[1, 3]], 2.0 * drawn[[1, 3]])


# What is said of what is left.


@pytest.mark.parametrize(
    ("unit", "inputs", "part", "told"),
    [
        (DOUBLE, 1, 0.25, False),
        (DOUBLE, 10_000, 0.25, False),
        (DOUBLE, 1, 0.26, True),
        (HALF, 1, 0.25, False),
        (HALF, 100, 0.09, False),
        (HALF, 100, 0.11, True),
    ],
)
def test_in_few_bits_an_entry_of_the_usual_size_must_not_hide(unit, inputs, part, told) -> None:
    assert bool(judge._hidden(of(unit, count=inputs), part)) is told


def test_the_strongest_suspects_come_first_and_nan_before_all() -> None:
    at, claimed = np.array([0, 2, 3]), np.array([1.0, 9.0, NAN, 5.0])
    assert judge._strongest(at, claimed, np.zeros(4)) == (2, 3, 0)
    assert judge._mask(np.array([True, True, True]), np.array([1])).tolist() == [False, True, False]


def test_outputs_whose_derivative_drowns_are_told() -> None:
    map_ = of(count=3)
    known = directional.along(map_, SETTINGS, 0)

    def told(value, error):
        found = replace(known.estimate, value=np.array(value), error=np.array(error))
        map_.memo["along", 0] = replace(known, estimate=found)
        return judge._unseen(Backward(map_, SETTINGS))

    assert told([1.0, 1.0, 0.0], [0.01, 0.01, 1.0]) == ()
    (one,) = told([1.0, 1e-9, 0.0], [1e-9, 1e-9, 0.0])
    assert one.startswith("the derivative of y[1] is too small")
    for error, number in ((0.9e-8, 0), (1.1e-8, 1)):  # of a row that another tangent shows
        other = replace(known.estimate, value=np.full(3, 1e-6), error=np.full(3, error))
        map_.memo["along", 2] = replace(known, estimate=other)
        assert len(told([1.0, 1e-9, 0.0], [1e-9, 1e-6, 0.0])) == number
        assert len(told([1.0, 1e-9, 0.0], [1e-9, 1e-9, 0.0])) == 1  # it was not blurred
    del map_.memo["along", 2]
    (two,) = told([1.0, 1e-9, 1e-9], [1e-9, 1e-9, 1e-9])
    assert two.startswith("the derivatives of 2 outputs, y[1] first, are too small")


# The rounding of a claim, where it is measured.


def test_a_claim_that_is_linear_is_not_rounded() -> None:
    map_ = of(count=3)
    assert claim_error.gradients(map_).tolist() == [0.0, 0.0, 0.0]
    calls = map_.calls["vjp"]
    assert claim_error.gradients(map_) is claim_error.gradients(map_)
    assert (
        map_.calls["vjp"] == calls == 6
    )  # the claim for each of two ways, and four moved probes, once
    assert claim_error.gradients(of(SINGLE)) == 0.0
    assert not of(SINGLE).calls


def test_the_rounding_of_a_claim_is_64_times_its_largest_change_beyond_a_factor() -> None:
    known = np.array([1.0, 2.0])
    moves = iter([0.0, 1e-13, -3e-13, 2e-13])

    def pulled(probe):
        return probe + np.array([next(moves), 0.0])

    found = claim_error.rounding(of(count=2), pulled, known, known)
    assert found == pytest.approx([64 * 3e-13, 0.0], rel=0.02, abs=64 * 2**-52)
    assert next(moves, None) is None


@pytest.mark.parametrize("kind", ["ignored", "nan", "missing"])
def test_a_claim_that_ignores_its_probe_is_not_rounded(kind: str) -> None:
    known = np.array([1.0, 2.0])
    moved = {"ignored": known, "nan": np.full(2, NAN), "missing": None}[kind]
    found = claim_error.rounding(of(count=2), lambda probe: moved, known, known)
    assert found.tolist() == [0.0, 0.0]


def test_probes_are_moved_by_eight_ulps_and_odd_times_as_many_to_both_sides() -> None:
    factors = []
    claim_error.rounding(
        of(), lambda probe: factors.append(float(probe[0])), np.ones(1), np.ones(1)
    )
    assert factors == [1 - 8 * DOUBLE, 1 + 24 * DOUBLE, 1 - 40 * DOUBLE, 1 + 56 * DOUBLE]


def rounded_at_random(unit: float = DOUBLE, by=(0.0, 1.0, -3.0, 2.0)) -> FunctionMap:
    """A map whose claims are off by these parts of the unit to which its operations are rounded."""
    map_ = of(unit, count=2, extra={"rounded": lambda unit, tiny, seed: run(unit, by[seed])})

    def run(unit, part):
        there = of(count=2)
        there.claimed = Linear.diagonal(np.array([1.0 + part * unit, 1.0]))
        return there

    return map_


def test_the_rounding_of_operations_is_taken_from_a_coarser_arithmetic() -> None:
    """Sixteen times the largest of four runs in 2^-26, and as many times less as doubles have."""
    map_, probe = rounded_at_random(), np.array([2.0, 5.0])
    pull = Backward(map_, SETTINGS).pull
    found = claim_error._stochastic(map_, pull, probe)
    assert found == pytest.approx([16 * DOUBLE * 3 * 2.0, 0.0], rel=1e-6)
    assert map_.calls["rounded"] == 4
    single = claim_error._stochastic(map_, pull, probe, draws=2)
    assert single == pytest.approx([16 * DOUBLE * 1 * 2.0, 0.0], rel=1e-6)
    assert not claim_error._stochastic(of(count=2), pull, probe).any()  # which cannot be rounded
    assert not claim_error._stochastic(rounded_at_random(SINGLE), pull, probe).any()
    spoilt = rounded_at_random(by=(NAN, 1.0, 1.0, 1.0))
    assert claim_error._stochastic(spoilt, pull, probe)[0] > 0


@pytest.mark.parametrize(
    ("gap", "measured", "told"),
    [
        (38.0, 1.0, "nothing"),
        (42.0, 1.0, "wrong"),
        (38.0, 1e-14, "open"),  # no small part of the row
        (42.0, 1e-14, "wrong"),
    ],
)
def test_a_row_is_no_suspect_where_rounding_of_its_claim_explains_the_gap(
    monkeypatch, gap: float, measured: float, told: str
) -> None:
    """Moved probes explain 40 units, random rounding nothing."""
    map_ = of(count=2, forward=True)
    unit = np.array([DOUBLE, 0.0])
    monkeypatch.setattr(claim_error, "_moved", lambda *_: 40 * unit)
    monkeypatch.setattr(claim_error, "_stochastic", lambda *_: 0 * unit)
    for order in (1, -1):  # the second row has no gap
        along = np.ones(2), measured + gap * unit, np.full(2, measured)
        wrong, open_ = claim_error.beyond(Forward(map_, SETTINGS), along, np.arange(2)[::order])
        assert wrong.tolist() == ([0] if told == "wrong" else [])
        assert open_.tolist() == ([0] if told == "open" else [])


def test_wrong_entries_are_asked_row_by_row_what_rounding_explains_of_them(monkeypatch) -> None:
    """Moved probes explain gaps up to a thousandth of a row, random rounding any."""
    map_ = of(count=3)
    gap = np.array([[1e-3, 1e-4, 2e-3], [1e-3, 0.0, 0.0], [5.0, 0.0, 0.0]])
    measured = np.zeros((3, 3))
    comparison = decide(measured + gap, measured, Bar(0.0 * gap), 0.0)
    claim = Backward(map_, SETTINGS)
    entries = Entries(claim, None, comparison, np.ones((3, 1)), 0.0 * gap)
    asked = []

    def explained(name, own):
        def of(map_, pull, probe, draws=4):
            row = np.flatnonzero(probe)
            asked.append((name, row.tolist()) if len(row) == 1 else (name, draws))
            return np.array(own[int(row[0])]) if len(row) == 1 else np.full(3, 1.0)

        return of

    moved = {0: [1e-3, 1e-5, 2e-3], 1: [0.0, 0.0, 0.0]}
    drawn = {0: [0.0, 1e-4, 3e-3], 1: [2e-3, 0.0, 0.0], 2: [1.0, 0.0, 0.0]}
    monkeypatch.setattr(claim_error, "_moved", explained("moved", moved))
    monkeypatch.setattr(claim_error, "_stochastic", explained("drawn", drawn))
    found = claim_error.of_wrong(entries, comparison.wrong)
    assert found.tolist() == [[1e-3, 1e-4, 3e-3], [2e-3, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert asked == [
        ("moved", 1),
        ("moved", [0]),
        ("moved", [1]),
        ("drawn", 1),
        ("drawn", [0]),
        ("drawn", [1]),
        ("drawn", [2]),
    ]
    asked.clear()
    own = decide(gap[1:2], measured[1:2], Bar(0 * gap[1:2]), 0.0)
    one = Entries(
        claim, [1], own, np.ones((1, 1)), 0 * gap[1:2]
    )  # the row of these three that it is
    found = claim_error.of_wrong(one, one.comparison.wrong)
    assert found.tolist() == [[2e-3, 0.0, 0.0]]
    assert ("drawn", [1]) in asked


def test_bars_below_which_nothing_is_claimed_are_four_of_noise() -> None:
    map_ = of(count=3)
    known = directional.along(map_, SETTINGS, 0)
    found = rows([1.0, 1.0, 1.0], error=[1.0, 3.0, INF], kink=[0.0, 2.0, INF])
    map_.memo["along", 0] = replace(known, estimate=found)
    assert claim_error.bars(map_, SETTINGS).tolist() == [4.0, 4.0, 0.0]
    assert claim_error.kinks(map_, SETTINGS).tolist() == [0.0, 2.0, 0.0]
    v, u = np.array([1.0, -1.0, 1.0]), np.abs(directional.along(map_, SETTINGS, 0).direction)
    edge = np.array([8.0 / u[0], 0.0, 0.0])
    assert claim_error.below_noise(map_, SETTINGS, v, [0.99 * edge, -0.99 * edge])
    assert not claim_error.below_noise(map_, SETTINGS, v, [0.99 * edge, -1.01 * edge])
    map_.resolution = SINGLE
    assert claim_error.bars(map_, SETTINGS).tolist() == [0.0, 0.0, 0.0]


def test_the_roundings_of_both_modes_add_up() -> None:
    map_ = of(count=2, forward=True)
    map_.memo["magnified", "gradient", map_.resolution] = np.array([1.0, 2.0])
    map_.memo["magnified", "tangent", map_.resolution] = np.array([3.0, 4.0])
    found = claim_error.in_both(map_, np.array([1.0, -1.0]), np.array([10.0, -10.0]))
    assert found == 3.0 + 70.0
    assert claim_error.in_both(of(SINGLE), np.ones(1), np.ones(1)) == 0.0


# What a mode claims, in the forms in which it is asked.


def test_in_few_bits_a_mode_is_asked_by_a_few_of_its_own_probes() -> None:
    map_ = of(HALF, count=100)
    back, forth = (mode(map_, SETTINGS).in_few_bits() for mode in (Backward, Forward))
    assert (back.slack, back.doubt, back.columnwise, back.space) == (1.0, 1.0, False, map_.domain)
    assert (forth.slack, forth.doubt, forth.columnwise) == (2.0, 0.0, True)
    assert forth.space is map_.codomain
    assert (len(back.probes), len(forth.probes)) == (2, 2)
    for number in (0, 1):
        v = probes.on_grid(map_.codomain, probes.cotangent(map_, 0, number))
        u = probes.on_grid(map_.domain, probes.tangent(map_, 0, number))
        assert np.array_equal(back.probes[number], v)
        assert np.array_equal(forth.probes[number], u)
    assert np.array_equal(back.pulled(map_), np.stack(back.probes))


@pytest.mark.parametrize(
    ("count", "asked"), [(1, 4), (64, 4), (85, 3), (100, 2), (1 << 17, 2), ((1 << 17) + 1, 1)]
)
def test_the_smallest_array_has_entries_to_average_over(count: int, asked: int) -> None:
    assert claims._count(Space((Slot("x", (count,)), Slot("y", (0,))))) == asked


MATRIX = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("tall", [False, True])
@pytest.mark.parametrize("chosen", [None, [1], [1, 0]])
def test_a_claimed_jacobian_is_asked_for_by_rows_or_columns_whichever_are_fewer(
    tall: bool, chosen
) -> None:
    matrix = MATRIX.T if tall else MATRIX
    expected = matrix if chosen is None else matrix[chosen]
    map_ = FunctionMap(
        lambda x: matrix @ x, np.ones(matrix.shape[1]), matrix, forward=True, transposes=True
    )
    for mode in (Backward, Forward):
        claim = mode(map_, SETTINGS)
        map_.calls.clear()
        found = claim.matrix(chosen, matrix.shape, map_.point)
        assert np.array_equal(found, expected)
        if mode is Forward:
            assert map_.calls == {"jvp": matrix.shape[1]}
        elif not tall or chosen is not None:
            assert map_.calls == {"vjp": len(expected)}
        else:  # two columns, each with the plain backward that it is held against
            assert map_.calls["vjp"] == 3
