"""What searches, oracles and single looks are made into, in numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gradproof._data.records import Finding, Place
from gradproof._data.settings import Settings
from gradproof._data.space import Grain, Slot, Space
from gradproof._judge import entries as of_entries
from gradproof._judge.claims import Backward, Forward, Mode
from gradproof._judge.decide import Bar, decide
from gradproof._judge.found import Entries
from gradproof._judge.heard import Heard
from gradproof._judge.opinion import Opinion
from gradproof._judge.screen import Screen
from gradproof._locate.decode import Residual
from gradproof._locate.hypotheses import Common
from gradproof._locate.search import Column, Few, Search
from gradproof._measure import directional, jacobian
from gradproof._measure.richardson import Estimate
from gradproof._measure.statistics import Measured, Samples
from gradproof._verdict import judge, low_precision
from gradproof._verdict.conclude import Source, Witness
from numpy_map import FunctionMap

SETTINGS = Settings(seed=0)
DOUBLE, SINGLE, HALF = 2.0**-53, 2.0**-24, 2.0**-11
NAN, INF = math.nan, math.inf

pytestmark = pytest.mark.usefixtures("as_in_the_engine")


# Residuals and searches.


def test_of_two_residuals_the_bars_of_what_is_left_add_up() -> None:
    one = Residual(np.array([3.0, 1.0]), np.array([0.5, 0.25]), np.array([8.0, 2.0]))
    other = Residual(np.array([1.0, 4.0]), np.array([0.25, 1.0]), np.array([2.0, 2.0]))
    left = one - other
    assert (left.value.tolist(), left.measured.tolist()) == ([2.0, -3.0], [6.0, 0.0])
    assert left.threshold.tolist() == [0.75, 1.25]
    assert left.size == 3.0
    assert not left.nothing
    assert replace(left, value=np.array([0.75, -1.25])).nothing
    assert replace(left, value=np.array([0.75, NAN])).size == INF
    assert left.of([1]).value.tolist() == [-3.0]


@pytest.mark.parametrize("entries", [{}, {3: 2.0}, {0: 1.0, 7: -4.0}])
def test_a_long_vector_of_few_entries_is_what_it_is_written_out(entries) -> None:
    vector = np.zeros(directional.KEPT + 1)
    for at, value in entries.items():
        vector[at] = value
    few = Few(vector)
    assert few.values.shape == (len(entries),)
    rows = np.array([0, 3, 4, 7, directional.KEPT])
    assert few.take(rows).tolist() == vector[rows].tolist()
    other = np.arange(1.0, len(vector) + 1)
    assert few.dot(other) == sum(value * (at + 1) for at, value in entries.items())
    dense = np.ones(directional.KEPT + 1)
    assert Few(dense).values is dense
    assert Few(dense).take(rows).tolist() == [1.0] * 5


def test_zero_times_no_number_is_none() -> None:
    assert Few(np.array([NAN, 2.0])).dot(np.array([0.0, 3.0])) == 6.0
    assert math.isnan(Few(np.array([NAN, 2.0])).dot(np.array([1.0, 3.0])))


def finding(row: int, column: int, claimed: float = 1.0) -> Finding:
    place = [Place(name, 0, (at,), "") for name, at in (("y", row), ("x", column))]
    return Finding("backward", "", "entry", place[1], place[0], claimed, 0.0)


def search(found=(), screen=None, n=4, m=3, settings=SETTINGS, **what) -> Search:
    map_ = FunctionMap(lambda x: np.ones(m) * x.sum(), np.ones(n), np.zeros((m, n)))
    screen = screen or Screen((0,), (), None, 0.0, 0.0, False, bound=1e-9)
    made = Search(Backward(map_, settings), screen, **what)
    none = Few(np.zeros(m))
    made.columns = {0: Column(list(found), [], NAN, none, none)}
    return made


@pytest.mark.parametrize(
    ("what", "accounted"),
    [({}, True), ({"complete": False}, False), ({"many": True}, False), ({"crowded": True}, False)],
)
def test_a_search_accounts_for_all_unless_something_was_left(what, accounted) -> None:
    assert search(**what).accounted is accounted


def test_rows_wrong_in_many_columns_are_explained_by_what_these_have_in_common() -> None:
    wrong = [finding(0, 0)]
    assert search(wrong).explained
    assert not search().explained
    assert not search(wrong, crowded=True).explained
    assert search(wrong, crowded=True, common=Common(1, 0, 4)).explained


@pytest.mark.parametrize(
    ("found", "what", "count", "told"),
    [
        ([finding(0, 1)], {}, 1, "1 wrong entry located in the 3 x 4 Jacobian"),
        ([finding(0, 1), finding(1, 2)], {}, 1, "2 wrong entries located in the 3 x 4 Jacobian"),
        (
            [finding(0, 1)],
            {"crowded": True},
            1,
            "rows of the 3 x 4 Jacobian are wrong in several columns, y[0] first",
        ),
        (
            [finding(0, 1), finding(1, 2)],
            {"many": True},
            1200,
            "1,200 rows of the 3 x 4 Jacobian are wrong",
        ),
        (
            [finding(0, 1), finding(1, 1)],
            {"many": True},
            2,
            "2 rows of the 3 x 4 Jacobian are wrong, all with respect to x[1]",
        ),
        (
            [finding(0, 1), finding(1, 1)],
            {"many": True, "complete": False},
            12,
            "12 rows of the 3 x 4 Jacobian are wrong",
        ),
    ],
)
def test_what_a_search_found_is_told_in_words(found, what, count, told) -> None:
    screen = Screen((0,), (), None, 0.0, 0.0, False, count=count)
    said = judge._refuted(search(found, screen, **what))
    assert said.summary == told
    assert not said.open
    assert {each.kind for each in said.findings} == {"row" if "crowded" in what else "entry"}
    projected = replace(screen, suspects=(), projected=(0, np.ones(3)))
    if "many" in what:
        assert judge._refuted(search(found, projected, **what)).summary.startswith("many rows")


SURE, SEEN_ILL, BOTH = ((0,), ()), ((), (0,)), ((0,), (1,))


@pytest.mark.parametrize(
    ("size", "rows", "what", "found", "route"),
    [
        (4, SURE, {}, "", ["settled"]),
        (6, SURE, {}, "", ["settled"]),
        (7, SURE, {}, "", ["located", "searched"]),  # more than are measured where one is wrong
        (7, SEEN_ILL, {}, "", ["settled"]),
        (8, SEEN_ILL, {}, "", ["settled"]),
        (8, BOTH, {}, "", ["settled"]),
        (9, SEEN_ILL, {}, "", ["located", "searched"]),
        (9, BOTH, {}, "explained", ["slopes", "located", "searched"]),
        (4, SURE, {"brief": True}, "explained", ["settled"]),  # no more than are drawn
        (5, SURE, {"brief": True}, "explained", ["located briefly", "searched"]),
        (5, SURE, {"brief": True}, "findings", ["located briefly", "settled"]),
        (5, SURE, {"brief": True}, "", ["located briefly", "settled"]),
        (5, SEEN_ILL, {"brief": True}, "explained", ["settled"]),
        (5, SURE, {"derived": True}, "findings", ["located", "searched"]),
        (5, SURE, {"derived": True}, "", ["located", "settled"]),
        (9, SURE, {"brief": True}, "", ["located", "searched"]),
    ],
)
def test_few_inputs_are_measured_and_of_many_the_wrong_ones_are_looked_for(
    monkeypatch, size, rows, what, found, route
) -> None:
    asked: list[str] = []

    def locate(claim, screen, briefly):
        asked.append("located briefly" if briefly else "located")
        return SimpleNamespace(explained=found == "explained", findings=found == "findings")

    monkeypatch.setattr(judge, "locate", locate)
    monkeypatch.setattr(judge, "_searched", lambda found: asked.append("searched"))
    monkeypatch.setattr(judge.entries, "settle", lambda claim, screen: asked.append("settled"))
    monkeypatch.setattr(judge.limiting_slopes, "limits", lambda claim: asked.append("slopes"))
    map_ = FunctionMap(lambda x: x[:2], np.ones(size), np.zeros((2, size)))
    map_.derived = what.get("derived", False)
    settings = replace(SETTINGS, full_jacobian=8, every_entry=6, brief=what.get("brief", False))
    judge._located(Backward(map_, settings), Screen(*rows, None, 0.0, 0.0, False))
    assert asked == route


# Outputs that drown in their own rounding.


@pytest.mark.parametrize(
    ("value", "error", "flat"),
    [
        (1.0, 2.0, 2.0),  # not told from zero
        (2.0, 2.0, 2.0),
        (2.1, 2.0, None),
        (2.1, INF, None),
        (2.1, 64 * 2 * DOUBLE * 8.0 * 2.0**14, 64 * 2 * DOUBLE * 8.0 * 2.0**14),
        (2.1, 65 * 2 * DOUBLE * 8.0 * 2.0**14, None),
    ],
)
def test_an_output_drowns_where_its_bar_is_all_or_roundings_of_the_longest_step(
    value, error, flat
) -> None:
    """2^-6 is the longest, of which the next is 2^-8: the noise of that is in the bar."""
    if flat is not None and flat < 1e-3:
        value = 4 * flat
    map_ = FunctionMap(lambda x: np.array([-8.0, x[0]]), [1.0], np.zeros((2, 1)))
    one = Estimate(*(np.array([each, 1.0]) for each in (value, error, 0.0, 0.0, 0.0, 0.0)))
    first = directional.along(map_, SETTINGS, 0)
    map_.memo["along", 0] = replace(first, estimate=one)
    open_ = Opinion("backward", "", open=True, outputs=(0,))
    assert judge._drowned(Backward(map_, SETTINGS), open_).flat == flat
    for settings, said in (
        (SETTINGS, replace(open_, outputs=())),
        (replace(SETTINGS, classic_step=1e-6), open_),
    ):
        assert judge._drowned(Backward(map_, settings), said) is said
    map_.resolution = SINGLE
    assert judge._drowned(Backward(map_, SETTINGS), open_) is open_


@pytest.mark.parametrize(("n", "m"), [(0, 2), (2, 0)])
def test_of_nothing_differences_say_that_there_is_nothing(n, m) -> None:
    map_ = FunctionMap(lambda x: np.ones(m), np.ones(n), np.zeros((m, n)))
    said = judge.differences(Backward(map_, SETTINGS)).here
    assert said.summary == "nothing to check: no input or no output has an entry"
    assert said.verified


@pytest.mark.parametrize(
    ("what", "unreached", "told"),
    [
        ({}, [1], True),
        ({}, [0], False),  # the graph says so, and F moves all the same
        ({}, [2], False),  # it has no entry
        ({}, [], False),
        ({"classic": 1e-6}, [1], False),
        ({"mode": Forward}, [1], False),
        ({"derived": True}, [1], False),
        ({"open": True}, [1], False),
    ],
)
def test_of_claims_that_are_confirmed_an_input_that_moves_nothing_is_told(
    what, unreached, told
) -> None:
    map_ = FunctionMap(
        lambda x: x[:2] ** 2,
        [1.0, 2.0, 3.0],
        np.zeros((2, 3)),
        inputs=[(2,), (1,), (0,)],
        extra={"unreached": lambda: unreached},
    )
    map_.derived = what.get("derived", False)
    settings = replace(SETTINGS, classic_step=what.get("classic"))
    claim = what.get("mode", Backward)(map_, settings)
    said = Opinion("backward", "", open=what.get("open", False), resolution=1e-9)
    found = judge._tested(Witness("it", Source.ITSELF, said), claim).untested
    name = map_.domain.slots[1].name
    assert found == (f"nothing was tested of {name}: no output depends on it" if told else "")


# Bars of entries that are small.


def test_what_has_no_size_may_have_a_bar_that_underflows() -> None:
    map_ = FunctionMap(lambda x: 0.0 * x, [0.5], np.zeros((1, 1)))
    nothing = np.zeros((1, 1))
    comparison = decide(nothing, nothing, Bar(nothing, nothing))
    found = Entries(Backward(map_, SETTINGS), None, comparison, nothing, nothing)
    assert of_entries._small(found, 0.0).tolist() == [[1e-250]]
    assert of_entries._small(found, 2.0) == pytest.approx(1e-7 * 2.0 / 0.5, rel=1e-12)
    map_.memo["beside",] = 3.0
    assert of_entries._small(found, 2.0) == pytest.approx(1e-7 * 3.0 / 0.5, rel=1e-12)
    map_.resolution = SINGLE  # beside a jump less is resolved: half the digits
    assert of_entries._small(found, 2.0) == pytest.approx(SINGLE**0.5 * 3.0 / 0.5, rel=1e-12)


def test_among_the_columns_of_all_a_tiny_input_has_two_ladders() -> None:
    """On one tread of 1 + x its quotient by x slopes cleanly; steps of the array's size see F."""

    def fn(x):
        return np.array([((1.0 + x[0]) - 1.0) / x[0], x[1]])

    map_ = FunctionMap(fn, [1.3e-15, 1.0, 1.0], np.zeros((2, 3)))
    found = jacobian.columns(map_, SETTINGS)
    assert abs(found.value[0, 0]) <= found.error[0, 0]


