"""Gradients in few bits beside exact ones: rounding passes, a mistake of the formula does not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradproof._measure import statistics as module
from gradproof._measure.statistics import (
    Measured,
    Samples,
    refuted,
    statistics,
    well_conditioned,
)

SINGLE, HALF, BRAIN = 2.0**-23, 2.0**-10, 2.0**-7
PRECISIONS = {"float32": SINGLE, "float16": HALF, "bfloat16": BRAIN}
SHAPES = ((), (1,), (2,), (7,), (300,), (1, 9), (9, 1), (2, 2), (8, 16), (200, 3), (3, 4, 5))
RUNS = module.RUNS
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
    rows = exact.shape[1] // width
    factor = np.repeat(rng.uniform(-1, 1, rows), width)
    return exact * eps * factor + nearest(rng, exact, eps, width)


def shared_by_all(rng, exact, eps, width):
    """One saved number that is a factor of everything."""
    return exact * eps * rng.uniform(-1, 1) + nearest(rng, exact, eps, width)


def heavy_tailed(rng, exact, eps, width):
    """A few entries beside a pole, where rounding is magnified a hundred times."""
    size = np.where(np.arange(exact.shape[1]) % 50 == 7, 100.0, 1.0)
    return size * nearest(rng, exact, eps, width)


ROUNDINGS: dict[str, Rounding] = {
    rounding.__name__: rounding
    for rounding in (nearest, many, cancelled, shared_by_rows, shared_by_all, heavy_tailed)
}


def honest(
    shape: tuple[int, ...], eps: float, rounding: Rounding = nearest, seed: int = 0, count: int = 2
) -> Samples:
    """Samples of a right gradient: its errors and those of the honest runs are of one kind."""
    rng = np.random.default_rng(seed)
    size, width = math.prod(shape), max(1, shape[-1] if shape else 1)
    exact = rng.standard_normal((count, size))
    runs = [UP_OR_DOWN * rounding(rng, exact, eps, width) for _ in range(RUNS)]
    gap = rounding(rng, exact, eps, width)
    return Samples(gap, exact, np.stack(runs), shape, eps, eps * 2.0**-126)


def verdict(samples: Samples) -> bool:
    return not refuted(statistics(samples))


def named(samples: Samples) -> dict[str, Measured]:
    return {one.name: one for one in statistics(samples)}


def wrong(samples: Samples, change: Callable[[np.ndarray], np.ndarray]) -> Samples:
    """The samples of a gradient that comes out changed."""
    got = samples.exact + samples.gap
    arrays = got.reshape((got.shape[0], *samples.shape))
    changed = np.stack([change(one.copy()) for one in arrays]).reshape(got.shape)
    return replace(samples, gap=changed - samples.exact)


# A few honest runs.


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_what_a_few_runs_allow_all_of_them_do(rounding: str, count: int) -> None:
    """Where those that were not made count as having erred nowhere."""
    for shape, seed in itertools.product(SHAPES, range(4)):
        every = honest(shape, SINGLE, ROUNDINGS[rounding], seed)
        few = replace(every, honest=math.sqrt(count / RUNS) * every.honest[:count])
        pairs = zip(statistics(few), statistics(every), strict=True)
        for some, of_all in pairs:
            ratios = some.value / some.allowed, of_all.value / of_all.allowed
            assert ratios[0] >= ratios[1] * (1 - 1e-9), (shape, seed, some, of_all)


# Right gradients.


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_rounding_of_any_kind_passes(precision: str, rounding: str) -> None:
    """2,376 right gradients in all, and no false alarm among them."""
    eps = PRECISIONS[precision]
    alarms = [
        (shape, seed, refuted(found))
        for shape in SHAPES
        for seed in range(12)
        if refuted(found := statistics(honest(shape, eps, ROUNDINGS[rounding], seed)))
    ]
    assert not alarms


@given(
    st.sampled_from(sorted(PRECISIONS)),
    st.sampled_from(sorted(ROUNDINGS)),
    st.lists(st.integers(1, 12), max_size=3).map(tuple),
    st.integers(0, 2**16),
    st.integers(1, 4),
)
def test_rounding_passes_whatever_the_shape(precision, rounding, shape, seed, count) -> None:
    assert verdict(honest(shape, PRECISIONS[precision], ROUNDINGS[rounding], seed, count))


@given(st.integers(0, 2**16), st.floats(1e-30, 1e30))
def test_the_unit_of_the_gradient_does_not_matter(seed: int, unit: float) -> None:
    one = honest((6, 5), HALF, many, seed)
    scaled = replace(one, gap=unit * one.gap, exact=unit * one.exact, honest=unit * one.honest)
    for here, there in zip(statistics(one), statistics(scaled), strict=True):
        assert there.value == pytest.approx(here.value, rel=1e-6)
        assert there.allowed == pytest.approx(here.allowed, rel=1e-6)


def test_without_honest_runs_one_rounding_of_the_result_passes() -> None:
    samples = honest((8, 16), BRAIN)
    assert verdict(replace(samples, honest=samples.honest[:0]))


@pytest.mark.parametrize("value", [1.0 / 3, 1.0 / 100_000, 0.7])
def test_equal_entries_are_one_rounding(value: float) -> None:
    """The gradient of a mean of many: honest runs round each entry afresh, and it is one number."""
    exact = np.full((2, 100_000), value) * np.array([[1.0], [1.3]])
    gap = exact.astype(np.float32) - exact
    runs = exact * SINGLE * np.random.default_rng(0).uniform(-0.5, 0.5, (RUNS, *exact.shape))
    right = Samples(gap, exact, runs, (100_000,), SINGLE, 0.0)
    assert verdict(right)
    assert not verdict(wrong(right, scaled(1 + 16 * SINGLE)))


def test_rows_whose_gradient_is_nearly_zero_are_not_accused() -> None:
    """Of a row that cancels only rounding is left, of the size of the other rows'."""
    samples = honest((8, 16), BRAIN, cancelled)
    exact = samples.exact.copy()
    exact[:, 32:48] *= 1e-9
    assert verdict(replace(samples, exact=exact))


