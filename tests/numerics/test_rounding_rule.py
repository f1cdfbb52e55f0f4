"""The rule for few bits: rounding of any kind passes, a mistake of the formula does not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof._data.formats import FORMATS, Grain
from gradproof._data.space import Slot, Space
from gradproof._low_precision.rounding_runs import RUNS, ClaimedBesideExact
from gradproof._low_precision.rounding_tests import Deviation, array_deviations

pytestmark = pytest.mark.usefixtures("as_in_the_engine")

PRECISIONS = ("float32", "float16", "bfloat16")
SHAPES = ((), (1,), (2,), (7,), (300,), (1, 9), (9, 1), (2, 2), (8, 16), (200, 3), (3, 4, 5))
UP_OR_DOWN = 1.4  # rounding at random makes so many times the noise of rounding to nearest

Rounding = Callable[[np.random.Generator, np.ndarray, float, int], np.ndarray]


def nearest(rng, exact, eps, width):
    """One rounding of the result itself."""
    return exact * eps / 2 * rng.uniform(-1, 1, exact.shape)


def many(rng, exact, eps, width):
    """A chain of twenty operations."""
    return exact * eps / 2 * rng.uniform(-1, 1, (20, *exact.shape)).sum(axis=0)


def cancelled(rng, exact, eps, width):
    """Sums of terms ten times as large as their result: entries of all sizes are off alike."""
    return 10 * eps * rng.standard_normal(exact.shape)


def shared_by_rows(rng, exact, eps, width):
    """A saved statistic of each row, rounded once for all cotangents."""
    factor = np.repeat(rng.uniform(-1, 1, exact.shape[1] // width), width)
    return exact * eps * factor + nearest(rng, exact, eps, width)


def shared_by_all(rng, exact, eps, width):
    """One saved number that is a factor of everything."""
    return exact * eps * rng.uniform(-1, 1) + nearest(rng, exact, eps, width)


def branches(rng, exact, eps, width):
    """A branch that rounding takes otherwise in one entry, whichever it is."""
    off = nearest(rng, exact, eps, width)
    off[:, rng.integers(exact.shape[1])] += 0.5
    return off


ROUNDINGS = {
    each.__name__: each
    for each in (nearest, many, cancelled, shared_by_rows, shared_by_all, branches)
}


def claims(
    shape: tuple[int, ...],
    grain: Grain,
    rounding: Rounding = nearest,
    seed: int = 0,
    change: Callable[[np.ndarray], np.ndarray] | None = None,
    probes: int = 2,
) -> ClaimedBesideExact:
    """Claims whose errors are those of the honest runs, on an array that may come out changed."""
    rng = np.random.default_rng(seed)
    size, width = math.prod(shape), max(1, shape[-1] if shape else 1)
    exact = rng.standard_normal((probes, size))
    eps = 2 * grain.unit
    runs = [UP_OR_DOWN * rounding(rng, exact, eps, width) for _ in range(RUNS)]
    got = exact + rounding(rng, exact, eps, width)
    if change:
        got = np.stack([change(one.reshape(shape).copy()).reshape(-1) for one in got])
    space = Space((Slot("x", shape, grain=grain),))
    return ClaimedBesideExact(space, got, exact, np.stack(runs), np.zeros((RUNS, 1)), grain)


def deviations(sides: ClaimedBesideExact, tolerance: float = 0.0) -> dict[str, Deviation]:
    (array,) = array_deviations(sides, tolerance)
    return {each.name: each for each in array.deviations}


def verdict(sides: ClaimedBesideExact) -> str:
    (array,) = array_deviations(sides, 0.0)
    return "wrong" if array.is_wrong else "right" if array.is_right else "open"


@settings(max_examples=300)
@given(
    st.sampled_from(SHAPES),
    st.sampled_from(PRECISIONS),
    st.sampled_from(sorted(ROUNDINGS)),
    st.integers(0, 10**6),
    st.integers(2, 4),
)
def test_honest_errors_pass(shape, precision, rounding, seed, probes) -> None:
    sides = claims(shape, FORMATS[precision], ROUNDINGS[rounding], seed, probes=probes)
    assert verdict(sides) != "wrong"


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_nearly_all_honest_errors_are_right_rather_than_open(precision, rounding) -> None:
    found = [
        verdict(claims(shape, FORMATS[precision], ROUNDINGS[rounding], seed))
        for shape in SHAPES
        for seed in range(5)
    ]
    assert found.count("right") >= 0.98 * len(found)


def edited(
    index: object, factor: float = 1.0, term: float = 0.0
) -> Callable[[np.ndarray], np.ndarray]:
    def change(a: np.ndarray) -> np.ndarray:
        a[index] = factor * a[index] + term
        return a

    return change


MISTAKES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "factor": lambda a: 1.1 * a,
    "sign": lambda a: -a,
    "zero": lambda a: 0 * a,
    "mean": lambda a: a - 0.5,
    "rolled": lambda a: np.roll(a, 1),
    "without a row": edited(1, 0.0),
    "a row": edited(1, 1.5),
    "a column": edited(np.s_[:, 1], -1.0),
    "one entry": edited((0, 5), term=1.0),
}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_the_formula_is_wrong(precision: str, mistake: str) -> None:
    for seed in range(5):
        sides = claims((30, 20), FORMATS[precision], nearest, seed, MISTAKES[mistake])
        assert verdict(sides) == "wrong"


@pytest.mark.parametrize(
    ("precision", "factor"), [("float32", 1.0001), ("float16", 1.02), ("bfloat16", 1.06)]
)
@given(seed=st.integers(0, 10**6))
def test_a_factor_of_a_few_roundings_is_wrong(precision: str, factor: float, seed: int) -> None:
    sides = claims((40, 40), FORMATS[precision], nearest, seed, lambda a: factor * a)
    assert verdict(sides) == "wrong"
    assert deviations(sides)["slope"].value == pytest.approx(factor - 1, rel=0.2)


def test_a_row_is_seen_among_many() -> None:
    sides = claims((1000, 8), FORMATS["bfloat16"], nearest, 0, edited(1, 1.5))
    assert deviations(sides)["row slope"].is_wrong


@given(
    st.sampled_from(SHAPES), st.sampled_from([math.nan, math.inf, -math.inf]), st.integers(0, 10**6)
)
def test_an_entry_that_is_no_number_is_wrong(shape, value, seed) -> None:
    place = np.unravel_index(seed % max(1, math.prod(shape)), shape)
    sides = claims(shape, FORMATS["float32"], nearest, seed, edited(place, term=value))
    assert verdict(sides) == "wrong"


@pytest.mark.parametrize("times", [4, 100])
@given(
    seed=st.integers(0, 10**6), mistake=st.sampled_from(["factor", "sign", "zero", "mean", "none"])
)
@settings(max_examples=20)
def test_an_array_that_is_wrong_throughout_is_so_when_tiled(times, seed, mistake) -> None:
    change = MISTAKES.get(mistake)
    once = claims((6, 8), FORMATS["bfloat16"], nearest, seed, change)
    tiled = ClaimedBesideExact(
        Space((Slot("x", (6 * times, 8), grain=once.grain),)),
        *(np.tile(each, (1, times)) for each in (once.got, once.exact)),
        np.tile(once.errors, (1, 1, times)),
        once.value_errors,
        once.grain,
    )
    assert (verdict(tiled) == "wrong") == (verdict(once) == "wrong")


def test_a_relative_tolerance_is_allowed_beside_rounding() -> None:
    sides = claims((30, 20), FORMATS["float32"], nearest, 0, lambda a: 1.001 * a)
    assert deviations(sides)["slope"].is_wrong
    assert not any(each.is_wrong for each in deviations(sides, tolerance=2e-3).values())


def test_without_honest_runs_roundings_of_the_format_pass_and_a_factor_does_not() -> None:
    for change, expected in ((None, "right"), (lambda a: 1.1 * a, "wrong")):
        sides = claims((30, 20), FORMATS["float32"], nearest, 0, change)
        without = ClaimedBesideExact(
            sides.space, sides.got, sides.exact, sides.errors[:0], sides.value_errors, sides.grain
        )
        assert verdict(without) == expected


def test_entries_that_honest_runs_do_not_have_are_left_out() -> None:
    sides = claims((4, 8), FORMATS["float16"])
    sides.errors[0, 0, 3] = math.nan
    sides.got[:, 3] = math.nan
    (array,) = array_deviations(sides, 0.0)
    assert array.left_out == 1
    assert verdict(sides) == "right"


def test_an_array_without_entries_has_no_deviations() -> None:
    assert list(array_deviations(claims((0, 3), FORMATS["float32"]), 0.0)) == []