# Claims in few bits, in words and in numbers.


def measured(name: str, value: float, allowed: float, where: int | None = None) -> Measured:
    return Measured(name, value, allowed, where)


def sides_of(got, exact, *, columnwise=False, unit=HALF):
    """Claims and exact derivatives of two arrays, of two and of three entries."""
    grain = Grain(unit, 2.0**-126, 3e38)
    space = Space((Slot("a", (2,), grain=grain), Slot("b", (3,), grain=grain)))
    map_ = FunctionMap(lambda x: x, np.ones(5), np.eye(5))
    map_.domain = map_.codomain = space
    map_.resolution = unit
    mode = Mode("backward", "gradient of", [np.ones(5)], space, columnwise=columnwise)
    got, exact = np.array(got, dtype=float), np.array(exact, dtype=float)
    oracle = SimpleNamespace(name="float64", map=map_)
    return SimpleNamespace(map=map_, oracle=oracle, mode=mode, got=got, exact=exact)


EXACT = [[1.0, 2.0, 1.0, 1.0, 4.0], [1.0, 1.0, 1.0, 1.0, 1.0]]


@pytest.mark.parametrize("columnwise", [False, True])
def test_what_is_off_most_in_an_array_is_told_by_entry_and_probe(columnwise) -> None:
    got = [[1.0, 2.0, 1.0, 1.5, 4.25], [1.0, 3.0, 1.0, 1.0, 3.0]]
    sides = sides_of(got, EXACT, columnwise=columnwise)
    wrong = [measured("worst entry", 0.5, 0.125, 1), measured("mean", 0.25, 0.125)]
    found = low_precision._finding(sides, 1, wrong)
    assert found.message == (
        "gradient of b[1] against float64: worst entry off by 0.5, rounding explains 0.12; "
        "also mean; b[1] claimed 1.5, exact 1"
    )
    assert (found.claimed, found.measured, found.error, found.allowed) == (1.5, 1.0, 0.0, 0.125)
    place = found.output if columnwise else found.input
    assert str(place) == "b[1]"
    assert (found.input if columnwise else found.output) is None
    found = low_precision._finding(sides, 1, wrong[1:])
    assert found.message == (
        "gradient of b against float64: mean off by 0.25, rounding explains 0.12; "
        "b[2] claimed 3, exact 1"
    )
    assert (found.claimed, found.measured, found.kind) == (3.0, 1.0, "precision")


