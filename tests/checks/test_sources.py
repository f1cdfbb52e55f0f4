"""Rules on whom to believe, at which points, and what is said of it, each by itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gradproof._data.records import Finding, Kink
from gradproof._data.settings import Settings
from gradproof._judge.claims import Backward
from gradproof._judge.limiting_slopes import BESIDE
from gradproof._judge.opinion import Opinion
from gradproof._judge.screen import Screen
from gradproof._maps.contract import Unsupported
from gradproof._measure import evaluate, probes
from gradproof._verdict import agree, judge, oracles, other_points
from gradproof._verdict.agree import Pair
from gradproof._verdict.conclude import (
    Elsewhere,
    Evidence,
    Source,
    Witness,
    heard,
    merged,
    refused,
)
from numpy_map import FunctionMap

DOUBLE, SINGLE, HALF = 2.0**-53, 2.0**-24, 2.0**-11
SETTINGS = Settings(seed=0)
INF, NAN = math.inf, math.nan


pytestmark = pytest.mark.usefixtures("as_in_the_engine")


def of(fn=np.copy, at=(1.0,), unit: float = DOUBLE, **more) -> FunctionMap:
    count = len(fn(np.array(at, dtype=float)))
    map_ = FunctionMap(fn, at, np.zeros((count, len(at))), **more)
    map_.resolution = unit
    return map_


def constant(*values: float, **more) -> FunctionMap:
    return of(lambda x: np.array(values), **more)


# Whether a second function has the value of the first.


def test_the_distance_of_two_values_leaves_out_what_is_not_finite() -> None:
    ours, theirs = np.array([1.0, NAN, 3.0, 2.0]), np.array([1.0, 2.0, INF, 6.0])
    assert oracles.distance(ours, theirs) == 2.0


def test_a_reference_must_have_a_value_where_the_function_has_one() -> None:
    oracles.require_finite(constant(NAN, 1.0), constant(NAN, 2.0))
    oracles.require_finite(constant(NAN, 1.0), constant(3.0, 2.0))
    with pytest.raises(Unsupported, match=r"y\[1\] is nan"):
        oracles.require_finite(constant(1.0, 1.0), constant(1.0, NAN))


@pytest.mark.parametrize(("gap", "same"), [(0.0999, True), (0.1001, False)])
def test_an_oracle_has_the_value_to_a_tenth_of_the_size_of_each_output(gap, same) -> None:
    outputs = [(2,), (2,)]
    ours = constant(100.0, 100.0, 1.0 - gap, -1.0 + gap, outputs=outputs)
    theirs = constant(100.0, 100.0, 1.0, -1.0, outputs=outputs)
    for one, other in ((ours, theirs), (theirs, ours)):
        if same:
            oracles.require_same(one, SETTINGS, other)
            continue
        with pytest.raises(Unsupported, match=r"off by 0\.1 of its size"):
            oracles.require_same(one, SETTINGS, other)


@pytest.mark.parametrize(("unit", "edge"), [(DOUBLE, DOUBLE**0.5), (SINGLE, SINGLE**0.5)])
@pytest.mark.parametrize("which", [0, 1])
def test_a_reference_has_the_value_up_to_half_its_digits(unit, edge, which) -> None:
    exact = replace(SETTINGS, rtol=0.0, atol=0.0)
    for part, another in ((0.9, False), (1.1, True)):
        pair = [constant(1.0 + part * edge), constant(1.0)]
        pair[which].resolution = unit
        told = oracles.off("it", *pair, replace(exact, rtol=exact.slack))
        said = oracles.off("it", *pair, exact)
        assert bool(said) is (another and part * edge > exact.slack), told
        assert not said or said.startswith("the value of it is another, by ")


@pytest.mark.parametrize(
    ("unit", "bits"), [(DOUBLE, 53), (SINGLE, 24), (2.0**-10.6, 11), (1.0, 1), (0.6, 1)]
)
def test_bits_of_a_unit_round_off(unit, bits) -> None:
    assert oracles.bits_of(unit) == f"about {bits} bits"


# Neighbours of a point that is not smooth.


def kink(kind="kink", left=-1.0, right=1.0, at=0, within=True) -> Kink:
    place = bent().domain.locate(at)
    return Kink(kind, place, place, left, right, 0.0, within, "")


def jacobian(x):
    return np.diag(np.sign(x))


def bent(unit: float = DOUBLE) -> FunctionMap:
    return of(np.abs, [0.0, 1.0], unit, jacobian=jacobian)


def asked(map_, kinks, *said: Opinion):
    """The points at which the answers are given, and what is made of these."""
    points, answers = [], iter(said)

    def look(beside):
        points.append((beside.map.point, beside.settings.largest_step))
        return next(answers)

    return points, other_points.neighbours(Backward(map_, SETTINGS), kinks, look)


RIGHT = Opinion("backward", "verified", resolution=1e-9)
WRONG = Opinion("backward", "refuted", (Finding("backward", "wrong"),))


def test_two_neighbours_are_asked_and_lie_close_by() -> None:
    points, (said, missing) = asked(bent(), (kink(),), RIGHT, RIGHT)
    assert (said, missing) == ((RIGHT, RIGHT), "")
    (first, _), (second, _) = points
    assert not np.array_equal(first, second)
    for x in (first, second):
        assert 2.0**-7 <= abs(x[0]) <= 2.0**-5
        assert 2.0**-7 <= abs(x[1] - 1) <= 2.0**-5


@pytest.mark.parametrize(("again", "kept"), [(WRONG, (WRONG,)), (RIGHT, (RIGHT, RIGHT))])
def test_a_neighbour_that_refutes_is_asked_again_by_steps_that_meet_no_other_kink(
    again, kept
) -> None:
    points, (said, _) = asked(bent(), (kink(),), WRONG, again, RIGHT)
    assert said == kept
    (first, limit), (second, shorter) = points[:2]
    assert np.array_equal(first, second)
    assert limit is None
    scale = probes.scales_of(of(np.abs, first)).min()
    assert shorter == 2.0**-6 * 2.0**-10 / 4 * scale  # a quarter of what two draws lie apart
    held = replace(SETTINGS, largest_step=0.5)
    assert other_points._within_draws(bent(), held) is held
    assert other_points._within_draws(bent(unit=SINGLE), SETTINGS) is SETTINGS


@pytest.mark.parametrize(("left", "right", "side"), [(NAN, INF, 1.0), (INF, NAN, -1.0)])
@pytest.mark.parametrize("kind", ["infinite slope", "domain boundary"])
def test_a_neighbour_lies_where_the_function_has_slopes(kind, left, right, side) -> None:
    points, _ = asked(bent(), (kink(kind, left, right),), RIGHT, RIGHT)
    assert [float(np.sign(x[0])) for x, _ in points] == [side, side]


def test_a_neighbour_without_a_value_is_looked_for_elsewhere() -> None:
    def fn(x):  # of moves by up to 1.5 * 2^-6 only the halves
        return np.where(np.abs(x) < 2.0**-6.4, np.abs(x), NAN)

    map_ = of(fn, [0.0], jacobian=jacobian)
    points, (said, missing) = asked(map_, (kink(),), RIGHT, RIGHT)
    assert len(said) == 2
    assert missing == ""
    assert all(abs(x[0]) < 2.0**-6.4 for x, _ in points)
    map_ = of(lambda x: np.where(x == 0, x, NAN), [0.0], jacobian=jacobian)
    assert asked(map_, (kink(),))[1] == ((), "the function has no value at the neighbours tried")


def test_a_neighbour_remembers_the_size_of_the_function() -> None:
    map_ = of(lambda x: np.array([x[0], NAN if x[0] > 1 else -4.0]), [1.0], jacobian=jacobian)
    there = other_points._marked(map_, np.array([2.5]))
    assert there.point.tolist() == [2.5]
    assert there.memo[BESIDE] == 4.0


@pytest.mark.parametrize(
    ("derived", "value", "zero"),
    [(True, 0.0, True), (True, 1.0, False), (False, 0.0, False), (False, 1.0, False)],
)
def test_a_derivative_that_is_zero_wherever_it_is_asked_for(derived, value, zero) -> None:
    map_ = constant(value, jacobian=jacobian)
    map_.derived = derived
    flat = Opinion("backward", "", open=True, flat=0.0)
    found = other_points.elsewhere(Backward(map_, SETTINGS), flat, lambda _: Evidence("backward"))
    assert found == Elsewhere((), slopes=False, zero=zero)


# What is said of them.


def by(here: Opinion = RIGHT, source: Source = Source.ITSELF, **more) -> Witness:
    return Witness(source.name.lower(), source, here, **more)


def test_neighbours_that_agree_widen_what_is_verified_and_say_so() -> None:
    here = replace(RIGHT, kinks=(kink(),))
    coarser = replace(RIGHT, resolution=1e-5)
    said = heard(by(here, beside=(RIGHT, coarser)))
    assert said.resolution == 1e-5
    assert said.summary == "verified; verified to 1e-05 there and at smooth neighbours"
    assert said.notes == (
        "not differentiable at 1 entry; claims lie between the one-sided slopes; verified at a "
        "smooth neighbour",
    )
    said = heard(by(replace(here, resolution=NAN), beside=(RIGHT, RIGHT)))
    assert said.summary == "verified; verified to 1e-09 at smooth neighbours"
    jumps = replace(RIGHT, kinks=(kink("jump"), kink("jump")))
    (note,) = heard(by(jumps, beside=(RIGHT, RIGHT))).notes
    assert note == "not differentiable at 2 entries; verified at a smooth neighbour"


@pytest.mark.parametrize(
    ("beside", "missing", "why"),
    [
        ((RIGHT,), "none there", "none there"),
        ((RIGHT, replace(RIGHT, open=True, summary="open")), "", "open"),
        ((replace(RIGHT, kinks=(kink(),)), RIGHT), "", "neither is a neighbour smooth"),
    ],
)
def test_a_neighbour_that_does_not_confirm_is_told(beside, missing, why) -> None:
    here = replace(RIGHT, kinks=(kink(),))
    said = heard(by(here, beside=beside, no_neighbour=missing))
    assert said.verified
    (note,) = said.notes
    assert note == f"not differentiable at 1 entry; not verified at a smooth neighbour: {why}"


def test_a_reference_that_is_wrong_itself_is_named() -> None:
    evidence = Evidence("backward", (by(), by(WRONG, Source.REFERENCE)), refused=("not it: no",))
    first, second = refused(evidence)
    assert first == "not it: no"
    assert second.startswith("not reference: it fails its own check: refuted")
    assert merged(evidence).oracle == f"itself; {first}; {second}"


def test_what_other_points_say_of_a_function_that_stands_still() -> None:
    flat = Opinion("backward", "nothing varies", open=True, flat=1e-9)
    point = Evidence("backward", (by(),))
    coarse = Evidence("backward", (by(replace(RIGHT, resolution=1e-5)),))

    def told(*points, **more):
        return merged(Evidence("backward", (by(flat),), elsewhere=Elsewhere(points, **more)))

    zero = "zero to 1e-09, claimed and measured"
    said = told(point, coarse, slopes=True)
    assert said.summary == (
        f"{zero}, and the function stands still; at 2 points where it varies: verified"
    )
    assert said.resolution == 1e-5
    said = told(point)
    assert "; at a point that it reaches by jumps, where it stands still too: " in said.summary
    assert said.resolution == 1e-9
    said = told(zero=True)
    assert said.summary == f"{zero}, here and at the other points tried, as the derivative is"
    open_ = Evidence("backward", (by(flat),))
    assert "the derivative is not decided there: nothing varies" in told(open_).summary
    wrong = told(open_, Evidence("backward", (by(WRONG),)))
    assert wrong.open
    assert wrong.summary.endswith("the derivative is wrong there: wrong")


# What the judge says.


def screen(**more) -> Screen:
    known = {"suspects": (), "blurred": (), "projected": None, "resolution": 0.0, "bar": 0.0}
    return Screen(**{**known, "empty": False, **more})


@pytest.mark.parametrize(
    ("noise", "size", "unit", "steady"),
    [
        (0.0, 1.0, DOUBLE, True),
        (0.05, 1.0, DOUBLE, True),
        (0.051, 1.0, DOUBLE, False),
        (0.24, 1.0, 2.0**-8, True),
        (0.26, 1.0, 2.0**-8, False),
        (1e-9, 0.0, DOUBLE, False),
    ],
)
def test_a_function_of_random_values_is_told_from_rounding(noise, size, unit, steady) -> None:
    map_ = constant(size, size, unit=unit)
    centre = evaluate.centre(map_)
    key = next(key for key, value in map_.memo.items() if value is centre)
    map_.memo[key] = replace(centre, noise=np.full(2, noise), repeats=noise == 0)
    assert (judge.unsteady(map_) == "") is steady


def test_outputs_without_entries_have_a_gradient_of_zero() -> None:
    nothing = of(lambda x: np.zeros(0), [1.0, 2.0])
    claim = Backward(nothing, SETTINGS)
    assert judge.judge(claim).verified
    nothing.claimed = replace(nothing.claimed, backward=lambda v: np.array([0.0, 3.0]))
    nothing.memo.clear()
    said = judge.judge(claim)
    assert [str(f.input) for f in said.findings] == ["x[1]"]


def test_rows_that_are_open_are_told_with_the_first_of_them() -> None:
    map_ = of(np.copy, [1.0, 2.0])
    said = judge._blurred(Backward(map_, SETTINGS), screen(blurred=(1,), bound=1.2e-9))
    assert said.summary == (
        "1 of 2 outputs could not be resolved, y[1] first; the others agree to 2e-09"
    )
    assert said.open
    assert said.resolution == 2e-9
    map_.memo["raised",] = "it raises"
    said = judge._blurred(Backward(map_, SETTINGS), screen(blurred=(1,)))
    assert "y[1] first: it raises;" in said.summary


@pytest.mark.parametrize(
    ("claimed", "expected", "unit", "same"),
    [
        (1.0, 1.0, DOUBLE, True),
        (1.0 + 1e-9, 1.0, DOUBLE, True),
        (1.0 + 1e-7, 1.0, DOUBLE, False),
        (1.0 + 1e-7, 1.0, SINGLE, True),
        (1.0 + 1e-3, 1.0, SINGLE, False),
        (NAN, 1.0, DOUBLE, False),
        (1.0, NAN, DOUBLE, True),  # there is nothing to compare it with
    ],
)
@pytest.mark.parametrize("forward", [False, True])
def test_two_gradients_are_the_same_to_half_the_digits(
    claimed, expected, unit, same, forward
) -> None:
    map_ = of(np.copy, [1.0, 1.0], unit, forward=True)
    got, right = np.array([1.0, claimed]), np.array([1.0, expected])
    pair = Pair(got, right, "it", forward=forward)
    assert agree.same(map_, pair) is same
    found = agree.differences("c", map_, pair)
    assert len(found) == (not same)
    for one in found:
        assert str(one.output or one.input) == ("y[1]" if forward else "x[1]")
        assert one.kind == "c"


def test_more_terms_or_a_tolerance_or_an_excuse_allow_a_larger_gap() -> None:
    map_ = of(np.copy, [1.0, 1.0])
    got, right = np.array([1.0, 1.0 + 1e-4]), np.array([1.0, 1.0])
    pair = Pair(got, right, "it")
    assert not agree.same(map_, pair)
    assert agree.same(map_, replace(pair, terms=(right, np.array([0.0, 1e5]))))
    assert not agree.same(map_, replace(pair, terms=(right, np.array([1e5, 0.0]))))
    for tolerance, same in ((0.9e-4, False), (1.1e-4, True)):
        assert agree.same(map_, pair, agree.Tolerance(tolerance)) is same
        assert agree.same(map_, pair, agree.Tolerance(0.0, tolerance)) is same
        excused = replace(pair, excuse=lambda by=tolerance: by)
        assert bool(agree.differences("c", map_, excused)) is not same


def test_an_entry_that_is_no_number_allows_no_other_a_gap() -> None:
    map_ = of(lambda x: 0.0 * x, [1.0, 1.0])
    for gap, same in ((5e-12, True), (5e-11, False)):
        pair = Pair(np.array([1e-3 + gap, INF]), np.array([1e-3, INF]), "it")
        assert agree.same(map_, pair) is same


def test_the_largest_gaps_come_first_and_no_more_than_are_wanted() -> None:
    map_ = of(np.copy, [1.0] * 5)
    pair = Pair(np.array([1.0, 2.0, NAN, 4.0, 3.0]), np.ones(5), "it")
    found = agree.differences("c", map_, pair, kind="k", most=3)
    assert [str(one.input) for one in found] == ["x[2]", "x[3]", "x[4]"]
    assert {one.kind for one in found} == {"k"}
    assert len(agree.differences("c", map_, pair)) == 4


def test_a_gradient_of_zero_by_cancellation_is_allowed_roundings_of_the_value() -> None:
    """64 of |F| per scale of x, and 4 in 16 bits."""
    for unit, count in ((DOUBLE, 64), (HALF, 4)):
        map_ = of(lambda x: 8 * x, [2.0], unit)
        edge = count * unit * 16.0 / 2.0
        for part, same in ((0.9, True), (1.1, False)):
            pair = Pair(np.array([part * edge]), np.zeros(1), "it")
            assert agree.same(map_, pair) is same
