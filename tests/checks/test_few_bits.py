"""Honest runs and claims in few bits, in numbers that are worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import gradproof
from gradproof._data.settings import Settings
from gradproof._data.space import Grain, Slot, Space
from gradproof._judge import limiting_slopes
from gradproof._judge.claims import Backward, Mode
from gradproof._judge.opinion import Opinion
from gradproof._locate.search import Search
from gradproof._maps.contract import Unsupported
from gradproof._measure import directional, probes
from gradproof._measure.rounding import rounded_at_random
from gradproof._verdict import judge, low_precision, oracles, stochastic
from gradproof._verdict.oracles import Oracle
from numpy_map import FunctionMap, Linear

DOUBLE, SINGLE, HALF, BRAIN = 2.0**-53, 2.0**-24, 2.0**-11, 2.0**-8
SETTINGS = Settings(seed=0)
INF, NAN = math.inf, math.nan


pytestmark = pytest.mark.usefixtures("as_in_the_engine")


def grained(unit: float, count: int = 1, largest: float = 65504.0) -> Space:
    return Space((Slot("x", (count,), grain=Grain(unit, 2.0**-24, largest)),))


def of(fn=np.copy, at=(1.0,), claimed=None, unit: float = DOUBLE, **more) -> FunctionMap:
    count = len(fn(np.array(at, dtype=float)))
    claimed = np.ones((count, len(at))) if claimed is None else np.array(claimed, dtype=float)
    map_ = FunctionMap(fn, at, claimed, **more)
    map_.resolution = unit
    map_.domain, map_.codomain = grained(unit, len(at)), grained(unit, count)
    return map_


def mode_of(map_: FunctionMap, *probes: list[float]) -> Mode:
    asked = [np.array(probe) for probe in probes or ([1.0] * map_.codomain.size,)]
    return Mode("backward", "gradient of", asked, map_.domain)


# Errors of honest runs.


def test_the_size_of_an_error_is_a_mean_over_runs_and_probes():
    errors = np.array([[[3.0, 0.0], [4.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    told = stochastic.sizes(errors)
    assert told.tolist() == [2.5, math.sqrt(0.5)]


@pytest.mark.parametrize(
    ("exact", "error", "got", "told"),
    [
        (65000.0, 200.0, INF, 65504.0),
        (-65000.0, 200.0, -INF, -65504.0),
        (64000.0, 200.0, INF, INF),  # nor with five times the error
        (65000.0, 200.0, -INF, -INF),
        (65000.0, 200.0, 7.0, 7.0),
        (65000.0, 200.0, NAN, NAN),
        (65504.0 - 1000.0, 200.0, INF, 65504.0),
    ],
)
def test_infinity_is_the_largest_number_where_honest_arithmetic_may_overflow(
    exact, error, got, told
):
    slot = grained(HALF).slots[0]
    errors = np.array([[[error, 0.0]]])
    claims = np.array([[got, 1.0]]), np.array([[exact, 1.0]])
    found = stochastic.saturated(*claims, errors, slot)
    assert found.tolist()[0][1] == 1.0
    assert float(found[0, 0]) == told or (math.isnan(found[0, 0]) and math.isnan(told))


def test_inputs_move_by_up_to_a_rounding_of_their_array_or_of_what_it_shows():
    for unit, times in ((SINGLE, 2.0), (BRAIN, 1.0)):
        map_ = of(at=[1.0, 3.0, 2.0**-9], unit=unit)
        drawn = probes.tangent(map_, 0, 16 + 5) / probes.scales_of(map_) / 1.5
        assert np.abs(drawn).max() <= 1.0
        found = stochastic.roundings(map_, SETTINGS, 5)
        assert np.allclose(found, times * unit * drawn, rtol=1e-15)
        map_.resolution = 4 * unit
        shown = 1.0 if 4 * unit > 2.0**-20 else 2.0
        assert np.allclose(stochastic.roundings(map_, SETTINGS, 5), shown * 4 * unit * drawn)


def test_a_claim_that_is_the_same_twice_has_no_noise():
    values = iter([0.0, 0.25, -0.5, NAN, 0.0, 1.0])

    def pulled(map_):
        return np.array([[2.0 + next(values)]])

    assert stochastic._noise_of(None, lambda map_: np.array([[2.0]]), np.array([[2.0]])) == []
    values = iter([0.25, -0.5, NAN, 0.0, 1.0, 0.5, 9.0])
    found = stochastic._noise_of(None, pulled, np.array([[2.0]]))
    assert [float(gap[0, 0]) for gap in found] == [0.25, -0.5, 0.0, 0.0, 1.0, 0.5]


def test_noise_and_honest_errors_count_in_full_in_the_mean_over_both():
    honest, noise = np.full((3, 1, 1), 2.0), [np.full((1, 1), 1.0)] * 6
    assert stochastic._with_noise(honest, []) is honest
    both = stochastic._with_noise(honest, noise)
    assert both.shape == (9, 1, 1)
    assert float(np.mean(both**2)) == pytest.approx(2.0**2 + 1.0**2)


def test_every_point_gets_another_run_with_either_sign():
    honest = np.arange(1.0, 7.0).reshape(3, 2, 1)
    assert stochastic._at_points(honest, 1, 0) is honest
    found = stochastic._at_points(honest, 2, 0)
    assert found.shape == (3, 4, 1)
    for k in range(3):
        first, second = np.abs(found[k, :2]), np.abs(found[k, 2:])
        assert np.array_equal(first, honest[k])
        assert np.array_equal(second, honest[(k + 1) % 3])
    assert {-1.0, 1.0} == set(np.sign(found).ravel())


@pytest.mark.parametrize(("bend", "counts"), [(1.0, True), (0.0, False)])
def test_a_derivative_that_jumps_beside_the_point_has_no_sensitivity(bend, counts):
    """Of x^2 / 2 it moves with the input; of |x - 1| it changes as much for any move."""

    def slopes(x):
        return np.diag(x if bend else np.where(x > 1.0, 1.0, -1.0))

    oracle_map = of(lambda x: x**2 / 2, [1.0, 1.0], np.eye(2), jacobian=slopes)
    map_ = of(at=[1.0, 1.0], unit=SINGLE)
    oracle = Oracle("it", True, oracle_map, SETTINGS)
    mode = mode_of(map_)
    exact = mode.pulled(oracle_map)
    claims = exact, exact
    sides = stochastic.Sides(map_, oracle, SETTINGS, mode, *claims, [oracle.map])
    found = stochastic.Runs(sides)._moved(3)
    moves = stochastic.roundings(map_, SETTINGS, 3)
    assert found == pytest.approx(moves[None, :] if counts else np.zeros((1, 2)), rel=1e-6)
    fixed = replace(oracle, map=of(at=[1.0, 1.0]))
    assert not stochastic.Runs(replace(sides, oracle=fixed))._moved(3).any()


@pytest.mark.parametrize("tiny", [0.0, 2.0**-30])
def test_a_number_is_rounded_to_a_neighbour_by_chance(tiny):
    values, unit = np.array([0.35, -0.35, 0.0, INF]), 0.5  # a spacing of 0.25 there
    low = rounded_at_random(values, np.zeros(4), unit, tiny)
    high = rounded_at_random(values, np.full(4, 1 - 2.0**-30), unit, tiny)
    if tiny:
        assert (low.tolist(), high.tolist()) == ([0.5, -0.25, 0.0, INF], [0.25, -0.5, 0.0, INF])
        part = (0.35 - 0.25) / 0.25
        for draw, told in ((0.9 * part, 0.5), (1.1 * part, 0.25)):
            assert rounded_at_random(values, np.full(4, draw), unit, tiny)[0] == told
    else:
        assert low == pytest.approx([0.1, -0.6, 0.0, INF])
        assert high == pytest.approx([0.6, -0.1, 0.0, INF])


# Claims in few bits.


def test_claims_are_asked_at_seven_neighbours_too_where_there_are_few_entries():
    def slopes(x):
        return np.diag(2 * x)

    parts = {"jacobian": slopes}
    for unit, points in ((BRAIN, 8), (SINGLE, 1)):
        map_ = of(lambda x: x**2, [1.0, 3.0], np.diag([2.0, 6.0]), unit, **parts)
        exact = of(lambda x: x**2, [1.0, 3.0], np.diag([2.0, 6.0]), **parts)
        oracle = Oracle("it", True, exact, SETTINGS)
        found = low_precision._sides(map_, oracle, SETTINGS, mode_of(map_))
        got, told, beside = found.got, found.exact, found.points
        assert len(beside) == points == len(got) == len(told)
        assert [(2 * each.point).tolist() for each in beside] == told.tolist()
        assert got[0].tolist() == told[0].tolist() == [2.0, 6.0]
        moved = got[1:] / got[0] - 1
        assert not points > 1 or (np.abs(moved) <= 5 * BRAIN).all()
        assert not points > 1 or np.abs(moved).max() >= BRAIN
    linear = of(at=[1.0, 3.0], unit=BRAIN, jacobian=lambda x: np.ones((2, 2)))
    oracle = Oracle("it", True, linear, SETTINGS)
    found = low_precision._sides(linear, oracle, SETTINGS, mode_of(linear))
    assert len(found.points) == 1


def test_what_is_usual_of_an_entry_is_so_along_one_probe_and_no_less_than_of_most_entries():
    """An entry that a choice moves along one probe is known as well as any along another."""
    exact = np.array([[1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0]])
    errors = np.array([[[0.1, 0.1, 0.0, 0.0], [5.0, 0.1, 0.0, 0.0]]] * 3)
    size = 1 + 0.1 * math.sqrt(0.75)
    least = 0.1  # of half of the entries that are not zero
    found = stochastic._usual(errors, exact)
    assert found[:, :3].tolist() == [
        pytest.approx([0.1, 0.1, least]),
        pytest.approx([5.0, 0.1, least]),
    ]
    assert found[:, 3].tolist() == pytest.approx([least * (size - 1) / size] * 2)


@pytest.mark.parametrize(
    ("claimed", "nearest"), [(5.0, 5.0), (3.0, 3.0), (7.0, 5.0), (0.5, 1.0), (NAN, NAN)]
)
def test_where_rounding_chooses_every_slope_between_is_right(claimed, nearest):
    """One of sixteen runs chooses otherwise in entry 0; what all of them miss stays one number."""
    seeds: list[int] = []

    class Chosen(FunctionMap):
        def rounded(self, unit, tiny, seed):
            assert unit == 4 * BRAIN
            seeds.append(seed)
            error = unit * self.point * (-1) ** seed / 16
            slopes = np.diag(np.array([5.0 if seed == 3 else 1.0, 1.0]) + error)
            if seed == 4:
                slopes = np.full((2, 2), INF)  # is no choice
            return FunctionMap(np.copy, self.point, slopes)

    map_ = of(at=[1.0, 1.0], claimed=np.diag([claimed, 5.0]), unit=BRAIN)
    exact = Chosen(np.copy, [1.0, 1.0], np.eye(2))
    mode = mode_of(map_)
    claims = mode.pulled(map_), np.ones((1, 2))
    oracle = Oracle("it", True, exact, SETTINGS)
    sides = stochastic.Sides(map_, oracle, SETTINGS, mode, *claims, [exact])
    runs = stochastic.Runs(sides)
    runs._made = [np.array([[1.0, -1.0]]) * BRAIN / 16] * 2
    found = runs.nearest()
    assert seeds == list(range(12))
    assert found[0].tolist() == pytest.approx([nearest, 1.0], nan_ok=True, rel=1e-2)


@pytest.mark.parametrize(("part", "drowned"), [(0.99, True), (1.01, False)])
@pytest.mark.parametrize("columnwise", [False, True])
def test_what_is_less_than_rounding_of_the_value_is_what_is_left_of_larger_terms(
    part, drowned, columnwise
):
    """Sixteen roundings of single precision of the value, 8, for a move as large as the input."""
    oracle = Oracle("it", True, of(lambda x: np.array([-8.0, INF]), [2.0]), SETTINGS)
    left = part * 16 * SINGLE * 8.0
    mode = mode_of(oracle.map, [1.0, 1.0], [2.0, 1.0])
    exact = np.array([[left], [0.0]]) / probes.scales_of(oracle.map)
    if columnwise:
        mode = replace(mode, columnwise=True, space=oracle.map.codomain)
        exact = np.array([[-left, 0.0], [0.0, 0.0]])
    sides = stochastic.Sides(oracle.map, oracle, SETTINGS, mode, exact, exact, [oracle.map])
    assert low_precision._drowned(sides, 0, exact) is drowned


# In how many bits a function computes.


@pytest.mark.parametrize(
    ("gap", "honest", "fewer"),
    [(1e-3, 1e-7, True), (1e-3, 1e-3, False), (1e-9, 1e-7, False), (1e-3, 0.0, True)],
)
def test_a_function_is_in_few_bits_where_noise_and_distance_show_it(gap, honest, fewer):
    """Sixteen times its unit round-off: what honest runs are as far off by is none."""
    map_ = of(lambda x: np.array([1.0 + gap]), unit=SINGLE)
    map_.memo["resolution",] = 1e-3
    directional.along(map_, SETTINGS, 0)
    map_.memo["resolution",] = 1e-3
    seeds = []

    def rounded(unit, tiny, seed):
        seeds.append((unit, tiny, seed))
        return of(lambda x: np.array([1.0 + honest]))

    exact = of(lambda x: np.array([1.0]), extra={"rounded": rounded})
    oracle = Oracle("it", True, exact, SETTINGS)
    grain = Grain(SINGLE, 2.0**-126)
    assert oracles.fewer_bits(map_, oracle, Settings(seed=5), grain) is fewer
    assert seeds == [(SINGLE, 2.0**-126, 5), (SINGLE, 2.0**-126, 6)]
    assert (map_.resolution > SINGLE) is fewer
    unasked = replace(oracle, map=of(lambda x: np.array([1.0])))
    assert not oracles.fewer_bits(map_, unasked, SETTINGS, grain)


def test_an_input_that_moves_nothing_is_told():
    map_ = FunctionMap(
        lambda x: x[:2] ** 2, [1.0, 2.0, 3.0], np.eye(2, 3), inputs=[(1,), (1,), (1,)]
    )
    spans = [map_.domain.span(k) for k in range(3)]
    assert [judge._varies(map_, SETTINGS, span) for span in spans] == [True, True, False]


# Suspicions that a search does not account for.


@pytest.mark.parametrize(
    ("accounted", "classic", "open_"),
    [(False, None, True), (True, None, False), (False, 1e-6, False), (True, 1e-6, False)],
)
def test_a_projection_that_differs_is_open_where_no_entry_accounts_for_it(
    accounted, classic, open_
):
    map_ = FunctionMap(np.sin, [1.0, 2.0], np.eye(2))
    screen = judge.Screen((1,), (), None, 0.0, 0.0, False, bound=1e-9)
    settings = replace(SETTINGS, classic_step=classic)
    claim = Backward(map_, settings)
    said = judge._searched(Search(claim, screen, complete=accounted))
    assert isinstance(said, Opinion)
    assert said.open is open_
    note = ("a projection differs, but every entry located is within its tolerance",)
    assert said.notes == (() if open_ else note)


# Kinks of maps too large to be measured whole.


@pytest.mark.parametrize("transposes", [False, True])
def test_claims_at_kinks_of_a_large_map_are_held_against_the_slopes_along_a_direction(transposes):
    point = np.array([0.0, 1.0, 0.0])
    claimed = np.array([[0.5, 1.0, 0.0], [0.0, 0.0, 3.0], [1.0, 1.0, 1.0]])

    def fn(x):
        return np.array([abs(x[0]) + x[1], abs(x[2]), x.sum()])

    map_ = FunctionMap(fn, point, Linear.dense(claimed), transposes=transposes)
    claim = Backward(map_, SETTINGS)
    kinks, open_ = limiting_slopes.along_probe(claim, [0, 1, 2])
    u = probes.tangent(map_, 0, 0)
    assert [(str(k.output), k.input, k.within) for k in kinks] == [
        ("y[1]", None, False),
        ("y[0]", None, True),
    ]
    assert open_ == (2,)
    for kink, row, plain, bent in zip(kinks, (1, 0), (0.0, u[1]), (u[2], u[0]), strict=True):
        assert kink.claimed == pytest.approx(claimed[row] @ u)
        assert kink.left == pytest.approx(plain - abs(bent))
        assert kink.right == pytest.approx(plain + abs(bent))


def test_a_map_that_cannot_be_rounded_says_so():
    with pytest.raises(Unsupported):
        of().rounded(SINGLE, 0.0, 0)


def test_where_no_run_in_double_precision_is_believed_identities_are_decided_as_before() -> None:
    x = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    checks = ("linearity", "layout", "undefined", "batched")
    report = gradproof.check(torch.Tensor.bfloat16, (x.requires_grad_(),), seed=0, checks=checks)
    assert {str(result.verdict) for result in report.checks} == {"passed"}