@pytest.mark.parametrize(
    ("slopes", "worst", "told"),
    [
        ((0.1, 0.2), 0.2, ""),
        ((0.1, 0.25), 0.25, ""),
        ((0.3, 0.2), 0.3, "errs by up to 30% in the gradient of a: nothing smaller"),
        ((0.3, 1.0), 1.0, "errs by all of it, or more, in the gradient of b: nothing smaller"),
    ],
)
def test_honest_arithmetic_tells_too_little_from_a_quarter_on(slopes, worst, told) -> None:
    found = [(k, [measured("slope", 0.0, each)]) for k, each in enumerate(slopes)]
    said = low_precision._concluded(sides_of(EXACT, EXACT), found)
    assert (said.resolution, said.findings) == (worst, ())
    assert (told in said.unresolved) if told else said.unresolved == ""


def test_statistics_are_told_in_spacings_of_the_format() -> None:
    rows = [measured("slope", 4 * HALF, 8 * HALF), measured("rms", 12 * HALF, 6 * HALF)]
    said = low_precision._concluded(sides_of(EXACT, EXACT), [(1, rows)])
    told = [(one.oracle, one.array, one.name, one.value, one.allowed) for one in said.statistics]
    assert told == [("float64", "b", "slope", 2.0, 4.0), ("float64", "b", "rms", 6.0, 3.0)]
    assert [str(each.input) for each in said.findings] == ["b[0]"]