# Wrong gradients.


def scaled(by: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda gradient: by * gradient


def row_scaled(by: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(gradient: np.ndarray) -> np.ndarray:
        gradient[-1] *= by
        return gradient

    return change


def column_scaled(by: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(gradient: np.ndarray) -> np.ndarray:
        gradient[..., 1] *= by
        return gradient

    return change


def tail_dropped(gradient: np.ndarray) -> np.ndarray:
    gradient.reshape(-1)[-3:] = 0.0
    return gradient


def shifted(by: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda gradient: gradient + by


COARSE_MISTAKES = {
    "zero": scaled(0.0),
    "sign": scaled(-1.0),
    "half": scaled(0.5),
    "row of zeros": row_scaled(0.0),
    "row of the other sign": row_scaled(-1.0),
    "column of zeros": column_scaled(0.0),
    "tail dropped": tail_dropped,
    "shift": shifted(0.2),
    "moved by one": lambda gradient: np.roll(gradient, 1),
    "turned around": lambda gradient: gradient[::-1],
    "transposed": lambda gradient: gradient.T.reshape(gradient.shape),
}
FINE_MISTAKES = {
    "one per cent": scaled(1.01),
    "one per cent of a row": row_scaled(1.01),
    "one per cent of a column": column_scaled(1.01),
    "one per cent of the size added": shifted(0.01),
}


@pytest.mark.parametrize("mistake", COARSE_MISTAKES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_gradient_that_is_wrong_fails_in_every_precision(precision: str, mistake: str) -> None:
    for seed in range(10):
        right = honest((8, 16), PRECISIONS[precision], many, seed)
        assert not verdict(wrong(right, COARSE_MISTAKES[mistake])), seed


@pytest.mark.parametrize("mistake", FINE_MISTAKES)
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_gradient_that_is_wrong_by_one_per_cent_fails(precision: str, mistake: str) -> None:
    for seed in range(10):
        right = honest((8, 16), PRECISIONS[precision], nearest, seed)
        assert not verdict(wrong(right, FINE_MISTAKES[mistake])), seed


def test_one_per_cent_of_everything_fails_in_bfloat16_where_many_entries_tell() -> None:
    for seed in range(10):
        right = honest((32, 32), BRAIN, nearest, seed)
        assert not verdict(wrong(right, scaled(1.01))), seed
        assert verdict(wrong(right, scaled(1 + BRAIN / 20))), seed


@given(st.sampled_from(SHAPES[1:]), st.sampled_from(sorted(PRECISIONS)), st.integers(0, 2**16))
def test_zero_and_the_other_sign_fail_whatever_the_shape(shape, precision, seed) -> None:
    right = honest(shape, PRECISIONS[precision], nearest, seed)
    assert not verdict(replace(right, gap=-right.exact))
    assert not verdict(replace(right, gap=-2 * right.exact))


@given(
    st.sampled_from(SHAPES),
    st.sampled_from([math.nan, math.inf, -math.inf]),
    st.integers(0, 2**16),
)
def test_an_entry_that_is_no_number_never_passes(shape, value, seed) -> None:
    right = honest(shape, BRAIN, nearest, seed)
    gap = right.gap.copy()
    at = seed % gap.size
    gap.reshape(-1)[at] = value
    with np.errstate(all="ignore"):  # as the engine runs it
        found = named(replace(right, gap=gap))
    assert not found["worst entry"].ok
    assert found["worst entry"].where == at % gap.shape[1]
    assert not found["rms"].ok


def test_what_honest_arithmetic_cannot_tell_is_not_called_wrong() -> None:
    """Where honest runs are off by a tenth, a gradient that is off by a tenth is no mistake."""
    rng = np.random.default_rng(0)
    right = honest((8, 16), BRAIN)
    runs = right.honest + 0.1 * rng.standard_normal((RUNS, 1, 1)) * right.exact
    assert verdict(wrong(replace(right, honest=runs), scaled(1.1)))
    assert not verdict(wrong(replace(right, honest=runs), scaled(-1.0)))


# What is said of a mistake.


def test_a_factor_is_the_slope() -> None:
    found = named(wrong(honest((8, 16), SINGLE), scaled(1.02)))
    assert found["slope"].value == pytest.approx(0.02, rel=1e-4)
    assert found["slope"].where is None


def test_a_row_and_a_column_are_named_by_their_place() -> None:
    right = honest((8, 16), BRAIN)
    row = named(wrong(right, row_scaled(0.0)))["row slope"]
    assert not row.ok
    assert row.value == pytest.approx(1.0, rel=0.05)
    assert row.where == 7 * 16
    column = named(wrong(right, column_scaled(0.0)))["column slope"]
    assert not column.ok
    assert column.where == 1


def test_a_shift_is_the_mean() -> None:
    right = honest((8, 16), SINGLE)
    found = named(wrong(right, shifted(0.5)))["mean"]
    assert not found.ok
    assert found.value == pytest.approx(0.5 / np.sqrt(np.mean(right.exact**2)), rel=1e-4)


def test_one_entry_is_named_by_its_place() -> None:
    right = honest((8, 16), BRAIN)
    gap = right.gap.copy()
    gap[1, 37] += 1.0
    worst = named(replace(right, gap=gap))["worst entry"]
    assert not worst.ok
    assert worst.where == 37


def test_the_part_of_a_vector_is_a_block() -> None:
    block = named(wrong(honest((64,), BRAIN), tail_dropped))["block slope"]
    assert not block.ok
    assert block.where == 56


def test_the_furthest_off_comes_first() -> None:
    found = refuted(statistics(wrong(honest((8, 16), SINGLE), row_scaled(0.0))))
    excess = [one.value / one.allowed for one in found]
    assert excess == sorted(excess, reverse=True)
    assert found[0].name == "row slope"


def test_an_entry_of_two_coordinates_belongs_to_one_row() -> None:
    """Real and imaginary part follow each other: a row of a complex array is twice as long."""
    flat = honest((4, 10), BRAIN)
    found = named(replace(wrong(flat, row_scaled(0.0)), shape=(4, 5)))
    assert found["row slope"].where == 30
    assert found["row slope"].value == pytest.approx(1.0, rel=0.05)


# Size.


def tiled(samples: Samples, times: int) -> Samples:
    return replace(
        samples,
        gap=np.tile(samples.gap, (1, times)),
        exact=np.tile(samples.exact, (1, times)),
        honest=np.tile(samples.honest, (1, 1, times)),
        shape=(samples.shape[0] * times, *samples.shape[1:]),
    )


@pytest.mark.parametrize("times", [3, 100, 1000])
def test_what_is_allowed_never_grows_with_the_size(times: int) -> None:
    small = named(honest((4, 6), BRAIN, many))
    large = named(tiled(honest((4, 6), BRAIN, many), times))
    assert large.keys() == small.keys()
    for name in small:
        assert large[name].allowed <= small[name].allowed * (1 + 1e-9), name


@pytest.mark.parametrize("times", [3, 100, 1000])
def test_tiling_an_array_changes_no_verdict(times: int) -> None:
    right = honest((4, 6), HALF)
    assert verdict(tiled(right, times))
    for name, change in {**FINE_MISTAKES, **COARSE_MISTAKES}.items():
        assert not verdict(tiled(wrong(right, change), times)), name


@pytest.mark.parametrize("times", [3, 100, 1000])
def test_tiling_a_vector_changes_no_verdict(times: int) -> None:
    right = honest((24,), HALF)
    assert verdict(tiled(right, times))
    for name in ("zero", "sign", "half", "tail dropped", "shift", "moved by one"):
        assert not verdict(tiled(wrong(right, COARSE_MISTAKES[name]), times)), name


def test_one_wrong_row_among_ten_thousand_is_seen() -> None:
    assert not verdict(wrong(honest((10_000, 4), BRAIN), row_scaled(0.0)))


# Nothing to compare.


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_an_array_without_entries_has_no_statistic(shape: tuple[int, ...]) -> None:
    assert statistics(honest(shape, BRAIN)) == []


def test_a_gradient_of_zero_is_compared_entry_by_entry() -> None:
    zeros = np.zeros((2, 12))
    right = Samples(zeros, zeros, np.zeros((RUNS, 2, 12)), (3, 4), BRAIN, 2.0**-133)
    assert [one.name for one in statistics(right)] == ["worst entry"]
    assert verdict(right)
    gap = zeros.copy()
    gap[1, 5] = 1e-3
    (worst,) = statistics(replace(right, gap=gap))
    assert not worst.ok
    assert worst.where == 5


def test_of_a_gradient_of_zero_the_rounding_of_honest_runs_is_allowed() -> None:
    """x - x in few bits, each x made in its own way, is not exactly zero."""
    rng = np.random.default_rng(0)
    zeros = np.zeros((2, 12))
    right = Samples(
        BRAIN * rng.standard_normal((2, 12)),
        zeros,
        BRAIN * rng.standard_normal((RUNS, 2, 12)),
        (3, 4),
        BRAIN,
        2.0**-133,
    )
    assert verdict(right)
    assert not verdict(replace(right, gap=right.gap + 1.0))


def test_entries_below_the_smallest_number_are_rounded_to_it() -> None:
    """Of a gradient of 1e-8 float16 keeps one bit or none."""
    tiny, rng = 2.0**-24, np.random.default_rng(0)
    exact = 1e-8 * rng.standard_normal((2, 64))
    rounded = np.round(exact / tiny) * tiny
    samples = Samples(rounded - exact, exact, np.zeros((0, 2, 64)), (8, 8), HALF, tiny)
    assert named(samples)["worst entry"].ok


def test_numbers_that_were_cut_off_are_not_accused_where_that_may_be() -> None:
    """Both factors of a product cut off to 11 bits, as by a tensor core in TF32."""
    rng = np.random.default_rng(0)
    exact = rng.standard_normal((2, 4096))
    gap = -exact * HALF * 0.72 * rng.uniform(0.9, 1.0, exact.shape)
    samples = Samples(gap, exact, np.zeros((0, 2, 4096)), (64, 64), HALF, 2.0**-126)
    assert not named(samples)["slope"].ok
    assert named(replace(samples, cut=True))["slope"].ok
    assert not named(replace(samples, cut=True, gap=3 * gap))["slope"].ok


def test_entries_that_honest_runs_miss_are_set_aside_and_the_others_stay_sharp() -> None:
    rng = np.random.default_rng(4)
    exact = rng.standard_normal((2, 40)) + 4
    exact[:, :5] *= 1e4
    honest = BRAIN * exact * rng.uniform(-1, 1, (RUNS, 2, 40))
    honest[:, :, :5] *= 100
    samples = Samples(gap=0.1 * exact, exact=exact, honest=honest, shape=(40,), eps=BRAIN, tiny=0.0)
    assert not refuted(statistics(samples))
    kept, aside = well_conditioned(samples)
    assert aside == 5
    assert "slope" in {one.name for one in refuted(statistics(kept))}


# The numbers themselves, worked out by hand.

EXACT = np.array([[1.0, 2.0, -2.0, 4.0]])  # as rows (1, 2), (-2, 4): their squares add up to 25
GAP = np.array([[0.1, 0.0, 0.2, -0.4]])
HONEST = np.stack([0.01 * EXACT, np.array([[0.0, 0.0, 0.2, 0.4]])])
STEP, TINY = 2.0**-7, 2.0**-10


def known(**changes) -> dict[str, Measured]:
    return named(replace(Samples(GAP, EXACT, HONEST, (2, 2), STEP, TINY), **changes))


def root(*squares: float) -> float:
    """Of the mean of two runs."""
    return math.sqrt(sum(squares) / 2)


def test_every_statistic_is_the_number_that_its_docstring_says() -> None:
    found = known()
    # Twice the entries weigh (sum w)^2 / sum w^2 of four: of 1 and 16 one each, of 4 two alike.
    length = math.sqrt((1 + 8 + 16) ** 2 / (1 + 64 + 256))
    slope = root(0.01**2, ((-0.4 + 1.6) / 25) ** 2)
    assert found["slope"].value == pytest.approx(abs(0.1 - 0.4 - 1.6) / 25)
    floor = STEP * (0.25 + 5 * 12**-0.5 / length) + TINY / 2.5
    assert found["slope"].allowed == pytest.approx(5 * slope + floor)
    mean = root((0.05 / 4) ** 2, 0.15**2) / 2.5
    assert found["mean"].value == pytest.approx(0.1 / 4 / 2.5)
    floor = 8 * STEP * math.sqrt(1 + 4 + 1) / 4 + TINY / 2.5 / 2
    assert found["mean"].allowed == pytest.approx(5 * mean + floor)
    assert found["rms"].value == pytest.approx(math.sqrt(0.21) / 5)
    honest_rms = root(0.01**2 * 25, 0.2) / 5
    assert found["rms"].allowed == pytest.approx(4 * honest_rms + 3 * STEP + TINY / 2.5)


def test_parts_are_the_numbers_that_their_docstring_says() -> None:
    """A part is allowed five times what honest runs do to it, or half of what they usually do."""
    found = known()
    own = 0.01 * root(1.0), root(0.01**2, ((-0.4 + 1.6) / 20) ** 2)  # of both rows
    assert found["row slope"].value == pytest.approx((0.4 + 1.6) / 20)
    assert found["row slope"].where == 2
    floor = 4 * STEP + TINY * math.sqrt(2 / 20)
    assert found["row slope"].allowed == pytest.approx(5 * own[1] + floor)
    own = root(0.01**2, (0.4 / 5) ** 2), root(0.01**2, (1.6 / 20) ** 2)  # of both columns
    assert found["column slope"].where == 1
    assert found["column slope"].value == pytest.approx(1.6 / 20)
    floor = 4 * STEP + TINY * math.sqrt(2 / 20)
    assert found["column slope"].allowed == pytest.approx(5 * own[1] + floor)
    first = known(gap=np.array([[0.3, 0.6, 0.0, 0.0]]))["row slope"]
    assert (first.where, first.value) == (0, pytest.approx(0.3))
    common = math.sqrt((0.01**2 / 2 + root(0.01**2, 0.06**2) ** 2) / 2)
    floor = 4 * STEP + TINY * math.sqrt(2 / 5)
    assert first.allowed == pytest.approx(5 * common / 2 + floor)


def test_the_worst_entry_is_told_in_parts_of_the_typical_one() -> None:
    found = known(gap=np.array([[0.0, 0.0, 0.2, -9.0]]))["worst entry"]
    size = 4 + 0.25
    own = root(0.04**2, 0.4**2)
    assert (found.where, found.value) == (3, pytest.approx(9 / 2.5))
    allowed = 16 * own + 16 * (STEP * size + TINY)
    assert found.allowed == pytest.approx(allowed / 2.5)
    # Of an entry that runs miss by little, as much in parts of it as they miss all of them by.
    small = known(gap=np.array([[9.0, 0.0, 0.0, 0.0]]))["worst entry"]
    sizes = np.abs(EXACT[0]) + 0.25
    misses = np.array([0.01 * root(1), 0.02 * root(1), root(0.02**2, 0.2**2), own])
    common = math.sqrt(np.mean((misses / sizes) ** 2))
    assert small.allowed == pytest.approx(16 * (common * 1.25 + STEP * 1.25 + TINY) / 2.5)
    assert small.where == 0


def test_several_points_round_afresh_and_digits_that_are_cut_off_are_a_bias() -> None:
    once, often, cut = known(), known(points=4), known(cut=True)
    length = math.sqrt(25**2 / (1 + 64 + 256))
    less = STEP * 5 * 12**-0.5 / length / 2
    assert once["slope"].allowed - often["slope"].allowed == pytest.approx(less)
    less = 8 * STEP * math.sqrt(6) / 4 / 2
    assert once["mean"].allowed - often["mean"].allowed == pytest.approx(less)
    assert cut["slope"].allowed - once["slope"].allowed == pytest.approx(STEP / (2 * math.log(2)))
    same = ("rms", "row slope", "column slope", "worst entry")
    assert [once[name] for name in same] == [often[name] for name in same]


def test_of_a_gradient_of_zero_only_the_entries_are_told() -> None:
    found = statistics(Samples(GAP, 0 * EXACT, 0 * HONEST, (2, 2), STEP, TINY))
    assert [(one.name, one.value, one.where) for one in found] == [("worst entry", 0.4, 3)]
    assert found[0].allowed == 16 * TINY
    none = np.zeros((1, 0))
    assert statistics(Samples(none, none, np.zeros((2, 1, 0)), (0,), STEP, TINY)) == []


@pytest.mark.parametrize(
    ("shape", "size", "parts"),
    [
        ((), 1, []),
        ((1,), 1, []),
        ((2,), 2, [("block slope", 1, 0)]),
        ((9,), 9, [("block slope", 2, 0)]),
        ((1, 9), 9, [("block slope", 2, 0)]),
        ((2, 3), 6, [("row slope", 3, 0), ("column slope", 1, 3)]),
        ((64, 2), 128, [("row slope", 2, 0), ("column slope", 1, 2)]),
        ((65, 2), 130, [("row slope", 4, 0), ("column slope", 1, 2)]),
        ((2, 130), 260, [("row slope", 130, 0), ("column slope", 3, 130)]),
        ((2, 3, 4), 24, [("row slope", 4, 0), ("column slope", 1, 4)]),
        ((2, 3), 12, [("row slope", 6, 0), ("column slope", 1, 6)]),  # of two coordinates each
        ((3, 1), 6, [("row slope", 2, 0), ("column slope", 1, 2)]),
    ],
)
def test_an_array_has_at_most_64_rows_and_columns_and_a_vector_eight_blocks(
    shape, size, parts
) -> None:
    found = module.partitions(shape, size)
    assert [(one.name, one.length, one.width) for one in found] == parts
    for one in found:
        assert float(one.sums(np.ones(size)).sum()) == size
        assert len(one.sums(np.ones(size))) <= 64


def test_the_sums_over_parts_keep_the_order_of_the_array() -> None:
    values = np.arange(6.0)
    rows, columns = module.partitions((2, 3), 6)
    assert rows.sums(values).tolist() == [3.0, 12.0]
    assert columns.sums(values).tolist() == [3.0, 5.0, 7.0]
    (blocks,) = module.partitions((10,), 10)
    assert blocks.sums(np.arange(10.0)).tolist() == [1.0, 5.0, 9.0, 13.0, 17.0]
    assert module.Partition("", 4).sums(np.arange(10.0)).tolist() == [6.0, 22.0, 17.0]


def test_an_entry_that_honest_runs_miss_by_a_twentieth_is_left_aside() -> None:
    runs = np.array([[0.049, 0.051, 0.0, 5.0]]) * EXACT
    samples = Samples(GAP, EXACT, np.stack([runs, -runs]), (4,), STEP, TINY)
    kept, aside = well_conditioned(samples)
    assert aside == 2
    for values in (kept.gap, kept.exact, kept.honest[0], kept.honest[1]):
        assert values[0, [1, 3]].tolist() == [0.0, 0.0]
    assert kept.gap[0, [0, 2]].tolist() == [0.1, 0.2]
    assert kept.honest[0, 0, 0] == runs[0, 0]
    assert well_conditioned(replace(samples, honest=samples.honest[:0]))[1] == 0


@pytest.mark.parametrize(("value", "ok"), [(0.5, True), (math.nextafter(0.5, 1), False)])
def test_a_statistic_as_large_as_allowed_is_accepted(value: float, ok: bool) -> None:
    one = Measured("slope", value, 0.5)
    assert one.ok is ok
    assert not Measured("slope", math.nan, 0.5).ok
    assert refuted([one]) == ([] if ok else [one])


def test_the_part_that_is_off_most_is_so_in_what_is_allowed_for_it() -> None:
    """The second row is off by more, and honest runs miss it by more."""
    exact = np.ones((1, 4))
    runs = np.stack([np.array([[0.0, 0.0, 0.5, 0.5]])] * 2)
    gap = np.array([[2.0, 2.0, 2.2, 2.2]])
    found = known(exact=exact, gap=gap, honest=runs)["row slope"]
    assert (found.where, found.value) == (0, pytest.approx(2.0))
    missing = known(exact=exact, gap=gap * np.array([[1.0, 1.0, math.nan, 1.0]]), honest=runs)
    assert missing["row slope"].where == 2