def judged(rows, aside=0):
    part = np.ones((1, 2))
    samples = Samples(0.5 * part, part, part[None], (2,), HALF, 0.0)
    return low_precision._Judged(samples, rows, aside)


@pytest.mark.parametrize(
    ("rows", "aside", "settled"),
    [
        ([measured("rms", 0.1, 0.2)], 0, True),
        ([measured("rms", 0.1, 0.3)], 0, False),
        ([measured("rms", 0.1, 0.2)], 1, False),
        ([measured("rms", 0.3, 0.2)], 0, False),
        ([measured("slope", 0.1, 0.9)], 0, True),  # of which the root mean square tells
        ([measured("slope", NAN, 0.9)], 0, False),
        ([], 0, True),
    ],
)
def test_a_few_runs_settle_what_is_within_and_known(rows, aside, settled) -> None:
    assert judged(rows, aside).settled(0.2) is settled


@pytest.mark.parametrize(
    ("rows", "off"),
    [
        ([measured("slope", 0.1, 0.25)], []),
        ([measured("slope", 0.1, 0.3)], [1.0]),  # honest runs miss so much themselves
        ([measured("rms", 0.1, 0.3)], []),
        ([measured("rms", 0.4, 0.3)], [1.0, 0.5]),
    ],
)
def test_what_may_drown_is_the_derivative_and_of_a_refuted_one_the_gap(rows, off) -> None:
    assert [float(part[0, 0]) for part in judged(rows).off] == off


@pytest.mark.parametrize(
    ("names", "told"),
    [(["a"], "the gradient of a is"), (["a", "b", "c"], "the gradient of a and 2 more is")],
)
def test_what_is_left_of_larger_terms_is_told(names, told) -> None:
    mode = sides_of(EXACT, EXACT).mode
    assert low_precision._told_of(mode, names).startswith(told)


@pytest.mark.parametrize(
    ("unit", "v", "slopes", "direction", "claimed", "off"),
    [
        (HALF, [1.0], [1.0], 4.0, 1.0 + 2e-4, False),  # a rounding of (J^T v).u
        (HALF, [1.0], [1.0], 4.0, 1.0 + 6e-4, True),
        (DOUBLE, [1.0, -1.0], [1e6, 1e6], 1.0, 1e-4, False),  # 1e-10 of the rows that cancel
        (DOUBLE, [1.0, -1.0], [1e6, 1e6], 1.0, 2e-4, True),
    ],
)
def test_a_backward_fits_up_to_its_rounding_and_that_of_the_rows(
    unit, v, slopes, direction, claimed, off
) -> None:
    map_ = FunctionMap(lambda x: np.ones(len(v)), [1.0], np.zeros((len(v), 1)))
    map_.resolution = unit
    value, nothing = np.array(slopes), np.zeros(len(v))
    found = Estimate(value, nothing, nothing, nothing, nothing, nothing)
    heard = Heard(map_, np.array([direction]), found)
    heard(np.array([claimed / direction]), np.array(v))
    assert bool(heard.off) is off
